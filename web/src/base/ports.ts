// Ports of switches, the worst first, by PromQL: one question finds the worst of each kind, a second gives every value of those that are
// shown. Both answers are small however many ports there are.
import { exact, list, num, object, text } from './decode';
import { count, number } from './format';

export interface PortRow {
  switchName: string;
  port: string;  // empty: the whole switch
  values: Record<PortMeasure, number | null>;
}

interface Measure {
  of: (selector: string, by: string) => string;
}

const kOver = '[5m]';
const counter = (name: string): Measure => ({ of: (selector, by) => `sum by (${by}) (rate(${name}${selector}${kOver}))` });
const busiest = (selector: string): string => `max by (switch, port) (rate(lockstep_port_bytes_total${selector}${kOver}))`;

// down: ports that were up within the hour and are not now; used: share of what the busiest port carries at most; load: its bytes a second.
const kMeasures = {
  down: { of: (selector, by) => `sum by (${by}) (max_over_time(lockstep_port_up${selector}[1h]) == 1 and lockstep_port_up${selector} == 0)` },
  errors: counter('lockstep_port_errors_total'),
  discards: counter('lockstep_port_discards_total'),
  pause: counter('lockstep_port_pfc_pause_frames_total'),
  ecn: counter('lockstep_port_ecn_marked_packets_total'),
  queue: { of: (selector, by) => `max by (${by}) (lockstep_port_queue_bytes${selector})` },
  used: { of: (selector, by) => `max by (${by}) (${busiest(selector)} / on (switch, port) max by (switch, port) (lockstep_port_speed_bytes_per_second${selector}))` },
  load: { of: (selector, by) => `max by (${by}) (${busiest(selector)})` },
} satisfies Record<string, Measure>;
export type PortMeasure = keyof typeof kMeasures;
export const kPortMeasures = Object.keys(kMeasures) as PortMeasure[];

export type PortsBy = 'port' | 'switch';
export const kPortsShown = 24;

const labels = (by: PortsBy): string => (by === 'port' ? 'switch, port' : 'switch');
const named = (measure: PortMeasure, query: string): string => `label_replace(${query}, "what", "${measure}", "", "")`;

// of: one switch alone; empty: all.
export function worstPortsQuery(by: PortsBy, of: string): string {
  const selector = of ? `{switch=${quoted(of)}}` : '';
  return kPortMeasures.map((measure) => named(measure, `topk(${kPortsShown}, ${kMeasures[measure].of(selector, labels(by))} > 0)`)).join(' or ');
}

export function portValuesQuery(by: PortsBy, rows: readonly PortRow[]): string {
  const any = (names: string[]): string => quoted([...new Set(names)].map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|'));
  const ports = by === 'port' ? `, port=~${any(rows.map((row) => row.port))}` : '';
  const selector = `{switch=~${any(rows.map((row) => row.switchName))}${ports}}`;
  return kPortMeasures.map((measure) => named(measure, kMeasures[measure].of(selector, labels(by)))).join(' or ');
}

function quoted(name: string): string {
  return `"${name.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n')}"`;
}

// Rows of an answer to either question, in no order. A series is nobody's where its switch has no name.
export function decodePorts(value: unknown): PortRow[] {
  const rows = new Map<string, PortRow>();
  for (const item of list(object(object(value)['data'])['result'])) {
    const metric = object(object(item)['metric']);
    const [name, port] = [exact(metric['switch']), exact(metric['port'])];
    const measure = kPortMeasures.find((one) => one === metric['what']);
    const known = Number.parseFloat(text(list(object(item)['value'])[1]));
    if (!measure || !name || num(known) === null) continue;
    const key = `${name}\n${port}`;
    let row = rows.get(key);
    if (!row) rows.set(key, row = { switchName: name, port, values: Object.fromEntries(kPortMeasures.map((one) => [one, null])) as PortRow['values'] });
    row.values[measure] = known;
  }
  return [...rows.values()];
}

export type PortSort = 'worst' | PortMeasure;
export const kPortSorts: PortSort[] = ['worst', 'used', 'errors', 'discards', 'ecn', 'pause', 'queue'];

// The worst: a port that went down, then who loses packets, then who makes others wait, then who is full.
export function sortPorts(rows: readonly PortRow[], sort: PortSort): PortRow[] {
  const of = ({ values }: PortRow, measure: PortMeasure): number => values[measure] ?? 0;
  const order: ((row: PortRow) => number)[] = [
    ...(sort === 'worst' ? [] : [(row: PortRow) => of(row, sort)]),
    (row) => of(row, 'down'), (row) => of(row, 'errors') + of(row, 'discards'), (row) => of(row, 'pause'), (row) => of(row, 'ecn'), (row) => of(row, 'used'), (row) => of(row, 'load'),
  ];
  return [...rows].sort((a, b) => {
    for (const key of order) if (key(a) !== key(b)) return key(b) - key(a);
    return a.switchName.localeCompare(b.switchName) || a.port.localeCompare(b.port);
  });
}

// Whether a person should look: it went down or loses packets. ECN marks and pauses are how a healthy fabric slows senders.
const kBad: readonly PortMeasure[] = ['down', 'errors', 'discards'];
export const isBadPort = ({ values }: PortRow): boolean => kBad.some((measure) => (values[measure] ?? 0) > 0);

// bad: the worst first. Of each kind only the worst are asked for: where that many are there may be more.
export function portWords(bad: readonly PortRow[]): string {
  const [worst] = bad;
  const { down, errors, discards } = worst!.values;
  const name = `${worst!.switchName}${worst!.port && `:${worst!.port}`}`;
  const why = (down ?? 0) > 0 ? 'went down' : (discards ?? 0) >= (errors ?? 0) ? `drops ${number(discards)} packets a second` : `has ${number(errors)} errors a second`;
  const isCut = kBad.some((measure) => bad.filter(({ values }) => (values[measure] ?? 0) > 0).length >= kPortsShown);
  return bad.length === 1 ? `${name} ${why}` : `${isCut ? 'At least ' : ''}${count(bad.length)} ports are in trouble, first ${name}: it ${why}`;
}
