// The documents of docs/, as blocks that a page can set: the part of Markdown that they use. Nothing becomes markup: what is not
// understood stays text.
export type Inline = { kind: 'text' | 'code' | 'bold' | 'italic'; text: string; href?: undefined } | { kind: 'link'; text: string; href: string };
export type Block =
  | { kind: 'heading'; level: number; text: Inline[]; id: string }
  | { kind: 'paragraph'; text: Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'list'; ordered: boolean; items: Inline[][] }
  | { kind: 'table'; head: Inline[][]; rows: Inline[][][] };

const kItem = /^(\s*)([-*+]|\d+[.)])\s+(.*)$/;
const kInline = /(`+)(.+?)\1|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[((?:[^[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)/g;

export function inlines(text: string): Inline[] {
  const made: Inline[] = [];
  let at = 0;
  for (const match of text.matchAll(kInline)) {
    if (match.index > at) made.push({ kind: 'text', text: text.slice(at, match.index) });
    at = match.index + match[0].length;
    if (match[2] !== undefined) made.push({ kind: 'code', text: match[2].trim() });
    else if (match[3] !== undefined) made.push({ kind: 'bold', text: match[3] });
    else if (match[4] !== undefined) made.push({ kind: 'italic', text: match[4] });
    else made.push({ kind: 'link', text: match[5]!.replaceAll('`', ''), href: match[6]! });
  }
  if (at < text.length) made.push({ kind: 'text', text: text.slice(at) });
  return made;
}

// As GitHub names a heading in an address.
const slug = (heading: string): string =>
  heading.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').trim().toLowerCase().replace(/[^\p{L}\p{N}_\- ]/gu, '').replaceAll(' ', '-');

const cells = (line: string): Inline[][] =>
  line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map((cell) => inlines(cell.replaceAll('\\|', '|').trim()));

export function parseMarkdown(source: string): Block[] {
  const lines = source.split('\n');
  const blocks: Block[] = [];
  let at = 0;
  // The lines from here on that are like the first.
  const take = (like: (line: string) => boolean): string[] => {
    const from = at;
    while (at < lines.length && like(lines[at]!)) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at]!;
    const heading = /^(#{1,6}) (.*)$/.exec(line);
    if (line.trim() === '') {
      at += 1;
    } else if (heading) {
      blocks.push({ kind: 'heading', level: heading[1]!.length, text: inlines(heading[2]!), id: slug(heading[2]!) });
      at += 1;
    } else if (/^\s*```/.test(line)) {
      at += 1;
      blocks.push({ kind: 'code', text: take((one) => !/^\s*```/.test(one)).join('\n') });
      at += 1;
    } else if (line.startsWith('|')) {
      const [head, , ...rows] = take((one) => one.startsWith('|'));
      blocks.push({ kind: 'table', head: cells(head!), rows: rows.map(cells) });
    } else if (kItem.test(line)) {
      blocks.push(parseList(take((one) => one.trim() !== '' && !/^(#|\||```)/.test(one) && (kItem.test(one) || /^\s/.test(one)))));
    } else if (line.startsWith('    ')) {
      const code = take((one) => one.startsWith('    ') || one.trim() === '');
      blocks.push({ kind: 'code', text: code.map((one) => one.slice(4)).join('\n').trimEnd() });
    } else {
      const text = take((one) => one.trim() !== '' && !/^(#{1,6} |\||```)/.test(one) && !kItem.test(one));
      blocks.push({ kind: 'paragraph', text: inlines(text.map((one) => one.trim()).join(' ')) });
    }
  }
  return blocks;
}

function parseList(lines: string[]): Block {
  const items: string[] = [];
  for (const line of lines) {
    const item = kItem.exec(line);
    if (item) items.push(item[3]!);
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return { kind: 'list', ordered: /^\s*\d/.test(lines[0]!), items: items.map(inlines) };
}

// Where a link of the document `path` ("guide/xid") leads: another document, somewhere else, or nowhere that is served.
export function documentLink(path: string, href: string): { document: string; part: string } | { url: string } | null {
  if (/^https?:/.test(href)) return { url: href };
  const [file, part] = [href.replace(/#.*$/, ''), /#(.*)$/.exec(href)?.[1] ?? ''];
  if (file === '') return { document: path, part };
  const parts = path.split('/').slice(0, -1);
  for (const piece of file.split('/')) {
    if (piece === '..') {
      if (parts.pop() === undefined) return null;
    } else if (piece !== '.') {
      parts.push(piece);
    }
  }
  const name = parts.join('/');
  return name.endsWith('.md') && !name.startsWith('..') ? { document: name.slice(0, -3), part } : null;
}
