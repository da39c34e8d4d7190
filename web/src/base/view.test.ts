import { describe, expect, it } from 'vitest';
import { fineDuration, fit, isWhole, kNarrowestNs, pan, tickText, timeAt, timeTicks, viewByKey, xAt, zoom } from './view';

const kLength = 400e6;

describe('view', () => {
  it('keeps the moment under the pointer where it is', () => {
    const view = { from: 100e6, to: 300e6 };
    const at = 150e6;
    const nearer = zoom(view, at, 0.5, kLength);
    expect(nearer.to - nearer.from).toBe(100e6);
    expect(xAt(nearer, at, 0, 1000)).toBeCloseTo(xAt(view, at, 0, 1000), 6);
    expect(timeAt(nearer, 250, 0, 1000)).toBeCloseTo(at, 0);
  });
  it('never leaves the step and never comes too near', () => {
    expect(zoom({ from: 0, to: kLength }, 0, 4, kLength)).toEqual({ from: 0, to: kLength });
    const nearest = zoom({ from: 0, to: 2_000 }, 1_000, 1e-6, kLength);
    expect(nearest.to - nearest.from).toBe(kNarrowestNs);
    expect(pan({ from: 0, to: 100e6 }, -1, kLength)).toEqual({ from: 0, to: 100e6 });
    expect(pan({ from: 250e6, to: 350e6 }, 1, kLength)).toEqual({ from: 300e6, to: 400e6 });
    expect(fit({ from: -50, to: 1e12 }, kLength)).toEqual({ from: 0, to: kLength });
    expect(fit({ from: 5, to: 6 }, 100)).toEqual({ from: 0, to: 100 });
  });
  it('undoes a zoom by its inverse', () => {
    const view = { from: 120e6, to: 160e6 };
    expect(zoom(zoom(view, 130e6, 0.5, kLength), 130e6, 2, kLength)).toEqual(view);
    expect(isWhole(view, kLength)).toBe(false);
  });
  it('moves by keys, and knows which are not its own', () => {
    const view = { from: 100e6, to: 300e6 };
    expect(viewByKey('W', view, kLength)).toEqual(viewByKey('+', view, kLength));
    expect(viewByKey('d', view, kLength)).toEqual({ from: 150e6, to: 350e6 });
    expect(viewByKey('0', view, kLength)).toEqual({ from: 0, to: kLength });
    for (const key of ['constructor', 'x', 'Escape']) expect(viewByKey(key, view, kLength)).toBe(null);
  });
  it('puts ticks on round moments, apart enough to read', () => {
    expect(timeTicks({ from: 0, to: 400e6 }, 800)).toEqual([0, 50e6, 100e6, 150e6, 200e6, 250e6, 300e6, 350e6, 400e6]);
    const fine = timeTicks({ from: 100_000_300, to: 100_010_300 }, 1000);
    expect(fine.length).toBeGreaterThan(3);
    expect(fine.every((ns) => ns % 1000 === 0)).toBe(true);
    expect(tickText(150e6, 50e6)).toBe('150');
    expect(tickText(100_002_000, 2000)).toBe('100.002');
    expect(tickText(1_250e6, 250e6)).toBe('1,250');
  });
  it('writes microseconds where milliseconds hide them', () => {
    expect([850, 85_000, 1_240_000, 118e6, 4.2e9, null].map((ns) => fineDuration(ns))).toEqual(['0.85 µs', '85 µs', '1.24 ms', '118 ms', '4.2 s', '–']);
  });
});
