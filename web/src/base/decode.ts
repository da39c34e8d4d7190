// What the API answers, in our types. A decoder never throws and never trusts: a missing or odd field becomes "unknown" (null,
// empty), so that one bad value costs one cell and not the page. Text from outside is cleaned here, except `job_id`, which
// must stay exact because it is sent back in paths, as must a verdict's `id` and the `place` of its culprit.
import { clean } from './format';
import { kCauses, type Cause, type ClaimKind, type Layer, type Pattern, type VerdictKind, type VerdictState } from './verdict_terms';

export type Health = 'ok' | 'slow' | 'hang' | 'suspected' | 'unknown';

export interface Job {
  job_id: string;
  attempt: number;
  world_size: number | null;
  ranks_seen: number | null;
  ranks_reporting: number | null;
  state: 'running' | 'ended' | 'silent' | 'unknown';
  last_step: number | null;
  step_ms: number | null;
  last_seen_unix_ns: number | null;
  health: Health;
  sentence: string;
}

export interface JobList {
  jobs: Job[];
  total: number;
  known: number;  // whatever is asked for
}

// A word that this page does not know: the server may be newer. Shown as it is.
export type OtherWord = string & { readonly other: unique symbol };

export interface Claim {
  claim: string;
  kind: ClaimKind | OtherWord;
  subject: string;
  value: number | null;
  unit: string;
  baseline: number | null;
  peers: number | null;
  from: number | null;
  to: number | null;
  query: string;
}

export interface Verdict {
  id: string;
  state: VerdictState | OtherWord;
  kind: VerdictKind | OtherWord;
  pattern: Pattern | OtherWord;
  period_steps: number | null;
  since_step: number | null;
  through_step: number | null;
  since_unix_ns: number | null;
  lost_gpu_seconds: number | null;
  lost_share: number | null;
  money: string;  // what the lost time costs, in words; empty: the server knows no prices
  coverage: number | null;
  sentence: string;
  culprit: { ranks: number[]; host: string; layer: Layer | OtherWord; component: string; cause: Cause | OtherWord; place: string };  // place: in the network; empty: not there, or not told
  chain: Claim[];
  alternatives: { culprit: string; cause: Cause | null; checked: boolean; why_lower: string; decided_by: string }[];  // cause: null where it is a thing
  next: { action: string; command: string }[];
  runbook: string;  // the document on its cause, "runbooks/ecc"; empty: none
  feedback: Feedback | null;
  incident: { id: string; state: string } | null;  // that it belongs to
}

// What a person said of a verdict.
export interface Feedback {
  right: boolean;
  cause: Cause | OtherWord;  // what it was instead; empty: not told
  note: string;
  at_unix_ns: number | null;
}

export interface Warning {
  id: string;
  sentence: string;
  cause: Cause | OtherWord;
  horizon_s: number | null;
  raised_unix_ns: number | null;
  claims: Claim[];
  action: string;
  command: string;
  record: { raised: number; came_true: number } | null;  // of such warnings in simulation
}

export interface WarningList {
  warnings: Warning[];
  total: number;
}

// What a job's ranks can be asked for: detail, stacks, profiles, samples; null: the server does not say.
export type JobAnswers = readonly string[] | null;
export const canAsk = (answers: JobAnswers, what: string): boolean => answers === null || answers.includes(what);

export interface Why {
  job: Job;
  health: Health;
  summary: string;
  verdicts: Verdict[];
  warnings: Warning[];
  breakdown: Record<string, number>;
  communication_seen: boolean;
  answers: JobAnswers;
  answersUnknown: readonly string[];  // of these nobody knows whether they are answered: agents report to a gateway
}

export interface RankRow {
  rank: number;
  host: string;
  local_rank: number | null;
  gpu_uuid: string;
  steps: number | null;
  step_ms: number | null;
  self_ms: number | null;
  excess_ms: number | null;
  comm_ms: number | null;
  input_ms: number | null;
  last_seen_unix_ns: number | null;
  status: string;
}

export interface RankList {
  from_step: number | null;
  to_step: number | null;
  ranks: RankRow[];
  total: number;
}

export interface RankStep {
  step: number;
  duration_ms: number | null;
  self_ms: number | null;
  comm_ms: number | null;
  queue_ms: number | null;
  quiet_ms: number | null;
  phases_ms: [string, number][];
  parts_ms: [string, number][];  // empty: the agent could not tell
  scalars: [string, number][];   // what the job told
  mfu: number | null;
  comms: { comm_id: string; size: number | null; p2p: boolean; count: number | null; bytes: number | null; gpu_ms: number | null;
           shortest_ms: number | null; longest_ms: number | null; gb_s: number | null }[];
  flows: { comm_id: string; peer: number | null; send: boolean; transfers: number | null; bytes: number | null;
           wire_ms: number | null; own_gpu_ms: number | null; peer_ms: number | null }[];
}

export interface Operation {
  state: string;
  function: string;
  seq: number | null;
  bytes: number | null;
  peer: number | null;
  since_unix_ns: number | null;
}

// Where a rank stands in a communicator: what it entered and what it has not left.
export interface CommStatus {
  comm_id: string;
  size: number | null;
  enqueued: number | null;
  completed: number | null;
  pending: Operation[];
}

export interface RankDetail {
  rank: number;
  host: string;
  gpu_uuid: string;
  state: string;
  last_seen_unix_ns: number | null;
  names: Map<string, string>;  // comm_id -> name, where it has one
  steps: RankStep[];
  status: { quiet_ms: number | null; alive: boolean | null; phase: string; comms: CommStatus[] };
}

type Json = Record<string, unknown>;

export function object(value: unknown): Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}
export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
export function num(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}
export function text(value: unknown): string {
  return typeof value === 'string' ? clean(value) : '';
}
// As it came, where it is sent back.
export function exact(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
// Of a kernel: those of templates differ beyond what is shown, so what is cut off leaves its mark.
export function name(value: unknown): string {
  const safe = text(value);
  return typeof value === 'string' && safe.length < value.length ? `${safe.slice(0, -9)}…${hash(value)}` : safe;
}
// FNV-1a, 32 bits.
export function hash(value: string): string {
  let sum = 0x811c9dc5;
  for (let i = 0; i < value.length; i += 1) sum = Math.imul(sum ^ value.charCodeAt(i), 0x01000193);
  return (sum >>> 0).toString(16).padStart(8, '0');
}
function word<T extends string>(value: unknown): T | OtherWord {
  return text(value) as T | OtherWord;
}
const isCause = (value: string): value is Cause => Object.hasOwn(kCauses, value);
function oneOf<T extends string>(value: unknown, allowed: readonly T[], otherwise: T): T {
  return allowed.includes(value as T) ? (value as T) : otherwise;
}
const kHealth: readonly Health[] = ['ok', 'slow', 'hang', 'suspected', 'unknown'];

function decodeJob(value: unknown): Job {
  const json = object(value);
  return {
    job_id: exact(json['job_id']),
    attempt: num(json['attempt']) ?? 0,
    world_size: num(json['world_size']),
    ranks_seen: num(json['ranks_seen']),
    ranks_reporting: num(json['ranks_reporting']),
    state: oneOf(json['state'], ['running', 'ended', 'silent', 'unknown'] as const, 'unknown'),
    last_step: step(json['last_step']),
    step_ms: num(json['step_ms']),
    last_seen_unix_ns: num(json['last_seen_unix_ns']),
    health: oneOf(json['health'], kHealth, 'unknown'),
    sentence: text(json['sentence']),
  };
}

export function decodeJobs(value: unknown): JobList {
  const jobs = list(object(value)['jobs']).map(decodeJob);
  const total = num(object(value)['total']) ?? jobs.length;
  return { jobs, total, known: num(object(value)['known']) ?? total };
}

export function decodeVerdict(value: unknown): Verdict {
  const json = object(value);
  const culprit = object(json['culprit']);
  return {
    id: exact(json['id']),
    state: word<VerdictState>(json['state']),
    kind: word<VerdictKind>(json['kind']),
    pattern: word<Pattern>(json['pattern']),
    period_steps: num(json['period_steps']),
    since_step: step(json['since_step']),
    through_step: step(json['through_step']),
    since_unix_ns: num(json['since_unix_ns']),
    lost_gpu_seconds: num(json['lost_gpu_seconds']),
    lost_share: num(json['lost_share']),
    money: text(json['money']),
    coverage: num(json['coverage']),
    sentence: text(json['sentence']),
    culprit: {
      ranks: list(culprit['rank']).map(num).filter((rank): rank is number => rank !== null && rank >= 0),
      host: text(culprit['host']),
      layer: word<Layer>(culprit['layer']),
      component: text(culprit['component']),
      cause: word<Cause>(culprit['cause']),
      place: exact(culprit['place']),
    },
    chain: list(json['chain']).map(decodeClaim),
    alternatives: list(json['alternatives']).map((item) => {
      const other = object(item);
      const cause = text(other['cause']);
      return { culprit: text(other['culprit']), cause: isCause(cause) ? cause : null, checked: other['checked'] !== false, why_lower: text(other['why_lower']), decided_by: text(other['decided_by']) };
    }),
    next: list(json['next']).map((item) => ({ action: text(object(item)['action']), command: text(object(item)['command']) })),
    runbook: /^\/docs\/(runbooks\/[a-z-]{1,64})$/.exec(text(json['runbook']))?.[1] ?? '',
    feedback: decodeFeedback(json['feedback']),
    incident: decodeIncidentOf(json['incident']),
  };
}

function decodeIncidentOf(value: unknown): Verdict['incident'] {
  const incident = object(value);
  const id = exact(incident['id']);
  return id ? { id, state: text(incident['state']) } : null;
}

function decodeClaim(value: unknown): Claim {
  const claim = object(value);
  return {
    claim: text(claim['claim']),
    kind: word<ClaimKind>(claim['kind']),
    subject: text(claim['subject']),
    value: num(claim['value']),
    unit: text(claim['unit']),
    baseline: num(claim['baseline']),
    peers: num(claim['peers']),
    from: step(claim['from']),
    to: step(claim['to']),
    query: text(claim['query']),
  };
}

function decodeFeedback(value: unknown): Feedback | null {
  const json = object(value);
  if (typeof json['right'] !== 'boolean') return null;
  return { right: json['right'], cause: word<Cause>(json['cause']), note: text(json['note']), at_unix_ns: num(json['at_unix_ns']) };
}

function decodeWarning(value: unknown): Warning {
  const json = object(value);
  const next = object(json['next']);
  const raised = num(object(json['record'])['raised']);
  const cameTrue = num(object(json['record'])['came_true']);
  return {
    id: text(json['id']),
    sentence: text(json['sentence']),
    cause: word<Cause>(json['cause']),
    horizon_s: num(json['horizon_s']),
    raised_unix_ns: num(json['raised_unix_ns']),
    claims: list(json['claims']).map(decodeClaim),
    action: text(next['action']),
    command: text(next['command']),
    record: raised === null || cameTrue === null ? null : { raised, came_true: cameTrue },
  };
}

export function decodeWarnings(value: unknown): WarningList {
  const warnings = list(object(value)['warnings']).map(decodeWarning);
  return { warnings, total: num(object(value)['total']) ?? warnings.length };
}

export function decodeAnswers(value: unknown): JobAnswers {
  return Array.isArray(value) ? list(value).map(text) : null;
}

export function decodeWhy(value: unknown): Why {
  const json = object(value);
  const breakdown: Record<string, number> = {};
  for (const [name, share] of Object.entries(object(json['breakdown']))) {
    const known = num(share);
    if (known !== null) breakdown[clean(name)] = known;
  }
  return {
    job: decodeJob(json['job']),
    health: oneOf(json['health'], kHealth, 'unknown'),
    summary: text(json['summary']),
    verdicts: list(json['verdicts']).map(decodeVerdict),
    warnings: list(json['warnings']).map(decodeWarning),
    breakdown,
    answers: decodeAnswers(json['answers']),
    answersUnknown: list(json['answers_unknown']).map(text),
    communication_seen: json['communication_seen'] !== false,
  };
}

export function decodeRanks(value: unknown): RankList {
  const json = object(value);
  const ranks = list(json['ranks']).flatMap((item): RankRow[] => {
    const row = object(item);
    const rank = num(row['rank']);
    if (rank === null) return [];
    return [{
      rank,
      host: text(row['host']),
      local_rank: num(row['local_rank']),
      gpu_uuid: text(row['gpu_uuid']),
      steps: num(row['steps']),
      step_ms: num(row['step_ms']),
      self_ms: num(row['self_ms']),
      excess_ms: num(row['excess_ms']),
      comm_ms: num(row['comm_ms']),
      input_ms: num(row['input_ms']),
      last_seen_unix_ns: num(row['last_seen_unix_ns']),
      status: text(row['status']),
    }];
  });
  return { from_step: step(json['from_step']), to_step: step(json['to_step']), ranks, total: num(json['total']) ?? ranks.length };
}

export function decodeRank(value: unknown): RankDetail {
  const json = object(value);
  const status = object(json['status']);
  return {
    rank: num(json['rank']) ?? -1,
    host: text(json['host']),
    gpu_uuid: text(json['gpu_uuid']),
    state: text(json['state']),
    last_seen_unix_ns: num(json['last_seen_unix_ns']),
    names: new Map(list(json['communicators']).flatMap((item): [string, string][] => {
      const name = text(object(item)['name']);
      return name ? [[scalar(object(item)['comm_id']), name]] : [];
    })),
    steps: list(json['steps']).flatMap(decodeRankStep),
    status: {
      quiet_ms: num(status['quiet_ms']),
      alive: typeof status['alive'] === 'boolean' ? status['alive'] : null,
      phase: text(status['phase']),
      comms: list(status['comms']).map(decodeCommStatus),
    },
  };
}

function decodeCommStatus(value: unknown): CommStatus {
  const comm = object(value);
  const operations = [comm['collective'], comm['p2p']].map((item): Operation => {
    const op = object(item);
    return {
      state: text(op['state']), function: text(op['function']), seq: num(op['seq']), bytes: num(op['bytes']), peer: step(op['peer']),
      since_unix_ns: num(op['since_unix_ns']),
    };
  });
  return {
    comm_id: scalar(comm['comm_id']),
    size: num(comm['size']),
    enqueued: num(comm['collectives_enqueued']),
    completed: num(comm['collectives_completed']),
    pending: operations.filter((op) => op.state === 'enqueued' || op.state === 'started'),
  };
}

function decodeRankStep(value: unknown): RankStep[] {
  const json = object(value);
  const at = num(json['step']);
  if (at === null) return [];
  return [{
    step: at,
    duration_ms: num(json['duration_ms']),
    self_ms: num(json['self_ms']),
    comm_ms: num(json['comm_ms']),
    queue_ms: num(json['queue_ms']),
    quiet_ms: num(json['quiet_ms']),
    phases_ms: numbers(json['phases_ms']),
    parts_ms: numbers(json['parts_ms']),
    scalars: numbers(json['scalars']),
    mfu: num(json['mfu']),
    comms: list(json['comms']).map((item) => {
      const comm = object(item);
      return {
        comm_id: scalar(comm['comm_id']), size: num(comm['size']), p2p: comm['p2p'] === true, count: num(comm['count']),
        bytes: num(comm['bytes']), gpu_ms: num(comm['gpu_ms']), shortest_ms: num(comm['shortest_ms']),
        longest_ms: num(comm['longest_ms']), gb_s: num(comm['gb_s']),
      };
    }),
    flows: list(json['flows']).map((item) => {
      const flow = object(item);
      return {
        comm_id: scalar(flow['comm_id']), peer: num(flow['peer']), send: flow['send'] === true, transfers: num(flow['transfers']),
        bytes: num(flow['bytes']), wire_ms: num(flow['wire_ms']), own_gpu_ms: num(flow['own_gpu_ms']), peer_ms: num(flow['peer_ms']),
      };
    }),
  }];
}

function numbers(value: unknown): [string, number][] {
  return Object.entries(object(value)).flatMap(([name, item]): [string, number][] => (num(item) === null ? [] : [[clean(name), num(item)!]]));
}

// -1 is the server's word for "no step yet".
export function step(value: unknown): number | null {
  const known = num(value);
  return known === null || known < 0 ? null : known;
}

export function scalar(value: unknown): string {
  return typeof value === 'string' ? clean(value) : typeof value === 'number' || typeof value === 'boolean' ? String(value) : '';
}
