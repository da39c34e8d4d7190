import { describe, expect, it } from 'vitest';
import { decodeAlerts } from './alert';

describe('alerts', () => {
it('an alert is decoded, and a path that leads elsewhere is not believed', () => {
  const told = decodeAlerts({
    total: 2, receivers: [{ name: 'hook' }], alertmanagers: [],
    alerts: [
      { fingerprint: 'a', name: 'LockstepHang', severity: 'critical', state: 'firing', sentence: 'Job x stands still.', path: '/jobs/x?rank=5',
        starts_unix_ns: 1_700_000_000_000_000_000, delivery: 'waiting', annotations: { cost: '1 GPU-hour', incident: '/incidents/i-5' },
        deliveries: [{ receiver: 'hook', error: 'connection refused' }] },
      { fingerprint: 'b', state: 'resolved', path: '//elsewhere.example', annotations: { incident: '/incidents/../jobs' } },
    ],
  });
  expect(told.firing).toBe(1);
  expect(told.receivers).toBe(1);
  expect(told.alerts[0]!.startsNs).toBe(1_700_000_000_000_000_000);
  expect(told.alerts[0]!.problems).toEqual(['hook: connection refused']);
  expect(told.alerts[1]!.path).toBe('/');
  expect(told.alerts.map((alert) => alert.incident)).toEqual(['i-5', '']);
});

it('no path leads off this server', () => {
  const paths = ['/\\evil.example', '//evil.example', 'https://evil.example', '/a b', ''].map((path) => ({ path }));
  expect(decodeAlerts({ alerts: paths }).alerts.map((alert) => alert.path)).toEqual(paths.map(() => '/'));
  expect(decodeAlerts({ alerts: [{ path: '/jobs/x?rank=5&from=1' }] }).alerts[0]!.path).toBe('/jobs/x?rank=5&from=1');
});

it('what is no list of alerts is an empty one', () => {
  expect(decodeAlerts(null)).toEqual({ alerts: [], total: 0, firing: 0, receivers: 0 });
});
});
