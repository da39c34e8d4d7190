// Incidents: what is broken, whom it hits, what it costs, and where people stand with it.
import { decodeVerdict, exact, list, num, object, text, type Verdict } from './decode';
import type { Mark } from './health';

export type IncidentState = 'open' | 'acknowledged' | 'resolved' | 'unknown';

export interface IncidentRow {
  id: string;
  state: IncidentState;
  active: boolean;    // something of it is seen now
  severity: string;   // info, warning, critical
  sentence: string;
  action: string;
  component: string;  // for people: "gpu GPU-1 of node-17"
  host: string;       // where it stands, and the GPU: exact, they are sent back in paths; empty: nowhere in particular
  gpu: string;
  beginNs: number | null;
  endNs: number | null;  // null while it lasts
  by: string;            // who took it, or resolved it
  cost: string;          // GPU time and money in words
  money: string;         // that part of it; empty: the server knows no prices
  times: number;         // in 30 days, this one included
  repeat: string;        // the same as a sentence; empty: the first time
  jobs: string[];        // exact: they are sent back in paths
}

export interface Offender {
  sentence: string;
  newest: string;  // id
}

export interface IncidentList {
  incidents: IncidentRow[];
  total: number;
  open: number;  // not resolved
  offenders: Offender[];
}

export interface IncidentJob {
  job: string;
  suffers: boolean;
  lostGpuSeconds: number | null;
  lostShare: number | null;
  completion: string;
  path: string;
}

export interface RadiusJob {
  job: string;
  ranksHit: number | null;
  ranks: number | null;
  hasVerdict: boolean;
}

export interface Moment {
  atNs: number | null;
  what: string;
  who: string;
  text: string;
  path: string;
}

export interface Brief {
  id: string;
  sentence: string;
  state: string;
  beginNs: number | null;
}

export interface Incident extends IncidentRow {
  hasMore: boolean;
  hurt: IncidentJob[];
  radius: { known: boolean; gpus: number | null; hosts: number | null; total: number | null; note: string; jobs: RadiusJob[] };
  timeline: Moment[];
  earlier: Brief[];
  beside: Brief[];
  verdicts: { job: string; verdict: Verdict }[];
}

const kStates: readonly string[] = ['open', 'acknowledged', 'resolved'];

function moment(value: unknown): number | null {
  const ns = num(value);
  return ns === null || ns <= 0 ? null : ns;
}

// Only of this server's pages.
function pagePath(value: unknown): string {
  const path = exact(value);
  return /^\/(jobs|alerts)[/?]/.test(path) ? path : '';
}

function decodeRow(value: unknown): IncidentRow {
  const one = object(value);
  const state = text(one['state']);
  return {
    id: exact(one['id']),
    state: kStates.includes(state) ? (state as IncidentState) : 'unknown',
    active: one['active'] === true,
    severity: text(one['severity']),
    sentence: text(one['sentence']),
    action: text(one['action']),
    component: text(one['component_text']),
    host: exact(one['host']),
    gpu: exact(one['gpu_uuid']),
    beginNs: moment(one['begin_unix_ns']),
    endNs: moment(one['end_unix_ns']),
    by: text(one['acknowledged_by']) || text(one['resolved_by']),
    cost: text(one['cost']),
    money: text(one['money']),
    times: num(one['times']) ?? 1,
    repeat: text(one['repeat']),
    jobs: list(one['job_ids']).map(exact).filter((job) => job !== ''),
  };
}

export function decodeIncidents(value: unknown): IncidentList {
  const json = object(value);
  const incidents = list(json['incidents']).map(decodeRow);
  return {
    incidents,
    total: num(json['total']) ?? incidents.length,
    open: incidents.filter((one) => one.state !== 'resolved').length,
    offenders: list(json['offenders']).map((item) => ({ sentence: text(object(item)['sentence']), newest: exact(list(object(item)['incidents'])[0]) })),
  };
}

function decodeBrief(value: unknown): Brief {
  const one = object(value);
  return { id: exact(one['id']), sentence: text(one['sentence']), state: text(one['state']), beginNs: moment(one['begin_unix_ns']) };
}

export function decodeIncident(value: unknown): Incident {
  const json = object(value);
  const radius = object(json['blast_radius']);
  return {
    ...decodeRow(value),
    hasMore: json['has_more'] === true,
    hurt: list(json['jobs']).map((item) => {
      const job = object(item);
      return {
        job: exact(job['job_id']), suffers: job['suffers'] === true, lostGpuSeconds: num(job['lost_gpu_seconds']), lostShare: num(job['lost_share']),
        completion: text(object(job['completion'])['sentence']), path: pagePath(job['path']),
      };
    }),
    radius: {
      known: radius['known'] === true, gpus: num(radius['gpus']), hosts: num(radius['hosts']), total: num(radius['jobs_total']), note: text(radius['note']),
      jobs: list(radius['jobs']).map((item) => {
        const job = object(item);
        return { job: exact(job['job_id']), ranksHit: num(job['ranks_hit']), ranks: num(job['ranks']), hasVerdict: job['has_verdict'] === true };
      }),
    },
    timeline: list(json['timeline']).map((item) => {
      const one = object(item);
      return { atNs: moment(one['at_unix_ns']), what: text(one['what']), who: text(one['who']), text: text(one['text']), path: pagePath(one['path']) };
    }),
    earlier: list(json['earlier']).map(decodeBrief),
    beside: list(json['beside']).map(decodeBrief),
    verdicts: list(json['verdicts']).map((item) => ({ job: exact(object(item)['job_id']), verdict: decodeVerdict(item) })),
  };
}

// Red is for what needs a person now: seen, and nobody has taken it.
export function incidentMark(one: IncidentRow): Mark {
  if (one.state === 'resolved') return { glyph: '✓', word: 'resolved', tone: 'quiet' };
  if (one.state === 'acknowledged') return { glyph: '◐', word: 'acknowledged', tone: one.active ? 'doubt' : 'quiet' };
  if (one.state === 'open') return { glyph: '■', word: 'open', tone: one.active ? 'alarm' : 'doubt' };
  return { glyph: '◌', word: 'unknown', tone: 'quiet' };
}
