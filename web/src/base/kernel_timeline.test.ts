import { describe, expect, it } from 'vitest';
import { bandAt, bandsHeight, findSlice, layBands, neighbour } from './kernel_rows';
import { classToken, decodeKernelTimeline, firstAfter, indexesOf, kEdge, kKindMask, kNothing, kSelected, longestIn, longestOf, paintRow, paintSelected, stepAt, type SliceRow } from './kernel_timeline';
import { parsePlace, profilePlace, writePlace } from './url';

const timeline = decodeKernelTimeline({
  from_ns: 1_000, to_ns: 2_000, whole: { from_ns: 1_000, to_ns: 2_000 }, steps: [{ step: 7, from_ns: 1_000, to_ns: 1_500 }, { step: 8 }],
  names: ['gemm', 'reduce', 'op', 'launch'],
  lanes: [
    { rank: 1, lane: 'stream 7', kind: 'gpu', slices: [[1_000, 100, 0, 'computation', 1], [1_200, 50, 0, 'compute', 3], [1_900, 100, 0, 'compute', 1]] },
    { rank: 1, lane: 'stream 20', kind: 'gpu', slices: [[1_050, 400, 1, 'communication', 1]] },
    { rank: 1, lane: 'main', kind: 'cpu', slices: [[1_000, 300, 2, 'cpu op', 1], [1_010, 20, 3, 'weird', 1], [1_040, 20, 3, 'weird', 1], [1_400, 10, 2, 'cpu op', 1]] },
    { rank: 0, lane: 'stream 7', kind: 'gpu', slices: [[1_300, 10, 0, 'compute', 1], [1_100, 10, 0, 'compute', 1], 'x', [1, 2], [1_000, -5, 0, 'compute', 1], [1_000, 5, 99, 'compute', 1]] },
    { lane: 'nobody' },
  ],
  truncated: true,
});
const lane = (rank: number, name: string) => timeline.lanes.find((one) => one.rank === rank && one.lane === name)!;

describe('the timeline of a kernel profile', () => {
  it('is read in time from its beginning, nested slices one below the other, what is odd left out', () => {
    expect(timeline.ranks).toEqual([0, 1]);
    expect(timeline.length).toBe(1_000);
    expect([...lane(0, 'stream 7').rows[0]!.start]).toEqual([100, 300]);
    expect(lane(1, 'main').rows.map((row) => row.length)).toEqual([2, 2]);
    expect(timeline.steps).toEqual([{ step: 7, from: 0, to: 500 }]);
    expect(stepAt(timeline, 100)!.step).toBe(7);
    expect(timeline.classes[lane(1, 'stream 7').rows[0]!.kind[0]!]).toBe('compute');
    expect(timeline.used).toEqual(['compute', 'communication', 'cpu op', 'weird']);
    expect(timeline.truncated).toBe(true);
    expect(decodeKernelTimeline(null).lanes).toEqual([]);
  });
  it('never lets two slices of a row overlap, however odd the trace', () => {
    const slices = [[0, 10, 0, 'compute'], [5, 15, 0, 'compute'], [12, 3, 0, 'compute'], [13, 1, 0, 'compute']];
    const { lanes } = decodeKernelTimeline({ names: ['f'], lanes: [{ rank: 0, slices }] });
    for (const row of lanes[0]!.rows) for (let i = 1; i < row.length; i += 1) expect(row.start[i]!).toBeGreaterThanOrEqual(row.end[i - 1]!);
    expect(lanes[0]!.rows.map((row) => row.length)).toEqual([2, 1, 1]);
  });
  it('gives a class of any name a colour', () => {
    for (const word of ['constructor', '__proto__', 'weird']) expect(classToken(word)).toBe('part-other');
    expect(classToken('copy')).toBe('part-input');
  });
  it('is painted by class, with an edge where there is room', () => {
    const row = lane(1, 'stream 7').rows[0]!;
    const cells = new Uint8Array(100).fill(kNothing);
    const wide: number[] = [];
    paintRow(row, { from: 0, to: 1_000 }, 100, cells, wide, 8);
    expect(cells[0]! & kEdge).toBe(kEdge);
    expect([5, 15, 22, 95].map((x) => (cells[x] === kNothing ? '.' : timeline.classes[cells[x]! & kKindMask]))).toEqual(['compute', '.', 'compute', 'compute']);
    expect(wide).toEqual([0, 2]);
    paintSelected(row, indexesOf(row, 0), { from: 0, to: 1_000 }, 100, cells);
    expect(cells[22]! & kSelected).toBe(kSelected);
  });
  it('finds what is under a pointer, on a rank and on its lanes', () => {
    const bands = layBands([timeline], new Set([1]), 400);
    expect(bands.map((band) => [band.rank, band.lane])).toEqual([[0, null], [1, null], [1, 'stream 7'], [1, 'stream 20'], [1, 'main']]);
    expect(bandAt(bands, bandsHeight(bands))).toBe(null);
    const rank = bands[1]!;
    expect(findSlice(timeline, rank, 2, 60, 0)!.name).toBe('gemm');
    expect(findSlice(timeline, rank, rank.height - 2, 60, 0)!.name).toBe('reduce');
    expect(findSlice(timeline, rank, 2, 700, 0)).toBe(null);
    expect(findSlice(timeline, bands[4]!, 20, 15, 0)!.name).toBe('launch');
    expect(neighbour(timeline, bands[2]!, 0, 1)!.count).toBe(3);
    expect(neighbour(timeline, bands[2]!, 200, -1)!.from).toBe(0);
    expect(neighbour(timeline, bands[2]!, 900, 1)).toBe(null);
  });
  it('leads to the longest of a kernel, on the rank asked for first', () => {
    expect(longestOf(timeline, 'gemm', 0)).toMatchObject({ rank: 0, from: 100 });
    expect(longestOf(timeline, 'gemm', 5)!.rank).toBe(1);
    expect(longestOf(timeline, 'none', 0)).toBe(null);
    expect(longestIn(timeline, { from: 0, to: 1_000 }, 2).map((slice) => slice.name)).toEqual(['reduce', 'op']);
  });
  it('is drawn by pixels, not by slices', () => {
    const length = 100_000;
    const row: SliceRow = {
      length, start: Float64Array.from({ length }, (_, i) => i * 10), end: Float64Array.from({ length }, (_, i) => i * 10 + 9), name: new Uint32Array(length), kind: new Uint8Array(length),
      count: new Uint32Array(length).fill(1),
    };
    let looked = 0;
    const counted = { ...row, start: new Proxy(row.start, { get: (target, at) => { looked += 1; return Reflect.get(target, at) as unknown; } }) };
    paintRow(counted, { from: 0, to: length * 10 }, 1_200, new Uint8Array(1_200));
    expect(looked).toBeLessThan(2_500);
    expect(firstAfter(row, 500_000)).toBe(50_000);
  });
  it('has an address that holds what is seen', () => {
    const place = { ...profilePlace('llama-3.1', 'p-1.2'), from: 5, to: 70, ranks: '0-3,9', open: '', rank: 3, against: 'p-0', kernel: 'void f<a, b>(c&)', sort: 'total' as const, view: 'table' as const };
    const url = new URL(writePlace(place), 'http://x');
    expect(parsePlace(url.pathname, url.search)).toEqual(place);
    expect(parsePlace('/jobs/x/profiles/p', '?open=1,2&step=9&from=7&ranks=a')).toEqual({ ...profilePlace('x', 'p'), open: '1,2', step: 9 });
  });
});
