// Paints a kernel profile: strips of pixels enlarged without smoothing, so that a frame costs what the screen has and not what the
// capture has; then words where there is room, step boundaries, and what is selected.
import { kStripHeight, laneNamed, ownLanes, workHeight, type Band } from '../base/kernel_rows';
import { shortKernel } from '../base/kernel_profile';
import { classToken, indexesOf, kEdge, kKindMask, kNothing, kSelected, paintRow, paintSelected, type KernelTimeline, type SliceRow, type StepMark } from '../base/kernel_timeline';
import { hatch, token } from '../base/plot';
import { tickText, timeTicks, xAt, type View } from '../base/view';
import { isDark, packColour, type Plot } from './timeline_draw';

export const kKernelAxis = 40;
const kWordsFrom = 12;  // pixels of height
const kWideFrom = 40;

// Slices of the selected kernel, found once per answer and kernel.
export class Selection {
  private readonly known = new WeakMap<SliceRow, Uint32Array>();
  constructor(readonly kernel: string) {}
  of(timeline: KernelTimeline, row: SliceRow): Uint32Array {
    let found = this.known.get(row);
    if (!found) {
      const id = this.kernel ? timeline.names.indexOf(this.kernel) : -1;
      found = id < 0 ? new Uint32Array(0) : indexesOf(row, id);
      this.known.set(row, found);
    }
    return found;
  }
}

interface Strip {
  cells: Uint8Array;
  top: number;
  height: number;
  words: { text: string; from: number; to: number; kind: number }[];
}

// `under` is the whole capture, `over` the newest answer for what was in view.
export interface Pictures {
  under: KernelTimeline;
  over: KernelTimeline;
}

function colours(timeline: KernelTimeline, dim: boolean): Uint32Array {
  const ground = packColour(token('--surface'));
  const table = new Uint32Array(256).fill(packColour(token('--part-other')));
  timeline.classes.forEach((word, kind) => {
    const own = packColour(token(`--${classToken(word)}`));
    table[kind] = dim ? mix(own, ground, 0.7) : own;
    table[kind | kEdge] = mix(table[kind]!, ground, 0.55);
    table[kind | kSelected] = own;
    table[kind | kSelected | kEdge] = mix(own, ground, 0.55);
  });
  table[kNothing] = 0;
  return table;
}

function mix(a: number, b: number, share: number): number {
  let out = 0xff000000;
  for (const shift of [0, 8, 16]) out |= Math.round(((a >> shift) & 255) * (1 - share) + ((b >> shift) & 255) * share) << shift;
  return out >>> 0;
}

interface Span {
  view: View;
  width: number;
  from: number;  // pixels that this answer is good for
  to: number;
}

function stripsOf(pictures: Pictures, band: Band, view: View, width: number, selection: Selection): Strip[] {
  const layers = covers(pictures.over, view) || pictures.under === pictures.over ? [pictures.over] : [pictures.under, pictures.over];
  const strips: Strip[] = band.lane === null
    ? [emptyStrip(width, band.top, workHeight(band.height)), emptyStrip(width, band.top + workHeight(band.height) + 1, Math.max(2, band.height - workHeight(band.height) - 2))]
    : Array.from({ length: band.depths }, (_, depth) => emptyStrip(width, band.top + depth * kStripHeight, kStripHeight - 1));
  layers.forEach((timeline, layer) => {
    const [from, to] = layer === 0 ? [0, width] : pixels(timeline, view, width);
    if (to <= from) return;
    if (layer > 0) strips.forEach((strip) => clear(strip, from, to));
    const span = { view, width, from, to };
    if (band.lane === null) {
      for (const { rows: [row] } of ownLanes(timeline, band.rank)) if (row) paintInto(timeline, row, span, strips[0]!, strips[1]!, selection);
    } else {
      laneNamed(timeline, band.rank, band.lane)?.rows.forEach((row, depth) => {
        const strip = strips[depth];
        if (strip) paintInto(timeline, row, span, strip, strip, selection);
      });
    }
  });
  return strips;
}

const covers = (timeline: KernelTimeline, view: View): boolean => timeline.from <= view.from && timeline.to >= view.to;

function pixels(timeline: KernelTimeline, view: View, width: number): [number, number] {
  const at = (ns: number): number => Math.round(((ns - view.from) / (view.to - view.from)) * width);
  return [Math.max(0, at(timeline.from)), Math.min(width, at(timeline.to))];
}

function emptyStrip(width: number, top: number, height: number): Strip {
  return { cells: new Uint8Array(width).fill(kNothing), top, height, words: [] };
}

function clear(strip: Strip, from: number, to: number): void {
  strip.cells.fill(kNothing, from, to);
  strip.words = strip.words.filter((word) => word.to <= from || word.from >= to);
}

// One row into its strip; what communicates goes to `talk`.
function paintInto(timeline: KernelTimeline, row: SliceRow, span: Span, work: Strip, talk: Strip, selection: Selection): void {
  const { view, width, from, to } = span;
  const cells = new Uint8Array(width).fill(kNothing);
  const wide: number[] = [];
  paintRow(row, view, width, cells, wide, kWideFrom);
  const selected = selection.of(timeline, row);
  if (selected.length > 0) paintSelected(row, selected, view, width, cells);
  const communication = timeline.classes.indexOf('communication');
  const compute = timeline.classes.indexOf('compute');
  for (let x = from; x < to; x += 1) {
    const cell = cells[x]!;
    if (cell === kNothing) continue;
    const strip = (cell & kKindMask) === communication ? talk : work;
    const held = strip.cells[x]!;
    // Of several streams, what is selected shows, else what computes.
    if (held === kNothing || (cell & kSelected) !== 0 || ((held & kKindMask) !== compute && (held & kSelected) === 0)) strip.cells[x] = cell;
  }
  const per = (view.to - view.from) / width;
  for (const index of wide) {
    const [start, end] = [Math.max(from, (row.start[index]! - view.from) / per), Math.min(to, (row.end[index]! - view.from) / per)];
    const kind = row.kind[index]!;
    if (end - start >= kWideFrom) (kind === communication ? talk : work).words.push({ text: timeline.names[row.name[index]!] ?? '', from: start, to: end, kind });
  }
}

// Those bands alone that show in the window: `height` pixels from `top` on.
export function drawKernels(context: CanvasRenderingContext2D, plot: Plot, view: View, pictures: Pictures, bands: readonly Band[], window: { top: number; height: number },
                            selection: Selection): void {
  const visible = bands.filter((band) => band.top < window.top + window.height && band.top + band.height > window.top);
  const width = Math.max(1, Math.round(plot.width));
  const strips = visible.flatMap((band) => stripsOf(pictures, band, view, width, selection));
  const table = colours(pictures.over, selection.kernel !== '');
  context.save();
  context.translate(0, -window.top);
  context.fillStyle = token('--raised');
  context.fillRect(plot.left, window.top, plot.width, window.height);
  drawUnknown(context, plot, view, pictures, window);
  if (strips.length > 0) {
    const image = document.createElement('canvas');
    image.width = width;
    image.height = strips.length;
    const data = new Uint32Array(width * strips.length);
    strips.forEach((strip, y) => {
      for (let x = 0; x < width; x += 1) data[y * width + x] = table[strip.cells[x]!]!;
    });
    image.getContext('2d')?.putImageData(new ImageData(new Uint8ClampedArray(data.buffer as ArrayBuffer), width, strips.length), 0, 0);
    context.imageSmoothingEnabled = false;
    strips.forEach((strip, y) => context.drawImage(image, 0, y, width, 1, plot.left, strip.top, plot.width, strip.height));
    drawWords(context, plot, strips, selection, pictures.over);
  }
  drawBandEdges(context, plot, visible);
  context.restore();
}

// Outside of what was captured nothing is known.
function drawUnknown(context: CanvasRenderingContext2D, plot: Plot, view: View, { under }: Pictures, window: { top: number; height: number }): void {
  if (view.to <= under.length) return;
  const x = xAt(view, under.length, plot.left, plot.width);
  context.fillStyle = hatch(context, token('--hatch'), token('--raised'));
  context.fillRect(x, window.top, plot.left + plot.width - x, window.height);
}

function drawWords(context: CanvasRenderingContext2D, plot: Plot, strips: readonly Strip[], selection: Selection, timeline: KernelTimeline): void {
  context.font = `11px ${token('--font')}`;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  const letter = Math.max(4, context.measureText('abcdefghij').width / 10);
  const inks = new Map<number, string>();
  const muted = token('--muted');
  for (const strip of strips) {
    if (strip.height < kWordsFrom) continue;
    for (const word of strip.words) {
      const dim = selection.kernel !== '' && word.text !== selection.kernel;
      const room = Math.floor((word.to - word.from - 10) / letter);
      if (room < 4) continue;
      let ink = inks.get(word.kind);
      if (ink === undefined) inks.set(word.kind, ink = isDark(token(`--${classToken(timeline.classes[word.kind] ?? '')}`)) ? '#ffffff' : '#10131a');
      context.fillStyle = dim ? muted : ink;
      const short = shortKernel(word.text);
      context.fillText(short.length > room ? `${short.slice(0, room - 1)}…` : short, plot.left + word.from + 5, strip.top + strip.height / 2 + 0.5);
    }
  }
}

function drawBandEdges(context: CanvasRenderingContext2D, plot: Plot, bands: readonly Band[]): void {
  context.fillStyle = token('--surface');
  for (const band of bands) if (band.lane === null && band.top > 0) context.fillRect(plot.left, band.top - 1, plot.width, 1);
}

// The labels beside the bands: a rank with the sign that opens it, a lane by its name.
export function drawBandLabels(context: CanvasRenderingContext2D, left: number, bands: readonly Band[], window: { top: number; height: number },
                               strong: ReadonlySet<number>): void {
  context.save();
  context.translate(0, -window.top);
  context.textBaseline = 'middle';
  const [text, muted] = [token('--text'), token('--muted')];
  let free = -Infinity;
  for (const band of bands) {
    if (band.top + band.height < window.top || band.top > window.top + window.height) continue;
    const y = Math.max(7, band.top + Math.min(band.height, 20) / 2);
    if (y < free) continue;
    free = y + (band.lane === null && !band.isOpen ? Math.min(14, Math.max(band.height, 11)) : 11);
    if (band.lane === null) {
      context.textAlign = 'right';
      context.font = `${strong.has(band.rank) ? '600 ' : ''}12px ${token('--font')}`;
      context.fillStyle = strong.has(band.rank) ? text : muted;
      context.fillText(`${band.height >= 13 ? (band.isOpen ? '▾ ' : '▸ ') : ''}${band.rank}`, left - 8, y);
    } else {
      context.textAlign = 'right';
      context.font = `11px ${token('--font')}`;
      context.fillStyle = muted;
      context.fillText(fitText(context, band.lane, left - 16), left - 8, y - 2);
    }
  }
  context.restore();
}

function fitText(context: CanvasRenderingContext2D, words: string, room: number): string {
  if (context.measureText(words).width <= room) return words;
  let kept = words.length;
  while (kept > 3 && context.measureText(`${words.slice(0, kept)}…`).width > room) kept -= 1;
  return `${words.slice(0, kept)}…`;
}

export function drawStepLines(context: CanvasRenderingContext2D, plot: Plot, view: View, steps: readonly StepMark[], height: number): void {
  context.fillStyle = token('--text');
  context.globalAlpha = 0.55;
  for (const at of new Set(steps.flatMap((step) => [step.from, step.to]))) {
    const x = xAt(view, at, plot.left, plot.width);
    if (x >= plot.left && x <= plot.left + plot.width) context.fillRect(Math.round(x), 0, 1, height);
  }
  context.globalAlpha = 1;
}

// Above the rows: steps by their number, then time.
export function drawKernelAxis(context: CanvasRenderingContext2D, plot: Plot, view: View, steps: readonly StepMark[]): void {
  context.font = `12px ${token('--font')}`;
  context.textBaseline = 'middle';
  context.textAlign = 'left';
  let free = plot.left;
  for (const step of steps) {
    const from = Math.max(plot.left, xAt(view, step.from, plot.left, plot.width));
    const to = Math.min(plot.left + plot.width, xAt(view, step.to, plot.left, plot.width));
    if (to <= from) continue;
    context.fillStyle = token('--muted');
    context.globalAlpha = 0.55;
    context.fillRect(Math.round(from), 0, 1, kKernelAxis);
    context.globalAlpha = 1;
    const words = [`step ${step.step.toLocaleString('en')}`, step.step.toLocaleString('en')].find((one) => context.measureText(one).width + 10 < to - from);
    if (!words || from < free) continue;
    context.fillStyle = token('--text');
    context.fillText(words, from + 5, 10);
    free = from + context.measureText(words).width + 10;
  }
  const ticks = timeTicks(view, plot.width);
  const every = ticks.length > 1 ? ticks[1]! - ticks[0]! : view.to - view.from;
  context.textAlign = 'center';
  context.fillStyle = token('--muted');
  for (const ns of ticks) {
    const x = xAt(view, ns, plot.left, plot.width);
    context.fillRect(Math.round(x), kKernelAxis - 4, 1, 4);
    context.fillText(tickText(ns, every), Math.max(plot.left + 8, Math.min(x, plot.left + plot.width - 12)), kKernelAxis - 12);
  }
  context.textAlign = 'right';
  context.fillText('ms', plot.left - 32, kKernelAxis - 12);
}
