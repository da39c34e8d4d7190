import { describe, expect, it } from 'vitest';
import { decodeAffected, decodeFabric, decodeGraph, decodePath, endText, fabricSentence, hopRows, joinGraphs, kindWords, measureOf, oddPorts, sureText, valueText, type HopValue } from './fabric';
import { edgePath, layGraph, nodeBeside } from './graph_layout';
import { parseMoment, momentText } from './moment';
import { pathOf } from './share';
import { fabricPlace, parsePlace, pathPlace, writePlace } from './url';

const node = (id: string, depth: number, more: object = {}) => ({ id, kind: id.split(':')[0], name: id.slice(id.indexOf(':') + 1), depth, ...more });
const kGraph = {
  nodes: [node('leaf:l', 0, { neighbours_left_out: 3 }), ...Array.from({ length: 20 }, (_, i) => node(`nic:n${i}`, 1)), node('nic:ill', 1, { trouble: 'Rank 5 is slow.' }), node('spine:s', 1), { kind: 'nameless' }],
  edges: [...Array.from({ length: 20 }, (_, i) => ({ from: `nic:n${i}`, to: 'leaf:l', kind: 'carries' })), { from: 'leaf:l', to: 'spine:s', kind: 'carries', label: 'l:1 - s:2' }, { from: 'leaf:l', to: 'nobody', kind: 'carries' }],
};

describe('the fabric', () => {
  it('is read whatever is missing, wrong cables before what nobody wrote down', () => {
    expect(decodeFabric(null)).toEqual({ nodes: [], links: 0, differences: [], differencesTotal: 0, changes: [], changesTotal: 0 });
    const known = decodeFabric({ nodes: { host: 2, gpu: 'x' }, links: 3, differences: [{ kind: 'not_declared', subject: 'b' }, { kind: 'other_port', subject: 'a' }, { kind: 'new_word' }], differences_total: 9 });
    expect(known.nodes).toEqual([['host', 2]]);
    expect(known.differences.map((one) => one.kind)).toEqual(['other_port', 'not_declared', 'new_word']);
    expect(known.differencesTotal).toBe(9);
    expect(decodeAffected({ jobs: [{ job_id: 'a', ranks_hit: 1, ranks: 2 }] }).jobs[0]).toEqual({ job: 'a', ranksHit: 1, ranks: 2, share: 1, firstRanks: [] });
  });
  it('says how many cables are elsewhere, and where there are more than it was told', () => {
    const told = (kinds: string[], total: number) => fabricSentence(decodeFabric({ nodes: { host: 1 }, differences: kinds.map((kind) => ({ kind })), differences_total: total }), []);
    expect(told(['other_port'], 1)).toBe('No port loses packets or went down; 1 cable is not where the file says.');
    expect(told(['other_port', 'not_seen'], 9)).toBe('No port loses packets or went down; at least 2 cables are not where the file says.');
    expect(told(['other_port', 'not_declared'], 9)).toBe('No port loses packets or went down; 1 cable is not where the file says.');
    expect(told(['not_declared'], 9)).toBe('No port loses packets or went down.');
  });
  it('has addresses that hold what is seen', () => {
    const places = [{ ...fabricPlace('leaf:leaf-1'), depth: 3, open: ['host:a b', 'nic:x:1'], by: 'switch' as const, sort: 'ecn' as const, at: 1768446000000000000, view: 'table' as const }, fabricPlace(),
      { ...pathPlace('5', 'node-1:gpu0', 'llama-3.1'), at: 1768446000000000000, qp: '1,2' }, pathPlace('', '')];
    for (const place of places) {
      const url = new URL(writePlace(place), 'http://x');
      expect(parsePlace(url.pathname, url.search)).toEqual(place);
    }
    expect(parsePlace('/fabric', '?depth=99&sort=evil&at=soon&open=&open=a&open=a')).toEqual({ ...fabricPlace(), depth: 6, open: ['a'] });
  });
});

describe('the graph', () => {
  const graph = decodeGraph(kGraph);
  it('leaves out what has no name and lines that lead nowhere', () => {
    expect(graph.nodes).toHaveLength(23);
    expect(graph.edges).toHaveLength(21);
    expect(decodeGraph(undefined)).toEqual({ nodes: [], edges: [] });
  });
  it('stands in columns from left to right, the ill first, and says what has no room', () => {
    const picture = layGraph(graph, 4, new Set(), 1_000);
    expect(picture.columns.map(({ key, shown, total }) => [key, shown, total])).toEqual([['adapters', 4, 21], ['leaves', 1, 1], ['spines', 1, 1]]);
    expect(picture.nodes[0]!.node.id).toBe('nic:ill');
    expect(picture.edges).toHaveLength(4);
    expect(edgePath(picture.edges[0]!, picture.boxWidth)).toMatch(/^M[\d.]+ [\d.]+C/);
    expect(layGraph(graph, 4, new Set(['adapters']), 1_000).nodes).toHaveLength(23);
    for (const room of [997, 999, 1_000]) expect(layGraph(graph, 4, new Set(), room).width).toBeLessThanOrEqual(room);
    expect(layGraph({ nodes: [], edges: [] }, 4, new Set(), 0)).toMatchObject({ columns: [], width: 0 });
  });
  it('shows what the reader asked for further out, beyond the room of a column', () => {
    const further = decodeGraph({ nodes: [node('spine:s', 0, { neighbours_left_out: 7 }), node('leaf:m', 1), node('leaf:k', 1)], edges: [{ from: 'leaf:m', to: 'spine:s', kind: 'carries' }, { from: 'spine:s', to: 'leaf:l', kind: 'carries' }] });
    const joined = joinGraphs(graph, [further, decodeGraph({ nodes: [node('stranger:x', 0)] })]);
    expect(joined.nodes.find((one) => one.id === 'leaf:m')).toMatchObject({ depth: 2, isFollowed: true });
    expect(joined.nodes.find((one) => one.id === 'spine:s')).toMatchObject({ depth: 1, leftOut: 7 });
    expect(joined.edges).toHaveLength(22);
    expect(layGraph(joined, 1, new Set(), 1_000).columns.map(({ shown }) => shown)).toEqual([1, 3, 1]);
  });
  it('has waits with their length each way, and changes with their time, in a column of their own', () => {
    const edge = (from: string, to: string, kind: string, more: object) => ({ from, to, kind, ...more });
    const history = decodeGraph({
      nodes: [node('rank:a/1', 0), node('rank:a/2', 1), node('host:h', 1), node('version:driver 570', 2)],
      edges: [edge('rank:a/1', 'rank:a/2', 'waits-for', { weight: 12.4 }), edge('rank:a/2', 'rank:a/1', 'waits-for', { weight: 0.5 }),
        edge('host:h', 'version:driver 570', 'changed-at', { label: 'was 550', at_unix_ns: 1_768_446_000_000_000_000 })],
    });
    expect(history.edges.map(kindWords)).toEqual(['waits-for (12.4 s)', 'waits-for (500 ms)', expect.stringMatching(/^changed at 2026-01-15.* to$/)]);
    expect(joinGraphs(history, [history]).edges).toHaveLength(3);
    expect(layGraph(history, 4, new Set(), 1_000).columns.map(({ key }) => key)).toEqual(['ranks', 'hosts', 'versions']);
  });
  it('is walked by arrows', () => {
    const picture = layGraph(graph, 4, new Set(), 1_000);
    expect(nodeBeside(picture, 'leaf:l', 'ArrowRight')).toBe('spine:s');
    expect(nodeBeside(picture, 'leaf:l', 'ArrowLeft')).toBe('nic:n0');
    expect(nodeBeside(picture, 'nic:ill', 'ArrowDown')).toBe('nic:n0');
    expect(nodeBeside(picture, 'leaf:l', 'ArrowUp')).toBe(null);
    expect(nodeBeside(picture, 'leaf:l', 'x')).toBe(null);
  });
});

describe('a path', () => {
  const value = (meaning: string, own: number, more: object = {}) => ({ metric: `lockstep_port_${meaning}_total`, meaning, direction: 'out', unit: 'per second', value: own, siblings: 1, sibling_count: 3, odd: own > 3, ...more });
  const path = decodePath({
    sentence: 'Over the network.', kind: 'network', equal_paths: 2, a: { host: 'h', index: 3, rank: 5, gpu: 'GPU-1' }, b: { gpu: 'GPU-2' },
    hops: [
      { position: 2, kind: 'spine', name: 's0', share: 0.5, sure: 'possible' }, { position: 2, kind: 'spine', name: 's1', share: 0.5, sure: 'possible' },
      { position: 1, kind: 'link', link: 'network', name: 'x', from: 'l:1', to: 's0:9', share: 0.5, from_state: [value('ecn', 1)] },
      { position: 1, kind: 'link', link: 'network', name: 'y', from: 'l:2', to: 's1:9', share: 0.5, from_state: [value('ecn', 90), value('drops', 9), { meaning: 'load' }] },
      { position: 0, kind: 'nic', name: 'h:n', state: [value('load', 2e9, { odd: false, direction: 'transmit' }), value('load', 1e9, { odd: false, direction: 'receive' })] },
    ],
  });
  it('is read whatever is missing', () => {
    expect(decodePath(null).hops).toEqual([]);
    expect(path.hops[3]!.fromState).toHaveLength(2);
    expect(endText(path.a)).toBe('rank 5 (h gpu3)');
    expect(endText(path.b)).toBe('GPU-2');
    expect(sureText(decodePath({ hops: [{ sure: 'observed', packets_sampled: 12 }] }).hops[0]!)).toBe('seen in 12 packets');
  });
  it('keeps ways in their lines, the one in trouble first', () => {
    expect(hopRows(path).map((hops) => hops.map((hop) => hop.name))).toEqual([['h:n'], ['y', 'x'], ['s1', 's0']]);
  });
  it('names the gravest of what stands out', () => {
    expect(oddPorts(path).map(({ port, values }) => [port.name, values.map((one) => one.meaning)])).toEqual([['l:2', ['drops', 'ecn']]]);
    expect(measureOf(path.hops[4]!.state, 'load', 'in')!.value).toBe(1e9);
    expect(measureOf(path.hops[4]!.state, 'queue')).toBe(null);
  });
  it('writes numbers with their unit', () => {
    const of = (meaning: string, metric: string, own: number, isRate = true): HopValue => ({ metric, meaning, direction: '', isRate, value: own, siblings: null, siblingCount: 0, isOdd: false });
    expect([of('load', 'x', 2e9), of('ecn', 'x', 41_000), of('pause', 'lockstep_nic_pause_seconds_total', 0.02), of('queue', 'lockstep_port_queue_bytes', 3.1e6, false), of('up', 'x', 0, false), of('drops', 'x', 0)].map((one) => valueText(one)))
      .toEqual(['2 GB/s', '41,000/s', '2 % of the time', '3.1 MB', 'down', '0']);
  });
  it('is found in the command of a verdict', () => {
    expect(pathOf('lockstep path 5 21 --job llama')).toEqual({ a: '5', b: '21' });
    expect(pathOf('lockstep why llama')).toBe(null);
    expect(pathOf('lockstep path 5 21; rm -rf /')).toBe(null);
  });
});

describe('a moment', () => {
  it('is what a person types', () => {
    const now = Date.UTC(2026, 0, 15, 3);
    expect(parseMoment('', now)).toBe(null);
    expect(parseMoment(' now ', now)).toBe(null);
    expect(parseMoment('-5m', now)).toBe((now - 300e3) * 1e6);
    expect(parseMoment('2026-01-15T03:00:00Z', now)).toBe(now * 1e6);
    expect(parseMoment('2026-01-15 03:00', now)).toBe(now * 1e6);
    for (const bad of ['soon', '-5x', '2026-13-45T00:00:00Z', '12']) expect(parseMoment(bad, now)).toBe(undefined);
    expect(momentText(now * 1e6)).toBe('2026-01-15T03:00:00Z');
    expect([momentText(null), momentText(1e40)]).toEqual(['', '']);
  });
});
