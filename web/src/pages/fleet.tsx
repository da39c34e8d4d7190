// Every job, worst first, one row each.
import { useSignal } from '@preact/signals';
import { api, paths, Refused } from '../base/api';
import type { Job, JobList, WarningList } from '../base/decode';
import { clean, clock, count, duration, utc } from '../base/format';
import { healthMark, stateMark } from '../base/health';
import { usePoll } from '../base/poll';
import { serverUrl } from '../base/root';
import { copy, curl } from '../base/share';
import type { Trend } from '../base/trend';
import { fabricPlace, jobPlace, nodesPlace, servicePlace, slePlace } from '../base/url';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { Spark } from '../widgets/spark';
import { Warnings } from '../widgets/warnings';

const kSlowlyMs = 10_000;
const kServicesShown = 24;

export function Fleet() {
  const list = useSignal<JobList | null>(null);
  const refused = useSignal<string | null>(null);
  const services = useSignal<string[]>([]);
  const trends = useSignal<Map<string, Trend>>(new Map());
  const ahead = useSignal<WarningList>({ warnings: [], total: 0 });
  usePoll([], async (signal) => { list.value = await api.jobs(signal); }, (message) => { refused.value = message; });
  usePoll([], async (signal) => {
    services.value = await api.services(signal).catch((error: unknown) => {
      // A server that knows no services says so with a 404.
      if (error instanceof Refused) return [];
      throw error;
    });
    ahead.value = await api.warnings(signal).catch((error: unknown) => {
      if (error instanceof Refused) return { warnings: [], total: 0 };
      throw error;
    });
    trends.value = await api.trends(signal).catch((error: unknown) => {
      if (error instanceof Refused) return new Map<string, Trend>();
      throw error;
    });
  }, () => {}, () => kSlowlyMs);
  document.title = title(list.value);
  return (
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }]} state={<>{list.value && <Totals list={list.value} />}<PlaceLink to={nodesPlace()}>nodes</PlaceLink> <PlaceLink to={fabricPlace()}>fabric</PlaceLink> <PlaceLink to={slePlace()}>SLEs</PlaceLink> <PlaceLink to={{ page: 'incidents' }}>incidents</PlaceLink> <PlaceLink to={{ page: 'alerts', id: '' }}>alerts</PlaceLink> <PlaceLink to={{ page: 'cardinality' }}>series</PlaceLink></>}>
      {refused.value && <p class="card" role="alert">{refused.value}</p>}
      {!list.value ? <Loading what="the jobs" /> : list.value.jobs.length > 0 ? <Jobs list={list.value} trends={trends.value} /> : services.value.length === 0 ? <Empty /> : null}
      <Warnings warnings={ahead.value.warnings} total={ahead.value.total} />
      {services.value.length > 0 && <Services names={services.value} />}
    </Frame>
  );
}

function Totals({ list }: { list: JobList }) {
  const bad = list.jobs.filter((job) => healthMark(job.health).tone === 'alarm').length;
  return <span>{count(list.total)} {list.total === 1 ? 'job' : 'jobs'}{bad > 0 ? `, ${count(bad)} in need of a person` : ''}</span>;
}

function Jobs({ list, trends }: { list: JobList; trends: Map<string, Trend> }) {
  return (
    <section class="card flush">
      <div class="scroll" tabIndex={0} role="region" aria-label="Jobs, worst first">
        <table class="fleet">
          <caption class="offscreen">Jobs, worst first</caption>
          <thead>
            <tr>
              <th scope="col">health</th>
              <th scope="col">job</th>
              <th scope="col">state</th>
              <th scope="col" class="number">ranks</th>
              <th scope="col" class="number">step</th>
              <th scope="col" class="number">ms/step</th>
              <th scope="col">what we know</th>
            </tr>
          </thead>
          <tbody>{list.jobs.map((job) => <Row key={job.job_id} job={job} trend={trends.get(job.job_id)} />)}</tbody>
        </table>
      </div>
      <div class="pager">
        <span class="muted">
          {count(list.jobs.length)} of {count(list.total)} {list.total === 1 ? 'job' : 'jobs'}, worst first
        </span>
        <Menu label="Take this list with you" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.jobs())) },
          { label: 'Copy as CLI', run: () => copy(`lockstep jobs --server ${serverUrl()}`) },
        ]} />
      </div>
    </section>
  );
}

function Row({ job, trend }: { job: Job; trend: Trend | undefined }) {
  const heard = job.ranks_reporting;
  const short = heard !== null && job.world_size !== null && heard < job.world_size && job.state !== 'ended';
  return (
    <tr class={`health-${job.health}`}>
      <td><MarkView mark={healthMark(job.health)} /></td>
      <th scope="row"><PlaceLink to={jobPlace(job.job_id)}>{clean(job.job_id) || '(no name)'}</PlaceLink></th>
      <td title={`last heard ${utc(job.last_seen_unix_ns)}`}>
        <MarkView mark={stateMark(job)} />
        {job.state !== 'running' && job.last_seen_unix_ns !== null && <span class="muted"> {clock(job.last_seen_unix_ns)}</span>}
      </td>
      <td class="number">{short ? `${count(heard)} of ${count(job.world_size)}` : count(job.world_size)}</td>
      <td class="number">{count(job.last_step)}</td>
      <td class="number trend"><Spark trend={trend} />{duration(job.step_ms)}</td>
      <td class="sentence-cell">{job.sentence}</td>
    </tr>
  );
}

function Services({ names }: { names: string[] }) {
  return (
    <section class="card" aria-label="Services">
      <h2>Services</h2>
      <ul class="services">
        {names.slice(0, kServicesShown).map((name) => <li key={name}><PlaceLink to={servicePlace(name)}>{clean(name)}</PlaceLink></li>)}
      </ul>
      <p class="muted">
        {count(Math.min(kServicesShown, names.length))} of {count(names.length)} {names.length === 1 ? 'service' : 'services'} that sent spans or metrics of an
        inference engine within 15 min, by name
      </p>
    </section>
  );
}

function Empty() {
  return (
    <section class="card empty">
      <h2>No jobs yet.</h2>
      <p>
        Start one with <code>NCCL_PROFILER_PLUGIN=lockstep</code> (below), or see <code>lockstep demo</code>.
      </p>
      <h3>How</h3>
      <ol>
        <li>On each GPU node, run the agent and tell it where this server takes OTLP: <code>lockstep-agent --data DIR --server URL</code></li>
        <li>Start the job with the plugin: <code>NCCL_PROFILER_PLUGIN=lockstep LOCKSTEP_JOB_ID=my-job torchrun …</code></li>
        <li>The job shows up here with its first collective. If it does not: <code>lockstep doctor</code></li>
      </ol>
    </section>
  );
}

function title(list: JobList | null): string {
  const bad = list?.jobs.filter((job) => healthMark(job.health).tone === 'alarm').length ?? 0;
  return bad > 0 ? `(${bad}) Fleet · Lockstep` : 'Fleet · Lockstep';
}
