// One rank in one step, beside its peers: time, phases, communicators, flows, and what it is doing now.
import { useSignal } from '@preact/signals';
import { api, paths } from '../base/api';
import type { CommStatus, RankDetail, RankStep, Why } from '../base/decode';
import { bytes, clock, count, duration, excess, number, percent } from '../base/format';
import { verdictMark } from '../base/health';
import { cell, type StepMatrix } from '../base/matrix';
import { usePoll } from '../base/poll';
import { curl } from '../base/share';
import { kLastMax, logsPlace, pathPlace, stepPlace, type JobPlace } from '../base/url';
import { CopyButton } from '../widgets/copy_button';
import { PlaceLink } from '../widgets/frame';
import { Loading } from '../widgets/loading';
import { MarkView } from '../widgets/mark';
import { GpuLink, HostLink } from '../widgets/place_links';
import { Facts, Panel } from './panel';

interface Props {
  place: JobPlace;
  rank: number;
  why: Why;
  matrix: StepMatrix | null;
  onClose: () => void;
}

const kFlowsShown = 8;

export function RankPanel({ place, rank, why, matrix, onClose }: Props) {
  const detail = useSignal<RankDetail | null>(null);
  const refused = useSignal<string | null>(null);
  // Far enough back to reach the step asked for; in jumps, so that each new step is not a new question.
  const age = place.step !== null && why.job.last_step !== null ? why.job.last_step - place.step : 0;
  const last = Math.min(kLastMax, Math.ceil((age + 16) / 50) * 50);
  usePoll([place.job, rank, last], async (signal) => { detail.value = await api.rank(place.job, rank, last, signal); },
    (message) => { refused.value = message; });
  const known = detail.value;
  const at = known?.steps.find((entry) => entry.step === place.step) ?? (place.step === null ? newest(known) : undefined);
  const blamed = why.verdicts.find((verdict) => verdict.state !== 'cleared' && verdict.culprit.ranks.includes(rank));
  const path = paths.rank(place.job, rank, last);
  const step = place.step ?? at?.step ?? null;
  return (
    <Panel title={`Rank ${count(rank)}${step === null ? '' : ` · step ${count(step)}`}`} onClose={onClose}>
      {step !== null && <p><PlaceLink class="button" to={{ ...stepPlace(place.job, step), rank }}>Open step {count(step)}</PlaceLink></p>}
      <p><PlaceLink to={logsPlace({ job: place.job, rank })}>What it logged</PlaceLink></p>
      {refused.value && <p role="alert">{refused.value}</p>}
      {!known && !refused.value && <Loading what="the rank" />}
      {known && (
        <>
          <p><HostLink host={known.host} none="host unknown" /><br /><span class="break">{known.gpu_uuid && <GpuLink uuid={known.gpu_uuid} />}</span></p>
          {blamed && <p><MarkView mark={verdictMark(blamed)} /> <span>named by the verdict: {blamed.culprit.cause || blamed.culprit.component || blamed.kind}</span></p>}
          {at ? <StepFacts rank={rank} entry={at} matrix={matrix} /> : <p class="muted">Nothing heard of this rank in step {count(step)}: unknown.</p>}
          <Now detail={known} />
          {at && <Told entry={at} />}
          {at && <Phases entry={at} />}
          {at && <Comms entry={at} names={known.names} />}
          {at && <Flows entry={at} rank={rank} job={place.job} />}
          <p><CopyButton content={curl(path)} label="Copy as curl" /></p>
        </>
      )}
    </Panel>
  );
}

function newest(detail: RankDetail | null): RankStep | undefined {
  return detail?.steps.reduce<RankStep | undefined>((best, entry) => (best && best.step > entry.step ? best : entry), undefined);
}

function StepFacts({ rank, entry, matrix }: { rank: number; entry: RankStep; matrix: StepMatrix | null }) {
  const row = matrix ? matrix.ranks.indexOf(rank) : -1;
  const column = matrix ? matrix.steps.indexOf(entry.step) : -1;
  const placed = matrix !== null && row >= 0 && column >= 0;
  const over = placed ? cell(matrix.excess, matrix, row, column) : null;
  const self = placed ? cell(matrix.self, matrix, row, column) : null;
  const peers = placed ? duration(matrix.stepMs[column]) : '';
  const rows: [string, string, string?][] = [
    ['own time', duration(entry.self_ms), self !== null && over !== null ? duration(self - over) : ''],
    ['excess', excess(over), ''],
    ['step', duration(entry.duration_ms), peers],
    ['communication', duration(entry.comm_ms), ''],
    ['queued', duration(entry.queue_ms), ''],
    ['quiet', duration(entry.quiet_ms), ''],
  ];
  return <Facts head={['', 'this rank', 'median']} rows={rows} />;
}

// Loss, tokens and the like, as the job told them in this step.
function Told({ entry }: { entry: RankStep }) {
  if (entry.scalars.length === 0 && entry.mfu === null) return null;
  const rows: [string, string][] = entry.scalars.map(([name, value]) => [name, Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : number(value)]);
  if (entry.mfu !== null) rows.unshift(['MFU', percent(entry.mfu)]);
  return (
    <>
      <h3>Reported by the job</h3>
      <Facts rows={rows} />
    </>
  );
}

function Phases({ entry }: { entry: RankStep }) {
  if (entry.phases_ms.length === 0) return null;
  const most = Math.max(...entry.phases_ms.map(([, ms]) => ms), 1e-9);
  return (
    <>
      <h3>Phases</h3>
      <table class="facts">
        <tbody>
          {entry.phases_ms.map(([name, ms]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td class="bar-cell"><div class="bar" style={{ width: `${Math.max(0, (100 * ms) / most)}%` }} /></td>
              <td class="number">{duration(ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

// The name the job gave its group, else enough of the id to tell two apart.
function commName(id: string, names: ReadonlyMap<string, string>): string {
  return names.get(id) ?? (id.length > 10 ? `${id.slice(0, 6)}…` : id);
}

function Comms({ entry, names }: { entry: RankStep; names: ReadonlyMap<string, string> }) {
  if (entry.comms.length === 0) return null;
  return (
    <>
      <h3>Communicators</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Communicators">
        <table class="facts">
          <thead>
            <tr><th scope="col">group</th><th scope="col" class="number">ranks</th><th scope="col" class="number">calls</th><th scope="col" class="number">GPU</th><th scope="col" class="number">longest</th><th scope="col" class="number">GB/s</th></tr>
          </thead>
          <tbody>
            {entry.comms.map((comm, index) => (
              <tr key={index}>
                <th scope="row" title={comm.comm_id}>{commName(comm.comm_id, names)}{comm.p2p && ' p2p'}</th>
                <td class="number">{count(comm.size)}</td>
                <td class="number" title={bytes(comm.bytes)}>{count(comm.count)}</td>
                <td class="number">{duration(comm.gpu_ms)}</td>
                <td class="number" title={`shortest ${duration(comm.shortest_ms)}`}>{duration(comm.longest_ms)}</td>
                <td class="number">{number(comm.gb_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

// Each leads to the way that it takes.
function Flows({ entry, rank, job }: { entry: RankStep; rank: number; job: string }) {
  if (entry.flows.length === 0) return null;
  const worst = [...entry.flows].sort((a, b) => (b.wire_ms ?? 0) - (a.wire_ms ?? 0)).slice(0, kFlowsShown);
  return (
    <>
      <h3>Flows</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Flows">
        <table class="facts">
          <thead>
            <tr><th scope="col">peer</th><th scope="col" class="number">size</th><th scope="col" class="number">wire</th><th scope="col" class="number">own GPU</th><th scope="col" class="number">peer</th></tr>
          </thead>
          <tbody>
            {worst.map((flow, index) => (
              <tr key={index}>
                <th scope="row">
                  {flow.send ? 'to ' : 'from '}
                  {flow.peer === null
                    ? 'rank –'
                    : <PlaceLink to={flow.send ? pathPlace(String(rank), String(flow.peer), job) : pathPlace(String(flow.peer), String(rank), job)}>rank {count(flow.peer)}</PlaceLink>}
                </th>
                <td class="number">{bytes(flow.bytes)}</td>
                <td class="number">{duration(flow.wire_ms)}</td>
                <td class="number">{duration(flow.own_gpu_ms)}</td>
                <td class="number">{duration(flow.peer_ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {entry.flows.length > worst.length && <p class="muted">{worst.length} of {count(entry.flows.length)} flows, longest on the wire first</p>}
    </>
  );
}

function Now({ detail }: { detail: RankDetail }) {
  const { status } = detail;
  const rows: [string, string][] = [['state', detail.state || 'unknown'], ['last heard', clock(detail.last_seen_unix_ns, true)]];
  if (status.alive !== null) rows.push(['process', status.alive ? 'alive' : 'gone']);
  if (status.phase) rows.push(['phase', status.phase]);
  if (status.quiet_ms !== null) rows.push(['silent for', duration(status.quiet_ms)]);
  return (
    <>
      <h3>Now</h3>
      <Facts rows={rows} />
      {status.comms.length > 0 && <InFlight comms={status.comms} names={detail.names} />}
    </>
  );
}

// Unfinished communicators first: that is where a hung rank stands.
function InFlight({ comms, names }: { comms: CommStatus[]; names: ReadonlyMap<string, string> }) {
  const sorted = [...comms].sort((a, b) => b.pending.length - a.pending.length);
  const shown = sorted.slice(0, kFlowsShown);
  return (
    <>
      <h3>In flight</h3>
      <ul class="in-flight">
        {shown.map((comm, index) => (
          <li key={index}>
            <span class="muted" title={comm.comm_id}>{commName(comm.comm_id, names)}, {count(comm.size)} ranks: </span>
            {comm.pending.length === 0 && 'nothing in flight'}
            {comm.pending.map((op) => `${op.function || 'operation'} ${count(op.seq)} ${op.state}${op.peer === null ? '' : ` with rank ${count(op.peer)}`} since ${clock(op.since_unix_ns, true)}`).join('; ')}
            {comm.enqueued !== null && <span class="muted">, {count(comm.completed)} of {count(comm.enqueued)} collectives completed</span>}
          </li>
        ))}
      </ul>
      {comms.length > shown.length && <p class="muted">{shown.length} of {count(comms.length)} communicators, unfinished first</p>}
    </>
  );
}
