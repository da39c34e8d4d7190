import { describe, expect, it } from 'vitest';
import { decodeTrends, kTrendPoints, trendPath, trendPathData } from './trend';

const kNow = 1_800_000_030;

describe('the step time of the last hour', () => {
  it('asks for one value a minute', () => {
    const path = trendPath(kNow);
    expect(path).toContain('step=60');
    expect(path).toContain('start=1799996520&end=1800000060');
  });
  it('puts samples in their minutes and leaves gaps where there are none', () => {
    const answer = { data: { result: [{ metric: { job_id: 'a' }, values: [[1_800_000_060, '0.5'], [1_799_999_940, '0.25'], [7, '1']] }] } };
    const trend = decodeTrends(answer, kNow).get('a')!;
    expect(trend).toHaveLength(kTrendPoints);
    expect(trend.slice(-3)).toEqual([250, null, 500]);
    expect(trend.filter((value) => value !== null)).toHaveLength(2);
  });
  it('survives an answer that is none, and values that are no numbers', () => {
    expect(decodeTrends('no', kNow).size).toBe(0);
    expect(decodeTrends({ data: { result: [{ values: [[kNow, 'NaN'], 3] }] } }, kNow).get('')!.every((value) => value === null)).toBe(true);
  });
  it('draws from zero, and never across a gap', () => {
    const trend = new Array<number | null>(kTrendPoints).fill(null);
    trend[0] = 100;
    trend[1] = 50;
    trend[59] = 100;
    expect(trendPathData(trend, 60, 22)).toBe('M0.0 1.0h0.5L1.0 11.0M59.0 1.0h0.5');
    expect(trendPathData(new Array<number | null>(kTrendPoints).fill(null), 60, 22)).toBe('');
  });
});
