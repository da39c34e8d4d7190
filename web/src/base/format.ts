// Numbers, durations, times and names as people read them. Every function takes what the API may send, including nothing.

const kUnknown = '–';

// Control characters and those that reverse or hide text: in a name from outside they could forge what the reader sees, or
// run a command when pasted. They are shown, as U+FFFD, never obeyed.
const kForging = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const kTextMax = 600;
const kMonths = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

export function clean(text: string): string {
  const safe = text.replace(kForging, '\ufffd');
  return clip(safe, kTextMax);
}

export function clip(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

export function count(value: number | null | undefined): string {
  if (!isNumber(value)) return kUnknown;
  return group(Math.round(value).toString());
}

// Three significant digits below 1,000, whole numbers above; thousands separated.
export function number(value: number | null | undefined): string {
  if (!isNumber(value)) return kUnknown;
  const size = Math.abs(value);
  if (size === 0) return '0';
  if (size >= 100) return count(value);
  const digits = size >= 10 ? 1 : size >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(size)));
  const fixed = value.toFixed(digits);
  return fixed.includes('.') ? fixed.replace(/\.?0+$/, '') : fixed;
}

// `0.4 ms`, `118 ms`, `4.2 s`, `3 min`, `2.5 h`.
export function duration(ms: number | null | undefined): string {
  if (!isNumber(ms)) return kUnknown;
  const size = Math.abs(ms);
  if (size < 10) return `${trim(ms.toFixed(1))} ms`;
  if (size < 999.5) return `${count(ms)} ms`;
  if (size < 120_000) return `${number(ms / 1e3)} s`;
  if (size < 7_200_000) return `${count(ms / 60e3)} min`;
  return `${trim((ms / 3.6e6).toFixed(1))} h`;
}

// A difference: always with its sign, `+118 ms`, `−3 ms`.
export function excess(ms: number | null | undefined): string {
  if (!isNumber(ms)) return kUnknown;
  const text = duration(Math.abs(ms));
  if (text === '0 ms') return '0 ms';
  return (ms < 0 ? '−' : '+') + text;
}

export function percent(share: number | null | undefined): string {
  if (!isNumber(share)) return kUnknown;
  const value = share * 100;
  if (value > 0 && value < 1) return '< 1 %';
  return `${value < 9.95 ? trim(value.toFixed(1)) : Math.round(value)} %`;
}

// GPU time lost, in the unit a person pays for.
export function gpuTime(seconds: number | null | undefined): string {
  if (!isNumber(seconds) || seconds <= 0) return '';
  if (seconds < 120) return `${number(seconds)} GPU-seconds`;
  if (seconds < 2 * 3600) return `${number(seconds / 60)} GPU-minutes`;
  return `${number(seconds / 3600)} GPU-hours`;
}

// A value with the unit of a claim; milliseconds and seconds become durations, shares become percent.
export function withUnit(value: number | null | undefined, unit: string): string {
  if (!isNumber(value)) return kUnknown;
  if (unit === 'ms') return duration(value);
  if (unit === 's') return duration(value * 1e3);
  if (unit === 'us' || unit === 'µs') return value < 1e3 ? `${number(value)} µs` : duration(value / 1e3);
  if (unit === '%') return `${number(value)} %`;
  if (unit === '1' || unit === '') return number(value);
  return `${number(value)} ${clean(unit)}`;
}

export function bytes(value: number | null | undefined): string {
  if (!isNumber(value)) return kUnknown;
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${number(size)} ${units[unit]}`;
}

// Local time of day; the UTC time belongs in the title beside it (utc()).
export function clock(unixNs: number | null | undefined, seconds = false): string {
  if (!isNumber(unixNs) || unixNs <= 0) return kUnknown;
  const date = new Date(unixNs / 1e6);
  if (Number.isNaN(date.getTime())) return kUnknown;
  const parts = [date.getHours(), date.getMinutes()];
  if (seconds) parts.push(date.getSeconds());
  return parts.map((part) => String(part).padStart(2, '0')).join(':');
}

// The same with its day before it where that is not today: `14 Jan 03:14`.
export function when(unixNs: number | null | undefined, seconds = false): string {
  const time = clock(unixNs, seconds);
  if (!isNumber(unixNs) || time === kUnknown) return time;
  const [date, today] = [new Date(unixNs / 1e6), new Date()];
  if (date.toDateString() === today.toDateString()) return time;
  return `${date.getDate()} ${kMonths[date.getMonth()]} ${time}`;
}

export function utc(unixNs: number | null | undefined): string {
  if (!isNumber(unixNs) || unixNs <= 0) return '';
  const date = new Date(unixNs / 1e6);
  return Number.isNaN(date.getTime()) ? '' : date.toISOString().replace('T', ' ').replace(/\.\d+Z/, ' UTC');
}

function isNumber(value: number | null | undefined): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

function trim(fixed: string): string {
  return fixed.replace(/\.0+$/, '');
}

function group(digits: string): string {
  return digits.replace(/\B(?=(\d{3})+(?!\d))/g, ',').replace(/^-/, '−');
}
