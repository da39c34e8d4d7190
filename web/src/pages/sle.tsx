// SLEs: how many minutes of GPUs were good, the most degraded GPU time first; one of them opened shows what its degraded minutes are
// charged to, over time, and who was hurt. Everything below the classifiers follows the one that is chosen.
import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { api, paths } from '../base/api';
import { clean, clock, count, percent, utc } from '../base/format';
import { usePoll } from '../base/poll';
import { copy, curl, sleCommand } from '../base/share';
import { gpuMinutes, successText, type Affected, type AffectedList, type Bucket, type Part, type Sle, type SleDetail, type SleHead, type SleList } from '../base/sle';
import { go, jobPlace, kSleHoursChoices, type SlePlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { Menu } from '../widgets/menu';
import { Table } from '../widgets/table';

const kColours = 6;  // of job.css
const kClassifiers = ['gpu', 'host', 'input', 'reported', 'restart', 'nic', 'link', 'switch', 'nvlink', 'software', 'workload', 'hang', 'telemetry', 'queue', 'prefill'];
const kEveryMs = 15_000;  // a minute is judged once

export function SlePage({ place }: { place: SlePlace }) {
  const told = useSignal<SleList | null>(null);
  const detail = useSignal<SleDetail | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([paths.sle(place)], async (signal) => {
    const [list, one] = await Promise.all([api.sles(place, signal), place.sle ? api.sle(place, signal) : null]);
    told.value = list;
    detail.value = one;
  }, (message) => { refused.value = message; }, () => kEveryMs);
  document.title = 'SLEs · Lockstep';
  const known = told.value;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'SLEs', to: { ...place, sle: '', classifier: '', sub: '' } }]}
           state={<Scope place={place} />}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2></section>}
      {!known && !refused.value && <Loading what="the SLE ledger" />}
      {known && !refused.value && (
        <>
          <section class="card verdict tone-quiet" aria-label="How good it was">
            <p class="verdict-head"><span>{clean(known.scope)}</span><span>minutes of GPUs, last {hoursText(place.hours)}</span></p>
            <h2 class="sentence">{sentence(known)}</h2>
          </section>
          <Rows place={place} known={known} />
          {place.sle && detail.value?.sle.name === place.sle && <Detail place={place} detail={detail.value} />}
        </>
      )}
    </Frame>
  );
}

function Scope({ place }: { place: SlePlace }) {
  return (
    <>
      {place.job && <span>job <PlaceLink to={jobPlace(place.job)}>{clean(place.job)}</PlaceLink> <PlaceLink to={{ ...place, job: '' }}>all jobs</PlaceLink></span>}
      {place.host && <span>host {clean(place.host)} <PlaceLink to={{ ...place, host: '' }}>all hosts</PlaceLink></span>}
      <label>last <select value={place.hours} onChange={(event) => go({ ...place, hours: Number(event.currentTarget.value) })}>
        {kSleHoursChoices.map((hours) => <option key={hours} value={hours}>{hoursText(hours)}</option>)}
      </select></label>
    </>
  );
}

function Rows({ place, known }: { place: SlePlace; known: SleList }) {
  const measured = known.sles.filter((sle) => sle.measured);
  const others = known.sles.filter((sle) => !sle.measured);
  return (
    <section class="card" aria-label="All SLEs">
      <div class="chart-head">
        <h2>Which minutes were good?</h2>
        <Menu label="Take this with you" items={[{ label: 'Copy as curl', run: () => copy(curl(paths.sles(place))) }]} />
      </div>
      {measured.length === 0 && <p class="muted">No minute of a job is judged yet. A minute is, 15 seconds after its end.</p>}
      {measured.length > 0 && (
        <Table caption="SLEs" what="SLEs" sorted="most degraded GPU time first" rows={measured} total={measured.length} rowKey={(row) => row.name}
               chosen={(row) => row.name === place.sle} columns={[
                 { head: 'SLE', cell: (row) => <PlaceLink to={{ ...place, sle: row.name, classifier: '', sub: '' }}>{row.title}</PlaceLink> },
                 { head: 'good', numeric: true, cell: (row) => <b>{successText(row)}</b> },
                 { head: 'degraded', numeric: true, cell: (row) => (row.minutes.degraded > 0 ? gpuMinutes(row.minutes.degraded) : '–') },
                 { head: 'cost', numeric: true, cell: (row) => <span title={row.money}>{row.chosenMoney !== null ? count(Math.round(row.chosenMoney)) : row.money ? 'no price' : '–'}</span> },
                 { head: 'measured', numeric: true, cell: (row) => percent(row.coverage) },
                 { head: 'over time', cell: (row) => <Timeline head={known} trend={row.trend} height={24} label={`${row.title} over time`} /> },
                 { head: 'charged to', cell: (row) => <Charged sle={row} place={place} /> },
               ]} />
      )}
      {others.length > 0 && <p class="muted">Not measured here: {others.map((sle) => `${sle.title.toLowerCase()} (needs ${sle.measuredFrom})`).join(', ')}.</p>}
    </section>
  );
}

function Charged({ sle, place }: { sle: Sle; place: SlePlace }) {
  const shown = sle.classifiers.slice(0, 3);
  return (
    <>
      <ShareBar parts={sle.classifiers} />
      {shown.map((part, index) => (
        <span key={part.name}>{index > 0 && ' · '}
          <PlaceLink to={{ ...place, sle: sle.name, classifier: part.name, sub: '' }}>{part.name}</PlaceLink> {percent(part.share)}
        </span>
      ))}
      {sle.classifiers.length > shown.length && <span class="muted"> · {count(sle.classifiers.length - shown.length)} more</span>}
    </>
  );
}

function ShareBar({ parts }: { parts: Part[] }) {
  if (parts.length === 0) return <span class="muted">nothing</span>;
  return (
    <div class="share-bar" aria-hidden="true">
      {parts.map((part) => (
        <span key={part.name} class={colour(part)} style={{ flexGrow: part.minutes }} title={`${part.name}: ${gpuMinutes(part.minutes)}`} />
      ))}
    </div>
  );
}

function Detail({ place, detail }: { place: SlePlace; detail: SleDetail }) {
  const { sle } = detail;
  const chosen = place.classifier ? `charged to ${place.classifier}${place.sub ? `, ${subText(place.sub)}` : ''}` : 'degraded';
  return (
    <section class="card sle-detail" aria-label={sle.title}>
      <div class="chart-head">
        <h2>{sle.title}: {successText(sle)} good</h2>
        <Menu label={`Menu of ${sle.title}`} items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.sle(place))) },
          { label: 'Copy as CLI', run: () => copy(sleCommand(place)) },
        ]} />
      </div>
      <p class="muted">Good when {sle.goodWhen}.{limitText(sle)}</p>
      {sle.minutes.idle > 0 && <p>{gpuMinutes(sle.minutes.idle)} idle by plan, and no part of the rest.</p>}
      {!sle.measured && <p>Not measured here: it needs {sle.measuredFrom}.</p>}
      {sle.minutes.degraded > 0 && <Statistics place={place} sle={sle} />}
      <h3>When was it {chosen}?</h3>
      <Timeline head={detail} trend={sle.trend} height={72} label={`${sle.title} over time`} only={place.classifier !== ''} />
      <p class="muted times"><span title={utc(detail.fromS * 1e9)}>{clock(detail.fromS * 1e9)}</span><span title={utc(detail.toS * 1e9)}>{clock(detail.toS * 1e9)}</span></p>
      <h3>Who is charged?</h3>
      <List caption="Culprits" what="culprits" list={detail.culprits} first={{ head: 'culprit', cell: culpritCell }} />
      <h3>Who was hurt?</h3>
      <List caption="Jobs" what="jobs" list={detail.jobs} first={{ head: 'job', cell: (row) => <PlaceLink to={jobPlace(row.name)}>{clean(row.name)}</PlaceLink> }} />
      <List caption="Hosts" what="hosts" list={detail.hosts} first={{ head: 'host', cell: (row) => <PlaceLink to={{ ...place, host: row.name }}>{clean(row.name) || '–'}</PlaceLink> }} />
      <List caption="GPUs" what="GPUs" list={detail.gpus} first={{ head: 'GPU', cell: (row) => <PlaceLink to={{ ...jobPlace(row.job), rank: row.rank }}>{`rank ${row.rank ?? '?'} of ${clean(row.job)}`} <span class="muted">{clean(row.host)} {clean(row.name)}</span></PlaceLink> }} />
      {detail.models.rows.length > 1 && <List caption="GPU models" what="models" list={detail.models} first={{ head: 'model', cell: (row) => clean(row.name) || 'not known' }} />}
    </section>
  );
}

function Statistics({ place, sle }: { place: SlePlace; sle: Sle }) {
  return (
    <>
      <h3>What are {gpuMinutes(sle.minutes.degraded)} charged to?</h3>
      <table class="sle-parts">
        <caption class="offscreen">Classifiers; they add up to all degraded minutes</caption>
        <tbody>
          {sle.classifiers.flatMap((part) => [
            <tr key={part.name} class={place.classifier === part.name && !place.sub ? 'chosen' : undefined}>
              <th scope="row"><PlaceLink to={{ ...place, classifier: place.classifier === part.name && !place.sub ? '' : part.name, sub: '' }}>{part.name}</PlaceLink></th>
              <td class="number">{percent(part.share)}</td>
              <td class="number">{gpuMinutes(part.minutes)}</td>
              <td class="bar-cell"><div class={`sle-bar ${colour(part)}`} style={{ width: `${100 * part.share}%` }} /></td>
            </tr>,
            ...(part.subs.length === 1 && part.subs[0]!.name === '' ? [] : part.subs).map((sub) => (
              <tr key={`${part.name} ${sub.name}`} class={place.classifier === part.name && place.sub === (sub.name || '-') ? 'chosen' : undefined}>
                <th scope="row" class="sub"><PlaceLink to={{ ...place, classifier: part.name, sub: sub.name || '-' }}>{subText(sub.name || '-')}</PlaceLink></th>
                <td class="number muted">{percent(sub.minutes / sle.minutes.degraded)}</td>
                <td class="number muted">{gpuMinutes(sub.minutes)}</td>
                <td />
              </tr>
            )),
          ])}
          <tr class="total"><th scope="row">all degraded</th><td class="number">100 %</td><td class="number">{gpuMinutes(sle.minutes.degraded)}</td><td /></tr>
        </tbody>
      </table>
    </>
  );
}

// Each column is a stretch of time: degraded at the bottom, unknown hatched above it, good is the quiet rest.
function Timeline({ head, trend, height, label, only = false }: { head: SleHead; trend: Bucket[]; height: number; label: string; only?: boolean }) {
  return (
    <div class="sle-trend" style={{ height: `${height}px` }} role="img" aria-label={label}>
      {trend.map((bucket, index) => {
        const total = bucket.good + bucket.degraded + bucket.unknown;
        const at = (head.fromS + index * head.bucketMinutes * 60) * 1e9;
        const bad = only ? bucket.chosen : bucket.degraded;
        const title = total === 0 ? `${clock(at)}: no job` : `${clock(at)}: ${gpuMinutes(bad)} degraded, ${gpuMinutes(bucket.unknown)} unknown of ${gpuMinutes(total)}`;
        return (
          <span key={index} class={total === 0 ? 'none' : undefined} title={title}>
            {total > 0 && bucket.unknown > 0 && <i class="hatched" style={{ height: `${100 * bucket.unknown / total}%` }} />}
            {total > 0 && bad > 0 && <i class="bad" style={{ height: `${Math.max(4, 100 * bad / total)}%` }} />}
          </span>
        );
      })}
    </div>
  );
}

function List({ caption, what, list, first }: { caption: string; what: string; list: AffectedList; first: { head: string; cell: (row: Affected) => ComponentChildren } }) {
  if (list.rows.length === 0) return null;
  const shares = list.rows.some((row) => row.total !== null);
  return (
    <Table caption={caption} what={what} sorted="most degraded first" rows={list.rows} total={list.total} pageRows={8}
           rowKey={(row) => `${row.name} ${row.job} ${row.rank ?? ''} ${row.verdict}`} columns={[
             first,
             { head: 'degraded', numeric: true, cell: (row) => gpuMinutes(row.degraded) },
             ...(shares ? [{ head: 'of its time', numeric: true, cell: (row: Affected) => (row.total ? percent(row.degraded / row.total) : '–') }] : []),
           ]} />
  );
}

function culpritCell(row: Affected) {
  const name = clean(row.name) || (row.classifier === 'unexplained' ? 'nobody: unexplained' : row.classifier);
  return (
    <>
      {row.job ? <PlaceLink to={jobPlace(row.job)}>{name}</PlaceLink> : name}
      <span class="muted"> {[row.kind === 'nobody' ? '' : row.kind, row.host && row.host !== row.name ? clean(row.host) : '', row.classifier, row.sub && subText(row.sub)].filter(Boolean).join(', ')}</span>
    </>
  );
}

function subText(sub: string): string {
  return sub === '-' ? 'cause not known' : sub;
}

function limitText({ threshold }: Sle): string {
  if (!threshold) return '';
  return ` Threshold: ${threshold.direction === 'below' ? 'at most' : 'at least'} ${threshold.value}${threshold.against === 'baseline' ? ' × its own baseline' : ''} (${threshold.unit}).`;
}

function sentence(known: SleList): string {
  const progress = known.sles.find((sle) => sle.name === 'progress');
  if (!progress?.measured) return 'No minute of a job is judged in this time.';
  const worst = known.sles.find((sle) => sle.measured);
  const begin = `Training progress was good for ${successText(progress)} of the time`;
  if (!worst || worst.minutes.degraded === 0) return `${begin}; nothing was degraded.`;
  const [first] = worst.classifiers;
  return `${begin}. Most degraded: ${worst.title.toLowerCase()}, ${gpuMinutes(worst.minutes.degraded)}${first ? `, ${percent(first.share)} of it ${first.name === 'unexplained' ? 'unexplained' : `charged to ${first.name}`}` : ''}.`;
}

function hoursText(hours: number): string {
  return hours % 24 === 0 && hours > 24 ? `${hours / 24} days` : hours === 1 ? 'hour' : `${hours} hours`;
}

// A classifier has the same colour in every row.
function colour(part: Part): string {
  if (part.name === 'unexplained') return 'hatched';
  const index = kClassifiers.indexOf(part.name);
  return index < 0 ? 'part-other' : `cause-${index % kColours}`;
}
