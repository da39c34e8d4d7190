import { describe, expect, it } from 'vitest';
import { decodeVerdict } from './decode';
import { verdictMark } from './health';
import { kCauses } from './verdict_terms';

describe('decodeVerdict', () => {
  it('takes the cause of an alternative from its field and never from its text', () => {
    const { alternatives } = decodeVerdict({
      alternatives: [{ culprit: 'ecc (gpu)', cause: 'ecc' }, { culprit: 'gc (software)', cause: '' }, { culprit: 'storage (input)' }, { culprit: 'x', cause: 'cosmic-rays' }],
    });
    expect(alternatives.map((other) => other.cause)).toEqual(['ecc', null, null, null]);
  });

  it('knows its incident, and that it has none', () => {
    expect(decodeVerdict({ incident: { id: 'i-5', state: 'open' } }).incident).toEqual({ id: 'i-5', state: 'open' });
    for (const incident of [undefined, null, {}, { id: 7 }]) expect(decodeVerdict({ incident }).incident).toBe(null);
  });

  it('knows every cause that the server may name', () => {
    for (const cause of [...Object.keys(kCauses), 'less-work'])
      expect(decodeVerdict({ alternatives: [{ culprit: cause, cause }] }).alternatives[0]?.cause).toBe(cause);
  });

  it('keeps the place of the culprit as it is asked for', () => {
    expect(decodeVerdict({ culprit: { place: 'link:leaf-5:Eth\u202e1' } }).culprit.place).toBe('link:leaf-5:Eth\u202e1');
    expect(decodeVerdict({}).culprit.place).toBe('');
  });

  it('shows words of a newer server as they are', () => {
    const verdict = decodeVerdict({ state: 'postponed', kind: 'haunted', culprit: { cause: 'cosmic-rays', layer: 'orbit' } });
    expect([verdict.state, verdict.culprit.cause, verdict.culprit.layer]).toEqual(['postponed', 'cosmic-rays', 'orbit']);
    expect(verdictMark(verdict).word).toBe('haunted');
  });
});
