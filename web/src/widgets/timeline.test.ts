import { describe, expect, it } from 'vitest';
import { cellPixels, lineAt, lineOfRank, packColour, runs } from './timeline_draw';
import { collectiveKey, decodeCells, decodeTimeline, kKinds, kWaiting, lastToCome, runAt, spanAt, timeByKind, type TimeSpan } from '../base/timeline';

const words = (cells: Uint8Array): string => [...cells].map((kind) => kKinds[kind]!.letter).join('');

describe('run lengths', () => {
  it('reads letters with and without a number', () => {
    expect(words(decodeCells('f3w2.c', 7))).toBe('fffww.c');
  });
  it('takes nonsense for the unknown and never runs over', () => {
    expect(words(decodeCells('f2?3w99999999999', 8))).toBe('ff...www');
    expect(words(decodeCells('12f', 3))).toBe('f..');
    expect(words(decodeCells('', 2))).toBe('..');
    expect(words(decodeCells('w0f', 2))).toBe('f.');
  });
  it('knows every letter of the wire once', () => {
    expect(kKinds.map((kind) => kind.letter).join('')).toBe('.oifbpkeswcm');
    expect(kKinds[kWaiting]!.letter).toBe('w');
  });
});

describe('timeline', () => {
  const tile = decodeTimeline({
    length_ns: 1000, from_ns: 100, to_ns: 500, columns: 4, ranks_shown: 3, ranks_traced: 3, ranks_total: 4,
    lines: [{ first_rank: 0, last_rank: 1, shown_rank: 1, cells: 'f2w2' }, { first_rank: 3, last_rank: 3, shown_rank: 3, cells: 'b4' }, { last_rank: 9 }],
    spans: [{ rank: 3, kind: 'b', name: '<b>backward</b>', from_ns: 0, duration_ns: 600 }, { rank: 3, kind: 'c', name: 'AllReduce', from_ns: 200, duration_ns: 100, wait_ns: 40, comm_id: '0x1', ordinal: 7 }, { rank: 'x' }],
  });
  it('keeps what is whole of an answer', () => {
    expect(tile.lines.map((line) => line.shown)).toEqual([1, 3]);
    expect(tile.spans).toHaveLength(2);
    expect(decodeTimeline(null)).toMatchObject({ lines: [], spans: [], columns: 0, length: 0 });
  });
  it('adds up time by kind, and finds the run around a moment', () => {
    expect(timeByKind(tile, tile.lines[0]!)[kWaiting]).toBe(200);
    expect(runAt(tile, tile.lines[0]!, 350)).toEqual({ kind: kWaiting, from: 300, to: 500 });
    expect(runAt(tile, tile.lines[0]!, 50)).toBe(null);
  });
  it('prefers an operation to the phase around it', () => {
    expect(spanAt(tile.spans, 3, 250)!.name).toBe('AllReduce');
    expect(spanAt(tile.spans, 3, 350)!.kind).toBe(4);
    expect(spanAt(tile.spans, 1, 250)).toBe(null);
  });
  it('says who came last to a collective, where more than one was seen', () => {
    const op = (rank: number, wait: number, ordinal: number, kind = 10): TimeSpan =>
      ({ rank, kind, name: 'AllReduce', from: 0, duration: 1, wait, comm: '0x1', ordinal, bytes: 1, queue: 0, peer: null });
    const last = lastToCome([op(0, 50, 1), op(1, 0, 1), op(2, 30, 1), op(0, 0, 2), op(0, 9, 3, 11), op(1, 0, 3, 11)]);
    expect([...last]).toEqual([['0x1/1', 1]]);
    expect(collectiveKey(op(0, 9, 3, 11))).toBe(null);
  });
  it('finds the line under a pointer and of a rank', () => {
    expect([lineAt(2, 32, 0), lineAt(2, 32, 31.9), lineAt(2, 32, 32), lineAt(0, 32, 1)]).toEqual([0, 1, null, null]);
    expect([lineOfRank(tile.lines, 0), lineOfRank(tile.lines, 2), lineOfRank(tile.lines, 3)]).toEqual([0, -1, 1]);
  });
  it('paints cells, and leaves the unknown to the hatching', () => {
    const colours = Uint32Array.from(kKinds, (_, kind) => (kind === 0 ? 0 : kind));
    expect([...cellPixels(tile.lines, 4, colours)]).toEqual([3, 3, 9, 9, 4, 4, 4, 4]);
    expect(packColour('#ff8040').toString(16)).toBe('ff4080ff');
    expect(packColour('red')).toBe(0);
    expect([...runs(Uint8Array.from([1, 1, 2]))]).toEqual([[1, 0, 2], [2, 2, 3]]);
  });
});
