// The rank x step matrix behind the charts: columns of numbers in typed arrays, NaN where nothing was heard (unknown, never zero).
//
// A live page asks only for the newest steps and merges them in, so that a job of 4,096 ranks does not send its whole window
// every second. merge() returns a new matrix; a StepMatrix is immutable once made.
import { list, num, object, text } from './decode';
import { niceCeil } from './scale';

export interface StepMatrix {
  ranks: number[];
  hosts: string[];
  steps: number[];
  // Per step, over all ranks.
  stepMs: Float32Array;
  parts: Record<Part, Float32Array>;
  // Per rank and step: [rank index * steps.length + step index].
  duration: Float32Array;
  self: Float32Array;
  excess: Float32Array;
  input: Float32Array;
  totalSteps: number;
  ranksTotal: number;  // what exists, of which `ranks` may be a part
}

// Stacked in this order; what an older server does not tell stays unknown.
export const kParts = ['compute', 'waiting', 'communication', 'input', 'host', 'checkpoint', 'idle', 'other'] as const;
export type Part = (typeof kParts)[number];
export type Sort = 'badness' | 'rank' | 'host';

// Limits: what a browser draws without stutter; a larger answer is cut, oldest steps first.
const kCellsMax = 16_384 * 1_024;
const kPerCell = ['duration', 'self', 'excess', 'input'] as const;
const kPerCellNames = { duration: 'duration_ms', self: 'self_ms', excess: 'excess_ms', input: 'input_ms_rank' };

export function decodeMatrix(value: unknown): StepMatrix {
  const json = object(value);
  const ranks = list(json['ranks']).map((rank) => num(rank) ?? -1);
  const hosts = list(json['hosts']);
  const given = list(json['steps']).map((step) => num(step) ?? -1);
  const steps = fillHoles(given).slice(-Math.max(1, Math.floor(kCellsMax / Math.max(1, ranks.length))));
  const place = new Map(steps.map((step, column) => [step, column]));
  const columns = given.map((step) => place.get(step) ?? -1);

  const perStep = (name: string): Float32Array => scatter(list(json[name]), columns, steps.length, 0, unknown(steps.length));
  const perCell = (name: string): Float32Array => {
    const rows = list(json[name]);
    const out = unknown(ranks.length * steps.length);
    for (let row = 0; row < ranks.length; row += 1) scatter(list(rows[row]), columns, steps.length, row, out);
    return out;
  };
  return {
    ranks,
    hosts: ranks.map((_, index) => text(hosts[index])),
    steps,
    stepMs: perStep('step_ms'),
    parts: Object.fromEntries(kParts.map((part) => [part, perStep(`${part}_ms`)])) as Record<Part, Float32Array>,
    duration: perCell(kPerCellNames.duration),
    self: perCell(kPerCellNames.self),
    excess: perCell(kPerCellNames.excess),
    input: perCell(kPerCellNames.input),
    totalSteps: num(json['total_steps']) ?? steps.length,
    ranksTotal: num(json['ranks_total']) ?? ranks.length,
  };
}

// Newer columns replace older ones of the same step; at most `last` columns stay. Null where the two do not fit together
// (other ranks, or the job went back to an earlier step): then the whole window must be asked for again.
export function merge(old: StepMatrix, newer: StepMatrix, last: number): StepMatrix | null {
  const same = old.ranks.length === newer.ranks.length && old.ranks.every((rank, index) => rank === newer.ranks[index]);
  const oldEnd = old.steps[old.steps.length - 1];
  const newStart = newer.steps[0];
  const newEnd = newer.steps[newer.steps.length - 1];
  if (!same || oldEnd === undefined || newStart === undefined || newEnd === undefined) return null;
  if (newEnd < oldEnd || newStart > oldEnd + 1) return null;

  const keepTo = old.steps.findIndex((step) => step >= newStart);
  const kept = keepTo < 0 ? old.steps.length : keepTo;
  const cut = Math.max(0, kept + newer.steps.length - last);
  const keepFrom = Math.min(cut, kept);
  const newFrom = cut - keepFrom;
  const join = (a: Float32Array, b: Float32Array, rows: number): Float32Array => {
    const width = kept - keepFrom + newer.steps.length - newFrom;
    const out = new Float32Array(rows * width);
    for (let row = 0; row < rows; row += 1) {
      out.set(a.subarray(row * old.steps.length + keepFrom, row * old.steps.length + kept), row * width);
      out.set(b.subarray(row * newer.steps.length + newFrom, (row + 1) * newer.steps.length), row * width + kept - keepFrom);
    }
    return out;
  };
  const parts = {} as Record<Part, Float32Array>;
  for (const part of kParts) parts[part] = join(old.parts[part], newer.parts[part], 1);
  const cells = {} as Record<(typeof kPerCell)[number], Float32Array>;
  for (const name of kPerCell) cells[name] = join(old[name], newer[name], old.ranks.length);
  return {
    ranks: newer.ranks,
    hosts: newer.hosts,
    steps: [...old.steps.slice(keepFrom, kept), ...newer.steps.slice(newFrom)],
    stepMs: join(old.stepMs, newer.stepMs, 1),
    parts,
    ...cells,
    totalSteps: Math.max(old.totalSteps, newer.totalSteps),
    ranksTotal: newer.ranksTotal,
  };
}

// Top of the colour scale: what the worst rank exceeds its peers by in most of the bad steps. One odd step (the first, a
// checkpoint) may lie beyond it and must not darken all others. Never less than a tenth of a step, so that the noise of a
// healthy job looks as calm as it is.
export function excessMax(matrix: StepMatrix): number {
  const width = matrix.steps.length;
  const worst = new Float32Array(width);
  for (let row = 0; row < matrix.ranks.length; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const value = matrix.excess[row * width + column]!;
      if (value > worst[column]!) worst[column] = value;
    }
  }
  worst.sort();
  return niceCeil(Math.max(worst[Math.floor(width * 0.95)] ?? 0, median(matrix.stepMs) / 10, 1));
}

// The order of rows, as indexes into matrix.ranks. Badness is taken in coarse steps, so that ranks which differ by noise alone
// keep their places while data arrives. First those a verdict names, then the slow ones, then the silent, then the rest.
export function order(matrix: StepMatrix, sort: Sort, culprits: ReadonlySet<number>, max: number): number[] {
  const rows = matrix.ranks.map((_, index) => index);
  const byRank = (a: number, b: number): number => matrix.ranks[a]! - matrix.ranks[b]!;
  if (sort === 'rank') return rows.sort(byRank);
  if (sort === 'host') {
    const compare = new Intl.Collator('en', { numeric: true }).compare;
    return rows.sort((a, b) => compare(matrix.hosts[a]!, matrix.hosts[b]!) || byRank(a, b));
  }
  const badness = rows.map((row) => {
    if (culprits.has(matrix.ranks[row]!)) return 1e9;
    const mean = recentExcess(matrix, row);
    if (mean === null) return 0.5;
    return Math.max(0, Math.floor((mean / max) * 10));
  });
  return rows.sort((a, b) => badness[b]! - badness[a]! || byRank(a, b));
}

// Mean excess over the newest 50 steps; null when nothing was heard in the newest five.
function recentExcess(matrix: StepMatrix, row: number): number | null {
  const width = matrix.steps.length;
  let sum = 0;
  let heard = 0;
  let newest = -1;
  for (let column = Math.max(0, width - 50); column < width; column += 1) {
    const value = matrix.excess[row * width + column]!;
    if (Number.isNaN(value)) continue;
    sum += value;
    heard += 1;
    newest = column;
  }
  return heard === 0 || newest < width - 5 ? null : sum / heard;
}

export function cell(values: Float32Array, matrix: StepMatrix, row: number, column: number): number | null {
  const value = values[row * matrix.steps.length + column];
  return value === undefined || Number.isNaN(value) ? null : value;
}

function median(values: Float32Array): number {
  const known = values.filter((value) => !Number.isNaN(value)).sort();
  return known[known.length >> 1] ?? 0;
}

// A step that no rank reported is a hole to show, so long as the list is mostly without holes (else the job counts in strides).
function fillHoles(steps: number[]): number[] {
  const first = steps[0];
  const end = steps[steps.length - 1];
  if (first === undefined || end === undefined || end - first + 1 > 2 * steps.length) return steps;
  return Array.from({ length: end - first + 1 }, (_, index) => first + index);
}

function unknown(length: number): Float32Array {
  return new Float32Array(length).fill(NaN);
}

function scatter(values: unknown[], columns: number[], width: number, row: number, out: Float32Array): Float32Array {
  for (let index = 0; index < columns.length; index += 1) {
    const column = columns[index]!;
    const value = values[index];
    if (column >= 0 && typeof value === 'number') out[row * width + column] = value;
  }
  return out;
}
