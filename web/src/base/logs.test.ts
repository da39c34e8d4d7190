import { expect, it } from 'vitest';
import { decodeLogs, firstOf, kHeldMax, kKept, severityMark, withNewer, withOlder, type LogPage, type LogRecord } from './logs';
import { logsPlace, parsePlace, writePlace } from './url';

const kBody = '{"logs":[{"time_unix_ns":1700000000000000001,"service":"trainer","event":"","severity":17,"severity_text":"","body":"out of\\nmemory \\u202e","attributes":{"code":2},'
  + '"resource":{"lockstep.job_id":"a/b","lockstep.rank":9,"host.name":"node-1"}},{"time_unix_ns":5,"event":"lr.changed","severity":0,"body":null,"attributes":{"value":0.5},"resource":{}}],'
  + '"total":3,"shown":2,"whole":true,"after":1700000000000000257}';

it('reads records, and where to go on to the last digit', () => {
  const page = decodeLogs(kBody);
  expect(page).toMatchObject({ after: '1700000000000000257', more: true, whole: true });
  expect(page.records[0]).toMatchObject({ severity: 'error', job: 'a/b', rank: 9, host: 'node-1', line: 'out of\nmemory \ufffd', attributes: [['code', '2']] });
  expect(page.records[1]).toMatchObject({ severity: '', event: 'lr.changed', line: 'value=0.5', rank: null });
});

it('shows numbers to the last digit', () => {
  const attributes = '{"comm_id":-5177213689023472123,"text":"at 1234567890123456789, \\"1234567890123456789","share":0.12345678901234567,"list":[12345678901234567]}';
  const line = decodeLogs(`{"logs":[{"time_unix_ns":1700000000000000001,"body":null,"attributes":${attributes}}]}`).records[0]!;
  expect(line.attributes.slice(0, 2)).toEqual([['comm_id', '-5177213689023472123'], ['text', 'at 1234567890123456789, "1234567890123456789']]);
  expect(line.attributes[2]![1]).toMatch(/^0.1234567890123456/);
  expect(line.line).toContain('12345678901234567"]');
  expect(line.timeNs).toBe(1700000000000000001);
});

it('reads whatever comes', () => {
  expect(decodeLogs('{"logs":[1,{"severity":99,"resource":{"lockstep.rank":-1}}]}')).toMatchObject({ after: '', more: false, records: [{ timeNs: 0, rank: null }, { severity: '', rank: null }] });
  expect(decodeLogs('[]').records).toEqual([]);
});

const one = (at: number): LogRecord => ({ ...decodeLogs(kBody).records[0]!, key: String(at), timeNs: at });
const page = (from: number, to: number, more: boolean): LogPage => ({ records: Array.from({ length: to - from }, (_, at) => one(from + at)), after: '7', more, whole: true });

it('keeps each record once, the newest first, and not more than it shows', () => {
  expect(withNewer(firstOf({ ...page(0, 0, false), records: [one(3), one(1)] }), { ...page(0, 0, false), records: [one(2), one(3)] }).records.map((row) => row.timeNs)).toEqual([3, 2, 1]);
  const first = firstOf(page(0, kKept + 5, false));
  expect(first.records.length).toBe(kKept);
  expect(first.records[0]!.timeNs).toBe(kKept + 4);
});

it('keeps what Older brought as newer ones come, and asks for those that then leave', () => {
  const older = withOlder(firstOf(page(200, 1_200, true)), page(0, 201, false));
  expect(older).toMatchObject({ older: 'none' });
  expect(older.records.length).toBe(1_200);
  const newer = withNewer(older, page(1_200, 1_210, false));
  expect(newer).toMatchObject({ older: 'some' });
  expect([newer.records.length, newer.records[0]!.timeNs, newer.records[1_199]!.timeNs]).toEqual([1_200, 1_209, 10]);
});

it('says why Older brings no more', () => {
  const first = firstOf(page(10_000, 10_200, true));
  expect(withOlder(first, page(10_000, 10_200, true)).older).toBe('sameTime');
  expect(withOlder(first, page(9_900, 10_100, true)).older).toBe('some');
  const full = withOlder(first, page(1_000, 10_000, true));
  expect([full.older, full.records.length, full.records[0]!.timeNs]).toEqual(['full', kHeldMax, 10_199]);
  expect(withNewer(full, page(10_200, 10_201, false)).older).toBe('full');
});

it('marks what is bad by more than its colour', () => {
  expect([severityMark('fatal').tone, severityMark('warn').glyph, severityMark('').word]).toEqual(['alarm', '▲', 'none']);
});

it('holds the filter in the address', () => {
  const place = { ...logsPlace({ job: 'a/b', rank: 9 }), severity: 'warn' as const, text: 'out of', last: 900, at: 1700000000e9, follow: false };
  const [path, search] = writePlace(place).split('?');
  expect(parsePlace(path!, search!)).toEqual(place);
  expect(writePlace(logsPlace({ host: 'node-1' }))).toBe('/logs?host=node-1');
  expect(parsePlace('/logs', 'severity=bad&rank=x&last=7&follow=0')).toEqual({ ...logsPlace(), last: 10, follow: false });
});
