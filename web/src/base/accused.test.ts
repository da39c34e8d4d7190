import { expect, it } from 'vitest';
import { charges, notColoured } from './accused';
import { decodeVerdict } from './decode';

const verdict = (kind: string, layer: string, ranks: number[], state = 'confirmed') => decodeVerdict({ kind, state, culprit: { layer, rank: ranks } });

it('marks ranks by what they are accused of, the gravest first, and says what the colours do not show', () => {
  const all = charges([verdict('slow', 'gpu', [1]), verdict('slow', 'link', [1, 2]), verdict('hang', 'software', [3]), verdict('hang', 'gpu', [9], 'cleared')]);
  expect([...all]).toEqual([[1, 'link'], [2, 'link'], [3, 'hung']]);
  expect(notColoured(all)[0]).toContain('ranks 1, 2: named for the network');
  expect(notColoured(all)[1]).toContain('rank 3: stands still');
  expect(notColoured(charges([verdict('slow', 'gpu', [1])]))).toEqual([]);
});
