// The part of a step that is looked at, in nanoseconds since it began, and how it is moved. Plain arithmetic.
import { number } from './format';

export interface View {
  from: number;
  to: number;
}

// Nearer than this there is nothing to see: clocks are not that good.
export const kNarrowestNs = 1_000;

export function wholeView(length: number): View {
  return { from: 0, to: Math.max(1, length) };
}

export function isWhole(view: View, length: number): boolean {
  return view.from <= 0 && view.to >= length;
}

// As near to the wish as the step allows: inside it, and no narrower than kNarrowestNs.
export function fit(view: View, length: number): View {
  const most = Math.max(1, length);
  const width = Math.min(most, Math.max(Math.min(kNarrowestNs, most), view.to - view.from));
  const from = Math.round(Math.max(0, Math.min(most - width, view.from)));
  return { from, to: Math.round(from + width) };
}

// factor < 1 goes nearer. The moment `at` stays where it is on the screen.
export function zoom(view: View, at: number, factor: number, length: number): View {
  const width = Math.max(Math.min(kNarrowestNs, length), Math.min(length, (view.to - view.from) * factor));
  const share = (at - view.from) / Math.max(1, view.to - view.from);
  return fit({ from: at - share * width, to: at - share * width + width }, length);
}

// by: share of the view's width, positive to later times.
export function pan(view: View, by: number, length: number): View {
  const shift = (view.to - view.from) * by;
  return fit({ from: view.from + shift, to: view.to + shift }, length);
}

// W and S zoom, A and D pan, 0 shows all of it; null: another key.
export function viewByKey(key: string, view: View, length: number): View | null {
  const middle = (view.from + view.to) / 2;
  switch (key.toLowerCase()) {
    case 'w': case '+': return zoom(view, middle, 0.6, length);
    case 's': case '-': return zoom(view, middle, 1 / 0.6, length);
    case 'a': return pan(view, -0.25, length);
    case 'd': return pan(view, 0.25, length);
    case '0': return wholeView(length);
    default: return null;
  }
}

export function timeAt(view: View, x: number, left: number, width: number): number {
  return view.from + ((x - left) / Math.max(1, width)) * (view.to - view.from);
}

export function xAt(view: View, ns: number, left: number, width: number): number {
  return left + ((ns - view.from) / Math.max(1, view.to - view.from)) * width;
}

// Round moments at least `apart` pixels from each other, in nanoseconds.
export function timeTicks(view: View, width: number, apart = 88): number[] {
  const per = (view.to - view.from) / Math.max(1, width);
  let every = 1;
  for (let power = 1; every < per * apart; power *= 10) every = [1, 2, 5].map((times) => times * power).find((step) => step >= per * apart) ?? 10 * power;
  const ticks: number[] = [];
  for (let at = Math.ceil(view.from / every) * every; at <= view.to; at += every) ticks.push(at);
  return ticks;
}

// Milliseconds, with as many places as neighbouring ticks need to differ.
export function tickText(ns: number, every: number): string {
  const places = Math.max(0, Math.ceil(-Math.log10(every / 1e6) - 1e-9));
  const fixed = (ns / 1e6).toFixed(Math.min(6, places));
  const [whole, part] = fixed.split('.');
  return Number(whole).toLocaleString('en') + (part ? `.${part}` : '');
}

// `0.4 µs`, `85 µs`, `1.24 ms`, `118 ms`, `4.2 s`: finer than format.duration, for what lasts microseconds.
export function fineDuration(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return '–';
  const size = Math.abs(ns);
  if (size < 999_500) return `${number(ns / 1e3)} µs`;
  if (size < 999.5e6) return `${number(ns / 1e6)} ms`;
  return `${number(ns / 1e9)} s`;
}
