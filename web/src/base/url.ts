// Where the reader is: kept in the address alone, so that a link pasted into a chat shows the same thing, and Back works.
//
//   /?job=&host=&user=&state=&health=&cause=       the fleet: jobs whose name, hosts or owner contain this, that are it
//   /jobs/JOB?step=&rank=&sort=&view=&last=        a job; step and rank open the side panel
//   /jobs/JOB/steps/N?from=&to=&ranks=&rank=&view= a step: from and to (ns since it began) are what is looked at, rank opens the panel
//   /jobs/JOB/profiles?ranks=                      kernel profiles of a job; ranks are those that the form begins with
//   /jobs/JOB/profiles/CAPTURE?from=&to=&step=&ranks=&open=&rank=&against=&kernel=&sort=&view=
//                                                  one of them: from and to (ns since it began), else the step, are what is looked at;
//                                                  open are the ranks with their streams, rank is compared with the others or with
//                                                  itself in the capture `against`, kernel is marked
//   /services                                      inference services
//   /services/NAME?last=                           an inference service over the last seconds
//   /alerts?id=                                    alerts; id: the one that a notification linked to
//   /fabric?focus=&depth=&open=&by=&sort=&at=&view= what depends on what: from the focus (else the worst job) so many steps outwards; each
//                                                  open is followed further; ports by port or by switch, in which order; at a time (ns)
//   /fabric/path?a=&b=&job=&at=&qp=&source_port=   the way between two ranks of a job, HOST:gpuN or GPUs
//   /incidents                                     what is broken, and what was
//   /incidents/ID                                  one of them
//   /sle?hours=&job=&host=&sle=&classifier=&sub=   minutes of GPUs by SLE; sle: the one that is opened, classifier and sub: which of its
//                                                  degraded minutes are looked at ("-": no sub-classifier is named)
//   /docs/DOCUMENT                                 a page of docs/: runbooks/ecc; alone: the index
//   /cardinality                                   series of the metrics store, and who made them
//   /nodes?host=                                   nodes, worst first; those whose name has this in it
//   /nodes/HOST?last=&view=                        a node: who runs there, what happened there, the last seconds on one time axis
//   /gpus/UUID?last=&view=                         the same of one GPU
//   /logs?job=&rank=&host=&severity=&text=&last=&at=&follow=
//                                                  log records of these, this bad or worse, with this text, of the last seconds before a time
//                                                  (ns; else now); follow=0: what comes is not shown
import { signal } from '@preact/signals';
import { clean } from './format';
import { kSeverities, type Severity } from './logs';
import type { Sort } from './matrix';
import { kPortSorts, type PortsBy, type PortSort } from './ports';
import { isRankChoice } from './profile';
import { prefix, unrooted } from './root';

export interface JobPlace {
  page: 'job';
  job: string;
  step: number | null;
  rank: number | null;
  sort: Sort;
  view: 'chart' | 'table';
  last: number;
}
export interface StepPlace {
  page: 'step';
  job: string;
  step: number;
  from: number | null;  // both null: the whole step
  to: number | null;
  ranks: string;        // "0-7,64"; empty: all
  rank: number | null;
  view: 'chart' | 'table';
}
export interface ProfilesPlace {
  page: 'profiles';
  job: string;
  ranks: string;  // "worst,median,0,17"
}
export interface ProfilePlace {
  page: 'profile';
  job: string;
  capture: string;
  from: number | null;   // both null: the step, else the whole capture
  to: number | null;
  step: number | null;
  ranks: string;         // "0-7,64"; empty: all
  open: string | null;   // ranks whose streams are shown, "0,17"; null: whom the verdict names
  rank: number | null;   // compared with the others; null: whom the verdict names
  against: string;       // another capture to compare with; empty: the other ranks of this one
  kernel: string;        // empty: none
  sort: 'difference' | 'total';
  view: 'chart' | 'table';
}
export interface ServicePlace {
  page: 'service';
  service: string;
  last: number;
}
export interface AlertsPlace {
  page: 'alerts';
  id: string;
}
export interface SlePlace {
  page: 'sle';
  hours: number;
  job: string;         // these are empty where all are meant
  host: string;
  sle: string;
  classifier: string;
  sub: string;
}
export interface DocsPlace {
  page: 'docs';
  document: string;  // "runbooks/ecc"; empty: the index
}
export const kFleetFilters = ['job', 'host', 'user', 'state', 'health', 'cause'] as const;
export type FleetFilter = Partial<Record<(typeof kFleetFilters)[number], string>>;  // what is missing is not filtered by
export interface FleetPlace {
  page: 'fleet';
  filter?: FleetFilter;
}
export interface NodesPlace {
  page: 'nodes';
  host: string;  // part of a name; empty: all
}
export interface NodePlace {
  page: 'node';
  host: string;
  last: number;
  view: 'chart' | 'table';
}
export interface GpuPlace {
  page: 'gpu';
  uuid: string;
  last: number;
  view: 'chart' | 'table';
}
export interface LogsPlace {
  page: 'logs';
  job: string;             // these are empty, or null, where all are meant
  rank: number | null;
  host: string;
  severity: Severity | '';
  text: string;
  last: number;
  at: number | null;       // null: now
  follow: boolean;
}
export interface IncidentPlace {
  page: 'incident';
  id: string;
}
export interface FabricPlace {
  page: 'fabric';
  focus: string;         // "job:llama", "leaf:leaf-1"; empty: the worst job
  depth: number | null;  // null: as far as is usual for the focus
  open: string[];
  by: PortsBy;
  sort: PortSort;
  at: number | null;     // null: now
  view: 'chart' | 'table';
}
export interface PathPlace {
  page: 'path';
  a: string;
  b: string;
  job: string;
  at: number | null;
  qp: string;
  sourcePort: string;
}
export type Place = FleetPlace | NodesPlace | NodePlace | GpuPlace | FabricPlace | PathPlace | { page: 'incidents' } | IncidentPlace | DocsPlace | AlertsPlace | SlePlace | LogsPlace | { page: 'cardinality' } | { page: 'services' } | JobPlace | StepPlace | ProfilesPlace | ProfilePlace | ServicePlace | { page: 'missing'; path: string };

export const kLastChoices = [50, 100, 200, 400] as const;
const kLastDefault = 200;
// The server's limit for one window.
export const kLastMax = 500;
// Seconds that the service page looks back.
export const kServiceLastChoices = [300, 900, 3_600, 21_600, 86_400] as const;
const kServiceLast = 900;
// Hours that the SLE page looks back.
export const kSleHoursChoices = [1, 6, 24, 168, 720] as const;
const kSleHours = 24;
const kSleHoursMax = 24 * 3_650;
// Seconds that the pages of a node and a GPU look back.
export const kNodeLastChoices = [900, 3_600, 21_600, 86_400] as const;
const kNodeLast = 900;
const kNodeLastMax = 7 * 86_400;
// Seconds that the page of logs looks back.
export const kLogsLastChoices = [900, 3_600, 21_600, 86_400, 604_800] as const;
const kLogsLast = 3_600;
const kLogsLastMax = 31 * 86_400;
const kProfileRanks = 'worst,median';
const kNameMax = 256;
export const kFabricDepthMax = 6;
export const kFabricOpenMax = 12;
const kServiceLastMax = 7 * 86_400;

export function parsePlace(path: string, search: string): Place {
  if (path === '/' || path === '') return parseFleet(new URLSearchParams(search));
  if (/^\/cardinality\/?$/.test(path)) return { page: 'cardinality' };
  if (/^\/services\/?$/.test(path)) return { page: 'services' };
  if (/^\/incidents\/?$/.test(path)) return { page: 'incidents' };
  const incident = /^\/incidents\/([\w-]{1,64})\/?$/.exec(path);
  if (incident) return incidentPlace(incident[1]!);
  const written = /^\/docs(?:\/((?:[\w-]{1,64}\/){0,2}[\w-]{1,100}))?\/?$/.exec(path);
  if (written) return docsPlace(written[1]);
  const query = new URLSearchParams(search);
  if (/^\/alerts\/?$/.test(path)) return { page: 'alerts', id: (query.get('id') ?? '').slice(0, 64) };
  if (/^\/fabric\/?$/.test(path)) return parseFabric(query);
  if (/^\/fabric\/path\/?$/.test(path)) {
    const part = (key: string): string => (query.get(key) ?? '').slice(0, kNameMax);
    return { page: 'path', a: part('a'), b: part('b'), job: part('job'), at: moment(query.get('at')), qp: part('qp'), sourcePort: part('source_port') };
  }
  if (/^\/sle\/?$/.test(path)) return parseSle(query);
  if (/^\/logs\/?$/.test(path)) return parseLogs(query);
  if (/^\/nodes\/?$/.test(path)) return nodesPlace((query.get('host') ?? '').slice(0, kNameMax));
  const thing = /^\/(nodes|gpus)\/([^/]+)\/?$/.exec(path);
  const thingName = thing && decode(thing[2]!);
  if (thing && thingName) {
    const last = Math.max(10, Math.min(kNodeLastMax, whole(query.get('last')) ?? kNodeLast));
    const view = query.get('view') === 'table' ? 'table' : 'chart';
    return thing[1] === 'nodes' ? { page: 'node', host: thingName, last, view } : { page: 'gpu', uuid: thingName, last, view };
  }
  const named = /^\/services\/([^/]+)\/?$/.exec(path);
  const service = named && decode(named[1]!);
  if (service) return { page: 'service', service, last: Math.max(1, Math.min(kServiceLastMax, whole(query.get('last')) ?? kServiceLast)) };
  const profiled = /^\/jobs\/([^/]+)\/profiles\/?$/.exec(path);
  const profiledJob = profiled && decode(profiled[1]!);
  if (profiledJob) {
    const ranks = query.get('ranks') ?? '';
    return { page: 'profiles', job: profiledJob, ranks: isRankChoice(ranks) ? ranks : kProfileRanks };
  }
  const one = /^\/jobs\/([^/]+)\/profiles\/([^/]+)\/?$/.exec(path);
  const [oneJob, capture] = one ? [decode(one[1]!), decode(one[2]!)] : [null, null];
  if (oneJob && capture) return parseProfile(oneJob, capture, query);
  const match = /^\/jobs\/([^/]+)(?:\/steps\/(\d{1,15}))?\/?$/.exec(path);
  const job = match && decode(match[1]!);
  if (!job) return { page: 'missing', path };
  if (match[2] !== undefined) return parseStep(job, Number(match[2]), query);
  const sort = query.get('sort');
  const last = whole(query.get('last'));
  return {
    page: 'job',
    job,
    step: whole(query.get('step')),
    rank: whole(query.get('rank')),
    sort: sort === 'rank' || sort === 'host' ? sort : 'badness',
    view: query.get('view') === 'table' ? 'table' : 'chart',
    last: last === null ? kLastDefault : Math.max(10, Math.min(kLastMax, last)),
  };
}

function parseFleet(query: URLSearchParams): FleetPlace {
  const filter: FleetFilter = {};
  for (const key of kFleetFilters) {
    const value = (query.get(key) ?? '').slice(0, kNameMax);
    if (value) filter[key] = value;
  }
  return Object.keys(filter).length > 0 ? { page: 'fleet', filter } : { page: 'fleet' };
}

// As the API and the address take it: empty where nothing is filtered.
export function filterQuery(filter: FleetFilter): string {
  const query = new URLSearchParams();
  for (const key of kFleetFilters) if (filter[key]) query.set(key, filter[key]);
  return query.toString();
}

function parseFabric(query: URLSearchParams): FabricPlace {
  const depth = whole(query.get('depth'));
  return {
    page: 'fabric',
    focus: (query.get('focus') ?? '').slice(0, kNameMax),
    depth: depth === null ? null : Math.max(1, Math.min(kFabricDepthMax, depth)),
    open: [...new Set(query.getAll('open'))].filter((id) => id !== '' && id.length <= kNameMax).slice(0, kFabricOpenMax),
    by: query.get('by') === 'switch' ? 'switch' : 'port',
    sort: kPortSorts.find((one) => one === query.get('sort')) ?? 'worst',
    at: moment(query.get('at')),
    view: query.get('view') === 'table' ? 'table' : 'chart',
  };
}

function parseSle(query: URLSearchParams): SlePlace {
  const hours = whole(query.get('hours')) ?? kSleHours;
  const name = (key: string): string => clean(query.get(key) ?? '').slice(0, 256);
  return {
    page: 'sle', hours: Math.max(1, Math.min(kSleHoursMax, hours)), job: name('job'), host: name('host'), sle: name('sle'),
    classifier: name('classifier'), sub: name('sub'),
  };
}

function parseStep(job: string, step: number, query: URLSearchParams): StepPlace {
  const [from, to] = [whole(query.get('from')), whole(query.get('to'))];
  const windowed = from !== null && to !== null && from < to;
  const ranks = query.get('ranks') ?? '';
  return {
    page: 'step', job, step,
    from: windowed ? from : null,
    to: windowed ? to : null,
    ranks: isRanks(ranks) ? ranks : '',
    rank: whole(query.get('rank')),
    view: query.get('view') === 'table' ? 'table' : 'chart',
  };
}

function parseProfile(job: string, capture: string, query: URLSearchParams): ProfilePlace {
  const [from, to] = [whole(query.get('from')), whole(query.get('to'))];
  const windowed = from !== null && to !== null && from < to;
  const [ranks, open] = [query.get('ranks') ?? '', query.get('open')];
  return {
    ...profilePlace(job, capture),
    from: windowed ? from : null,
    to: windowed ? to : null,
    step: whole(query.get('step')),
    ranks: isRanks(ranks) ? ranks : '',
    open: open === 'none' ? '' : open !== null && isRanks(open) ? open : null,
    rank: whole(query.get('rank')),
    against: query.get('against') ?? '',
    kernel: clean(query.get('kernel') ?? ''),
    sort: query.get('sort') === 'total' ? 'total' : 'difference',
    view: query.get('view') === 'table' ? 'table' : 'chart',
  };
}

function parseLogs(query: URLSearchParams): LogsPlace {
  const part = (key: string): string => (query.get(key) ?? '').slice(0, kNameMax);
  return {
    page: 'logs',
    job: part('job'),
    rank: whole(query.get('rank')),
    host: part('host'),
    severity: kSeverities.find((one) => one === query.get('severity')) ?? '',
    text: part('text'),
    last: Math.max(10, Math.min(kLogsLastMax, whole(query.get('last')) ?? kLogsLast)),
    at: moment(query.get('at')),
    follow: query.get('follow') !== '0',
  };
}

// "0-7,64": what the API takes.
export function isRanks(text: string): boolean {
  return text.length <= 1_000 && /^\d{1,7}(-\d{1,7})?(,\d{1,7}(-\d{1,7})?)*$/.test(text);
}

// As the browser has it: with the prefix under which the server is reached.
export function writePlace(place: Place): string {
  return prefix + writePath(place);
}

// What is as it usually is stays out of the address.
function writePath(place: Place): string {
  if (place.page === 'fleet') return withQuery('/', new URLSearchParams(filterQuery(place.filter ?? {})));
  if (place.page === 'cardinality') return '/cardinality';
  if (place.page === 'services') return '/services';
  if (place.page === 'incidents') return '/incidents';
  if (place.page === 'incident') return `/incidents/${encodeURIComponent(place.id)}`;
  if (place.page === 'docs') return place.document ? `/docs/${place.document}` : '/docs';
  if (place.page === 'missing') return place.path;
  const query = new URLSearchParams();
  if (place.page === 'alerts') {
    if (place.id) query.set('id', place.id);
    return withQuery('/alerts', query);
  }
  if (place.page === 'fabric') {
    if (place.focus) query.set('focus', place.focus);
    if (place.depth !== null) query.set('depth', String(place.depth));
    for (const id of place.open) query.append('open', id);
    if (place.by !== 'port') query.set('by', place.by);
    if (place.sort !== 'worst') query.set('sort', place.sort);
    if (place.at !== null) query.set('at', String(place.at));
    if (place.view !== 'chart') query.set('view', place.view);
    return withQuery('/fabric', query);
  }
  if (place.page === 'path') {
    const parts: [string, string][] = [['a', place.a], ['b', place.b], ['job', place.job], ['at', place.at === null ? '' : String(place.at)], ['qp', place.qp], ['source_port', place.sourcePort]];
    for (const [key, value] of parts) if (value) query.set(key, value);
    return withQuery('/fabric/path', query);
  }
  if (place.page === 'logs') {
    for (const key of ['job', 'host', 'severity', 'text'] as const) if (place[key]) query.set(key, place[key]);
    if (place.rank !== null) query.set('rank', String(place.rank));
    if (place.last !== kLogsLast) query.set('last', String(place.last));
    if (place.at !== null) query.set('at', String(place.at));
    if (!place.follow) query.set('follow', '0');
    return withQuery('/logs', query);
  }
  if (place.page === 'nodes') {
    if (place.host) query.set('host', place.host);
    return withQuery('/nodes', query);
  }
  if (place.page === 'node' || place.page === 'gpu') {
    if (place.last !== kNodeLast) query.set('last', String(place.last));
    if (place.view !== 'chart') query.set('view', place.view);
    return withQuery(place.page === 'node' ? `/nodes/${segment(place.host)}` : `/gpus/${segment(place.uuid)}`, query);
  }
  if (place.page === 'sle') {
    if (place.hours !== kSleHours) query.set('hours', String(place.hours));
    for (const key of ['job', 'host', 'sle', 'classifier', 'sub'] as const) if (place[key]) query.set(key, place[key]);
    return withQuery('/sle', query);
  }
  if (place.page === 'service') {
    if (place.last !== kServiceLast) query.set('last', String(place.last));
    return withQuery(`/services/${segment(place.service)}`, query);
  }
  if (place.page === 'profiles') {
    if (place.ranks !== kProfileRanks) query.set('ranks', place.ranks);
    return withQuery(`/jobs/${encodeURIComponent(place.job)}/profiles`, query);
  }
  if (place.page === 'profile') {
    if (place.from !== null && place.to !== null) {
      query.set('from', String(place.from));
      query.set('to', String(place.to));
    } else if (place.step !== null) {
      query.set('step', String(place.step));
    }
    if (place.ranks) query.set('ranks', place.ranks);
    if (place.open !== null) query.set('open', place.open || 'none');
    if (place.rank !== null) query.set('rank', String(place.rank));
    if (place.against) query.set('against', place.against);
    if (place.kernel) query.set('kernel', place.kernel);
    if (place.sort !== 'difference') query.set('sort', place.sort);
    if (place.view !== 'chart') query.set('view', place.view);
    return withQuery(`/jobs/${encodeURIComponent(place.job)}/profiles/${segment(place.capture)}`, query);
  }
  if (place.page === 'step') {
    if (place.from !== null && place.to !== null) {
      query.set('from', String(place.from));
      query.set('to', String(place.to));
    }
    if (place.ranks) query.set('ranks', place.ranks);
    if (place.rank !== null) query.set('rank', String(place.rank));
    if (place.view !== 'chart') query.set('view', place.view);
    return withQuery(`/jobs/${encodeURIComponent(place.job)}/steps/${place.step}`, query);
  }
  if (place.step !== null) query.set('step', String(place.step));
  if (place.rank !== null) query.set('rank', String(place.rank));
  if (place.sort !== 'badness') query.set('sort', place.sort);
  if (place.view !== 'chart') query.set('view', place.view);
  if (place.last !== kLastDefault) query.set('last', String(place.last));
  return withQuery(`/jobs/${segment(place.job)}`, query);
}

// The server takes a path whose last segment has a dot for a file; the slash keeps `llama-3.1` a page.
function segment(name: string): string {
  return encodeURIComponent(name) + (name.includes('.') ? '/' : '');
}

function withQuery(path: string, query: URLSearchParams): string {
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export function jobPlace(job: string): JobPlace {
  return { page: 'job', job, step: null, rank: null, sort: 'badness', view: 'chart', last: kLastDefault };
}

export function stepPlace(job: string, step: number): StepPlace {
  return { page: 'step', job, step, from: null, to: null, ranks: '', rank: null, view: 'chart' };
}

export function profilesPlace(job: string, ranks = kProfileRanks): ProfilesPlace {
  return { page: 'profiles', job, ranks };
}

export function profilePlace(job: string, capture: string): ProfilePlace {
  return { page: 'profile', job, capture, from: null, to: null, step: null, ranks: '', open: null, rank: null, against: '', kernel: '', sort: 'difference', view: 'chart' };
}

export function fabricPlace(focus = ''): FabricPlace {
  return { page: 'fabric', focus, depth: null, open: [], by: 'port', sort: 'worst', at: null, view: 'chart' };
}

export function pathPlace(a: string, b: string, job = ''): PathPlace {
  return { page: 'path', a, b, job, at: null, qp: '', sourcePort: '' };
}

export function nodesPlace(host = ''): NodesPlace {
  return { page: 'nodes', host };
}

export function nodePlace(host: string): NodePlace {
  return { page: 'node', host, last: kNodeLast, view: 'chart' };
}

export function gpuPlace(uuid: string): GpuPlace {
  return { page: 'gpu', uuid, last: kNodeLast, view: 'chart' };
}

export function logsPlace(of: Partial<Pick<LogsPlace, 'job' | 'rank' | 'host'>> = {}): LogsPlace {
  return { page: 'logs', job: '', rank: null, host: '', severity: '', text: '', last: kLogsLast, at: null, follow: true, ...of };
}

export function incidentPlace(id: string): IncidentPlace {
  return { page: 'incident', id };
}

export function docsPlace(document = ''): DocsPlace {
  return { page: 'docs', document };
}

export function servicePlace(service: string): ServicePlace {
  return { page: 'service', service, last: kServiceLast };
}

export function slePlace(job = ''): SlePlace {
  return { page: 'sle', hours: kSleHours, job, host: '', sle: '', classifier: '', sub: '' };
}

export const place = signal<Place>({ page: 'fleet' });

// `replace` for what need not be a stop on the way back: moving a cursor, sorting.
export function go(to: Place, replace = false): void {
  const url = writePlace(to);
  if (url !== location.pathname + location.search) {
    if (replace) history.replaceState(null, '', url);
    else history.pushState(null, '', url);
  }
  place.value = to;
}

export function watchAddress(): void {
  const read = (): void => {
    place.value = parsePlace(unrooted(location.pathname), location.search);
  };
  window.addEventListener('popstate', read);
  read();
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

// Nanoseconds since 1970; a number holds them to a quarter of a microsecond.
function moment(text: string | null): number | null {
  return text !== null && /^\d{10,19}$/.test(text) ? Number(text) : null;
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
