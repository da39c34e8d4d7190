// Takes an answer out of the page: as a command, as CSV, onto the clipboard.
import { momentText } from './moment';
import { serverUrl } from './root';

// One word for a POSIX shell, whatever the name holds.
export function shellWord(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

export function curl(path: string): string {
  return `curl -s ${shellWord(serverUrl() + path)}`;
}

// A name that begins with a dash would be read as a flag.
function command(name: string, of: string): string {
  return `lockstep ${name} ${of.startsWith('-') ? '-- ' : ''}${shellWord(of)} --server ${shellWord(serverUrl())}`;
}
export const whyCommand = (job: string): string => command('why', job);
export const linesCommand = (job: string): string => `${command('lines', job)} --last`;
export const mfuCommand = (job: string): string => command('mfu', job);
export const incidentCommand = (id: string): string => command('incidents show', id);

export const analyzeCommand = (job: string, capture: string): string => `lockstep analyze --server ${shellWord(serverUrl())} ${shellWord(`${job}/${capture}`)}`;

// A job depends on others, nobody depends on it.
export function affectedCommand(focus: string): string {
  return `lockstep fabric${focus && !/^(job|rank):/.test(focus) ? ` --affected ${shellWord(focus)}` : ''} --server ${shellWord(serverUrl())}`;
}

export function pathCommand({ a, b, job, at, qp, sourcePort }: { a: string; b: string; job: string; at: number | null; qp: string; sourcePort: string }): string {
  const parts = ['lockstep path', shellWord(a), shellWord(b)];
  if (job) parts.push('--job', shellWord(job));
  if (at !== null) parts.push('--at', momentText(at));
  if (qp) parts.push('--qp', shellWord(qp));
  if (sourcePort) parts.push('--source-port', shellWord(sourcePort));
  return [...parts, '--server', shellWord(serverUrl())].join(' ');
}

export function sleCommand({ sle, hours, job, host, classifier }: { sle: string; hours: number; job: string; host: string; classifier: string }): string {
  const parts = ['lockstep sle', shellWord(sle), '--hours', String(hours)];
  for (const [flag, value] of [['--job', job], ['--host', host], ['--classifier', classifier]] as const) {
    if (value) parts.push(shellWord(`${flag}=${value}`));
  }
  return [...parts, '--server', shellWord(serverUrl())].join(' ');
}

// The ranks that a command looks between: it has a page of its own.
export function pathOf(command: string): { a: string; b: string } | null {
  const match = /^lockstep path (\d{1,7}) (\d{1,7})(?: |$)/.exec(command);
  return match && { a: match[1]!, b: match[2]! };
}

export type CsvCell = string | number | null;

// Unknown is an empty field. Text that a spreadsheet would run as a formula is defused with a leading quote.
export function csv(header: string[], rows: CsvCell[][]): string {
  const field = (value: CsvCell): string => {
    if (value === null) return '';
    if (typeof value === 'number') return String(Math.round(value * 1e4) / 1e4);
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
  };
  return [header, ...rows].map((row) => row.map(field).join(',')).join('\r\n') + '\r\n';
}

export function download(name: string, content: string): void {
  const url = URL.createObjectURL(new Blob([content], { type: name.endsWith('.md') ? 'text/markdown' : 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name.replace(/[^A-Za-z0-9._-]+/g, '_');
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}

// The clipboard API exists on https and localhost only; elsewhere the old way still works.
export async function copy(content: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(content);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = content;
    area.className = 'offscreen';
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    if (focused instanceof HTMLElement) focused.focus();
    return done;
  }
}

// A claim's query is an address on this server or it is nothing: text from outside must not become a link to elsewhere.
export function apiPath(query: string): string | null {
  const path = query.startsWith('GET ') ? query.slice(4) : query;
  return /^\/(api|prometheus)\/[^\s\\]*$/.test(path) ? path : null;
}

// The kernel profile that such an address is about: it has a page of its own.
export function profileOf(path: string): { job: string; capture: string } | null {
  const match = /^\/api\/jobs\/([^/?]+)\/profiles\/([^/?]+)/.exec(path);
  try {
    return match && { job: decodeURIComponent(match[1]!), capture: decodeURIComponent(match[2]!) };
  } catch {
    return null;
  }
}
