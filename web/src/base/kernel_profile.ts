// What the analysis of a kernel profile says (lockstep analyze --json): one sentence, then kernels, gaps and ranks; and any rank of it
// beside the median of the others. Times are per step and in nanoseconds, whatever the server's unit.
import { list, name, num, object, text } from './decode';

export type ProfileState = 'none' | 'waiting' | 'analysing' | 'ready' | 'failed';

export interface KernelRow {
  name: string;
  kernelClass: string;
  family: string;
  op: string;
  count: number;
  sum: number;  // ns, over the whole capture
  mean: number;
  most: number;
  precision: string;
  tensorCores: boolean | null;
  bound: string;
  share: number | null;  // of the peak that bounds it
}

export interface GapRow {
  what: string;
  count: number;
  sum: number;
  most: number;
  dataLoading: boolean;
}

export interface RankSummary {
  rank: number;
  host: string;
  device: string;
  steps: number;  // 0: not marked
  step: number;   // median, ns
  total: number;
  compute: number;
  communication: number;
  exposed: number;  // communication while nothing is computed
  memory: number;   // copies and sets while nothing is computed or exchanged
  idle: number;
  waits: number;    // in collectives, until the last member came, while nothing is computed
  cameLast: number;
  collectives: number;
  truncated: boolean;
  kernels: KernelRow[];
  kernelNames: number;  // of which `kernels` may be a part
  gaps: GapRow[];
  busiest: { stream: number; hostWait: number; kernelWait: number } | null;  // why the stream that is idle least stands still
}

export interface ProfileSummary {
  sentence: string;
  reason: string;
  culprits: number[];
  kernel: string;
  insteadOf: string;
  evidence: string[];
  clocksAligned: boolean;
  clockError: number | null;  // ns
  worldSize: number | null;
  events: number | null;
  bytes: number | null;
  ranks: RankSummary[];
  notes: string[];
}

export interface SummaryAnswer {
  state: ProfileState;
  error: string;
  summary: ProfileSummary | null;
}

const kStates: readonly ProfileState[] = ['none', 'waiting', 'analysing', 'ready', 'failed'];
const ns = (value: unknown): number => (num(value) ?? 0) * 1e3;

export function decodeSummary(value: unknown): SummaryAnswer {
  const json = object(value);
  const state = kStates.find((known) => known === json['state']) ?? 'none';
  return { state, error: text(json['error']), summary: state === 'ready' ? decodeAnalysis(json['summary']) : null };
}

function decodeAnalysis(value: unknown): ProfileSummary {
  const json = object(value);
  const verdict = object(json['verdict']);
  const collectives = object(json['collectives']);
  const clockError = num(collectives['clock_error_us']);
  return {
    sentence: text(verdict['sentence']),
    reason: text(verdict['reason']),
    culprits: list(verdict['ranks']).flatMap((rank) => num(rank) ?? []),
    kernel: name(verdict['kernel']),
    insteadOf: name(verdict['instead_of']),
    evidence: list(verdict['evidence']).map(text).filter(Boolean),
    clocksAligned: collectives['clocks_aligned'] === true,
    clockError: clockError === null ? null : clockError * 1e3,
    worldSize: num(json['world_size']),
    events: num(json['events']),
    bytes: num(json['bytes']),
    ranks: list(json['ranks']).flatMap(decodeRank).sort((a, b) => a.rank - b.rank),
    notes: list(json['notes']).map(text).filter(Boolean),
  };
}

function decodeRank(value: unknown): RankSummary[] {
  const json = object(value);
  const rank = num(json['rank']);
  if (rank === null) return [];
  const [steps, time, waits] = [object(json['steps']), object(json['time']), object(json['waits'])];
  const kernels = list(json['kernels']).flatMap(decodeKernel);
  const count = num(steps['count']) ?? 0;
  return [{
    rank,
    host: text(json['host']),
    device: text(json['device']),
    steps: count,
    step: ns(steps['median_us']),
    total: ns(time['total_us']),
    compute: ns(time['compute_us']),
    communication: ns(time['communication_us']),
    exposed: ns(time['exposed_communication_us']),
    memory: ns(object(time['by_classes_us'])['memory']),
    idle: ns(time['idle_us']),
    waits: ns(waits['exposed_wait_us']),
    cameLast: num(waits['came_last']) ?? 0,
    collectives: num(waits['collectives']) ?? 0,
    truncated: object(json['read'])['truncated'] === true,
    kernels,
    kernelNames: num(json['kernel_names']) ?? kernels.length,
    gaps: list(json['gaps']).map((item) => {
      const gap = object(item);
      return { what: text(gap['what']), count: num(gap['count']) ?? 0, sum: ns(gap['sum_us']), most: ns(gap['max_us']), dataLoading: gap['data_loading'] === true };
    }),
    busiest: busiestOf(list(json['idle']).map(object)),
  }];
}

function busiestOf(rows: Record<string, unknown>[]): RankSummary['busiest'] {
  const all = rows.map((row) => ({ stream: num(row['stream']) ?? 0, hostWait: ns(row['host_wait_us']), kernelWait: ns(row['kernel_wait_us']), other: ns(row['other_us']) }));
  const first = all.sort((a, b) => a.hostWait + a.kernelWait + a.other - b.hostWait - b.kernelWait - b.other)[0];
  return first ? { stream: first.stream, hostWait: first.hostWait, kernelWait: first.kernelWait } : null;
}

function decodeKernel(value: unknown): KernelRow[] {
  const json = object(value);
  const known = name(json['name']);
  if (!known) return [];
  return [{
    name: known,
    kernelClass: classWord(text(json['class'])),
    family: text(json['family']),
    op: text(json['op']),
    count: num(json['count']) ?? 0,
    sum: ns(json['sum_us']),
    mean: ns(json['mean_us']),
    most: ns(json['max_us']),
    precision: text(json['precision']),
    tensorCores: typeof json['tensor_cores'] === 'boolean' ? json['tensor_cores'] : null,
    bound: text(json['bound']),
    share: num(json['share_of_peak']),
  }];
}

// One word for one thing on the whole page.
export function classWord(word: string): string {
  return word === 'computation' ? 'compute' : word || 'other';
}

// "void cutlass::Kernel2<cutlass_80_tensorop_…>(…)" -> "cutlass_80_tensorop_…",
// "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(…)::gelu>" -> "vectorized_elementwise_kernel (gelu)".
export function shortKernel(name: string): string {
  let short = shortNames.get(name);
  if (short === undefined) {
    if (shortNames.size >= kShortNamesMax) shortNames.clear();
    shortNames.set(name, short = shorten(name));
  }
  return short;
}
const shortNames = new Map<string, string>();
const kShortNamesMax = 10_000;

function shorten(name: string): string {
  const plain = name.replace(/^void /, '').replace(/\(anonymous namespace\)::/g, '');
  const wrapped = /^cutlass::Kernel2?<([\w:]+)/.exec(plain);
  if (wrapped) return lastPart(wrapped[1]!);
  const at = plain.search(/[<(]/);
  if (at <= 0) return plain;
  const head = lastPart(plain.slice(0, at));
  if (plain[at] === '(') return head;
  // What it does is in its last argument that is a name.
  const inside = matched(plain, at);
  const hints = splitTop(inside).map((part) => lastPart(part.replace(/\(.*?\)/g, '').replace(/<.*$/, '').trim()))
    .map((part) => part.replace(/(Math)?Functor$/, '')).filter((part) => /^[A-Za-z_]\w{2,}$/.test(part) && !kTypes.has(part));
  const hint = hints[hints.length - 1];
  return hint ? `${head} (${hint})` : head;
}
const kTypes = new Set(['float', 'double', 'int', 'bool', 'long', 'char', 'unsigned', 'Half', 'BFloat16', 'true', 'false']);
const lastPart = (path: string): string => path.split('::').pop() ?? path;

// What stands between the bracket at `at` and its partner.
function matched(name: string, at: number): string {
  let depth = 0;
  for (let i = at; i < name.length; i += 1) {
    if (name[i] === '<') depth += 1;
    else if (name[i] === '>') depth -= 1;
    if (depth === 0) return name.slice(at + 1, i);
  }
  return name.slice(at + 1);
}

function splitTop(inside: string): string[] {
  const parts: string[] = [];
  let [depth, from] = [0, 0];
  for (let i = 0; i < inside.length; i += 1) {
    if ('<({'.includes(inside[i]!)) depth += 1;
    else if ('>)}'.includes(inside[i]!)) depth -= 1;
    else if (inside[i] === ',' && depth === 0) {
      parts.push(inside.slice(from, i));
      from = i + 1;
    }
  }
  return [...parts, inside.slice(from)];
}

// Steps of a rank; where they are not marked, the capture counts as one.
export const stepsOf = (rank: RankSummary): number => Math.max(1, rank.steps);

export function median(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

export interface ComparedKernel {
  name: string;
  kernelClass: string;
  family: string;
  row: KernelRow;          // of the rank, else of a peer that has it
  own: number | null;      // ns a step; null: not among the kernels that were sent
  ownCalls: number | null;
  peers: number | null;    // median over the others
  peersCalls: number | null;
  all: number;             // ns a step, mean over all ranks that were profiled
}

// Whom a rank is compared with: the others of its capture, or itself in another one (all of that one where it is not there).
export function peersOf(summary: ProfileSummary, rank: number | null, before: ProfileSummary | null): RankSummary[] {
  if (before === null) return summary.ranks.filter((one) => one.rank !== rank);
  const same = before.ranks.filter((one) => one.rank === rank);
  return same.length > 0 ? same : before.ranks;
}

// Every kernel that was sent of any rank. A rank that does not list a kernel has none of it, unless its list was cut: then nobody knows.
export function compareKernels(summary: ProfileSummary, rank: number | null, others = peersOf(summary, rank, null)): ComparedKernel[] {
  const tableOf = (one: RankSummary) => ({ one, rows: new Map(one.kernels.map((row) => [row.name, row])), cut: one.kernelNames > one.kernels.length });
  const tables = summary.ranks.map(tableOf);
  const peers = others.map(tableOf);
  const names = new Map<string, KernelRow>();
  for (const { rows } of [...peers, ...tables]) for (const [name, row] of rows) if (!names.has(name)) names.set(name, row);
  for (const { one, rows } of tables) if (one.rank === rank) for (const [name, row] of rows) names.set(name, row);
  const per = (table: (typeof tables)[number], name: string, of: (row: KernelRow) => number): number | null => {
    const row = table.rows.get(name);
    return row ? of(row) / stepsOf(table.one) : table.cut ? null : 0;
  };
  const known = (value: number | null): value is number => value !== null;
  const own = tables.find(({ one }) => one.rank === rank);
  return [...names].map(([name, row]) => {
    const sums = tables.map((table) => per(table, name, (kernel) => kernel.sum)).filter(known);
    return {
      name, row, kernelClass: row.kernelClass, family: row.family,
      own: own ? per(own, name, (kernel) => kernel.sum) : null,
      ownCalls: own ? per(own, name, (kernel) => kernel.count) : null,
      peers: median(peers.map((table) => per(table, name, (kernel) => kernel.sum)).filter(known)),
      peersCalls: median(peers.map((table) => per(table, name, (kernel) => kernel.count)).filter(known)),
      all: sums.length > 0 ? sums.reduce((sum, value) => sum + value, 0) / sums.length : 0,
    };
  });
}

export const difference = (row: { own: number | null; peers: number | null }): number | null => (row.own === null || row.peers === null ? null : row.own - row.peers);

// What the rank does more first, what it does less last; the unknown between, where a difference of nothing would be.
export function byDifference<Row extends { own: number | null; peers: number | null }>(rows: readonly Row[]): Row[] {
  return [...rows].sort((a, b) => (difference(b) ?? 0) - (difference(a) ?? 0));
}

export interface ComparedPart {
  what: string;
  own: number;
  peers: number | null;
}

const kParts: [string, (rank: RankSummary) => number][] = [
  ['compute', (rank) => rank.compute],
  ['communication, exposed', (rank) => rank.exposed],
  ['communication, hidden behind compute', (rank) => Math.max(0, rank.communication - rank.exposed)],
  ['waiting for others in collectives', (rank) => rank.waits],
  ['copies and sets alone', (rank) => rank.memory],
  ['GPU idle', (rank) => rank.idle],
];

export function compareParts(summary: ProfileSummary, rank: number, peers = peersOf(summary, rank, null)): ComparedPart[] {
  const own = summary.ranks.find((one) => one.rank === rank);
  if (!own) return [];
  return [
    { what: 'step', own: own.step, peers: median(peers.map((one) => one.step)) },
    ...kParts.map(([what, of]) => ({ what, own: of(own) / stepsOf(own), peers: median(peers.map((one) => of(one) / stepsOf(one))) })),
  ];
}

export interface ComparedGap {
  what: string;
  dataLoading: boolean;
  own: number;
  peers: number | null;
  count: number;  // a step, of the rank
  most: number;
}

export function compareGaps(summary: ProfileSummary, rank: number, peers = peersOf(summary, rank, null)): ComparedGap[] {
  const own = summary.ranks.find((one) => one.rank === rank);
  if (!own) return [];
  const names = new Map<string, GapRow>();
  for (const one of [...peers, own]) for (const gap of one.gaps) names.set(gap.what, gap);
  const of = (one: RankSummary, what: string): number => (one.gaps.find((gap) => gap.what === what)?.sum ?? 0) / stepsOf(one);
  return byDifference([...names].map(([what, gap]) => {
    const held = own.gaps.find((one) => one.what === what);
    return {
      what, dataLoading: gap.dataLoading, own: of(own, what), peers: median(peers.map((one) => of(one, what))),
      count: (held?.count ?? 0) / stepsOf(own), most: held?.most ?? 0,
    };
  }));
}

// Whom the page compares: whom the address names if it was profiled, else the culprit, else who waits least for the others.
export function comparedRank(summary: ProfileSummary, wanted: number | null): number | null {
  const known = [wanted, ...summary.culprits].find((rank) => summary.ranks.some((one) => one.rank === rank));
  if (known !== undefined) return known;
  const first = [...summary.ranks].sort((a, b) => a.waits / stepsOf(a) - b.waits / stepsOf(b))[0];
  return first?.rank ?? null;
}

// Why two captures say little about each other; empty where they can be compared.
export function incomparable(one: ProfileSummary, other: ProfileSummary): string {
  const devices = (summary: ProfileSummary): string => [...new Set(summary.ranks.map((rank) => rank.device).filter(Boolean))].sort().join(', ');
  if (devices(one) !== devices(other)) return `other GPUs: ${devices(one) || 'unknown'} here, ${devices(other) || 'unknown'} there`;
  if (one.worldSize !== other.worldSize) return `another number of ranks: ${one.worldSize ?? 'unknown'} here, ${other.worldSize ?? 'unknown'} there`;
  return '';
}
