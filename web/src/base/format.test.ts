import { describe, expect, it } from 'vitest';
import { bytes, clean, count, duration, excess, gpuTime, number, percent, utc, withUnit } from './format';

describe('format', () => {
  it('writes durations as people say them', () => {
    expect(duration(0.42)).toBe('0.4 ms');
    expect(duration(118.2374)).toBe('118 ms');
    expect(duration(4_200)).toBe('4.2 s');
    expect(duration(12_345)).toBe('12.3 s');
    expect(duration(180_000)).toBe('3 min');
    expect(duration(9_000_000)).toBe('2.5 h');
  });
  it('separates thousands and keeps a sane precision', () => {
    expect(count(1234567)).toBe('1,234,567');
    expect(number(1980)).toBe('1,980');
    expect(number(19.84)).toBe('19.8');
    expect(number(1.4)).toBe('1.4');
    expect(number(100.4)).toBe('100');
    expect(number(0.00123)).toBe('0.00123');
  });
  it('shows nothing heard as a dash, never as zero', () => {
    for (const text of [duration(null), count(undefined), number(NaN), percent(null), excess(null), bytes(undefined)]) {
      expect(text).toBe('–');
    }
  });
  it('keeps small shares and round sizes readable', () => {
    expect([percent(0.082), percent(0.31), percent(0.003), percent(0)]).toEqual(['8.2 %', '31 %', '< 1 %', '0 %']);
    expect(bytes(999_900_000)).toBe('1 GB');
  });
  it('gives a difference its sign', () => {
    expect(excess(118)).toBe('+118 ms');
    expect(excess(-3)).toBe('−3 ms');
    expect(excess(0.01)).toBe('0 ms');
  });
  it('prices lost GPU time in the unit a person pays for', () => {
    expect(gpuTime(71_280)).toBe('19.8 GPU-hours');
    expect(gpuTime(600)).toBe('10 GPU-minutes');
    expect(gpuTime(0)).toBe('');
  });
  it('reads the units of claims', () => {
    expect(withUnit(118, 'ms')).toBe('118 ms');
    expect(withUnit(1155, 'MHz')).toBe('1,155 MHz');
    expect(withUnit(0.5, '1')).toBe('0.5');
  });
  it('makes characters that forge or run text visible', () => {
    expect(clean('a\u202Eb\nrm -rf\u0000')).toBe('a\ufffdb\ufffdrm -rf\ufffd');
    expect(clean('x'.repeat(5000)).length).toBe(600);
  });
  it('names UTC for the hover', () => {
    expect(utc(1_700_000_000_000_000_000)).toBe('2023-11-14 22:13:20 UTC');
  });
});
