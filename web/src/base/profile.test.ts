import { describe, expect, it } from 'vitest';
import { decodeProfiles, isRankChoice } from './profile';
import { parsePlace, profilesPlace, writePlace } from './url';

describe('kernel profiles', () => {
  it('are read whatever is missing', () => {
    const known = decodeProfiles({ automatic: true, profiles: [{ capture: 'p-1', start_step: -1, ranks: [{ rank: 3, state: 'failed', reason: 'no Kineto' }] }] });
    expect(known.automatic).toBe(true);
    expect(known.profiles[0]!.start_step).toBe(null);
    expect(known.profiles[0]!.ranks[0]).toEqual({ rank: 3, host: '', state: 'failed', reason: 'no Kineto', file: '', bytes: null });
    expect(decodeProfiles(null).profiles).toEqual([]);
  });
  it('take ranks by number and by what they are', () => {
    for (const good of ['worst', 'worst,median,0,17', '0-7', 'all']) expect(isRankChoice(good)).toBe(true);
    for (const bad of ['', 'fastest', '1,', '1;2', '-1']) expect(isRankChoice(bad)).toBe(false);
  });
  it('have an address', () => {
    const place = { ...profilesPlace('llama-3.1'), ranks: 'worst,3' };
    const url = new URL(writePlace(place), 'http://x');
    expect(parsePlace(url.pathname, url.search)).toEqual(place);
    expect(parsePlace('/jobs/x/profiles', '?ranks=fastest')).toEqual(profilesPlace('x'));
  });
});
