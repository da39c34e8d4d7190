// What jobs, ranks and nodes logged: a filter that the address holds, the newest first, and what comes while somebody looks.
import { useSignal, type Signal } from '@preact/signals';
import { api, paths } from '../base/api';
import { hash } from '../base/decode';
import { clean, clock, count, duration, utc, when } from '../base/format';
import { useKeys } from '../base/hooks';
import { firstOf, kKept, kSeverities, severityMark, withNewer, withOlder, type LogList, type LogRecord, type Severity } from '../base/logs';
import { usePoll } from '../base/poll';
import { copy, curl } from '../base/share';
import { go, jobPlace, kLogsLastChoices, logsPlace, nodePlace, type LogsPlace } from '../base/url';
import { Frame, PlaceLink, type Crumb } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { MomentField } from '../widgets/moment_field';
import { HostLink } from '../widgets/place_links';
import '../style/logs.css';

const kEveryMs = 2_000;
const kBehindMs = 100;  // more came than one answer holds

const spanText = (seconds: number): string => (seconds >= 172_800 ? `${count(seconds / 86_400)} days` : duration(seconds * 1e3));

interface Known extends LogList {
  asked: string;  // the filter that it answers
}

export function LogsPage({ place }: { place: LogsPlace }) {
  const known = useSignal<Known | null>(null);
  const refused = useSignal<string | null>(null);
  const isBehind = useSignal(false);
  const cursor = useSignal<string | null>(null);
  const opened = useSignal<ReadonlySet<string>>(new Set());
  const asked = JSON.stringify({ ...place, follow: true });
  const follows = place.follow && place.at === null;
  usePoll([asked, follows], async (signal) => {
    const told = (): Known | null => (known.peek()?.asked === asked ? known.peek() : null);
    const before = told();
    if (before && !follows) return;
    const page = await api.logs(paths.logs(place, Date.now(), before ? { after: before.after } : {}), signal);
    isBehind.value = before !== null && page.more;
    const now = told();  // with what Older brought meanwhile
    known.value = { asked, ...(before && now ? withNewer(now, page) : firstOf(page)) };
  }, (message) => { refused.value = message; }, () => (isBehind.peek() ? kBehindMs : kEveryMs));
  const move = (by: number): boolean => {
    const rows = known.value?.records ?? [];
    if (rows.length === 0) return false;
    const at = rows.findIndex((row) => row.key === cursor.value);
    cursor.value = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))]!.key;
    document.getElementById(rowId(cursor.value))?.focus();
    return true;
  };
  const toggle = (key: string): void => {
    const next = new Set(opened.value);
    if (!next.delete(key)) next.add(key);
    opened.value = next;
  };
  useKeys((key) => {
    if (key === 'Escape') go(upFrom(place));
    else if (key === 'f') go({ ...place, at: null, follow: !follows }, true);
    else if (key === '/') document.getElementById('logs-text')?.focus();
    else if (key === 'j' || key === 'ArrowDown') return move(1);
    else if (key === 'k' || key === 'ArrowUp') return move(-1);
    else return false;
    return true;
  });
  document.title = `Logs${place.job || place.host ? ` of ${clean(place.job || place.host)}` : ''} · Lockstep`;
  const now = known.value;  // of the filter before, until there is an answer
  return (
    <Frame crumbs={crumbs(place)} state={now && <State place={place} known={now} />}>
      <section class="card" aria-label="Log records">
        <div class="chart-head">
          <h2>What was logged?</h2>
          <button type="button" aria-pressed={follows} onClick={() => go({ ...place, at: null, follow: !follows }, true)}>Follow</button>
          <Menu label="Take this with you" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.logs(place, Date.now()))) }]} />
        </div>
        <Filter place={place} />
        {refused.value && <p class="sentence" role="alert">{refused.value}</p>}
        {!now && !refused.value && <Loading what="the logs" />}
        {now && !refused.value && now.asked === asked && now.records.length === 0 && <Nothing place={place} />}
        {now && !refused.value && now.records.length > 0 && <Rows {...{ place, known: now, cursor, opened, toggle }} />}
        {now && !refused.value && now.older !== 'none' && <Older place={place} known={known} asked={asked} />}
        {now && !now.whole && <p class="hint muted">Not all that is stored was looked through: narrow the time, or name a job or a host.</p>}
      </section>
      <p class="hint muted log-keys">/ text · j k move · Enter opens · f follows · Esc goes up</p>
    </Frame>
  );
}

const rowId = (key: string): string => `log-${key.length}-${hash(key)}`;

function upFrom(place: LogsPlace) {
  if (place.job) return { ...jobPlace(place.job), rank: place.rank };
  return place.host ? nodePlace(place.host) : { page: 'fleet' as const };
}

function crumbs(place: LogsPlace): Crumb[] {
  const all: Crumb[] = [{ label: 'Fleet', to: { page: 'fleet' } }];
  if (place.job) all.push({ label: clean(place.job), to: jobPlace(place.job) });
  else if (place.host) all.push({ label: clean(place.host), to: nodePlace(place.host) });
  return [...all, { label: 'Logs', to: place }];
}

function State({ place, known }: { place: LogsPlace; known: Known }) {
  const bad = known.records.filter((one) => one.severity === 'error' || one.severity === 'fatal').length;
  return (
    <>
      <span>{place.at === null && place.follow ? '● following' : '◌ standing still'}</span>
      <span><b>{count(known.records.length)}</b> shown{bad > 0 && <>, <b>{count(bad)}</b> {bad === 1 ? 'error' : 'errors'}</>}</span>
    </>
  );
}

function Filter({ place }: { place: LogsPlace }) {
  const change = (part: Partial<LogsPlace>): void => go({ ...place, ...part }, true);
  const rank = (typed: string): number | null => (/^\d{1,7}$/.test(typed.trim()) ? Number(typed) : null);
  const choices = [...new Set<number>([...kLogsLastChoices, place.last])].sort((a, b) => a - b);
  return (
    <div class="filters logs-filter" role="search">
      <label class="logs-text">text <input id="logs-text" type="search" value={place.text} maxLength={200} placeholder="in event, line or attributes" onInput={(event) => change({ text: event.currentTarget.value })} /></label>
      <label>job <input type="search" value={place.job} maxLength={200} size={16} onInput={(event) => change({ job: event.currentTarget.value })} /></label>
      <label>rank <input type="search" inputMode="numeric" value={place.rank === null ? '' : String(place.rank)} maxLength={7} size={6} onInput={(event) => change({ rank: rank(event.currentTarget.value) })} /></label>
      <label>host <input type="search" value={place.host} maxLength={200} size={16} onInput={(event) => change({ host: event.currentTarget.value })} /></label>
      <label>severity
        <select value={place.severity} onChange={(event) => change({ severity: event.currentTarget.value as Severity | '' })}>
          <option value="">any</option>
          {kSeverities.map((one) => <option key={one} value={one}>{one === 'fatal' ? one : `${one} or worse`}</option>)}
        </select>
      </label>
      <label>last
        <select value={String(place.last)} onChange={(event) => change({ last: Number(event.currentTarget.value) })}>
          {choices.map((seconds) => <option key={seconds} value={String(seconds)}>{spanText(seconds)}</option>)}
        </select>
      </label>
      <MomentField at={place.at} onAt={(at) => go({ ...place, at })} />
    </div>
  );
}

function Rows({ place, known, cursor, opened, toggle }: { place: LogsPlace; known: Known; cursor: Signal<string | null>; opened: Signal<ReadonlySet<string>>; toggle: (key: string) => void }) {
  return (
    <>
      <ol class="log" aria-label="Newest first">
        {known.records.map((row) => <Row key={row.key} {...{ place, row, isOpen: opened.value.has(row.key), toggle }} onFocus={() => { cursor.value = row.key; }} />)}
      </ol>
      {known.older !== 'none' && known.records.length >= kKept && <p class="hint muted">The newest {count(known.records.length)} are shown.</p>}
    </>
  );
}

function Row({ place, row, isOpen, toggle, onFocus }: { place: LogsPlace; row: LogRecord; isOpen: boolean; toggle: (key: string) => void; onFocus: () => void }) {
  return (
    <li class={`log-row${row.severity === 'error' || row.severity === 'fatal' ? ' bad' : ''}`}>
      <button type="button" class="log-line" id={rowId(row.key)} aria-expanded={isOpen} onFocus={onFocus} onClick={() => toggle(row.key)}>
        <time title={utc(row.timeNs)}>{when(row.timeNs, true)}</time>
        <MarkView mark={severityMark(row.severity)} />
        <span class="log-who">{who(place, row)}</span>
        <span class="log-text">{row.event && <b>{row.event} </b>}{row.line}</span>
      </button>
      {isOpen && <Detail row={row} />}
    </li>
  );
}

// Who said it, without what the filter says already.
function who(place: LogsPlace, row: LogRecord): string {
  const parts = [place.job ? '' : clean(row.job), row.rank === null || place.rank !== null ? '' : `rank ${count(row.rank)}`, place.host ? '' : clean(row.host)].filter(Boolean);
  return parts.join(' · ') || row.service || clean(row.host) || '–';
}

function Detail({ row }: { row: LogRecord }) {
  return (
    <div class="log-detail">
      <p>
        <span class="muted">{utc(row.timeNs)}</span>
        {row.job && <> <PlaceLink to={{ ...jobPlace(row.job), rank: row.rank }}>{clean(row.job)}{row.rank !== null && `, rank ${count(row.rank)}`}</PlaceLink></>}
        {row.host && <> <HostLink host={row.host} /></>}
        {row.job && <> <PlaceLink to={{ ...logsPlace({ job: row.job, rank: row.rank }), last: 900, at: around(row) }}>around it</PlaceLink></>}
      </p>
      <dl>
        {[...row.attributes, ...row.resource].map(([name, value], at) => <div key={at}><dt>{name}</dt><dd>{value}</dd></div>)}
      </dl>
    </div>
  );
}

// Some time behind it, so that what followed is seen too.
const around = (row: LogRecord): number => Math.round(row.timeNs + 60e9);

function Older({ place, known, asked }: { place: LogsPlace; known: Signal<Known | null>; asked: string }) {
  const busy = useSignal(false);
  const failed = useSignal('');
  const ask = async (): Promise<void> => {
    const now = known.peek();
    const oldest = now?.records[now.records.length - 1];
    if (!now || !oldest || busy.peek()) return;
    busy.value = true;
    try {
      // Its time is known to 256 ns: those of that moment are asked for once more.
      const page = await api.logs(paths.logs(place, Date.now(), { to: String(BigInt(Math.ceil(oldest.timeNs)) + 256n) }), new AbortController().signal);
      const current = known.peek();
      if (current?.asked === asked) known.value = { asked, ...withOlder(current, page) };
      failed.value = '';
    } catch (error) {
      failed.value = error instanceof Error ? error.message : 'no answer';
    } finally {
      busy.value = false;
    }
  };
  const older = known.value?.older;
  if (older === 'full') return <p class="hint muted">That is as many as this page holds: choose a time to see what came before.</p>;
  if (older === 'sameTime') return <p class="hint muted">More records than one answer holds say the time of the last: narrow the filter to see what came before.</p>;
  return <p class="pager"><button type="button" disabled={busy.value} onClick={() => void ask()}>Older</button>{failed.value && <span role="status">{failed.value}</span>}</p>;
}

function Nothing({ place }: { place: LogsPlace }) {
  const of = [place.text && `“${clean(place.text)}”`, place.severity && `${place.severity} or worse`, place.job && `job ${clean(place.job)}`, place.rank !== null && `rank ${count(place.rank)}`,
    place.host && `host ${clean(place.host)}`].filter(Boolean).join(', ');
  const longer = kLogsLastChoices.find((seconds) => seconds > place.last);
  return (
    <div class="log-nothing">
      <p>Nothing was logged in {place.at === null ? 'the last' : 'the'} {spanText(place.last)}{place.at !== null && ` before ${clock(place.at, true)}`}{of && ` for ${of}`}.</p>
      {longer && <p><button type="button" onClick={() => go({ ...place, last: longer }, true)}>Look at {spanText(longer)}</button>{of && <> <button type="button" onClick={() => go({ ...logsPlace(), last: place.last, at: place.at }, true)}>Clear the filter</button></>}</p>}
      {!of && <p class="muted">Agents report what the hardware says by themselves; jobs send theirs by OTLP (<code>OTEL_EXPORTER_OTLP_ENDPOINT</code>).</p>}
    </div>
  );
}
