// A step as the server draws it: one line of cells per rank, each cell one kind of time, and the spans behind them where few
// enough are in view. Times are nanoseconds since the step began on its first rank, on the job's axis.
//
// An answer covers [from, to) only; what the reader looks at meanwhile may have moved on (base/view.ts).
import { list, num, object, text } from './decode';

export interface Kind {
  letter: string;
  word: string;
  token: string;  // of its colour, without the leading --
  family: 'own' | 'stall' | 'talk' | 'none';
}

// The letters of the wire. Shades of one colour belong together: forward, backward and the optimizer are all the rank's own work.
export const kKinds: readonly Kind[] = [
  { letter: '.', word: 'not in the step, or unknown', token: 'hatch', family: 'none' },
  { letter: 'o', word: 'own work', token: 'part-other', family: 'own' },
  { letter: 'i', word: 'input', token: 'part-input', family: 'stall' },
  { letter: 'f', word: 'forward', token: 'kind-forward', family: 'own' },
  { letter: 'b', word: 'backward', token: 'part-compute', family: 'own' },
  { letter: 'p', word: 'optimizer', token: 'kind-optimizer', family: 'own' },
  { letter: 'k', word: 'checkpoint', token: 'part-checkpoint', family: 'stall' },
  { letter: 'e', word: 'eval', token: 'kind-eval', family: 'own' },
  { letter: 's', word: 'sync with the GPU', token: 'part-host', family: 'own' },
  { letter: 'w', word: 'waiting in a collective', token: 'part-waiting', family: 'stall' },
  { letter: 'c', word: 'collective, all in it', token: 'part-communication', family: 'talk' },
  { letter: 'm', word: 'message', token: 'kind-message', family: 'talk' },
];
export const kWaiting = 9;
const kIndex = new Map(kKinds.map((kind, index) => [kind.letter, index]));

export interface Line {
  first: number;  // ranks with detail that this line stands for
  last: number;
  shown: number;  // the one drawn: it waits least
  cells: Uint8Array;
}

export interface TimeSpan {
  rank: number;
  kind: number;
  name: string;
  from: number;
  duration: number;
  wait: number;    // at its beginning
  comm: string;    // empty: a phase
  ordinal: number | null;
  bytes: number | null;
  queue: number | null;
  peer: number | null;
}

export interface Timeline {
  startUnixNs: number | null;
  length: number;
  from: number;
  to: number;
  columns: number;
  ranksShown: number;
  ranksTraced: number;
  ranksTotal: number;
  clockErrorUs: number | null;
  lines: Line[];
  spans: TimeSpan[];
  spansInView: number;
}

// "f120w30." is 120 cells of forward, 30 of waiting, 1 of nothing. What is malformed or too long costs its own cells only:
// they stay unknown.
export function decodeCells(runs: string, columns: number): Uint8Array {
  const cells = new Uint8Array(columns);
  let at = 0;
  for (const [, letter, times] of runs.matchAll(/([^0-9])([0-9]*)/g)) {
    const end = Math.min(columns, at + (times ? Number(times) : 1));
    cells.fill(kIndex.get(letter!) ?? 0, at, end);
    at = end;
    if (at >= columns) break;
  }
  return cells;
}

export function decodeTimeline(value: unknown): Timeline {
  const json = object(value);
  const columns = Math.max(0, Math.min(8_192, num(json['columns']) ?? 0));
  const lines = list(json['lines']).flatMap((item): Line[] => {
    const line = object(item);
    const [first, last, shown] = [num(line['first_rank']), num(line['last_rank']), num(line['shown_rank'])];
    if (first === null || last === null) return [];
    const cells = typeof line['cells'] === 'string' ? line['cells'] : '';
    return [{ first, last, shown: shown ?? first, cells: decodeCells(cells, columns) }];
  });
  return {
    startUnixNs: num(json['start_unix_ns']),
    length: num(json['length_ns']) ?? 0,
    from: num(json['from_ns']) ?? 0,
    to: num(json['to_ns']) ?? 0,
    columns,
    ranksShown: num(json['ranks_shown']) ?? lines.length,
    ranksTraced: num(json['ranks_traced']) ?? 0,
    ranksTotal: num(json['ranks_total']) ?? 0,
    clockErrorUs: num(json['clock_error_us']),
    lines,
    spans: list(json['spans']).flatMap(decodeSpan),
    spansInView: num(json['spans_in_view']) ?? 0,
  };
}

function decodeSpan(value: unknown): TimeSpan[] {
  const span = object(value);
  const [rank, from, duration] = [num(span['rank']), num(span['from_ns']), num(span['duration_ns'])];
  if (rank === null || from === null || duration === null) return [];
  return [{
    rank, from, duration,
    kind: kIndex.get(text(span['kind'])) ?? 1,
    name: text(span['name']),
    wait: num(span['wait_ns']) ?? 0,
    comm: text(span['comm_id']),
    ordinal: num(span['ordinal']),
    bytes: num(span['bytes']),
    queue: num(span['queue_ns']),
    peer: num(span['peer']),
  }];
}

// How long a line is in each kind, of what is in view; exact to a cell.
export function timeByKind(timeline: Timeline, line: Line): number[] {
  const cell = (timeline.to - timeline.from) / Math.max(1, timeline.columns);
  const sums = new Array<number>(kKinds.length).fill(0);
  for (const kind of line.cells) sums[kind]! += cell;
  return sums;
}

// The run of equal cells around a moment: what a pointer means where there are no spans.
export function runAt(timeline: Timeline, line: Line, ns: number): { kind: number; from: number; to: number } | null {
  const cell = (timeline.to - timeline.from) / Math.max(1, timeline.columns);
  const at = Math.floor((ns - timeline.from) / cell);
  const kind = line.cells[at];
  if (kind === undefined) return null;
  let [first, end] = [at, at + 1];
  while (first > 0 && line.cells[first - 1] === kind) first -= 1;
  while (end < line.cells.length && line.cells[end] === kind) end += 1;
  return { kind, from: timeline.from + first * cell, to: timeline.from + end * cell };
}

// The operation of a rank at a moment, else its phase: what was started last is the most particular.
export function spanAt(spans: readonly TimeSpan[], rank: number, ns: number): TimeSpan | null {
  let best: TimeSpan | null = null;
  for (const span of spans) {
    if (span.rank !== rank || ns < span.from || ns >= span.from + span.duration) continue;
    const better = best === null || (span.comm !== '' && best.comm === '') || (span.comm !== '') === (best.comm !== '') && span.from >= best.from;
    if (better) best = span;
  }
  return best;
}

// Who came last to each collective: the member that waits least, where more than one was seen.
export function lastToCome(spans: readonly TimeSpan[]): Map<string, number> {
  const seen = new Map<string, { rank: number; wait: number; members: number }>();
  for (const span of spans) {
    const key = collectiveKey(span);
    if (key === null) continue;
    const held = seen.get(key);
    if (!held) seen.set(key, { rank: span.rank, wait: span.wait, members: 1 });
    else seen.set(key, { ...(span.wait < held.wait ? { rank: span.rank, wait: span.wait } : held), members: held.members + 1 });
  }
  return new Map([...seen].flatMap(([key, held]): [string, number][] => (held.members > 1 ? [[key, held.rank]] : [])));
}

export function collectiveKey(span: TimeSpan): string | null {
  return span.comm === '' || span.kind === kKinds.length - 1 || span.ordinal === null ? null : `${span.comm}/${span.ordinal}`;
}
