import { describe, expect, it } from 'vitest';
import { decodeCost, decodeMfu, falls } from './cost';

describe('the cost of a job', () => {
  it('keeps shares between 0 and 1 and takes an odd part for unexplained', () => {
    const cost = decodeCost({ parts: [{ kind: 'verdict', name: 'rank 5', share: 7 }, { kind: 'x', share: 'a' }, null] });
    expect(cost.parts.map((part) => [part.kind, part.share])).toEqual([['verdict', 1], ['unexplained', 0], ['unexplained', 0]]);
    expect(cost.lost_money).toBeNull();
  });
});

describe('the waterfall', () => {
  it('steps down from the peak to what was achieved', () => {
    const mfu = decodeMfu({ mfu: 0.4, bars: [{ key: 'waiting', points: 0.25 }, { key: 'kernels', points: 0.35 }] });
    expect(falls(mfu.bars)).toEqual([{ from: 0.75, to: 1 }, { from: 0.4, to: 0.75 }]);
  });
  it('opens the bar of kernels into what they are bound by, from where that bar begins', () => {
    const { bars } = decodeMfu({ bars: [{ key: 'kernels', points: 0.4, by_bound: [{ key: 'memory', words: 'by memory', points: 0.3 }, { points: 'x' }] }] });
    expect(bars[0]!.parts).toEqual([{ key: 'memory', words: 'by memory', points: 0.3 }, { key: '', words: '', points: 0 }]);
    expect(falls(bars[0]!.parts, 0.8)[0]!.to).toBeCloseTo(0.8);
    expect(falls(bars[0]!.parts, 0.8)[0]!.from).toBeCloseTo(0.5);
    expect(decodeMfu({ bars: [{ key: 'kernels' }] }).bars[0]!.parts).toEqual([]);
  });
  it('survives an answer that is none', () => {
    const mfu = decodeMfu('no');
    expect([mfu.mfu, mfu.bars, mfu.change]).toEqual([null, [], null]);
  });
  it('draws a correction below nothing inside the frame', () => {
    const { bars } = decodeMfu({ bars: [{ key: 'waiting', points: 0.9 }, { key: 'unknown', points: -0.3 }] });
    expect(falls(bars)[1]!.from).toBeCloseTo(0.1);
    expect(falls(bars)[1]!.to).toBeCloseTo(0.4);
  });
});
