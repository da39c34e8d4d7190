import { expect, test } from 'vitest';
import { documentLink, inlines, parseMarkdown } from './markdown';

test('a document becomes headings, prose, lists, code and tables', () => {
  const blocks = parseMarkdown('# A: b (c-d)\n\nOne\ntwo.\n\n- x\n  y\n- z\n\n    a  b\n\n      c\n\nend\n\n| h | i |\n|---|---|\n| 1 \\| 2 | `3` |\n');
  expect(blocks.map((block) => block.kind)).toEqual(['heading', 'paragraph', 'list', 'code', 'paragraph', 'table']);
  expect(blocks[0]).toMatchObject({ level: 1, id: 'a-b-c-d' });
  expect(blocks[1]).toEqual({ kind: 'paragraph', text: [{ kind: 'text', text: 'One two.' }] });
  expect(blocks[2]).toMatchObject({ ordered: false, items: [[{ text: 'x y' }], [{ text: 'z' }]] });
  expect(blocks[3]).toEqual({ kind: 'code', text: 'a  b\n\n  c' });
  expect(blocks[5]).toMatchObject({ rows: [[[{ text: '1 | 2' }], [{ kind: 'code', text: '3' }]]] });
});

test('marks within a line are seen, and code is left alone', () => {
  expect(inlines('**a** `x*y*z` [t](u.md#v) <b>no</b>')).toEqual([
    { kind: 'bold', text: 'a' }, { kind: 'text', text: ' ' }, { kind: 'code', text: 'x*y*z' }, { kind: 'text', text: ' ' },
    { kind: 'link', text: 't', href: 'u.md#v' }, { kind: 'text', text: ' <b>no</b>' },
  ]);
});

test('links stay within the documents', () => {
  expect(documentLink('runbooks/ecc', '../guide/xid.md#the-table')).toEqual({ document: 'guide/xid', part: 'the-table' });
  expect(documentLink('runbooks/ecc', 'xid.md')).toEqual({ document: 'runbooks/xid', part: '' });
  expect(documentLink('README', '#watching-a-job')).toEqual({ document: 'README', part: 'watching-a-job' });
  expect(documentLink('guide/xid', '../../bench/results/score.md')).toBeNull();
  expect(documentLink('guide/xid', 'javascript:alert(1)')).toBeNull();
  expect(documentLink('guide/xid', 'https://example.org/')).toEqual({ url: 'https://example.org/' });
});
