// Log records and events: what was asked for, what came, and how they become one list that follows.
import { exact, list, num, object, text } from './decode';
import { clean, clip } from './format';
import type { Mark } from './health';

export const kSeverities = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
export type Severity = (typeof kSeverities)[number];

export interface LogRecord {
  key: string;  // the same record has the same, whenever it is asked for
  timeNs: number;
  severity: Severity | '';
  event: string;
  line: string;  // the body; of an event without one, its attributes
  job: string;   // exact, as the host: they are sent back in paths
  rank: number | null;
  host: string;
  service: string;
  attributes: [string, string][];
  resource: [string, string][];
}

export interface LogPage {
  records: LogRecord[];  // as the server sent them
  after: string;         // digits: too long for a number of JavaScript
  more: boolean;         // there are others beyond the limit
  whole: boolean;
}

// What is shown: the newest that match, and how one gets at those before.
export interface LogList {
  records: LogRecord[];
  after: string;
  older: 'none' | 'some' | 'sameTime' | 'full';  // sameTime: more than an answer holds say the time of the last; full: no room
  whole: boolean;
}

export const kKept = 1_000;  // of them, the newest: what a browser shows well
export const kHeldMax = 5 * kKept;  // where somebody asks for older ones
const kLineMax = 2_000;
const kMembersMax = 100;

// Whole numbers with more digits than JSON.parse() keeps (times, identities of communicators) become texts.
function withExactNumbers(json: string): string {
  return json.replace(/"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g, (word) => (word.startsWith('"') ? word : `"${word}"`));
}

// The answer as text.
export function decodeLogs(body: string): LogPage {
  const answer = object(JSON.parse(withExactNumbers(body)));
  const records = list(answer['logs']).map(decodeRecord);
  const shown = num(answer['shown']) ?? records.length;
  return {
    records,
    after: String(num(answer['after']) ?? exact(answer['after'])),
    more: (num(answer['total']) ?? shown) > shown,
    whole: answer['whole'] !== false,
  };
}

function decodeRecord(value: unknown): LogRecord {
  const json = object(value);
  const resource = object(json['resource']);
  const rank = num(resource['lockstep.rank']);
  const severity = num(json['severity']) ?? 0;
  const attributes = members(json['attributes']);
  const body = json['body'];
  return {
    key: JSON.stringify([json['time_unix_ns'], json['event'], body, json['attributes'], resource]),
    timeNs: num(json['time_unix_ns']) ?? (Number(exact(json['time_unix_ns'])) || 0),
    severity: severity >= 1 && severity <= 24 ? kSeverities[Math.floor((severity - 1) / 4)]! : '',
    event: text(json['event']),
    line: lineOf(body, attributes),
    job: exact(resource['lockstep.job_id']),
    rank: rank !== null && rank >= 0 ? rank : null,
    host: exact(resource['host.name']),
    service: text(resource['service.name']),
    attributes,
    resource: members(resource),
  };
}

function lineOf(body: unknown, attributes: [string, string][]): string {
  if (body === null || body === undefined) return attributes.map(([name, value]) => `${name}=${value}`).join(' ');
  return clip((typeof body === 'string' ? body : JSON.stringify(body)).split('\n').map(clean).join('\n'), kLineMax);
}

function members(value: unknown): [string, string][] {
  return Object.entries(object(value)).slice(0, kMembersMax).map(([name, one]) => [clean(name), clean(typeof one === 'string' ? one : JSON.stringify(one))]);
}

// Newest first, each once.
function joined(known: readonly LogRecord[], more: readonly LogRecord[]): LogRecord[] {
  const seen = new Set<string>();
  const all = [...more, ...known].filter((one) => !seen.has(one.key) && seen.add(one.key));
  return all.sort((a, b) => b.timeNs - a.timeNs);
}

export const firstOf = (page: LogPage): LogList => ({ records: joined([], page.records).slice(0, kKept), after: page.after, older: page.more ? 'some' : 'none', whole: page.whole });

// With what came since: it has room for as many as it had, and for kKept.
export function withNewer(list: LogList, page: LogPage): LogList {
  const all = joined(list.records, page.records);
  const most = Math.max(kKept, list.records.length);
  const older = all.length <= most ? list.older : most >= kHeldMax ? 'full' : 'some';
  return { ...list, records: all.slice(0, most), after: page.after || list.after, older };
}

// With those before its last one, as long as there is room.
export function withOlder(list: LogList, page: LogPage): LogList {
  const all = joined(list.records, page.records);
  const isFull = all.length > kHeldMax || (all.length === kHeldMax && page.more);
  const older = isFull ? 'full' : !page.more ? 'none' : all.length > list.records.length ? 'some' : 'sameTime';
  return { ...list, records: all.slice(0, kHeldMax), older, whole: page.whole };
}

export function severityMark(severity: Severity | ''): Mark {
  if (severity === 'fatal' || severity === 'error') return { glyph: '■', word: severity, tone: 'alarm' };
  if (severity === 'warn') return { glyph: '▲', word: severity, tone: 'doubt' };
  return { glyph: '·', word: severity || 'none', tone: 'quiet' };
}
