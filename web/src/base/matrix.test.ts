import { describe, expect, it } from 'vitest';
import { cell, decodeMatrix, excessMax, merge, order } from './matrix';
import { bandsOf, placeAt, placeBox, rasterize } from './raster';
import { kScale, niceCeil } from './scale';

function answer(ranks: number, steps: number[], excess: (rank: number, step: number) => number | null) {
  const rows = Array.from({ length: ranks }, (_, rank) => steps.map((step) => excess(rank, step)));
  const line = steps.map(() => 100);
  return {
    ranks: Array.from({ length: ranks }, (_, rank) => rank),
    hosts: Array.from({ length: ranks }, (_, rank) => `node-${Math.floor(rank / 2)}`),
    steps, step_ms: line, compute_ms: line, waiting_ms: line, communication_ms: line, input_ms: line,
    duration_ms: rows, self_ms: rows, excess_ms: rows, input_ms_rank: rows, total_steps: 1000,
  };
}
const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index);

describe('matrix', () => {
  it('keeps what was not heard apart from zero', () => {
    const matrix = decodeMatrix(answer(2, [1, 2], (rank, step) => (rank === 1 && step === 2 ? null : 0)));
    expect(cell(matrix.excess, matrix, 1, 1)).toBe(null);
    expect(cell(matrix.excess, matrix, 1, 0)).toBe(0);
  });
  it('shows a step that no rank reported as a hole', () => {
    const matrix = decodeMatrix(answer(1, [1, 2, 4], () => 7));
    expect(matrix.steps).toEqual([1, 2, 3, 4]);
    expect(cell(matrix.excess, matrix, 0, 2)).toBe(null);
    expect(cell(matrix.excess, matrix, 0, 3)).toBe(7);
  });
  it('survives an answer of the wrong shape', () => {
    const matrix = decodeMatrix({ ranks: [0, 'x'], steps: [1, 2], excess_ms: 'no', duration_ms: [[1]] });
    expect(matrix.excess.length).toBe(4);
    expect(cell(matrix.duration, matrix, 0, 0)).toBe(1);
    expect(decodeMatrix(null).steps).toEqual([]);
  });
  it('merges the newest steps and drops the oldest', () => {
    const old = decodeMatrix(answer(2, range(1, 4), (rank, step) => rank * 100 + step));
    const merged = merge(old, decodeMatrix(answer(2, range(4, 6), (rank, step) => rank * 100 + step + 0.5)), 4)!;
    expect(merged.steps).toEqual([3, 4, 5, 6]);
    expect(Array.from(merged.excess)).toEqual([3, 4.5, 5.5, 6.5, 103, 104.5, 105.5, 106.5]);
  });
  it('refuses to merge other ranks, a restart or a hole', () => {
    const old = decodeMatrix(answer(2, range(10, 14), () => 0));
    expect(merge(old, decodeMatrix(answer(3, range(14, 15), () => 0)), 9)).toBe(null);
    expect(merge(old, decodeMatrix(answer(2, range(1, 3), () => 0)), 9)).toBe(null);
    expect(merge(old, decodeMatrix(answer(2, range(17, 18), () => 0)), 9)).toBe(null);
  });
  it('sorts culprits first, then slow, then silent ranks, and leaves noise alone', () => {
    const matrix = decodeMatrix(answer(6, range(1, 20), (rank, step) => {
      if (rank === 4) return null;
      if (rank === 2) return 80;
      return rank === 3 ? 3 : (step * 7 + rank) % 3;
    }));
    const max = excessMax(matrix);
    expect(order(matrix, 'badness', new Set([5]), max)).toEqual([5, 2, 4, 0, 1, 3]);
    expect(order(matrix, 'rank', new Set([5]), max)).toEqual([0, 1, 2, 3, 4, 5]);
  });
  it('sorts hosts as people count: node-2 before node-10', () => {
    const json = answer(3, [1], () => 0);
    json.hosts = ['node-10', 'node-2', 'node-2'];
    expect(order(decodeMatrix(json), 'host', new Set(), 1)).toEqual([1, 2, 0]);
  });
  it('keeps the scale calm for a healthy job and stable by round numbers', () => {
    expect(excessMax(decodeMatrix(answer(2, range(1, 9), () => 1)))).toBe(10);
    expect(excessMax(decodeMatrix(answer(64, range(0, 99), (rank, step) => (step === 0 ? 900 : rank === 5 ? 80 : 1))))).toBe(80);
    expect(niceCeil(118)).toBe(150);
    expect(niceCeil(50)).toBe(50);
  });
});

describe('raster', () => {
  it('shows the worst cell of a pixel and leaves the unknown transparent', () => {
    const matrix = decodeMatrix(answer(4096, range(1, 400), (rank, step) => (rank === 3000 && step === 200 ? 500 : rank < 64 ? null : 0)));
    const rows = order(matrix, 'rank', new Set(), 500);
    const raster = rasterize(matrix, rows, 500, 200, 128);
    expect([raster.width, raster.height]).toEqual([200, 128]);
    const hot = Array.from(raster.pixels).filter((pixel) => pixel === kScale[255]);
    expect(hot.length).toBe(1);
    expect(raster.pixels[0]).toBe(0);
    expect(raster.pixels[100 * 200]).toBe(kScale[0]);
    const bands = bandsOf(4096, 128, false);
    expect(placeAt(matrix, rows, bands, Math.floor((3000 * 128) / 4096) + 0.5, 199)).toBe(3000);
  });
  it('gives the worst rows of a large job a height that can be seen', () => {
    const matrix = decodeMatrix(answer(4096, [1], () => 0));
    const rows = order(matrix, 'rank', new Set(), 1);
    const bands = bandsOf(4096, 320, true);
    expect(placeBox(bands, 0)).toEqual({ top: 0, height: 8 });
    expect(placeAt(matrix, rows, bands, 12, 0)).toBe(1);
    expect(placeAt(matrix, rows, bands, 130, 0)).toBe(null);
    expect(placeBox(bands, 4095).top).toBeLessThan(320);
    expect(placeAt(matrix, rows, bands, 319.9, 0)).toBeGreaterThan(4000);
    expect(bandsOf(64, 320, true).length).toBe(1);
    expect(bandsOf(64, 218, true).length).toBe(2);
  });
});
