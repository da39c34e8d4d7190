// Minutes of GPUs by SLE: good, degraded, unknown, and what the degraded ones are charged to.
import { list, num, object, text } from './decode';

export interface Minutes {
  good: number;
  degraded: number;
  unknown: number;
}
export interface Part {
  name: string;
  minutes: number;
  share: number;
  subs: { name: string; minutes: number }[];
}
export interface Bucket extends Minutes {
  chosen: number;  // degraded, and of the chosen classifier
}
export interface Threshold {
  against: string;
  direction: string;
  unit: string;
  value: number;
  minimum: number;
  maximum: number | null;
}
export interface Sle {
  name: string;
  title: string;
  goodWhen: string;
  measuredFrom: string;
  measured: boolean;
  threshold: Threshold | null;
  minutes: Minutes & { idle: number };  // idle by plan, and no part of the others
  success: number | null;  // null: too little is known
  least: number | null;
  most: number | null;
  coverage: number | null;
  chosenMinutes: number;
  chosenMoney: number | null;
  money: string;  // in words, with what has no price; empty: the server knows no prices
  classifiers: Part[];
  trend: Bucket[];
}
export interface SleHead {
  scope: string;
  ledger: string;
  fromS: number;
  toS: number;
  bucketMinutes: number;
}
export interface SleList extends SleHead {
  sles: Sle[];
}
export interface Affected {
  name: string;
  degraded: number;
  total: number | null;
  job: string;
  host: string;
  rank: number | null;
  kind: string;
  classifier: string;
  sub: string;
  verdict: string;
}
export interface AffectedList {
  total: number;
  rows: Affected[];
}
export interface SleDetail extends SleHead {
  sle: Sle;
  jobs: AffectedList;
  hosts: AffectedList;
  gpus: AffectedList;
  models: AffectedList;
  culprits: AffectedList;
}

export function decodeSles(value: unknown): SleList {
  const json = object(value);
  return { ...head(json), sles: list(json['sles']).map((one) => decodeSle(object(one))) };
}

export function decodeSleDetail(value: unknown): SleDetail {
  const json = object(value);
  const affected = object(json['affected']);
  return {
    ...head(json), sle: decodeSle(json),
    jobs: affectedOf(affected['jobs']), hosts: affectedOf(affected['hosts']), gpus: affectedOf(affected['gpus']),
    models: affectedOf(affected['models']), culprits: affectedOf(affected['culprits']),
  };
}

function head(json: Record<string, unknown>): SleHead {
  return {
    scope: text(json['scope']), ledger: text(json['ledger']), fromS: num(json['from_unix_s']) ?? 0, toS: num(json['to_unix_s']) ?? 0,
    bucketMinutes: num(json['bucket_minutes']) ?? 1,
  };
}

function decodeSle(json: Record<string, unknown>): Sle {
  const minutes = object(json['minutes']);
  const whole = (of: Record<string, unknown>, key: string): number => num(of[key]) ?? 0;
  const limit = object(json['threshold']);
  return {
    name: text(json['name']), title: text(json['title']), goodWhen: text(json['good_when']), measuredFrom: text(json['measured_from']),
    measured: json['measured'] === true,
    threshold: text(limit['against']) === '' ? null : {
      against: text(limit['against']), direction: text(limit['direction']), unit: text(limit['unit']), value: whole(limit, 'value'),
      minimum: whole(limit, 'minimum'), maximum: num(limit['maximum']),
    },
    minutes: { good: whole(minutes, 'good'), degraded: whole(minutes, 'degraded'), unknown: whole(minutes, 'unknown'), idle: whole(minutes, 'idle') },
    success: num(json['success']), least: num(json['success_least']), most: num(json['success_most']), coverage: num(json['coverage']),
    chosenMinutes: whole(json, 'chosen_minutes'), chosenMoney: num(json['chosen_money']), money: text(json['money']),
    classifiers: list(json['classifiers']).map(object).map((part) => ({
      name: text(part['name']), minutes: whole(part, 'minutes'), share: whole(part, 'share'),
      subs: list(part['subs']).map(object).map((sub) => ({ name: text(sub['name']), minutes: whole(sub, 'minutes') })),
    })),
    trend: list(json['trend']).map((one) => {
      const [good, degraded, unknown, chosen] = list(one).map((value) => num(value) ?? 0);
      return { good: good ?? 0, degraded: degraded ?? 0, unknown: unknown ?? 0, chosen: chosen ?? degraded ?? 0 };
    }),
  };
}

function affectedOf(value: unknown): AffectedList {
  const json = object(value);
  return {
    total: num(json['total']) ?? 0,
    rows: list(json['list']).map(object).map((one) => ({
      name: text(one['name']), degraded: num(one['degraded']) ?? 0, total: num(one['total']), job: text(one['job_id']),
      host: text(one['host']), rank: num(one['rank']), kind: text(one['kind']), classifier: text(one['classifier']), sub: text(one['sub']),
      verdict: text(one['verdict_id']),
    })),
  };
}

// "97.2 %"; where minutes are unknown from the worst to the best that it can be.
export function successText(sle: Sle): string {
  const percent = (share: number | null): string => (share === null ? '?' : (100 * share).toFixed(1));
  if (!sle.measured) return 'not measured';
  if (sle.minutes.unknown === 0) return `${percent(sle.success)} %`;
  return `${percent(sle.least)} to ${percent(sle.most)} %`;
}

// Minutes of GPUs, as people say them.
export function gpuMinutes(minutes: number): string {
  if (minutes < 120) return `${Math.round(minutes)} GPU-min`;
  const hours = minutes / 60;
  return `${hours < 100 ? hours.toFixed(1) : Math.round(hours).toLocaleString('en')} GPU-h`;
}
