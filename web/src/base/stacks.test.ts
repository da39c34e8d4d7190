import { describe, expect, it } from 'vitest';
import { decodeSamples, depthOf, flameOf, forkOf, kindsOf, layFrames, points } from './stacks';

const samples = decodeSamples({
  ranks: [6, 5, 7].map((rank) => ({ rank, looks: 100, threads: [{ thread: 'main thread' }, { thread: 'worker process' }, { thread: 'worker process' }] })),
  difference: { rank: 6, peers: [5, 7], sentence: 's', named: { text: 'train.py:142 in load', thread: 'main thread', share: 0.6, peer_share: 0 }, lines: [{ text: 'a' }, {}] },
});
const collapsed = [
  'rank 6;main thread;train (train.py:95);load (train.py:142) 60', 'rank 6;main thread;train (train.py:95);step (train.py:160) 40',
  'rank 5;main thread;train (train.py:95);step (train.py:160) 100', 'rank 7;main thread;train (train.py:95);step (train.py:160) 80',
  'rank 7;main thread;train (train.py:95);a name; with (odd.py:1) 20', 'rank 6;worker process 4711;read (data.py:9) 100', 'rank 9;main thread;x 5', 'no number', '', 'rank 6;main thread;y -3',
].join('\n');

describe('a differential flame graph', () => {
  it('sets a rank beside the mean of its peers, frame by frame', () => {
    const root = flameOf(collapsed, samples, 'main thread');
    expect([root.own, root.peers]).toEqual([1, 1]);
    const train = root.children[0]!;
    expect(train.children.map((frame) => [frame.name, points(frame)])).toEqual([['load (train.py:142)', 60], ['a name', -10], ['step (train.py:160)', -50]]);
  });
  it('counts workers by their mean', () => {
    expect(flameOf(collapsed, samples, 'worker process').children[0]).toMatchObject({ name: 'read (data.py:9)', own: 0.5, peers: 0 });
    expect(kindsOf(samples)).toEqual(['main thread', 'worker process']);
  });
  it('gives every frame its place, and what is zoomed into the whole width', () => {
    const root = flameOf(collapsed, samples, 'main thread');
    const boxes = layFrames(root);
    expect(boxes.filter((box) => box.depth === 2).map((box) => [box.left, Math.round(100 * box.width)])).toEqual([[0, 30], [0.3, 5], [0.35, 65]]);
    const load = root.children[0]!.children[0]!;
    expect(layFrames(load, root).map((box) => [box.depth, box.width])).toEqual([[0, 1], [1, 1], [2, 1]]);
    expect(layFrames(flameOf('', samples, 'main thread'))).toEqual([]);
    expect([forkOf(root).name, depthOf(forkOf(root))]).toEqual(['train (train.py:95)', 1]);
    expect(forkOf(flameOf('', samples, 'main thread')).name).toBe('main thread');
  });
  it('is read whatever is missing', () => {
    expect(decodeSamples(null)).toMatchObject({ ranks: [], rank: null, lines: [], named: null });
    expect(samples.lines).toHaveLength(1);
  });
});
