// One step, rank against rank, as the server works it out: who waited for whom, the critical path, communicators, phases. Times
// are nanoseconds; those of the path count from the step's begin, as in base/timeline.ts.
import { decodeAnswers, list, num, object, scalar, step, text, type JobAnswers } from './decode';

export interface StepRank {
  rank: number;
  host: string;
  detail: boolean;
  duration: number | null;
  own: number | null;
  wait: number | null;
  transfer: number | null;
  caused: number | null;  // waits of others that came from its own work, summed
  path: number | null;    // on the critical path
}
export interface Wait {
  waiter: number;
  awaited: number;
  wait: number | null;
  operations: number | null;
  longest: number | null;  // and which that was:
  comm: string;
  operation: string;       // "AllReduce #812"; empty: not known
  fromSummary: boolean;
}
export interface StepComm {
  comm: string;
  name: string;  // "dp"; with its number where there are several
  members: string;
  size: number | null;
  operations: number | null;
  functions: string;
  bytes: number | null;
  wait: number | null;
  transfer: number | null;
  gbS: number | null;
  lastRank: number | null;
  last: number | null;
}
export interface StepPhase {
  name: string;
  mean: number | null;
  longest: number | null;
  longestRank: number | null;
  own: number | null;
  ranks: number | null;
}
export interface PathPiece {
  kind: string;
  rank: number;
  from: number;
  to: number;
  what: string;  // phase or operation
}
export interface StepAnalysis {
  step: number | null;
  sentence: string;
  detail: boolean;
  inferred: boolean;
  leftOut: number | null;
  length: number | null;
  median: number | null;
  ranksTotal: number | null;
  ranksDetailed: number | null;
  ranksMissing: string;  // "8-15,40": without detail
  clockError: number | null;
  clocksUnknown: number | null;
  culprit: number | null;
  ranks: StepRank[];
  ranksKnown: number;  // of which `ranks` may be a part
  waits: Wait[];
  waitsTotal: number;
  comms: StepComm[];
  commsTotal: number;
  phases: StepPhase[];
  path: PathPiece[];
}
export interface TracedSteps {
  steps: { step: number; ranks: number | null }[];  // newest first
  total: number;
  answers: JobAnswers;
}
export interface Asked {
  hosts: number | null;
  ranks: number | null;
  refused: number | null;
  unknown: number | null;
}

export function decodeTraced(value: unknown): TracedSteps {
  const json = object(value);
  const steps = list(json['steps']).flatMap((item) => {
    const at = step(object(item)['step']);
    return at === null ? [] : [{ step: at, ranks: num(object(item)['ranks']) }];
  });
  return { steps, total: num(json['total']) ?? steps.length, answers: decodeAnswers(json['answers']) };
}

export function decodeAsked(value: unknown): Asked {
  const json = object(value);
  return { hosts: num(json['hosts_asked']), ranks: num(json['ranks_asked']), refused: num(json['ranks_refused']), unknown: num(json['ranks_unknown']) };
}

export function decodeStep(value: unknown): StepAnalysis {
  const json = object(value);
  const coverage = object(json['coverage']);
  const clock = object(json['clock']);
  const ranks = list(json['ranks']).flatMap(decodeStepRank);
  const waits = list(json['waits']).flatMap(decodeWait);
  const several = namesTwice(list(json['comms']));
  const comms = list(json['comms']).map((item) => decodeComm(item, several));
  return {
    step: step(json['step']),
    sentence: text(json['sentence']),
    detail: json['detail'] === true,
    inferred: json['inferred'] === true,
    leftOut: num(coverage['left_out']),
    length: ns(json['length_ms']),
    median: ns(json['median_ms']),
    ranksTotal: num(coverage['ranks']),
    ranksDetailed: num(coverage['detailed']),
    ranksMissing: text(coverage['ranks_missing']),
    clockError: num(clock['error_us']) === null ? null : num(clock['error_us'])! * 1e3,
    clocksUnknown: num(clock['unknown']),
    culprit: step(object(json['culprit'])['rank']),
    ranks,
    ranksKnown: num(json['ranks_total']) ?? ranks.length,
    waits,
    waitsTotal: num(json['waits_total']) ?? waits.length,
    comms,
    commsTotal: num(json['comms_total']) ?? comms.length,
    phases: list(json['phases']).map(decodePhase),
    path: list(json['path']).flatMap(decodePiece),
  };
}

function decodeStepRank(value: unknown): StepRank[] {
  const json = object(value);
  const rank = step(json['rank']);
  if (rank === null) return [];
  return [{
    rank, host: text(json['host']), detail: json['detail'] === true, duration: ns(json['duration_ms']), own: ns(json['own_ms']), wait: ns(json['wait_ms']),
    transfer: ns(json['transfer_ms']), caused: ns(json['caused_ms']), path: ns(json['path_ms']),
  }];
}

function decodeWait(value: unknown): Wait[] {
  const json = object(value);
  const [waiter, awaited] = [step(json['rank']), step(json['for'])];
  if (waiter === null || awaited === null) return [];
  return [{
    waiter, awaited, wait: ns(json['wait_ms']), operations: num(json['operations']), longest: ns(json['longest_ms']), comm: scalar(json['comm_id']),
    operation: text(json['operation']), fromSummary: json['from_summary'] === true,
  }];
}

function namesTwice(comms: unknown[]): Set<string> {
  const seen = new Set<string>();
  return new Set(comms.map((item) => text(object(item)['comm'])).filter((name) => seen.size === seen.add(name).size));
}

function decodeComm(value: unknown, several: ReadonlySet<string>): StepComm {
  const json = object(value);
  const name = text(json['comm']);
  return {
    comm: scalar(json['comm_id']), name: several.has(name) ? `${name} ${num(json['comm_index']) ?? '?'}` : name, members: text(json['ranks']), size: num(json['size']),
    operations: num(json['operations']), functions: text(json['functions']), bytes: num(json['bytes']), wait: ns(json['wait_ms']), transfer: ns(json['transfer_ms']),
    gbS: num(json['bus_gb_s']), lastRank: step(json['last_rank']), last: num(json['last']),
  };
}

function decodePhase(value: unknown): StepPhase {
  const json = object(value);
  return {
    name: text(json['phase']), mean: ns(json['mean_ms']), longest: ns(json['longest_ms']), longestRank: step(json['longest_rank']), own: ns(json['own_ms']),
    ranks: num(json['ranks']),
  };
}

function decodePiece(value: unknown): PathPiece[] {
  const json = object(value);
  const [rank, from, to] = [step(json['rank']), ns(json['from_ms']), ns(json['to_ms'])];
  if (rank === null || from === null || to === null) return [];
  return [{ kind: text(json['kind']), rank, from, to, what: text(json['phase']) || text(json['operation']) }];
}

function ns(ms: unknown): number | null {
  const known = num(ms);
  return known === null ? null : known * 1e6;
}
