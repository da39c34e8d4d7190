import { expect, it } from 'vitest';
import { decodeNode, decodeNodeSeries, oddAt } from './node';

it('puts steps before hardware, and names the line that differs from the others', () => {
  const told = decodeNodeSeries({
    points: 2, from_unix_ns: 0, stretch_ns: 1e9,
    rows: [{ key: 'sm_clock', words: 'GPU clock', unit: 'MHz', of: 'gpu', id: 'G0', values: [1980, null] },
      { key: 'sm_clock', words: 'GPU clock', unit: 'MHz', of: 'gpu', id: 'G1', values: [1155] },
      { key: 'sm_clock', words: 'GPU clock', unit: 'MHz', of: 'gpu', id: 'G2', values: [1975, 'x'] }],
    steps: [{ job_id: 'a', rank: 7, gpu_uuid: 'G1', step_ms: [500, 510], excess_ms: [null, null] }],
  }, new Map([['G1', 'GPU 1']]));
  expect(told.lanes.map((lane) => lane.key)).toEqual(['step', 'sm_clock']);
  expect(oddAt(told.lanes[1]!, 0)).toMatchObject({ value: 1155, middle: 1975, line: { label: 'GPU 1' } });
  expect(oddAt(told.lanes[1]!, 1)).toBeNull();
});

it('begins where something is known, but keeps some room', () => {
  const values = Array.from({ length: 100 }, (_, at) => (at < 60 ? null : 5));
  const told = decodeNodeSeries({ points: 100, from_unix_ns: 0, stretch_ns: 1e9, rows: [{ key: 'power', words: 'GPU power', unit: 'W', of: 'gpu', id: 'G', values }], steps: [] }, new Map());
  expect([told.points, told.fromNs, told.isLater]).toEqual([41, 59e9, true]);
  expect(told.lanes[0]!.lines[0]!.values.length).toBe(41);
  const late = decodeNodeSeries({ points: 100, from_unix_ns: 0, stretch_ns: 1e9, rows: [{ key: 'power', unit: 'W', of: 'gpu', id: 'G', values: [...Array(99).fill(null), 5] }] }, new Map());
  expect(late.points).toBe(30);
});

it('reads a node of which little is told', () => {
  const node = decodeNode({ host: 'n', gpus: [{ gpu_uuid: 'G', index: -1 }], ranks: [{}], verdicts: [{ ranks: [3], layer: 'gpu' }] });
  expect(node.state).toBe('unknown');
  expect(node.gpus[0]!.index).toBeNull();
  expect(node.ranks).toEqual([]);
  expect(node.verdicts[0]!.verdict.culprit.ranks).toEqual([3]);
});
