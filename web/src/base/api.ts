// Questions to the server, one function each. Every answer is decoded before anyone sees it.
import { decodeJobs, decodeRank, decodeRanks, decodeVerdict, decodeWarnings, decodeWhy, list, object, text } from './decode';
import type { JobList, RankDetail, RankList, Verdict, WarningList, Why } from './decode';
import { decodeAlerts, type AlertList } from './alert';
import { decodeIncident, decodeIncidents, type Incident, type IncidentList } from './incident';
import { decodeCardinality, type Cardinality } from './cardinality';
import { decodeCost, decodeMfu, type Cost, type Mfu } from './cost';
import { decodeAffected, decodeFabric, decodeGraph, decodePath, type Affected, type Fabric, type FabricPath, type Graph } from './fabric';
import { decodeFleet, decodeOverhead, type FleetNumbers, type Overhead } from './fleet';
import { decodeSummary, type SummaryAnswer } from './kernel_profile';
import { decodeKernelTimeline, type KernelTimeline } from './kernel_timeline';
import { decodeLogs, type LogPage } from './logs';
import { decodeMatrix, type StepMatrix } from './matrix';
import { decodeNode, decodeNodes, decodeNodeSeries, type NodeDetail, type NodeList, type NodeSeries } from './node';
import { decodeProfile, decodeProfiles, type Profile, type ProfileList } from './profile';
import { noteUnknown } from './session';
import { decodeService, decodeServices, type Service } from './service';
import { decodeSleDetail, decodeSles, type SleDetail, type SleList } from './sle';
import { filterQuery, type FleetFilter, type LogsPlace, type SlePlace } from './url';
import { decodeAsked, decodeStep, decodeTraced, type Asked, type StepAnalysis, type TracedSteps } from './step';
import { decodeSamples, type Samples } from './stacks';
import { clean } from './format';
import { rooted } from './root';
import { decodeTimeline, type Timeline } from './timeline';
import { decodeTrends, trendPath, type Trend } from './trend';

// The server answered, and the answer is no: shown as it is. Anything else that fails is "no answer".
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const kTimeoutMs = 10_000;

export interface Tile {
  from: number | null;  // both null: the whole step
  to: number | null;
  columns: number;
  lines: number;
  ranks: string;        // empty: all
  spans?: number;
}

export interface KernelTile {
  from: number | null;  // both null: the whole capture
  to: number | null;
  width: number;        // pixels
  ranks: string;        // empty: all
}

export interface PathQuestion {
  a: string;
  b: string;
  job: string;
  at: number | null;
  qp: string;
  sourcePort: string;
}

const kFabricRows = 500;
const atPart = (at: number | null): string => (at === null ? '' : `&at=${at}`);
const promqlForm = (query: string, at: number | null): string => String(new URLSearchParams({ query, ...(at === null ? {} : { time: String(at / 1e9) }) }));

export const paths = {
  jobs: (filter: FleetFilter = {}) => { const query = filterQuery(filter); return `/api/jobs${query && `?${query}`}`; },
  fleet: () => '/api/fleet',
  overhead: () => '/api/overhead',
  why: (job: string) => `/api/jobs/${encodeURIComponent(job)}/why`,
  cost: (job: string) => `/api/jobs/${encodeURIComponent(job)}/cost`,
  mfu: (job: string) => `/api/jobs/${encodeURIComponent(job)}/mfu`,
  steps: (job: string, last: number) => `/api/jobs/${encodeURIComponent(job)}/steps?last=${last}`,
  stepRange: (job: string, from: number, to: number) => `/api/jobs/${encodeURIComponent(job)}/steps?from=${from}&to=${to}`,
  ranks: (job: string, last: number) => `/api/jobs/${encodeURIComponent(job)}/ranks?last=${last}`,
  rank: (job: string, rank: number, last: number) => `/api/jobs/${encodeURIComponent(job)}/ranks/${rank}?last=${last}`,
  step: (job: string, step: number) => `/api/jobs/${encodeURIComponent(job)}/steps/${step}`,
  analysis: (job: string, step: number) => `${paths.step(job, step)}?limit=1000&path=1000`,
  timeline: (job: string, step: number, tile: Tile) => {
    const query = [`columns=${tile.columns}`, `lines=${tile.lines}`];
    if (tile.from !== null && tile.to !== null) query.push(`from_ns=${tile.from}`, `to_ns=${tile.to}`);
    if (tile.ranks) query.push(`ranks=${tile.ranks}`);
    if (tile.spans !== undefined) query.push(`spans=${tile.spans}`);
    return `${paths.step(job, step)}/timeline?${query.join('&')}`;
  },
  perfetto: (job: string, step: number, format: 'tar' | 'pftrace', ranks: string) =>
    `${paths.step(job, step)}/perfetto?format=${format}${ranks && `&ranks=${ranks}`}`,
  detail: (job: string, step: number) => `${paths.step(job, step)}/detail`,
  traced: (job: string, limit: number) => `/api/jobs/${encodeURIComponent(job)}/traced?limit=${limit}`,
  profiles: (job: string) => `/api/jobs/${encodeURIComponent(job)}/profiles`,
  profile: (job: string, capture: string) => `${paths.profiles(job)}/${encodeURIComponent(capture)}`,
  profileSummary: (job: string, capture: string) => `${paths.profile(job, capture)}/summary`,
  profileTimeline: (job: string, capture: string, tile: KernelTile) => {
    const query = [`width=${tile.width}`];
    if (tile.from !== null && tile.to !== null) query.unshift(`from_ns=${tile.from}`, `to_ns=${tile.to}`);
    if (tile.ranks) query.push(`ranks=${tile.ranks}`);
    return `${paths.profile(job, capture)}/timeline?${query.join('&')}`;
  },
  profilePerfetto: (job: string, capture: string) => `${paths.profile(job, capture)}/perfetto`,
  profileFile: (job: string, capture: string, file: string) =>
    `/api/jobs/${encodeURIComponent(job)}/profiles/${encodeURIComponent(capture)}/files/${encodeURIComponent(file)}`,
  profileFiles: (job: string, capture: string) => `${paths.profile(job, capture)}/files`,
  samples: (job: string) => `/api/jobs/${encodeURIComponent(job)}/samples`,
  feedback: (verdict: string) => `/api/verdicts/${encodeURIComponent(verdict)}/feedback`,
  warnings: () => '/api/warnings',
  alerts: () => '/api/alerts?state=all',
  incidents: () => '/api/incidents?state=all',
  incident: (id: string) => `/api/incidents/${encodeURIComponent(id)}`,
  sles: (place: SlePlace) => `/api/sle?${sleQuery(place, ['job', 'host'])}`,
  sle: (place: SlePlace) => `/api/sle/${encodeURIComponent(place.sle)}?${sleQuery(place, ['job', 'host', 'classifier', 'sub'])}`,
  nodes: (host: string) => `/api/nodes${host && `?host=${encodeURIComponent(host)}`}`,
  node: (host: string) => `/api/nodes/${encodeURIComponent(host)}`,
  gpu: (uuid: string) => `/api/gpus/${encodeURIComponent(uuid)}`,
  nodeSeries: (path: string, last: number) => `${path}/series?last_s=${last}`,
  cardinality: () => '/api/cardinality',
  logs: logsPath,
  fabric: () => `/api/fabric?limit=${kFabricRows}`,
  graph: (focus: string, depth: number, limit: number, at: number | null) => `/api/graph?focus=${encodeURIComponent(focus)}&depth=${depth}&limit=${limit}${atPart(at)}`,
  affected: (component: string, at: number | null) => `/api/fabric/affected?component=${encodeURIComponent(component)}${atPart(at)}`,
  path: ({ a, b, job, at, qp, sourcePort }: PathQuestion) => {
    const query = new URLSearchParams({ a, b });
    for (const [key, value] of [['job', job], ['qp', qp], ['source_port', sourcePort]] as const) if (value) query.set(key, value);
    return `/api/fabric/path?${query}${atPart(at)}`;
  },
  promql: (query: string, at: number | null) => `/prometheus/api/v1/query?${promqlForm(query, at)}`,
  services: () => '/api/services',
  service: (name: string, last: number) => `/api/services/${encodeURIComponent(name)}?last_s=${last}`,
};

function sleQuery(place: SlePlace, keys: readonly ('job' | 'host' | 'classifier' | 'sub')[]): string {
  const query = new URLSearchParams({ hours: String(place.hours) });
  for (const key of keys) if (place[key]) query.set(key, place[key]);
  return query.toString();
}

export const api = {
  jobs: async (filter: FleetFilter, signal: AbortSignal): Promise<JobList> => decodeJobs(await get(paths.jobs(filter), signal)),
  fleet: async (signal: AbortSignal): Promise<FleetNumbers> => decodeFleet(await get(paths.fleet(), signal)),
  overhead: async (signal: AbortSignal): Promise<Overhead> => decodeOverhead(await get(paths.overhead(), signal)),
  trends: async (signal: AbortSignal): Promise<Map<string, Trend>> => {
    const now_s = Date.now() / 1e3;
    return decodeTrends(await get(trendPath(now_s), signal), now_s);
  },
  why: async (job: string, signal: AbortSignal): Promise<Why> => decodeWhy(await get(paths.why(job), signal)),
  steps: async (path: string, signal: AbortSignal): Promise<StepMatrix> => decodeMatrix(await get(path, signal)),
  ranks: async (job: string, last: number, signal: AbortSignal): Promise<RankList> => decodeRanks(await get(paths.ranks(job, last), signal)),
  rank: async (job: string, rank: number, last: number, signal: AbortSignal): Promise<RankDetail> =>
    decodeRank(await get(paths.rank(job, rank, last), signal)),
  step: async (job: string, step: number, signal: AbortSignal): Promise<StepAnalysis> => decodeStep(await get(paths.analysis(job, step), signal)),
  timeline: async (job: string, step: number, tile: Tile, signal: AbortSignal): Promise<Timeline> =>
    decodeTimeline(await get(paths.timeline(job, step, tile), signal)),
  traced: async (job: string, limit: number, signal: AbortSignal): Promise<TracedSteps> => decodeTraced(await get(paths.traced(job, limit), signal)),
  askDetail: async (job: string, step: number, signal: AbortSignal): Promise<Asked> =>
    decodeAsked(await get(paths.detail(job, step), signal, 'POST')),
  cost: async (job: string, signal: AbortSignal): Promise<Cost> => decodeCost(await get(paths.cost(job), signal)),
  mfu: async (job: string, signal: AbortSignal): Promise<Mfu> => decodeMfu(await get(paths.mfu(job), signal)),
  profiles: async (job: string, signal: AbortSignal): Promise<ProfileList> => decodeProfiles(await get(paths.profiles(job), signal)),
  profile: async (job: string, capture: string, signal: AbortSignal): Promise<Profile> => decodeProfile(await get(paths.profile(job, capture), signal)),
  profileSummary: async (job: string, capture: string, signal: AbortSignal): Promise<SummaryAnswer> =>
    decodeSummary(await get(paths.profileSummary(job, capture), signal)),
  profileTimeline: async (job: string, capture: string, tile: KernelTile, signal: AbortSignal): Promise<KernelTimeline> =>
    decodeKernelTimeline(await get(paths.profileTimeline(job, capture, tile), signal)),
  orderProfile: async (job: string, ranks: string, steps: number, shapes: boolean, stacks: boolean, signal: AbortSignal): Promise<Profile> =>
    decodeProfile(await get(`${paths.profiles(job)}?ranks=${encodeURIComponent(ranks)}&steps=${steps}&shapes=${Number(shapes)}&stacks=${Number(stacks)}`, signal, 'POST')),
  profileFiles: async (job: string, capture: string, signal: AbortSignal): Promise<string[]> =>
    list(object(await get(paths.profileFiles(job, capture), signal))['files']).map((file) => text(object(file)['file'])),
  samples: async (job: string, signal: AbortSignal): Promise<Samples> => decodeSamples(await get(paths.samples(job), signal)),
  stacks: async (job: string, signal: AbortSignal): Promise<string> => ask(`${paths.samples(job)}?format=collapsed`, signal, (response) => response.text()),
  orderSamples: async (job: string, ranks: string, seconds: number, signal: AbortSignal): Promise<void> => {
    await get(`${paths.samples(job)}?${ranks && `ranks=${ranks}&`}seconds=${seconds}`, signal, 'POST');
  },
  // null takes back what was said.
  feedback: async (verdict: string, right: boolean | null, cause: string, signal: AbortSignal): Promise<Verdict> =>
    decodeVerdict(await get(paths.feedback(verdict), signal, 'POST', JSON.stringify(cause ? { right, cause } : { right }))),
  warnings: async (signal: AbortSignal): Promise<WarningList> => decodeWarnings(await get(paths.warnings(), signal)),
  alerts: async (signal: AbortSignal): Promise<AlertList> => decodeAlerts(await get(paths.alerts(), signal)),
  incidents: async (signal: AbortSignal): Promise<IncidentList> => decodeIncidents(await get(paths.incidents(), signal)),
  incident: async (id: string, signal: AbortSignal): Promise<Incident> => decodeIncident(await get(paths.incident(id), signal)),
  incidentMarkdown: async (id: string, signal: AbortSignal): Promise<string> => ask(`${paths.incident(id)}/markdown`, signal, (response) => response.text()),
  changeIncident: async (id: string, what: 'acknowledge' | 'resolve' | 'reopen', note: string, signal: AbortSignal): Promise<Incident> =>
    decodeIncident(await get(`${paths.incident(id)}/${what}`, signal, 'POST', JSON.stringify(note ? { note } : {}))),
  sles: async (place: SlePlace, signal: AbortSignal): Promise<SleList> => decodeSles(await get(paths.sles(place), signal)),
  sle: async (place: SlePlace, signal: AbortSignal): Promise<SleDetail> => decodeSleDetail(await get(paths.sle(place), signal)),
  cardinality: async (signal: AbortSignal): Promise<Cardinality> => decodeCardinality(await get(paths.cardinality(), signal)),
  fabric: async (signal: AbortSignal): Promise<Fabric> => decodeFabric(await get(paths.fabric(), signal)),
  graph: async (focus: string, depth: number, limit: number, at: number | null, signal: AbortSignal): Promise<Graph> =>
    decodeGraph(await get(paths.graph(focus, depth, limit, at), signal)),
  affected: async (component: string, at: number | null, signal: AbortSignal): Promise<Affected> => decodeAffected(await get(paths.affected(component, at), signal)),
  path: async (question: PathQuestion, signal: AbortSignal): Promise<FabricPath> => decodePath(await get(paths.path(question), signal)),
  // As a form: a question that names many ports is longer than an address may be.
  promql: async (query: string, at: number | null, signal: AbortSignal): Promise<unknown> =>
    get('/prometheus/api/v1/query', signal, 'POST', promqlForm(query, at), 'application/x-www-form-urlencoded'),
  nodes: async (host: string, signal: AbortSignal): Promise<NodeList> => decodeNodes(await get(paths.nodes(host), signal)),
  // path: of paths.node() or paths.gpu().
  node: async (path: string, signal: AbortSignal): Promise<NodeDetail> => decodeNode(await get(path, signal)),
  nodeSeries: async (path: string, last: number, gpus: ReadonlyMap<string, string>, signal: AbortSignal): Promise<NodeSeries> =>
    decodeNodeSeries(await get(paths.nodeSeries(path, last), signal), gpus),
  // path: of paths.logs().
  logs: async (path: string, signal: AbortSignal): Promise<LogPage> => decodeLogs(await ask(path, signal, (response) => response.text())),
  services: async (signal: AbortSignal): Promise<string[]> => decodeServices(await get(paths.services(), signal)),
  service: async (name: string, last: number, signal: AbortSignal): Promise<Service> => decodeService(await get(paths.service(name, last), signal)),
};

// after: those that came since, oldest first; to: digits of ns, else the place's own time.
function logsPath(place: LogsPlace, nowMs: number, { after = '', to = '' }: { after?: string; to?: string } = {}): string {
  const query = new URLSearchParams({ limit: '200' });
  for (const [name, value] of [['job', place.job], ['host', place.host], ['severity', place.severity], ['grep', place.text]] as const) if (value) query.set(name, value);
  if (place.rank !== null) query.set('rank', String(place.rank));
  const endNs = place.at ?? nowMs * 1e6;
  query.set('from', String(Math.max(0, endNs - place.last * 1e9)));
  if (to || place.at !== null) query.set('to', to || String(place.at));
  if (after) {
    query.set('order', 'oldest');
    query.set('after', after);
  }
  return `/api/logs?${query.toString()}`;
}

async function get(path: string, signal: AbortSignal, method: 'GET' | 'POST' = 'GET', body?: string, type?: string): Promise<unknown> {
  return ask(path, signal, (response) => response.json() as Promise<unknown>, method, body, type);
}

async function ask<T>(path: string, signal: AbortSignal, read: (response: Response) => Promise<T>, method: 'GET' | 'POST' = 'GET', body?: string, type = 'application/json'): Promise<T> {
  const limit = new AbortController();
  const stop = (): void => limit.abort();
  const timer = setTimeout(stop, kTimeoutMs);
  signal.addEventListener('abort', stop);
  try {
    const headers = { accept: 'application/json', ...(body && { 'content-type': type }) };
    const response = await fetch(rooted(path), { method, signal: limit.signal, headers, ...(body && { body }) });
    if (response.ok) return await read(response);
    // A gateway's 502 is as good as silence; a 4xx is an answer.
    if (response.status >= 500 && response.status !== 501) throw new Error(`status ${response.status}`);
    if (response.status === 401) noteUnknown();
    throw new Refused(response.status, reasonOf(await response.text()) || `The server answered ${response.status}.`);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
  }
}

// An endpoint refuses in JSON; whoever stands before it (a role is missing) in one line of text.
function reasonOf(body: string): string {
  try {
    return text(object(JSON.parse(body))['error']);
  } catch {
    return body.length < 300 && !body.includes('<') ? clean(body.trim()) : '';
  }
}
