import { describe, expect, it } from 'vitest';
import { apiPath, csv, shellWord } from './share';
import { jobPlace, parsePlace, writePlace } from './url';

describe('share', () => {
  it('quotes names for a shell', () => {
    expect(shellWord('llama-70b')).toBe('llama-70b');
    expect(shellWord(`a'; rm -rf /; '`)).toBe(`'a'\\''; rm -rf /; '\\'''`);
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
  it('takes nonsense for the usual', () => {
    const place = parsePlace('/jobs/x', '?step=-1&rank=abc&sort=%3Cscript%3E&last=999999999');
    expect(place).toEqual({ ...jobPlace('x'), last: 500 });
    expect(parsePlace('/jobs/%E0%A4%A', '')).toEqual({ page: 'missing', path: '/jobs/%E0%A4%A' });
    expect(parsePlace('/nowhere', '').page).toBe('missing');
  });
});
