// A time as a person types it: nothing or "now", "-5m", or 2026-11-15T22:00:00Z.
const kUnits: readonly [unit: string, ms: number][] = [['s', 1e3], ['m', 60e3], ['h', 3.6e6], ['d', 86.4e6]];

// ns since 1970; null: now; undefined: it cannot be read.
export function parseMoment(typed: string, nowMs: number): number | null | undefined {
  const text = typed.trim();
  if (text === '' || text === 'now') return null;
  const ago = /^-(\d{1,6})([smhd])$/.exec(text);
  if (ago) return (nowMs - Number(ago[1]) * kUnits.find(([unit]) => unit === ago[2])![1]) * 1e6;
  if (!/^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?Z?$/.test(text)) return undefined;
  const ms = Date.parse(`${text.replace(' ', 'T').replace(/Z$/, '')}Z`);
  return Number.isNaN(ms) || ms <= 0 ? undefined : ms * 1e6;
}

export function momentText(ns: number | null): string {
  if (ns === null) return '';
  const date = new Date(ns / 1e6);
  return Number.isNaN(date.getTime()) ? '' : date.toISOString().replace(/\.\d+Z$/, 'Z');
}
