// Kernels of all ranks on one axis, as the server sends them for what is in view: lanes (streams, host threads) of slices. They are held
// as columns of numbers, a row for each depth of nesting, so that finding what is in view is a binary search however many there are.
import { list, name, num, object, text } from './decode';
import { classWord } from './kernel_profile';
import type { View } from './view';

export interface SliceRow {
  length: number;
  start: Float64Array;  // ns since the first of the capture; ascending, none overlaps the next
  end: Float64Array;
  name: Uint32Array;    // in names
  kind: Uint8Array;     // in classes
  count: Uint32Array;   // more than one: so many, too short for a pixel each
}

export interface Lane {
  rank: number;
  lane: string;
  isGpu: boolean;
  rows: SliceRow[];  // by depth
}

export interface StepMark {
  step: number;
  from: number;
  to: number;
}

export interface KernelTimeline {
  origin: number;  // what the server calls the beginning; all times here count from it
  length: number;
  from: number;
  to: number;
  steps: StepMark[];
  names: string[];
  classes: string[];
  used: string[];  // of them, those that occur
  ranks: number[];
  lanes: Lane[];
  slices: number;
  truncated: boolean;
}

export interface Slice {
  rank: number;
  lane: string;
  from: number;
  to: number;
  name: string;
  kernelClass: string;
  count: number;
}

// Classes with a colour of their own, in the order of the legend; others follow in the order in which they come.
const kClassTokens: Record<string, string> = {
  compute: 'part-compute',
  communication: 'part-communication',
  memory: 'part-checkpoint',
  copy: 'part-input',
  wait: 'part-waiting',
  sync: 'part-waiting',
  step: 'kind-optimizer',
  'cpu op': 'part-host',
  runtime: 'part-idle',
  annotation: 'kind-forward',
};
export const classToken = (word: string): string => (Object.hasOwn(kClassTokens, word) ? kClassTokens[word]! : 'part-other');

const kDepthMost = 6;
const kClassesMost = 60;  // what the flags below leave

export function decodeKernelTimeline(value: unknown): KernelTimeline {
  const json = object(value);
  const whole = object(json['whole']);
  const origin = num(whole['from_ns']) ?? num(json['from_ns']) ?? 0;
  const at = (known: unknown): number => (num(known) ?? origin) - origin;
  const names = list(json['names']).map(name);
  const classes: string[] = Object.keys(kClassTokens);
  const classIds = new Map(classes.map((word, index) => [word, index]));
  const used = new Set<number>();
  const idOf = (word: unknown): number => {
    const known = classWord(text(word));
    const id = classIds.get(known);
    if (id !== undefined) return id;
    if (classes.length >= kClassesMost) return classes.length - 1;
    classIds.set(known, classes.length);
    return classes.push(known) - 1;
  };
  const classOf = (word: unknown): number => {
    const id = idOf(word);
    used.add(id);
    return id;
  };
  const lanes = list(json['lanes']).flatMap((item): Lane[] => {
    const lane = object(item);
    const rank = num(lane['rank']);
    if (rank === null) return [];
    return [{ rank, lane: text(lane['lane']), isGpu: lane['kind'] === 'gpu', rows: decodeRows(list(lane['slices']), origin, names.length, classOf) }];
  });
  return {
    origin,
    length: Math.max(0, at(whole['to_ns'])),
    from: at(json['from_ns']),
    to: at(json['to_ns']),
    steps: list(json['steps']).flatMap((item): StepMark[] => {
      const step = object(item);
      const [number, from, to] = [num(step['step']), num(step['from_ns']), num(step['to_ns'])];
      return number === null || from === null || to === null ? [] : [{ step: number, from: from - origin, to: to - origin }];
    }),
    names,
    classes,
    used: [...used].sort((a, b) => a - b).map((id) => classes[id]!),
    ranks: [...new Set(lanes.map((lane) => lane.rank))].sort((a, b) => a - b),
    lanes,
    slices: lanes.reduce((sum, lane) => sum + lane.rows.reduce((all, row) => all + row.length, 0), 0),
    truncated: json['truncated'] === true,
  };
}

// Into rows by nesting: a slice lies one deeper than the one it begins within. What lies too deep is drawn nowhere.
function decodeRows(slices: unknown[], origin: number, names: number, classOf: (word: unknown) => number): SliceRow[] {
  const good: number[][] = [];
  for (const item of slices) {
    if (!Array.isArray(item)) continue;
    const [start, duration, name, , count] = item as unknown[];
    if (typeof start !== 'number' || typeof duration !== 'number' || typeof name !== 'number' || !(duration >= 0) || !(name >= 0 && name < names)) continue;
    good.push([start - origin, start - origin + duration, name, classOf(item[3]), typeof count === 'number' && count >= 1 ? count : 1]);
  }
  for (let i = 1; i < good.length; i += 1) {
    if (good[i]![0]! < good[i - 1]![0]!) {
      good.sort((a, b) => a[0]! - b[0]! || b[1]! - a[1]!);
      break;
    }
  }
  const byDepth: number[][][] = [];
  const ends: number[] = [];  // of the last slice at each depth
  for (const slice of good) {
    let depth = 0;
    while (depth < kDepthMost && (ends[depth] ?? -Infinity) > slice[0]!) depth += 1;
    if (depth === kDepthMost) continue;
    ends[depth] = slice[1]!;
    (byDepth[depth] ??= []).push(slice);
  }
  return byDepth.map((row): SliceRow => ({
    length: row.length,
    start: Float64Array.from(row, (slice) => slice[0]!),
    end: Float64Array.from(row, (slice) => slice[1]!),
    name: Uint32Array.from(row, (slice) => slice[2]!),
    kind: Uint8Array.from(row, (slice) => slice[3]!),
    count: Uint32Array.from(row, (slice) => slice[4]!),
  }));
}

// The first slice that ends after a moment.
export function firstAfter(row: SliceRow, ns: number, from = 0): number {
  let [low, high] = [from, row.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle]! > ns) high = middle;
    else low = middle + 1;
  }
  return low;
}

export const kNothing = 0xff;
export const kSelected = 0x80;
export const kEdge = 0x40;  // the first pixel of a slice that has room for one: equal neighbours stay two
export const kKindMask = 0x3f;
const kEdgeFrom = 4;

// One pixel of height: the class of what runs in each of `width` pixels, kNothing where nothing does. Of many slices within a pixel the
// first counts, and the search goes on at the next pixel: the work is bounded by the pixels, not by the slices. `wide` gets the slices
// of at least `wideFrom` pixels: there is room to write in them.
export function paintRow(row: SliceRow, view: View, width: number, into: Uint8Array, wide: number[] | null = null, wideFrom = Infinity): void {
  const per = (view.to - view.from) / Math.max(1, width);
  let next = 0;
  for (let i = firstAfter(row, view.from); i < row.length && next < width;) {
    const start = row.start[i]!;
    if (start >= view.to) return;
    const from = Math.max(next, Math.floor((start - view.from) / per));
    if (from >= width) return;
    const to = Math.min(width, Math.max(from + 1, Math.round((row.end[i]! - view.from) / per)));
    into.fill(row.kind[i]!, from, to);
    if (to - from >= kEdgeFrom) into[from]! |= kEdge;
    if (wide !== null && to - from >= wideFrom) wide.push(i);
    next = to;
    i += 1;
    // Neighbours are mostly longer than a pixel: look at the next one before searching.
    if (i < row.length && row.end[i]! <= view.from + next * per) i = firstAfter(row, view.from + next * per, i);
  }
}

// The selected slices again, above what paintRow left, so that none hides behind others of its pixel.
export function paintSelected(row: SliceRow, selected: Uint32Array, view: View, width: number, into: Uint8Array): void {
  const per = (view.to - view.from) / Math.max(1, width);
  let [low, high] = [0, selected.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[selected[middle]!]! > view.from) high = middle;
    else low = middle + 1;
  }
  for (; low < selected.length; low += 1) {
    const i = selected[low]!;
    if (row.start[i]! >= view.to) return;
    const from = Math.max(0, Math.floor((row.start[i]! - view.from) / per));
    if (from >= width) return;
    const to = Math.min(width, Math.max(from + 1, Math.round((row.end[i]! - view.from) / per)));
    into.fill(row.kind[i]! | kSelected, from, to);
    if (to - from >= kEdgeFrom) into[from]! |= kEdge;
  }
}

// The slice of a row at a moment, or the nearest within `slack`.
export function sliceAt(row: SliceRow, ns: number, slack: number): number | null {
  const i = firstAfter(row, ns - slack);
  return i < row.length && row.start[i]! <= ns + slack ? i : null;
}

export function sliceOf(timeline: KernelTimeline, lane: Lane, row: SliceRow, index: number): Slice {
  return {
    rank: lane.rank, lane: lane.lane, from: row.start[index]!, to: row.end[index]!, name: timeline.names[row.name[index]!] ?? '',
    kernelClass: timeline.classes[row.kind[index]!] ?? 'other', count: row.count[index]!,
  };
}

// Slices of one name in a row: what is drawn above all others once it is selected.
export function indexesOf(row: SliceRow, name: number): Uint32Array {
  const found: number[] = [];
  for (let i = 0; i < row.length; i += 1) if (row.name[i] === name) found.push(i);
  return Uint32Array.from(found);
}

// The longest slice of a name, of this rank where it has one: where a reader who asks for a kernel is led.
export function longestOf(timeline: KernelTimeline, name: string, rank: number | null): Slice | null {
  const id = timeline.names.indexOf(name);
  if (id < 0) return null;
  let best: Slice | null = null;
  for (const lane of timeline.lanes) {
    if (best !== null && best.rank === rank && lane.rank !== rank) continue;
    for (const row of lane.rows) {
      for (let i = 0; i < row.length; i += 1) {
        if (row.name[i] !== id || row.count[i]! > 1) continue;
        const better = best === null || (lane.rank === rank && best.rank !== rank) || row.end[i]! - row.start[i]! > best.to - best.from;
        if (better) best = sliceOf(timeline, lane, row, i);
      }
    }
  }
  return best;
}

// The longest slices in view, for reading: the twin of the picture.
export function longestIn(timeline: KernelTimeline, view: View, most: number): Slice[] {
  const found: { lane: Lane; row: SliceRow; index: number; length: number }[] = [];
  let least = 0;
  const trim = (): void => {
    found.sort((a, b) => b.length - a.length);
    found.length = Math.min(found.length, most);
    least = found.length === most ? found[most - 1]!.length : 0;
  };
  for (const lane of timeline.lanes) {
    for (const row of lane.rows) {
      for (let index = firstAfter(row, view.from); index < row.length && row.start[index]! < view.to; index += 1) {
        const length = row.end[index]! - row.start[index]!;
        if (length <= least) continue;
        found.push({ lane, row, index, length });
        if (found.length > 4 * most) trim();
      }
    }
  }
  trim();
  return found.map(({ lane, row, index }) => sliceOf(timeline, lane, row, index));
}

// The step that a moment lies in.
export function stepAt(timeline: KernelTimeline, ns: number): StepMark | null {
  return timeline.steps.find((step) => ns >= step.from && ns < step.to) ?? null;
}
