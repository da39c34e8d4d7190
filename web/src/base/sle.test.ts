import { expect, test } from 'vitest';
import { decodeSleDetail, decodeSles, gpuMinutes, successText } from './sle';

const answer = {
  scope: 'fleet', ledger: 'victim', from_unix_s: 0, to_unix_s: 3600, bucket_minutes: 1,
  sles: [{
    name: 'progress', title: 'Training progress', measured: true, minutes: { good: 6, degraded: 2, unknown: 2, idle: 5 }, success: 0.75,
    success_least: 0.6, success_most: 0.8, coverage: 0.8, chosen_minutes: 2, chosen_money: null,
    threshold: { against: 'baseline', direction: 'below', unit: 's', value: 1.05, minimum: 0, maximum: null },
    classifiers: [{ name: 'gpu', minutes: 2, share: 1, subs: [{ name: 'ecc', minutes: 2 }] }], trend: [[6, 2, 2]],
  }],
};

test('success is a range where minutes are unknown, and a number where none is', () => {
  const [sle] = decodeSles(answer).sles;
  expect(successText(sle!)).toBe('60.0 to 80.0 %');
  expect(sle!.minutes.idle).toBe(5);
  expect(successText({ ...sle!, minutes: { good: 3, degraded: 1, unknown: 0, idle: 0 } })).toBe('75.0 %');
  expect(successText({ ...sle!, measured: false })).toBe('not measured');
});

test('an answer of another version is empty, not an error', () => {
  expect(decodeSles(null).sles).toEqual([]);
  expect(decodeSleDetail({ name: 7, affected: [] }).culprits.rows).toEqual([]);
});

test('minutes of GPUs are written as people say them', () => {
  expect(gpuMinutes(90)).toBe('90 GPU-min');
  expect(gpuMinutes(600)).toBe('10.0 GPU-h');
  expect(gpuMinutes(600_000)).toBe('10,000 GPU-h');
});
