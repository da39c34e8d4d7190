// What the pages of a node and of a GPU are made of.
import type { Mark } from '../base/health';
import { verdictMark } from '../base/health';
import { clean, count, duration, gpuTime, utc, when } from '../base/format';
import { incidentMark } from '../base/incident';
import { gpuName, newestKnown, oddAt, type Lane, type NodeDetail, type NodeEvent, type NodeGpu, type NodeSeries } from '../base/node';
import { incidentPlace, jobPlace, logsPlace } from '../base/url';
import { PlaceLink } from '../widgets/frame';
import { say } from '../widgets/lanes';
import { MarkView } from '../widgets/mark';
import { GpuLink } from '../widgets/place_links';
import { Table } from '../widgets/table';

export function nodeMark({ state, verdicts }: { state: string; verdicts: number }): Mark {
  if (verdicts > 0) return { glyph: '▲', word: 'named', tone: 'alarm' };
  if (state === 'silent') return { glyph: '◌', word: 'silent', tone: 'quiet' };
  return state === 'ok' ? { glyph: '●', word: 'heard', tone: 'quiet' } : { glyph: '◌', word: 'unknown', tone: 'quiet' };
}

function gpuMark(state: string): Mark {
  if (state === 'lost') return { glyph: '■', word: 'lost', tone: 'alarm' };
  if (state === 'busy') return { glyph: '●', word: 'busy', tone: 'quiet' };
  return state === 'idle' ? { glyph: '○', word: 'idle', tone: 'quiet' } : { glyph: '◌', word: state || 'unknown', tone: 'quiet' };
}

const isOpen = (state: string): boolean => state !== 'cleared';
export const openVerdicts = (node: NodeDetail) => node.verdicts.filter(({ verdict }) => isOpen(verdict.state));

// The answer first: what is wrong here, or that nothing is.
export function Answer({ node, what }: { node: NodeDetail; what: string }) {
  const open = openVerdicts(node);
  const lost = node.gpus.filter((gpu) => gpu.state === 'lost');
  const worst = open[0];
  const silent = node.state === 'silent';
  const tone = worst ? verdictMark(worst.verdict).tone : lost.length > 0 ? 'alarm' : 'quiet';
  return (
    <section class={`card verdict tone-${tone}`} aria-label={`How ${what} does`}>
      {worst
        ? <>
            <p class="verdict-head"><MarkView mark={verdictMark(worst.verdict)} upper /><span>{worst.verdict.state}</span><span title={utc(worst.verdict.since_unix_ns)}>since {when(worst.verdict.since_unix_ns)}</span></p>
            <h2 class="sentence">{worst.verdict.sentence}</h2>
            <p><PlaceLink class="button" to={{ ...jobPlace(worst.job), rank: worst.verdict.culprit.ranks[0] ?? null }}>See it in {clean(worst.job)}</PlaceLink>
              {open.length > 1 && <span class="muted"> and {count(open.length - 1)} more open below</span>}</p>
          </>
        : <h2 class="sentence">{quiet(node, lost, what)}</h2>}
      {worst && silent && <p>Nothing was heard of it since {when(node.lastSeenNs, true)}.</p>}
    </section>
  );
}

function quiet(node: NodeDetail, lost: NodeGpu[], what: string): string {
  if (lost.length > 0) return `${lost.map(gpuName).join(', ')} of ${clean(node.host)} ${lost.length === 1 ? 'is' : 'are'} lost: the driver no longer answers for ${lost.length === 1 ? 'it' : 'them'}.`;
  if (node.state === 'silent') return `Cannot tell: nothing was heard of ${clean(node.host)} since ${when(node.lastSeenNs, true)}.`;
  const week = node.days === 7 ? 'this week' : `in ${count(node.days)} days`;
  const past = node.verdictsTotal > 0 ? `${count(node.verdictsTotal)} ${node.verdictsTotal === 1 ? 'verdict' : 'verdicts'} ${week}, none open` : `no verdict ${week}`;
  return `Nothing is open on ${what}: ${past}.`;
}

export function Gpus({ node }: { node: NodeDetail }) {
  const ranks = new Map(node.ranks.map((rank) => [`${rank.job}\n${rank.rank}`, rank]));
  const idle = node.gpus.filter((gpu) => gpu.state === 'idle').length;
  const nobody = node.gpus.length === 0;
  return (
    <section class="card" aria-label="Who runs here">
      <div class="chart-head"><h2>Who runs here now?</h2>
        <span class="muted">{nobody ? '' : `${count(node.gpus.length)} ${node.gpus.length === 1 ? 'GPU' : 'GPUs'}, ${count(idle)} idle`}</span></div>
      {nobody && <p>No GPU is known here{node.hasAgent ? ': the agent reads none (lockstep doctor on the node says why)' : ': no agent was heard of'}.</p>}
      {!nobody && (
        <Table caption="GPUs and who runs on them" what="GPUs" sorted="by number" rows={node.gpus} total={node.gpus.length} rowKey={(gpu) => gpu.uuid} marked={(gpu) => gpu.state === 'lost'} columns={[
          { head: 'GPU', cell: (gpu) => <GpuLink uuid={gpu.uuid} label={gpuName(gpu)} /> },
          { head: 'state', cell: (gpu) => <MarkView mark={gpuMark(gpu.state)} /> },
          { head: 'job and rank', cell: (gpu) => gpu.holders.length === 0 ? <span class="muted">nobody</span> : gpu.holders.map((holder, at) => (
            <div key={at}>{holder.job
              ? <PlaceLink to={{ ...jobPlace(holder.job), rank: holder.rank }}>{clean(holder.job)}{holder.rank !== null && `, rank ${count(holder.rank)}`}</PlaceLink>
              : <span class="muted">no job</span>}</div>)) },
          { head: 'user', cell: (gpu) => [...new Set(gpu.holders.map((holder) => holder.user).filter(Boolean))].join(', ') || '–' },
          { head: 'step', numeric: true, cell: (gpu) => gpu.holders.map((holder, at) => <div key={at}>{count(ranks.get(`${holder.job}\n${holder.rank}`)?.lastStep)}</div>) },
          { head: 'rank is', cell: (gpu) => gpu.holders.map((holder, at) => <div key={at}>{ranks.get(`${holder.job}\n${holder.rank}`)?.status ?? '–'}</div>) },
          { head: 'model', cell: (gpu) => gpu.model || '–' },
          { head: 'UUID', cell: (gpu) => <code>{clean(gpu.uuid)}</code> },
        ]} />
      )}
    </section>
  );
}

export function Verdicts({ node }: { node: NodeDetail }) {
  if (node.verdicts.length === 0) return null;
  return (
    <section class="card" aria-label="Verdicts here">
      <div class="chart-head"><h2>What was it found guilty of?</h2><span class="muted">last {count(node.days)} days</span></div>
      <Table caption="Verdicts that name it" what="verdicts" sorted="open first, newest first" rows={node.verdicts} total={node.verdictsTotal} rowKey={({ verdict }) => verdict.id}
             marked={({ verdict }) => verdict.state === 'confirmed'} columns={[
               { head: 'state', cell: ({ verdict }) => <><MarkView mark={verdictMark(verdict)} /> <span class="muted">{verdict.state}</span></> },
               { head: 'since', cell: ({ verdict }) => <span title={utc(verdict.since_unix_ns)}>{when(verdict.since_unix_ns)}</span> },
               { head: 'what', wide: true, cell: ({ verdict, job }) => <PlaceLink to={{ ...jobPlace(job), rank: verdict.culprit.ranks[0] ?? null }}>{verdict.sentence}</PlaceLink> },
               { head: 'cost', cell: ({ verdict }) => gpuTime(verdict.lost_gpu_seconds) || '–' },
             ]} />
    </section>
  );
}

export function Incidents({ node }: { node: NodeDetail }) {
  if (node.incidents.length === 0) return null;
  return (
    <section class="card" aria-label="Incidents">
      <div class="chart-head"><h2>Which incidents were here?</h2><span class="muted">last {count(node.days)} days</span></div>
      <Table caption="Incidents here" what="incidents" sorted="not resolved first" rows={node.incidents} total={node.incidentsTotal} rowKey={(row) => row.id} marked={(row) => row.state === 'open' && row.active} columns={[
        { head: 'state', cell: (row) => <MarkView mark={incidentMark(row)} /> },
        { head: 'since', cell: (row) => <span title={utc(row.beginNs)}>{when(row.beginNs)}</span> },
        { head: 'what', wide: true, cell: (row) => <PlaceLink to={incidentPlace(row.id)}>{row.sentence || row.component}</PlaceLink> },
        { head: 'where', cell: (row) => row.component },
      ]} />
    </section>
  );
}

export function Events({ node }: { node: NodeDetail }) {
  const numbers = new Map(node.gpus.map((gpu) => [gpu.uuid, gpuName(gpu)]));
  const about = (event: NodeEvent) => (event.uuid ? <GpuLink uuid={event.uuid} label={numbers.get(event.uuid) ?? ''} /> : event.device || '–');
  return (
    <section class="card" aria-label="What the hardware said">
      <div class="chart-head"><h2>What did the hardware say?</h2><span class="muted">last {count(node.days)} days, as far as the server still holds it</span> <PlaceLink to={logsPlace({ host: node.host })}>all its logs</PlaceLink></div>
      {node.events.length === 0 ? <p class="muted">No event: no XID, no link that went down, no process killed.</p> : (
        <Table caption="Hardware events" what="events" sorted="newest first" rows={node.events} total={node.eventsTotal} rowKey={(row) => `${row.atNs}/${row.event}/${row.uuid}/${row.device}/${row.text}`}
               marked={(row) => row.severity === 'critical'} columns={[
                 { head: 'when', cell: (row) => <span title={utc(row.atNs)}>{when(row.atNs, true)}</span> },
                 { head: 'severity', cell: (row) => row.severity || '–' },
                 { head: 'event', cell: (row) => <>{row.event}{row.code !== null && ` ${row.code}`}{row.count > 1 && <span class="muted"> {count(row.count)} times</span>}</> },
                 { head: 'about', cell: about },
                 { head: 'what it means', wide: true, cell: (row) => <>{row.meaning || row.text || '–'}{row.action && <span class="muted"> {row.action}</span>}</> },
                 { head: 'job', cell: (row) => (row.job ? <PlaceLink to={{ ...jobPlace(row.job), rank: row.rank }}>{clean(row.job)}{row.rank !== null && `, rank ${count(row.rank)}`}</PlaceLink> : '–') },
               ]} />
      )}
    </section>
  );
}

// The table twin of the lanes: where each line is now and where it went.
export function SeriesTable({ series }: { series: NodeSeries }) {
  const rows = series.lanes.flatMap((lane) => lane.lines.map((line) => ({ lane, line, known: line.values.filter((value): value is number => value !== null) })));
  return (
    <Table caption="The same numbers" what="lines" sorted="in the order of the picture" rows={rows} total={rows.length} rowKey={({ lane, line }) => `${lane.key}/${lane.job}/${line.label}/${line.id}`} columns={[
      { head: 'what', cell: ({ lane }) => lane.title },
      { head: 'of', cell: ({ line }) => line.label },
      { head: 'job', cell: ({ lane }) => clean(lane.job) || '–' },
      { head: 'newest', numeric: true, cell: ({ lane, line }) => say(line.values[newestKnown(lane, series.points)] ?? null, lane.unit) },
      { head: 'least', numeric: true, cell: ({ lane, known }) => (known.length ? say(Math.min(...known), lane.unit) : '–') },
      { head: 'most', numeric: true, cell: ({ lane, known }) => (known.length ? say(Math.max(...known), lane.unit) : '–') },
      { head: 'known', numeric: true, cell: ({ known }) => `${count(known.length)} of ${count(series.points)}` },
    ]} />
  );
}

// One sentence for the picture: which GPU differs most from those that do the same, and in what. Idle ones are no measure for busy ones.
export function oddest(node: NodeDetail, series: NodeSeries): string {
  const busy = new Set(node.gpus.filter((gpu) => gpu.state === 'busy').map((gpu) => gpu.uuid));
  const found: { label: string; share: number; text: string }[] = [];
  for (const lane of series.lanes) {
    if (lane.job) continue;
    const alike: Lane = { ...lane, lines: lane.lines.filter((line) => busy.has(line.id)) };
    const odd = alike.lines.length < 3 ? null : oddAt(alike, newestKnown(alike, series.points));
    if (!odd || odd.middle === 0) continue;
    const share = Math.abs(odd.value - odd.middle) / Math.abs(odd.middle);
    if (share > kOddShare) found.push({ label: odd.line.label, share, text: `${lane.title} ${say(odd.value, lane.unit)} (the others ${say(odd.middle, lane.unit)})` });
  }
  const worst = found.reduce<typeof found[number] | null>((best, one) => (best && best.share >= one.share ? best : one), null);
  return worst ? `${worst.label} differs: ${found.filter((one) => one.label === worst.label).map((one) => one.text).join(', ')}.` : '';
}
const kOddShare = 0.1;

export const spanText = (seconds: number): string => duration(seconds * 1e3);
