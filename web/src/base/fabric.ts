// The fabric as the server knows it: what there is, where file and fabric differ, what depends on what, and the way between two GPUs.
// Names of components stay exact: they are sent back in questions.
import { exact, list, num, object, text } from './decode';
import { bytes, count, duration, number, percent, utc } from './format';
import { portWords, type PortRow } from './ports';

export interface Difference {
  kind: string;  // other_port, not_seen, not_declared
  subject: string;
  expected: string;
  seen: string;
}

export interface FabricChange {
  time_unix_ns: number | null;
  subject: string;
  before: string;  // empty: it was not there
  after: string;
}

export interface Fabric {
  nodes: [kind: string, count: number][];
  links: number;
  differences: Difference[];
  differencesTotal: number;
  changes: FabricChange[];
  changesTotal: number;
}

export function decodeFabric(value: unknown): Fabric {
  const json = object(value);
  const differences = list(json['differences']).map((item): Difference => {
    const one = object(item);
    return { kind: text(one['kind']), subject: text(one['subject']), expected: text(one['expected']), seen: text(one['seen']) };
  });
  const changes = list(json['changes']).map((item): FabricChange => {
    const one = object(item);
    return { time_unix_ns: num(one['time_unix_ns']), subject: text(one['subject']), before: text(one['before']), after: text(one['after']) };
  });
  return {
    nodes: Object.entries(object(json['nodes'])).flatMap(([kind, known]): [string, number][] => (num(known) === null ? [] : [[kind, num(known)!]])),
    links: num(json['links']) ?? 0,
    differences: differences.sort((a, b) => gravity(a) - gravity(b)),
    differencesTotal: num(json['differences_total']) ?? differences.length,
    changes,
    changesTotal: num(json['changes_total']) ?? changes.length,
  };
}

// A wrong cable before a missing one, both before what nobody wrote down.
const kDifferences = ['other_port', 'not_seen', 'not_declared'];
function gravity({ kind }: Difference): number {
  const at = kDifferences.indexOf(kind);
  return at < 0 ? kDifferences.length : at;
}

// bad: ports in trouble; null: nobody reports ports.
export function fabricSentence(fabric: Fabric, bad: readonly PortRow[] | null): string {
  if (fabric.nodes.length === 0) return 'Nothing is known of the fabric: no agent has reported its node, and no --topology file was given to lockstepd.';
  const cabling = cableWords(fabric);
  if (bad === null) return cabling ? `${cabling}.` : 'Nothing is known to be wrong; no switch reports its ports.';
  const ports = bad.length > 0 ? portWords(bad) : 'No port loses packets or went down';
  return `${ports}${cabling && `; ${cabling}`}.`;
}

// The server names what is not declared last: where its list is cut among the others, there are more of them.
function cableWords({ differences, differencesTotal }: Fabric): string {
  const cables = differences.filter((one) => one.kind !== 'not_declared').length;
  if (cables === 0) return '';
  const least = cables === differences.length && cables < differencesTotal ? 'at least ' : '';
  return `${least}${count(cables)} ${cables === 1 ? 'cable is' : 'cables are'} not where the file says`;
}

export interface GraphNode {
  id: string;
  kind: string;
  name: string;
  trouble: string;  // what an open verdict says of it; empty: none
  depth: number;    // from the focus
  leftOut: number;  // neighbours that are not in the answer
  isFollowed: boolean;  // the reader asked for what is beside its neighbour
}

export interface GraphEdge {
  from: string;  // ids
  to: string;
  kind: string;  // runs-on, member-of, carries, shares, waits-for, changed-at
  weight: number;  // of waits-for: seconds
  label: string;
  known: string;
  at: number | null;  // of changed-at: when, unix ns
}

export interface Graph {
  nodes: GraphNode[];  // the focus first
  edges: GraphEdge[];
}

export function decodeGraph(value: unknown): Graph {
  const json = object(value);
  const nodes = list(json['nodes']).flatMap((item): GraphNode[] => {
    const one = object(item);
    const id = exact(one['id']);
    if (!id) return [];
    return [{ id, kind: text(one['kind']), name: text(one['name']), trouble: text(one['trouble']), depth: num(one['depth']) ?? 0, leftOut: num(one['neighbours_left_out']) ?? 0, isFollowed: false }];
  });
  const known = new Set(nodes.map((node) => node.id));
  const edges = list(json['edges']).map((item): GraphEdge => {
    const one = object(item);
    return { from: exact(one['from']), to: exact(one['to']), kind: text(one['kind']), weight: num(one['weight']) ?? 1, label: text(one['label']), known: text(one['known']), at: num(one['at_unix_ns']) };
  });
  return { nodes, edges: edges.filter((edge) => known.has(edge.from) && known.has(edge.to)) };
}

// What was asked for further out, put to what is there. Depths count from the first focus.
export function joinGraphs(base: Graph, further: readonly Graph[]): Graph {
  const nodes = new Map(base.nodes.map((node) => [node.id, node]));
  const edges = new Map(base.edges.map((edge) => [edgeKey(edge), edge]));
  for (const graph of further) {
    const root = graph.nodes[0] && nodes.get(graph.nodes[0].id);
    if (!root) continue;
    // Of its own neighbours this answer knows all that are known.
    nodes.set(root.id, { ...root, leftOut: graph.nodes[0]!.leftOut });
    for (const node of graph.nodes) if (!nodes.has(node.id)) nodes.set(node.id, { ...node, depth: root.depth + node.depth, isFollowed: true });
    for (const edge of graph.edges) if (!edges.has(edgeKey(edge))) edges.set(edgeKey(edge), edge);
  }
  return { nodes: [...nodes.values()], edges: [...edges.values()] };
}
// Two ranks may wait for each other; any other line is the same from both ends.
const edgeKey = ({ from, to, kind }: GraphEdge): string => [...(kind === 'waits-for' ? [from, to] : [from, to].sort()), kind].join('\n');

// "waits-for", and how long; "changed-at", and when.
export function kindWords({ kind, weight, at }: GraphEdge): string {
  if (kind === 'waits-for') return `waits-for (${duration(1000 * weight)})`;
  return kind === 'changed-at' && at !== null ? `changed at ${utc(at)} to` : kind;
}

export interface Affected {
  component: string;
  kind: string;
  gpus: number;
  hosts: number;
  note: string;
  jobs: { job: string; ranksHit: number; ranks: number; share: number; firstRanks: number[] }[];
  total: number;
}

export function decodeAffected(value: unknown): Affected {
  const json = object(value);
  const jobs = list(json['jobs']).map((item) => {
    const one = object(item);
    return {
      job: exact(one['job_id']), ranksHit: num(one['ranks_hit']) ?? 0, ranks: num(one['ranks']) ?? 0, share: num(one['share']) ?? 1,
      firstRanks: list(one['first_ranks']).flatMap((rank) => num(rank) ?? []),
    };
  });
  return { component: text(json['component']), kind: text(json['kind']), gpus: num(json['gpus']) ?? 0, hosts: num(json['hosts']) ?? 0, note: text(json['note']), jobs, total: num(json['total']) ?? jobs.length };
}

// What a port or an adapter did in the minute before.
export interface HopValue {
  metric: string;
  meaning: string;    // load, errors, drops, ecn, pause, queue, optics, speed, up, other
  direction: string;  // in and out, or receive and transmit; empty: it has none
  isRate: boolean;
  value: number;
  siblings: number | null;  // their median
  siblingCount: number;
  isOdd: boolean;
}

export interface Hop {
  position: number;
  kind: string;      // link, or what the node is
  link: string;      // of a link: network, pcie, nvlink
  name: string;
  from: string;      // of a link its ends
  to: string;
  distance: string;  // on PCIe
  gbit: number | null;
  known: string;     // agent, LLDP, file
  sure: string;      // reported, declared, routed, observed, possible, assumed
  packets: number | null;
  share: number;     // of the way
  state: HopValue[];
  fromState: HopValue[];
  toState: HopValue[];
}

export interface PathEnd {
  gpu: string;
  host: string;
  index: number | null;
  rank: number | null;
  nic: string;
  rail: number | null;
  address: string;
}

export interface FabricPath {
  sentence: string;
  kind: string;  // network, nvlink, pcie, same_gpu, unknown
  at_unix_ns: number | null;
  a: PathEnd;
  b: PathEnd;
  equalPaths: number;
  sourcePort: number | null;
  notes: string[];
  hops: Hop[];
  hopsLeftOut: number;
}

export function decodePath(value: unknown): FabricPath {
  const json = object(value);
  return {
    sentence: text(json['sentence']), kind: text(json['kind']), at_unix_ns: num(json['at_unix_ns']), a: decodeEnd(json['a']), b: decodeEnd(json['b']),
    equalPaths: num(json['equal_paths']) ?? 0, sourcePort: num(json['source_port']), notes: list(json['notes']).map(text).filter(Boolean),
    hops: list(json['hops']).map(decodeHop), hopsLeftOut: num(json['hops_left_out']) ?? 0,
  };
}

function decodeEnd(value: unknown): PathEnd {
  const end = object(value);
  return { gpu: exact(end['gpu']), host: exact(end['host']), index: num(end['index']), rank: num(end['rank']), nic: text(end['nic']), rail: num(end['rail']), address: text(end['address']) };
}

function decodeHop(value: unknown): Hop {
  const hop = object(value);
  return {
    position: num(hop['position']) ?? 0, kind: text(hop['kind']), link: text(hop['link']), name: text(hop['name']), from: text(hop['from']), to: text(hop['to']),
    distance: text(hop['distance']), gbit: num(hop['gbit_s']), known: text(hop['known']), sure: text(hop['sure']), packets: num(hop['packets_sampled']),
    share: num(hop['share']) ?? 1, state: list(hop['state']).flatMap(decodeValue), fromState: list(hop['from_state']).flatMap(decodeValue),
    toState: list(hop['to_state']).flatMap(decodeValue),
  };
}

function decodeValue(value: unknown): HopValue[] {
  const one = object(value);
  const known = num(one['value']);
  if (known === null) return [];
  return [{
    metric: text(one['metric']), meaning: text(one['meaning']), direction: text(one['direction']), isRate: one['unit'] === 'per second', value: known,
    siblings: num(one['siblings']), siblingCount: num(one['sibling_count']) ?? 0, isOdd: one['odd'] === true,
  }];
}

// "rank 23 (node-02 gpu7)"
export function endText({ rank, host, index, gpu }: PathEnd): string {
  const place = host && index !== null ? `${host} gpu${index}` : gpu || '?';
  return rank === null ? place : `rank ${rank} (${place})`;
}

// How a hop is known, or how sure it is.
export function sureText(hop: Hop): string {
  if (hop.sure === 'observed') return `seen in ${number(hop.packets)} packets`;
  if (hop.sure === 'possible') return 'not observed';
  if (hop.sure === 'routed') return 'by forwarding table';
  if (hop.sure === 'assumed') return 'assumed';
  return hop.known;
}

// Who took it for granted, or nobody saw it.
export const isGuess = (hop: Hop): boolean => hop.sure === 'possible' || hop.sure === 'assumed';

export function valueText(of: HopValue, value = of.value): string {
  if (of.meaning === 'load' || of.meaning === 'speed') return `${bytes(value)}/s`;
  if (of.meaning === 'up') return value >= 1 ? 'up' : 'down';
  if (value === 0) return '0';
  if (of.metric.includes('seconds_total')) return `${percent(value)} of the time`;
  const plain = of.metric.includes('bytes') ? bytes(value) : number(value);
  return of.isRate ? `${plain}/s` : plain;
}

// What is worth a column, in the order in which trouble is looked for.
export const kHopMeasures = ['load', 'errors', 'drops', 'ecn', 'pause', 'queue', 'optics'] as const;
export type HopMeasure = (typeof kHopMeasures)[number];
export const kMeasureWords: Record<HopMeasure, string> = { load: 'load', errors: 'errors', drops: 'drops', ecn: 'ECN', pause: 'PFC pause', queue: 'queue', optics: 'optics' };

// One value of a port for a column: the one that stands out, else the largest.
export function measureOf(values: readonly HopValue[], meaning: HopMeasure, direction: 'in' | 'out' | null = null): HopValue | null {
  const isThat = (value: HopValue): boolean => direction === null || value.direction === '' || (direction === 'in' ? /^(in|receive)$/ : /^(out|transmit)$/).test(value.direction);
  return values.filter((value) => value.meaning === meaning && isThat(value))
    .reduce<HopValue | null>((best, value) => (best === null || Number(value.isOdd) - Number(best.isOdd) > 0 || (value.isOdd === best.isOdd && value.value > best.value) ? value : best), null);
}

export interface HopPort {
  name: string;
  hop: Hop;
  values: HopValue[];
}

// Everything on a path that has counters, in the order of the way.
export function portsOf(path: FabricPath): HopPort[] {
  return path.hops.flatMap((hop) => [
    { name: hop.name, hop, values: hop.state }, { name: hop.from, hop, values: hop.fromState }, { name: hop.to, hop, values: hop.toState },
  ]).filter((port) => port.values.length > 0);
}

export interface OddPort {
  port: HopPort;
  values: HopValue[];  // that stand out from its siblings', the gravest first
}

// Losing packets is graver than making others wait, and that than carrying little.
const kGravity = ['up', 'errors', 'drops', 'pause', 'ecn', 'queue', 'optics', 'load'];
const gravityOf = ({ meaning }: HopValue): number => (kGravity.includes(meaning) ? kGravity.indexOf(meaning) : kGravity.length);

// Ports with something that stands out: what is surely on the way first, then the gravest.
export function oddPorts(path: FabricPath): OddPort[] {
  return portsOf(path).map((port) => ({ port, values: port.values.filter((value) => value.isOdd).sort((a, b) => gravityOf(a) - gravityOf(b)) }))
    .filter(({ values }) => values.length > 0)
    .sort((a, b) => b.port.hop.share - a.port.hop.share || gravityOf(a.values[0]!) - gravityOf(b.values[0]!) || b.values[0]!.value - a.values[0]!.value);
}

const allValues = (hop: Hop): HopValue[] => [...hop.state, ...hop.fromState, ...hop.toState];
export const oddOf = (hop: Hop): HopValue[] => allValues(hop).filter((value) => value.isOdd);

// Hops by position. Ways side by side keep their line: a link stands beside the switch that it leads to or from; a way with something that
// stands out is the first, else the largest share.
export function hopRows(path: FabricPath): Hop[][] {
  const rows = new Map<number, Hop[]>();
  for (const hop of path.hops) rows.set(hop.position, [...(rows.get(hop.position) ?? []), hop]);
  const touches = (hop: Hop, node: string): boolean => hop.name === node || hop.from.startsWith(`${node}:`) || hop.to.startsWith(`${node}:`);
  const lines = new Map<string, number>();
  for (const hops of rows.values()) {
    if (hops.length < 2 || hops[0]!.kind === 'link') continue;
    const ill = (node: Hop): boolean => path.hops.some((hop) => touches(hop, node.name) && oddOf(hop).length > 0);
    hops.map((hop) => ({ hop, ill: ill(hop) })).sort((a, b) => Number(b.ill) - Number(a.ill) || b.hop.share - a.hop.share).forEach(({ hop }, line) => lines.set(hop.name, line));
  }
  const lineOf = (hop: Hop): number => Math.min(...[...lines].filter(([node]) => touches(hop, node)).map(([, line]) => line), Infinity);
  return [...rows].sort(([a], [b]) => a - b).map(([, hops]) => hops.map((hop) => ({ hop, line: lineOf(hop) })).sort((a, b) => (a.line === b.line ? 0 : a.line - b.line)).map(({ hop }) => hop));
}
