import { expect, it } from 'vitest';
import { decodeLogs, joined, kKept, severityMark, type LogRecord } from './logs';
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

it('reads whatever comes', () => {
  expect(decodeLogs('{"logs":[1,{"severity":99,"resource":{"lockstep.rank":-1}}]}')).toMatchObject({ after: '', more: false, records: [{ timeNs: 0, rank: null }, { severity: '', rank: null }] });
  expect(decodeLogs('[]').records).toEqual([]);
});

it('keeps each record once, the newest first, and not more than it shows', () => {
  const one = (at: number): LogRecord => ({ ...decodeLogs(kBody).records[0]!, key: String(at), timeNs: at });
  expect(joined([one(3), one(1)], [one(2), one(3)]).map((row) => row.timeNs)).toEqual([3, 2, 1]);
  const many = Array.from({ length: kKept + 5 }, (_, at) => one(at));
  expect(joined([], many).length).toBe(kKept);
  expect(joined([], many)[0]!.timeNs).toBe(kKept + 4);
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
