import { describe, expect, it } from 'vitest';
import { decodeCardinality } from './cardinality';

describe('who made the series', () => {
  it('puts the most refused first and leaves out what was not refused', () => {
    const told = decodeCardinality({ series: 7, metrics: [{ name: 'up', series: 4 }], refused_samples: { too_old: 2, future: 0, label_forbidden: 9 } });
    expect(told.refused).toEqual([{ reason: 'label_forbidden', samples: 9 }, { reason: 'too_old', samples: 2 }]);
    expect(told.metrics).toEqual([{ name: 'up', series: 4 }]);
  });
  it('survives an answer that is none', () => {
    expect(decodeCardinality('no')).toEqual({
      series: null, limit: null, limits: { metric: null, job: null, tenant: null, stream: null }, metrics: [], jobs: [], tenants: [], streams: [], refused: [],
    });
  });
});
