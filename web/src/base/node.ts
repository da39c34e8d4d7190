// Nodes and their GPUs: who runs there, what happened there, and how they did over time.
import { decodeVerdict, decodeWarnings, exact, list, num, object, step, text, type Verdict, type Warning } from './decode';
import { decodeIncidents, type IncidentRow } from './incident';
import { median } from './kernel_profile';

export interface NodeRow {
  host: string;  // exact: it is sent back in paths
  state: 'ok' | 'silent' | 'unknown';
  lastSeenNs: number | null;
  gpus: number;
  idle: number;
  ranks: number;
  verdicts: number;   // open
  incidents: number;  // not resolved
  jobs: string[];
  jobsTotal: number;
}

export interface NodeList {
  nodes: NodeRow[];
  total: number;
  gpus: number;
  idle: number;
}

export interface Holder {
  job: string;
  rank: number | null;
  user: string;
}

export interface NodeGpu {
  uuid: string;
  index: number | null;
  model: string;
  state: string;  // busy, idle, lost
  holders: Holder[];
}

export interface NodeRank {
  job: string;
  rank: number;
  localRank: number | null;
  uuid: string;
  lastStep: number | null;
  status: string;
}

// A verdict that names the place, in short.
export interface NamedVerdict {
  verdict: Verdict;
  job: string;
  ranksTotal: number;
}

export interface NodeEvent {
  atNs: number | null;
  event: string;
  severity: string;
  text: string;
  uuid: string;
  device: string;
  meaning: string;
  action: string;
  code: number | null;
  count: number;
  job: string;
  rank: number | null;
}

export interface NodeDetail {
  host: string;
  state: 'ok' | 'silent' | 'unknown';
  lastSeenNs: number | null;
  hasAgent: boolean;
  recordsLost: number;
  days: number;
  gpus: NodeGpu[];
  ranks: NodeRank[];
  ranksTotal: number;
  verdicts: NamedVerdict[];
  verdictsTotal: number;
  incidents: IncidentRow[];
  incidentsTotal: number;
  events: NodeEvent[];
  eventsTotal: number;
  warnings: Warning[];
}

// A quantity of one thing, or the steps of one rank; a value for each stretch of time, null where nothing is known.
export interface Line {
  id: string;     // GPU or adapter; of steps the rank's GPU
  label: string;  // "GPU 3", "mlx5_0", "rank 43"
  rank: number | null;
  values: (number | null)[];
}
export interface Lane {
  key: string;
  title: string;
  unit: string;
  job: string;  // whose steps these are; empty: no job's
  lines: Line[];
}
export interface NodeSeries {
  fromNs: number;
  stretchNs: number;
  points: number;
  lanes: Lane[];
  leftOut: number;
  isLater: boolean;  // it begins later than was asked for: nothing is known before
}

const stateOf = (value: unknown): 'ok' | 'silent' | 'unknown' => (value === 'ok' || value === 'silent' ? value : 'unknown');

export function decodeNodes(value: unknown): NodeList {
  const json = object(value);
  const nodes = list(json['nodes']).map((item): NodeRow => {
    const one = object(item);
    return {
      host: exact(one['host']), state: stateOf(one['state']), lastSeenNs: num(one['last_seen_unix_ns']), gpus: num(one['gpus']) ?? 0, idle: num(one['gpus_idle']) ?? 0,
      ranks: num(one['ranks']) ?? 0, verdicts: num(one['verdicts_open']) ?? 0, incidents: num(one['incidents_open']) ?? 0,
      jobs: list(one['job_ids']).map(exact), jobsTotal: num(one['jobs_total']) ?? 0,
    };
  });
  return { nodes, total: num(json['total']) ?? nodes.length, gpus: num(json['gpus']) ?? 0, idle: num(json['gpus_idle']) ?? 0 };
}

export function decodeNode(value: unknown): NodeDetail {
  const json = object(value);
  return {
    host: exact(json['host']),
    state: stateOf(json['state']),
    lastSeenNs: num(json['last_seen_unix_ns']),
    hasAgent: json['has_agent'] === true,
    recordsLost: num(json['records_lost']) ?? 0,
    days: num(json['days']) ?? 7,
    gpus: list(json['gpus']).map(decodeGpu),
    ranks: list(json['ranks']).flatMap(decodeRank),
    ranksTotal: num(json['ranks_total']) ?? 0,
    verdicts: list(json['verdicts']).map((item) => {
      const one = object(item);
      // The short form names its culprit beside the sentence.
      const verdict = decodeVerdict({ ...one, culprit: { rank: one['ranks'], layer: one['layer'], cause: one['cause'] } });
      return { verdict, job: exact(one['job_id']), ranksTotal: num(one['ranks_total']) ?? 0 };
    }),
    verdictsTotal: num(json['verdicts_total']) ?? 0,
    incidents: decodeIncidents({ incidents: json['incidents'] }).incidents,
    incidentsTotal: num(json['incidents_total']) ?? 0,
    events: list(json['events']).map(decodeEvent),
    eventsTotal: num(json['events_total']) ?? 0,
    warnings: decodeWarnings({ warnings: json['warnings'] }).warnings,
  };
}

function decodeGpu(value: unknown): NodeGpu {
  const json = object(value);
  return {
    uuid: exact(json['gpu_uuid']), index: step(json['index']), model: text(json['model']), state: text(json['state']),
    holders: list(json['holders']).map((item) => {
      const one = object(item);
      return { job: exact(one['job_id']), rank: step(one['rank']), user: text(one['user']) };
    }),
  };
}

function decodeRank(value: unknown): NodeRank[] {
  const json = object(value);
  const rank = num(json['rank']);
  if (rank === null) return [];
  return [{ job: exact(json['job_id']), rank, localRank: step(json['local_rank']), uuid: exact(json['gpu_uuid']), lastStep: step(json['last_step']), status: text(json['status']) }];
}

function decodeEvent(value: unknown): NodeEvent {
  const json = object(value);
  return {
    atNs: num(json['time_unix_ns']), event: text(json['event']), severity: text(json['severity']), text: text(json['text']), uuid: exact(json['gpu_uuid']),
    device: text(json['device']), meaning: text(json['meaning']), action: text(json['action']), code: step(json['code']), count: num(json['count']) ?? 1,
    job: exact(json['job_id']), rank: step(json['rank']),
  };
}

// Steps first, job by job; then what the hardware did, in the server's order. `gpus` give a GPU its number.
export function decodeNodeSeries(value: unknown, gpus: ReadonlyMap<string, string>): NodeSeries {
  const json = object(value);
  const points = Math.max(0, Math.min(2_000, num(json['points']) ?? 0));
  const lanes = new Map<string, Lane>();
  const into = (key: string, title: string, unit: string, job: string, line: Line): void => {
    const id = `${key}\n${job}`;
    const lane = lanes.get(id) ?? { key, title, unit, job, lines: [] };
    lanes.set(id, lane);
    lane.lines.push(line);
  };
  const values = (told: unknown): (number | null)[] => {
    const known = list(told);
    return Array.from({ length: points }, (_, at) => num(known[at]));
  };
  for (const item of list(json['steps'])) {
    const one = object(item);
    const rank = num(one['rank']);
    const job = exact(one['job_id']);
    if (rank === null) continue;
    const line = { id: exact(one['gpu_uuid']), label: `rank ${rank}`, rank };
    into('excess', 'own time beyond its peers', 'ms', job, { ...line, values: values(one['excess_ms']) });
    into('step', 'step time', 'ms', job, { ...line, values: values(one['step_ms']) });
  }
  for (const item of list(json['rows'])) {
    const one = object(item);
    const id = exact(one['id']);
    const label = one['of'] === 'gpu' ? gpus.get(id) ?? text(one['id']) : text(one['id']) || 'host';
    into(text(one['key']), text(one['words']), text(one['unit']), '', { id, label, rank: null, values: values(one['values']) });
  }
  const known = [...lanes.values()].filter((lane) => lane.lines.some((line) => line.values.some((one) => one !== null)));
  const [fromNs, stretchNs] = [num(json['from_unix_ns']) ?? 0, num(json['stretch_ns']) ?? 1];
  const cut = Math.max(0, Math.min(points - kPointsMin, firstKnown(known, points) - 1));
  return {
    fromNs: fromNs + cut * stretchNs, stretchNs, points: points - cut, leftOut: num(json['rows_left_out']) ?? 0, isLater: cut > 0,
    lanes: cut === 0 ? known : known.map((lane) => ({ ...lane, lines: lane.lines.map((line) => ({ ...line, values: line.values.slice(cut) })) })),
  };
}

// A node that is new would be a speck at the end of an empty axis.
const kPointsMin = 30;
function firstKnown(lanes: readonly Lane[], points: number): number {
  for (let at = 0; at < points; at += 1) if (lanes.some((lane) => lane.lines.some((line) => line.values[at] !== null))) return at;
  return points;
}

export const gpuName = (gpu: NodeGpu): string => (gpu.index === null ? text(gpu.uuid) : `GPU ${gpu.index}`);

// The line that stands furthest from the middle of all, and that middle; null where none knows the moment.
export function oddAt(lane: Lane, at: number): { line: Line; value: number; middle: number } | null {
  const known = lane.lines.flatMap((line) => (line.values[at] === null || line.values[at] === undefined ? [] : [{ line, value: line.values[at] }]));
  if (known.length === 0) return null;
  const middle = median(known.map((one) => one.value))!;
  const odd = known.reduce((worst, one) => (Math.abs(one.value - middle) > Math.abs(worst.value - middle) ? one : worst));
  return { ...odd, middle };
}

export function newestKnown(lane: Lane, points: number): number {
  for (let at = points - 1; at >= 0; at -= 1) if (lane.lines.some((line) => line.values[at] !== null)) return at;
  return -1;
}
