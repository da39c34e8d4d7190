// The fleet: a few numbers, then jobs, worst first, one row each; which of them are shown is in the address.
import { useSignal } from '@preact/signals';
import { api, paths, Refused } from '../base/api';
import type { Job, JobList, WarningList } from '../base/decode';
import { otlpAddress, type FleetNumbers, type Overhead } from '../base/fleet';
import { clean, clock, count, duration, gpuTime, utc } from '../base/format';
import { healthMark, stateMark } from '../base/health';
import { unlessRefused, usePoll } from '../base/poll';
import { serverUrl } from '../base/root';
import { copy, curl, shellWord } from '../base/share';
import type { Trend } from '../base/trend';
import { fabricPlace, filterQuery, go, jobPlace, logsPlace, nodesPlace, slePlace, type FleetFilter, type FleetPlace } from '../base/url';
import { kCauses } from '../base/verdict_terms';
import { CopyButton } from '../widgets/copy_button';
import { Frame, PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { Menu } from '../widgets/menu';
import { Spark } from '../widgets/spark';
import { Warnings } from '../widgets/warnings';
import { Services } from './services';

const kSlowlyMs = 10_000;
const kNumbersMs = 3_000;
const kOverheadMs = 300_000;
const kServicesShown = 24;

export function Fleet({ place }: { place: FleetPlace }) {
  const filter = place.filter ?? {};
  const numbers = useSignal<FleetNumbers | null>(null);
  const overhead = useSignal<Overhead | null>(null);
  const list = useSignal<JobList | null>(null);
  const refused = useSignal<string | null>(null);
  const services = useSignal<string[]>([]);
  const trends = useSignal<Map<string, Trend>>(new Map());
  const ahead = useSignal<WarningList>({ warnings: [], total: 0 });
  usePoll([filterQuery(filter)], async (signal) => { list.value = await api.jobs(filter, signal); }, (message) => { refused.value = message; });
  usePoll([], async (signal) => { numbers.value = await unlessRefused(api.fleet(signal)); }, () => {}, () => kNumbersMs);
  usePoll([], async (signal) => { overhead.value = await unlessRefused(api.overhead(signal)); }, () => {}, () => kOverheadMs);
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
    <Frame crumbs={[{ label: 'Fleet', to: { page: 'fleet' } }]} state={<>{list.value && <Totals list={list.value} />}<PlaceLink to={nodesPlace()}>nodes</PlaceLink> <PlaceLink to={fabricPlace()}>fabric</PlaceLink> <PlaceLink to={slePlace()}>SLEs</PlaceLink> <PlaceLink to={{ page: 'incidents' }}>incidents</PlaceLink> <PlaceLink to={{ page: 'alerts', id: '' }}>alerts</PlaceLink> <PlaceLink to={logsPlace()}>logs</PlaceLink> <PlaceLink to={{ page: 'cardinality' }}>series</PlaceLink></>}>
      {refused.value && <p class="card" role="alert">{refused.value}</p>}
      {!list.value ? <Loading what="the jobs" /> : list.value.known === 0
        ? services.value.length === 0 && <Empty numbers={numbers.value} />
        : <>
            <Numbers numbers={numbers.value} />
            <Jobs list={list.value} trends={trends.value} filter={filter} />
            <OwnCost overhead={overhead.value} />
          </>}
      <Warnings warnings={ahead.value.warnings} total={ahead.value.total} />
      {services.value.length > 0 && <Services names={services.value} shown={kServicesShown} />}
    </Frame>
  );
}

function Totals({ list }: { list: JobList }) {
  const bad = list.jobs.filter((job) => healthMark(job.health).tone === 'alarm').length;
  return <span>{count(list.total)} {list.total === 1 ? 'job' : 'jobs'}{bad > 0 ? `, ${count(bad)} in need of a person` : ''}</span>;
}

function Numbers({ numbers }: { numbers: FleetNumbers | null }) {
  const figures: [string, string, string][] = [
    ['jobs', count(numbers?.running), `running, of ${count(numbers?.jobs)} known`],
    ['GPUs', count(numbers?.gpus), `${count(numbers?.idle)} idle`],
    ['ranks', count(numbers?.ranks), `on ${count(numbers?.nodes)} nodes${numbers?.silent ? `, ${count(numbers.silent)} silent` : ''}`],
    ['open verdicts', count(numbers?.verdicts), numbers?.verdicts === 0 ? 'nothing is wrong' : ''],
    ['lost in 24 h', (numbers && (gpuTime(numbers.lostGpuSeconds) || (numbers.lostGpuSeconds === null ? '–' : '0 GPU-hours'))) ?? '–', numbers?.money || 'to what verdicts name'],
  ];
  return (
    <dl class="card figures" aria-label="The fleet in numbers">
      {figures.map(([name, value, more]) => <div key={name}><dt>{name}</dt><dd><b>{value}</b> <span class="muted">{more}</span></dd></div>)}
    </dl>
  );
}

function OwnCost({ overhead }: { overhead: Overhead | null }) {
  if (!overhead?.sentence) return null;
  return (
    <section class="card muted" aria-label="What Lockstep itself costs">
      Lockstep itself, in the last ten minutes: {overhead.sentence}
      {overhead.unknown.length > 0 && <details>
        <summary>{count(overhead.unknown.length)} {overhead.unknown.length === 1 ? 'thing' : 'things'} not known</summary>
        <ul>{overhead.unknown.map((one) => <li key={one}>{one}</li>)}</ul>
      </details>}
    </section>
  );
}

const kStates = ['running', 'ended', 'silent'] as const;
const kHealths: [string, string][] = [['hang', 'hung'], ['slow', 'slow'], ['suspected', 'suspected'], ['unknown', 'unknown'], ['ok', 'ok']];

function Filters({ filter }: { filter: FleetFilter }) {
  const set = (key: keyof FleetFilter, value: string): void => {
    const next = { ...filter, [key]: value };
    if (!value) delete next[key];
    go(Object.keys(next).length > 0 ? { page: 'fleet', filter: next } : { page: 'fleet' }, true);
  };
  const field = (key: 'job' | 'host' | 'user') => (
    <label key={key}>{key} <input type="search" size={12} maxLength={100} placeholder="any" value={filter[key] ?? ''} onInput={(event) => set(key, event.currentTarget.value)} /></label>
  );
  const choice = (key: 'health' | 'state' | 'cause', options: readonly (readonly [string, string])[]) => (
    <label key={key}>{key} <select value={filter[key] ?? ''} onChange={(event) => set(key, event.currentTarget.value)}>
      <option value="">any</option>
      {options.map(([value, word]) => <option key={value} value={value}>{word}</option>)}
    </select></label>
  );
  return (
    <div class="filters" role="search" aria-label="Which jobs">
      {field('job')}{field('host')}{field('user')}
      {choice('health', kHealths)}{choice('state', kStates.map((one) => [one, one]))}{choice('cause', Object.keys(kCauses).sort().map((one) => [one, one]))}
      {Object.keys(filter).length > 0 && <button type="button" onClick={() => go({ page: 'fleet' }, true)}>Show all</button>}
    </div>
  );
}

function Jobs({ list, trends, filter }: { list: JobList; trends: Map<string, Trend>; filter: FleetFilter }) {
  return (
    <section class="card flush">
      <Filters filter={filter} />
      {list.jobs.length === 0 && <p class="none">None of {count(list.known)} jobs is like that.</p>}
      {list.jobs.length > 0 && <div class="scroll" tabIndex={0} role="region" aria-label="Jobs, worst first">
        <table class="fleet">
          <caption class="offscreen">Jobs, worst first</caption>
          <thead>
            <tr>
              <th scope="col">health</th>
              <th scope="col">job</th>
              <th scope="col">state</th>
              <th scope="col" class="number">ranks</th>
              <th scope="col" class="number">step</th>
              <th scope="col" class="number">time a step <span class="muted">(line: last hour, from 0)</span></th>
              <th scope="col">what we know</th>
            </tr>
          </thead>
          <tbody>{list.jobs.map((job) => <Row key={job.job_id} job={job} trend={trends.get(job.job_id)} />)}</tbody>
        </table>
      </div>}
      <div class="pager">
        <span class="muted">
          {count(list.jobs.length)} of {count(list.known)} {list.known === 1 ? 'job' : 'jobs'}, worst first
        </span>
        <Menu label="Take this list with you" items={[
          { label: 'Copy as curl', run: () => copy(curl(paths.jobs(filter))) },
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

function Empty({ numbers }: { numbers: FleetNumbers | null }) {
  const { url, onlyHere } = otlpAddress(numbers, location.hostname);
  const run = `lockstep run --server ${shellWord(url)} -- torchrun --nproc-per-node 8 train.py`;
  return (
    <section class="card empty">
      <h2>No jobs yet.</h2>
      <p>Put <code>lockstep run</code> before the command of a job, on each of its nodes:</p>
      <p class="command"><code>{run}</code> <CopyButton content={run} name="Copy the command" /></p>
      {onlyHere && <p role="note">This server takes data of its own machine alone ({numbers?.otlp}). For other nodes, start it with <code>--otlp-http 0.0.0.0:4318</code>.</p>}
      <p class="muted">The job shows up here with its first collective. If it does not: <code>lockstep doctor</code> on its node. No GPUs at hand? <code>lockstep demo</code> plays a fleet.</p>
      <h3>Or without lockstep run</h3>
      <ol>
        <li>On each GPU node, the agent: <code>lockstep-agent --data DIR --server {url}</code></li>
        <li>The job with the plugin: <code>NCCL_PROFILER_PLUGIN=lockstep LOCKSTEP_JOB_ID=my-job torchrun …</code></li>
      </ol>
    </section>
  );
}

function title(list: JobList | null): string {
  const bad = list?.jobs.filter((job) => healthMark(job.health).tone === 'alarm').length ?? 0;
  return bad > 0 ? `(${bad}) Fleet · Lockstep` : 'Fleet · Lockstep';
}
