import { describe, expect, it } from 'vitest';
import { decodeIncident, decodeIncidents, incidentMark } from './incident';

describe('incidents', () => {
  it('are read with what is missing as unknown', () => {
    const empty = decodeIncident(null);
    expect(empty.state).toBe('unknown');
    expect(empty.hurt).toEqual([]);
    expect(empty.radius.known).toBe(false);
    expect(decodeIncidents({ incidents: [{}, { state: 'resolved' }] }).open).toBe(1);
  });
  it('keep names of jobs exact and lead to no other site', () => {
    const one = decodeIncident({ jobs: [{ job_id: 'a\u202eb', path: 'javascript:alert(1)' }, { job_id: 'c', path: '/jobs/c?step=1&rank=2' }],
                                 timeline: [{ text: 'x\ny', path: '//evil.test/jobs/' }] });
    expect(one.hurt[0]).toMatchObject({ job: 'a\u202eb', path: '' });
    expect(one.hurt[1]?.path).toBe('/jobs/c?step=1&rank=2');
    expect(one.timeline[0]).toMatchObject({ text: 'x\ufffdy', path: '' });
  });
  it('are red only where a person is needed now', () => {
    const row = decodeIncidents({ incidents: [{ state: 'open', active: true }] }).incidents[0]!;
    expect(incidentMark(row).tone).toBe('alarm');
    expect(incidentMark({ ...row, state: 'acknowledged' }).tone).toBe('doubt');
    expect(incidentMark({ ...row, state: 'resolved' }).tone).toBe('quiet');
  });
});
