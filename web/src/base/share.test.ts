import { describe, expect, it, vi } from 'vitest';
import { apiPath, csv, profileOf, shellWord, sleCommand } from './share';
import { isRanks, jobPlace, parsePlace, servicePlace, slePlace, stepPlace, writePlace } from './url';

describe('share', () => {
  it('knows the kernel profile behind an address', () => {
    expect(profileOf('/api/jobs/a%2Fb/profiles/p-1/summary?x=1')).toEqual({ job: 'a/b', capture: 'p-1' });
    expect(profileOf('/api/jobs/a/profiles')).toBe(null);
    expect(profileOf('/api/jobs/%E0%A4%A/profiles/p')).toBe(null);
  });
  it('quotes names for a shell', () => {
    expect(shellWord('llama-70b')).toBe('llama-70b');
    expect(shellWord(`a'; rm -rf /; '`)).toBe(`'a'\\''; rm -rf /; '\\'''`);
  });
  it('asks for an SLE with every name as one word', () => {
    vi.stubGlobal('location', { origin: 'http://h:1' });
    const place = { ...slePlace(`a'; rm -rf /; '`), sle: 'progress', host: '-x', classifier: 'gpu' };
    expect(sleCommand(place)).toBe(
      `lockstep sle progress --hours 24 '--job=a'\\''; rm -rf /; '\\''' --host=-x --classifier=gpu --server http://h:1`);
    vi.unstubAllGlobals();
  });
  it('writes CSV that no spreadsheet runs', () => {
    expect(csv(['host', 'ms'], [['=cmd()', 1.23456], ['a,"b"', null], ['-x', -2]])).toBe(
      'host,ms\r\n\'=cmd(),1.2346\r\n"a,""b""",\r\n\'-x,-2\r\n');
  });
  it('links only to this server', () => {
    expect(apiPath('/api/jobs/x/ranks?last=50')).toBe('/api/jobs/x/ranks?last=50');
    for (const bad of ['javascript:alert(1)', '//evil.test/api', 'https://evil.test/api/', '/\\evil.test', '/apiary', '']) {
      expect(apiPath(bad), bad).toBe(null);
    }
  });
});

describe('url', () => {
  it('holds and restores the whole state of a job page', () => {
    const place = { ...jobPlace('team/a b.c?'), step: 1388, rank: 5, sort: 'host' as const, view: 'table' as const, last: 400 };
    const url = new URL(writePlace(place), 'http://h');
    expect(parsePlace(url.pathname, url.search)).toEqual(place);
    expect(writePlace(jobPlace('llama-70b'))).toBe('/jobs/llama-70b');
  });
  it('keeps a name inside its segment, and a name with a dot a page', () => {
    expect(writePlace(jobPlace('../etc'))).toBe('/jobs/..%2Fetc/');
    expect(writePlace(jobPlace('llama-3.1'))).toBe('/jobs/llama-3.1/');
  });
  it('holds and restores the whole state of a step page', () => {
    const place = { ...stepPlace('team/a b.c?', 112), from: 1_000, to: 2_000, ranks: '0-7,64', rank: 5, view: 'table' as const };
    const url = new URL(writePlace(place), 'http://h');
    expect(parsePlace(url.pathname, url.search)).toEqual(place);
    expect(writePlace(stepPlace('llama-3.1', 112))).toBe('/jobs/llama-3.1/steps/112');
    expect(parsePlace('/jobs/llama-3.1/steps/112/', '')).toEqual(stepPlace('llama-3.1', 112));
    expect(parsePlace('/jobs/x/steps/5', '?from=9&to=3&ranks=1;2&rank=-1')).toEqual(stepPlace('x', 5));
    expect(parsePlace('/jobs/x/steps/new', '').page).toBe('missing');
    expect(['0', '0-7,64', '', '1,', 'a', '1-2-3'].map(isRanks)).toEqual([true, true, false, false, false, false]);
  });
  it('holds a service, whose name may have a dot', () => {
    const place = { ...servicePlace('chat/v1.2'), last: 3_600 };
    const url = new URL(writePlace(place), 'http://h');
    expect(url.pathname).toBe('/services/chat%2Fv1.2/');
    expect(parsePlace(url.pathname, url.search)).toEqual(place);
  });
  it('takes nonsense for the usual', () => {
    const place = parsePlace('/jobs/x', '?step=-1&rank=abc&sort=%3Cscript%3E&last=999999999');
    expect(place).toEqual({ ...jobPlace('x'), last: 500 });
    expect(parsePlace('/jobs/%E0%A4%A', '')).toEqual({ page: 'missing', path: '/jobs/%E0%A4%A' });
    expect(parsePlace('/nowhere', '').page).toBe('missing');
  });
});
