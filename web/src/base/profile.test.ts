import { describe, expect, it } from 'vitest';
import { captureOf, captureOfStep, decodeProfile, decodeProfiles, isRankChoice, isUnderWay, standing, stepsText } from './profile';
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
  const taken = (fields: object, states: string[]) => decodeProfile({ capture: 'p', start_step: 10, steps: 5, ended: true, by: 'person', ranks: states.map((state, rank) => ({ rank, state })), ...fields });
  it('are under way until every rank has an end', () => {
    expect([taken({ ended: false }, ['done']), taken({}, ['done', 'uploading']), taken({}, ['done', 'failed']), taken({}, [])].map(isUnderWay)).toEqual([true, true, false, false]);
  });
  it('say where they stand', () => {
    expect(standing(taken({ ended: false }, ['done', 'armed']), 'waiting', '', null)).toMatch(/^Under way: 1 of 2 ranks .* 1 are still to come/);
    expect(standing(taken({}, ['done', 'failed']), 'analysing', '', null)).toMatch(/^Analysing the trace …/);
    expect(standing(taken({}, ['done']), 'waiting', '', null)).toMatch(/wait for their turn/);
    expect(standing(taken({}, ['failed']), 'none', '', null)).toMatch(/^Nothing to analyse: none of 1 ranks/);
    expect(standing(taken({}, ['done']), 'none', '', null)).toMatch(/^Not analysed/);
    expect(standing(taken({}, ['done']), 'failed', 'no trace', null)).toBe('The analysis failed: no trace');
    expect(standing(taken({}, ['done']), 'none', '', 'no such path')).toMatch(/does not analyse profiles: no such path/);
    expect(stepsText(taken({}, []))).toBe('steps 10–14');
    expect(stepsText(taken({ start_step: -1 }, []))).toBe('by time');
  });
  it('belong to a verdict that ordered them, else to one about their ranks, and to their steps', () => {
    const verdict = { id: 'v', since_step: 12, culprit: { ranks: [1] } };
    const [older, ordered, other] = [taken({ capture: 'older' }, ['done', 'done']), taken({ capture: 'ordered', by: 'verdict v' }, ['done']), taken({ capture: 'other' }, ['done', 'failed'])];
    expect(captureOf(verdict, [other, older])!.capture).toBe('older');
    expect(captureOf(verdict, [older, ordered])!.capture).toBe('ordered');
    expect(captureOf({ ...verdict, since_step: 15 }, [older])).toBe(null);
    expect(captureOf(verdict, [other])).toBe(null);
    expect([9, 10, 14, 15].map((step) => captureOfStep(step, [older])?.capture ?? null)).toEqual([null, 'older', 'older', null]);
  });
});
