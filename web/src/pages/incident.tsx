// One incident: what is broken and who takes care of it; whom it hits and what it costs; when what happened; the evidence.
import { useSignal } from '@preact/signals';
import { useState } from 'preact/hooks';
import { api, paths, Refused } from '../base/api';
import type { Verdict } from '../base/decode';
import { clean, count, gpuTime, percent, utc, when } from '../base/format';
import { incidentMark, type Brief, type Incident, type IncidentJob } from '../base/incident';
import { usePoll } from '../base/poll';
import { copy, curl, download, incidentCommand } from '../base/share';
import { go, incidentPlace, jobPlace, parsePlace, type IncidentPlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { GpuLink, HostLink } from '../widgets/place_links';
import { Table } from '../widgets/table';
import { VerdictCard } from '../widgets/verdict_card';

const kEveryMs = 3_000;

export function IncidentPage({ place }: { place: IncidentPlace }) {
  const told = useSignal<Incident | null>(null);
  const refused = useSignal<string | null>(null);
  usePoll([place.id], async (signal) => { told.value = await api.incident(place.id, signal); }, (message) => { refused.value = message; }, () => kEveryMs);
  const known = told.value;
  document.title = `${known ? known.component : 'Incident'} · Lockstep`;
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }, { label: 'Incidents', to: { page: 'incidents' } }, { label: clean(place.id), to: place }]}
           state={known && <span>{known.active ? '● still seen' : '○ no longer seen'}</span>}>
      {refused.value && <section class="card"><h2 class="sentence" role="alert">{refused.value}</h2><p class="muted">The page Incidents lists those that are known.</p></section>}
      {!known && !refused.value && <Loading what="the incident" />}
      {known && !refused.value && (
        <>
          <Answer incident={known} onChange={(changed) => { told.value = changed; }} />
          <div class="two">
            <Hit incident={known} />
            <Timeline incident={known} />
          </div>
          {known.verdicts.map(({ job, verdict }, index) => (
            <div key={verdict.id}>
              <p class="of-job">Evidence in <PlaceLink to={jobPlace(job)}>{clean(job)}</PlaceLink></p>
              <VerdictCard verdict={verdict} startOpen={index === 0} onRank={(rank) => go(evidence(job, rank, verdict))} />
            </div>
          ))}
          <Others title="When was it guilty before or since?" briefs={known.earlier} />
          <Others title="What else is on that host?" briefs={known.beside} />
        </>
      )}
    </Frame>
  );
}

// The job's page as the responder should see it.
function evidence(job: string, rank: number, verdict: Verdict) {
  const still = verdict.kind === 'hang' || verdict.kind === 'fail';
  return { ...jobPlace(job), rank, step: still ? null : verdict.through_step };
}

function pageOf(path: string) {
  const [where, search] = path.split('?', 2);
  return parsePlace(where ?? '/', search ?? '');
}

function Answer({ incident, onChange }: { incident: Incident; onChange: (changed: Incident) => void }) {
  const mark = incidentMark(incident);
  const facts = [
    incident.hurt.length > 1 ? `${count(incident.hurt.length)} jobs` : '',
    incident.cost || (incident.hurt.length > 0 ? '' : 'no job is slowed by it'),
    incident.repeat,
  ].filter(Boolean);
  return (
    <section class={`card verdict tone-${mark.tone}`} aria-label="The incident">
      <div class="chart-head">
        <p class="verdict-head">
          <MarkView mark={mark} upper />
          <span>{incident.severity}</span>
          <span>{incident.component}</span>
          {incident.host && <span>on <HostLink host={incident.host} /></span>}
          {incident.gpu && <GpuLink uuid={incident.gpu} label="its GPU" />}
          <span title={utc(incident.beginNs)}>since {when(incident.beginNs)}</span>
          {incident.endNs !== null && <span title={utc(incident.endNs)}>last seen {when(incident.endNs)}</span>}
          {incident.by && <span>by {incident.by}</span>}
        </p>
        <Menu label="Take this with you" items={[
          { label: 'Copy the link', run: () => copy(location.href) },
          { label: 'Copy as Markdown', run: async () => copy(await api.incidentMarkdown(incident.id, new AbortController().signal)) },
          { label: 'Download as Markdown', run: async () => download(`${incident.id}.md`, await api.incidentMarkdown(incident.id, new AbortController().signal)) },
          { label: 'Copy as curl', run: () => copy(curl(paths.incident(incident.id))) },
          { label: 'Copy as command', run: () => copy(incidentCommand(incident.id)) },
        ]} />
      </div>
      <h2 class="sentence">{incident.sentence || 'The server gave an incident without a sentence.'}</h2>
      {facts.length > 0 && <p class="cost">{facts.map((fact) => <span key={fact}>{fact}</span>)}</p>}
      {incident.action && <p>Next: {incident.action}</p>}
      <Lifecycle incident={incident} onChange={onChange} />
    </section>
  );
}

function Lifecycle({ incident, onChange }: { incident: Incident; onChange: (changed: Incident) => void }) {
  const [note, setNote] = useState('');
  const [trouble, setTrouble] = useState('');
  const change = async (what: 'acknowledge' | 'resolve' | 'reopen'): Promise<void> => {
    try {
      onChange(await api.changeIncident(incident.id, what, note, new AbortController().signal));
      setNote('');
      setTrouble('');
    } catch (error) {
      setTrouble(`Not kept: ${error instanceof Refused ? error.message : 'the server does not answer.'}`);
    }
  };
  return (
    <div class="lifecycle" role="group" aria-label="Where you stand with it">
      {incident.state === 'open' && <button type="button" class="primary" onClick={() => void change('acknowledge')}>Acknowledge</button>}
      {incident.state !== 'resolved' && <button type="button" onClick={() => void change('resolve')}>Resolve</button>}
      {incident.state === 'resolved' && <button type="button" onClick={() => void change('reopen')}>Open again</button>}
      <input type="text" aria-label="A note with it" placeholder="a note with it" maxLength={200} value={note} onInput={(event) => setNote(event.currentTarget.value)} />
      {trouble && <span role="alert">{trouble}</span>}
    </div>
  );
}

function Hit({ incident }: { incident: Incident }) {
  const { radius, hurt } = incident;
  const idle = radius.jobs.filter((job) => !job.hasVerdict);
  return (
    <section class="card" aria-label="Whom it hits">
      <h2>Whom does it hit?</h2>
      <p>
        {radius.known
          ? `${some(radius.gpus, 'GPU')} on ${some(radius.hosts, 'host')} in ${some(radius.total, 'job')} depend on it.`
          : 'Who depends on it is not known: neither the topology nor a job’s ranks have this component.'}
        {radius.note && <span class="muted"> {radius.note}</span>}
      </p>
      {hurt.length > 0 && (
        <Table caption="Jobs that suffer" what="jobs" sorted="most costly first" rows={hurt} total={hurt.length} rowKey={(row) => row.job} marked={(row) => row.suffers}
               columns={[
                 { head: 'job', cell: (row) => <PlaceLink to={row.path ? pageOf(row.path) : jobPlace(row.job)}>{clean(row.job)}</PlaceLink> },
                 { head: 'now', cell: (row) => (row.suffers ? <b>{share(row)}</b> : <span class="muted">over</span>) },
                 { head: 'lost', cell: (row) => gpuTime(row.lostGpuSeconds) || '–' },
                 { head: 'its end', wide: true, cell: (row) => row.completion || '–' },
               ]} />
      )}
      {idle.length > 0 && (
        <p>
          Also on it, with no verdict:{' '}
          {idle.map((job, index) => (
            <span key={job.job}>
              {index > 0 && ', '}
              <PlaceLink to={jobPlace(job.job)}>{clean(job.job)}</PlaceLink> <span class="muted">({count(job.ranksHit)} of {count(job.ranks)} ranks)</span>
            </span>
          ))}
        </p>
      )}
    </section>
  );
}

function some(number: number | null, what: string): string {
  return `${count(number)} ${what}${number === 1 ? '' : 's'}`;
}

function share(job: IncidentJob): string {
  if (job.lostShare !== null && job.lostShare >= 1) return 'stands still';
  return job.lostShare ? `loses ${percent(job.lostShare)}` : 'suffers';
}

function Timeline({ incident }: { incident: Incident }) {
  return (
    <section class="card" aria-label="Timeline">
      <h2>When did what happen?</h2>
      <ol class="moments">
        {incident.timeline.map((one, index) => (
          <li key={index}>
            <time title={utc(one.atNs)}>{when(one.atNs, true)}</time>
            <span>
              <b>{one.what}</b>{one.who && ` by ${one.who}`}{one.text && ': '}
              {one.path ? <PlaceLink to={pageOf(one.path)}>{one.text}</PlaceLink> : one.text}
            </span>
          </li>
        ))}
      </ol>
      {incident.hasMore && <p class="muted">There was more of it than is kept.</p>}
    </section>
  );
}

function Others({ title, briefs }: { title: string; briefs: Brief[] }) {
  if (briefs.length === 0) return null;
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <ol class="moments">
        {briefs.map((one) => (
          <li key={one.id}>
            <time title={utc(one.beginNs)}>{when(one.beginNs)}</time>
            <span><PlaceLink to={incidentPlace(one.id)}>{one.sentence || one.id}</PlaceLink> <span class="muted">{one.state}</span></span>
          </li>
        ))}
      </ol>
    </section>
  );
}
