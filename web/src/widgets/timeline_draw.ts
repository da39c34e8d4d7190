// Paints a step: lines of cells enlarged without smoothing, the unknown hatched, waiting striped, the critical path on top.
import { hatch, token } from '../base/plot';
import { kKinds, kWaiting, type Line, type Timeline } from '../base/timeline';
import { tickText, timeTicks, xAt, type View } from '../base/view';
import type { PathPiece } from '../base/step';

export interface Plot {
  left: number;
  width: number;   // without the gutters
  height: number;  // without the axis
}

export const kTimeAxisHeight = 24;
const kLabelEvery = 14;
// Below this a line is too thin for stripes, gaps and words.
const kPatternFrom = 6;
const kWordsFrom = 13;

export function lineBox(lines: number, height: number, index: number): { top: number; height: number } {
  const size = height / Math.max(1, lines);
  return { top: index * size, height: size };
}

export function lineAt(lines: number, height: number, y: number): number | null {
  if (y < 0 || y >= height || lines === 0) return null;
  return Math.min(lines - 1, Math.floor((y / height) * lines));
}

export function lineOfRank(lines: readonly Line[], rank: number): number {
  return lines.findIndex((line) => rank >= line.first && rank <= line.last);
}

// Cells as pixels, R, G, B, A in memory order; nothing is transparent, so that the hatching shows.
export function cellPixels(lines: readonly Line[], columns: number, colours: Uint32Array): Uint32Array {
  const pixels = new Uint32Array(columns * lines.length);
  lines.forEach((line, y) => {
    for (let x = 0; x < columns; x += 1) pixels[y * columns + x] = colours[line.cells[x]!]!;
  });
  return pixels;
}

// "#rrggbb" to a pixel; what is no colour is transparent.
export function packColour(hex: string): number {
  if (!/^#[0-9a-f]{6}$/i.test(hex)) return 0;
  const value = parseInt(hex.slice(1), 16);
  return ((255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

// A tile painted once, to be drawn many times while the reader moves.
export interface Picture {
  tile: Timeline;
  image: HTMLCanvasElement | null;
}

export function paintTile(tile: Timeline): Picture {
  if (tile.columns === 0 || tile.lines.length === 0) return { tile, image: null };
  const colours = Uint32Array.from(kKinds, (kind) => (kind.family === 'none' ? 0 : packColour(token(`--${kind.token}`))));
  const image = document.createElement('canvas');
  image.width = tile.columns;
  image.height = tile.lines.length;
  const pixels = cellPixels(tile.lines, tile.columns, colours);
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer);
  image.getContext('2d')?.putImageData(new ImageData(bytes, tile.columns, tile.lines.length), 0, 0);
  return { tile, image };
}

export function drawTimeline(context: CanvasRenderingContext2D, plot: Plot, view: View, pictures: readonly Picture[]): void {
  const { left, width, height } = plot;
  context.save();
  context.beginPath();
  context.rect(left, 0, width, height);
  context.clip();
  context.fillStyle = hatch(context, token('--hatch'), token('--raised'));
  context.fillRect(left, 0, width, height);
  context.imageSmoothingEnabled = false;
  for (const { tile, image } of pictures) {
    if (!image) continue;
    const from = xAt(view, tile.from, left, width);
    const to = xAt(view, tile.to, left, width);
    // A finer picture replaces what lies below it, its gaps included.
    if (tile !== pictures[0]!.tile) context.fillRect(from, 0, to - from, height);
    context.drawImage(image, from, 0, to - from, height);
  }
  const top = pictures[pictures.length - 1]?.tile;
  if (top) drawLines(context, plot, view, top);
  context.restore();
}

// Stripes on waiting, words where they fit, a seam between lines.
function drawLines(context: CanvasRenderingContext2D, plot: Plot, view: View, tile: Timeline): void {
  const { height } = lineBox(tile.lines.length, plot.height, 0);
  if (height < kPatternFrom) return;
  const stripe = stripes(context, token('--stripe'));
  const cell = (tile.to - tile.from) / Math.max(1, tile.columns);
  const x = (column: number): number => xAt(view, tile.from + column * cell, plot.left, plot.width);
  context.font = `11px ${token('--font')}`;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  tile.lines.forEach((line, index) => {
    const box = lineBox(tile.lines.length, plot.height, index);
    for (const [kind, from, end] of runs(line.cells)) {
      const [start, stop] = [Math.max(plot.left, x(from)), Math.min(plot.left + plot.width, x(end))];
      if (stop <= start) continue;
      if (kind === kWaiting) {
        context.fillStyle = stripe;
        context.fillRect(start, box.top, stop - start, box.height);
      }
      if (height >= kWordsFrom && stop - start > 48 && kKinds[kind]!.family !== 'none') drawWord(context, kind, start, stop, box.top + box.height / 2);
    }
    context.fillStyle = token('--surface');
    if (index > 0) context.fillRect(plot.left, Math.round(box.top), plot.width, 1);
  });
}

function drawWord(context: CanvasRenderingContext2D, kind: number, from: number, to: number, y: number): void {
  const word = kKinds[kind]!.word.split(/[, ]/)[0]!;
  const size = context.measureText(word).width;
  if (size + 12 > to - from) return;
  const ground = token(`--${kKinds[kind]!.token}`);
  if (kind === kWaiting) {
    context.fillStyle = ground;
    context.fillRect(from + 3, y - 6, size + 6, 12);
  }
  context.fillStyle = isDark(ground) ? '#ffffff' : '#10131a';
  context.fillText(word, from + 6, y + 0.5);
}

export function isDark(hex: string): boolean {
  const value = parseInt(hex.slice(1), 16);
  const linear = (channel: number): number => ((channel / 255 + 0.055) / 1.055) ** 2.4;
  // Where black and white read equally well on it.
  return 0.2126 * linear(value >> 16) + 0.7152 * linear((value >> 8) & 255) + 0.0722 * linear(value & 255) < 0.18;
}

export function* runs(cells: Uint8Array): Generator<[kind: number, from: number, end: number]> {
  for (let at = 0; at < cells.length;) {
    let end = at + 1;
    while (end < cells.length && cells[end] === cells[at]) end += 1;
    yield [cells[at]!, at, end];
    at = end;
  }
}

// Leaning the other way than the hatching of the unknown.
function stripes(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 6;
  const paint = tile.getContext('2d');
  if (!paint) return 'transparent';
  paint.strokeStyle = colour;
  paint.lineWidth = 1.5;
  paint.beginPath();
  for (const shift of [-6, 0, 6]) {
    paint.moveTo(shift, 0);
    paint.lineTo(shift + 6, 6);
  }
  paint.stroke();
  return context.createPattern(tile, 'repeat') ?? 'transparent';
}

// Along the foot of the rank that nobody could go on without (what it does stays to be seen), and down or up to the next one.
export function drawPath(context: CanvasRenderingContext2D, plot: Plot, view: View, lines: readonly Line[], path: readonly PathPiece[]): void {
  if (path.length === 0 || lines.length === 0) return;
  context.save();
  context.beginPath();
  context.rect(plot.left, 0, plot.width, plot.height);
  context.clip();
  context.lineJoin = 'round';
  for (const [colour, size] of [[token('--surface'), 4], [token('--text'), 2]] as const) {
    context.strokeStyle = colour;
    context.lineWidth = size;
    context.beginPath();
    let started = false;
    for (const piece of path) {
      const index = lineOfRank(lines, piece.rank);
      // Through ranks that are not shown the path goes unseen.
      if (index < 0) {
        started = false;
        continue;
      }
      const box = lineBox(lines.length, plot.height, index);
      const y = box.height < kPatternFrom ? box.top + box.height / 2 : box.top + box.height - 1;
      const from = clampX(xAt(view, piece.from, plot.left, plot.width), plot);
      const to = clampX(xAt(view, piece.to, plot.left, plot.width), plot);
      if (started) context.lineTo(from, y);
      else context.moveTo(from, y);
      context.lineTo(to, y);
      started = true;
    }
    context.stroke();
  }
  context.restore();
}

// Canvases lose precision far outside; a little outside is invisible too.
function clampX(x: number, plot: Plot): number {
  return Math.max(plot.left - 8, Math.min(plot.left + plot.width + 8, x));
}

export function drawTimeAxis(context: CanvasRenderingContext2D, plot: Plot, view: View): void {
  const ticks = timeTicks(view, plot.width);
  const every = ticks.length > 1 ? ticks[1]! - ticks[0]! : view.to - view.from;
  context.font = `12px ${token('--font')}`;
  context.textBaseline = 'top';
  context.textAlign = 'center';
  context.fillStyle = token('--muted');
  for (const ns of ticks) {
    const x = xAt(view, ns, plot.left, plot.width);
    context.fillRect(Math.round(x), plot.height, 1, 4);
    context.fillText(tickText(ns, every), Math.min(x, plot.left + plot.width - 8), plot.height + 8);
  }
  context.textAlign = 'right';
  context.fillText('ms', plot.left - 24, plot.height + 8);
}

export function drawRankLabels(context: CanvasRenderingContext2D, plot: Plot, lines: readonly Line[], strong: ReadonlySet<number>): void {
  context.font = `12px ${token('--font')}`;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const [text, muted] = [token('--text'), token('--muted')];
  let free = -Infinity;
  lines.forEach((line, index) => {
    const box = lineBox(lines.length, plot.height, index);
    const y = Math.max(7, Math.min(plot.height - 7, box.top + box.height / 2));
    if (y < free) return;
    free = y + kLabelEvery;
    const range = `${line.first}–${line.last}`;
    // A range that has no room is said by its first: the head says how many a line stands for.
    const name = line.first === line.last || context.measureText(range).width > plot.left - 12 ? String(line.first) : range;
    context.fillStyle = [...strong].some((rank) => rank >= line.first && rank <= line.last) ? text : muted;
    context.fillText(index === 0 && name.length < 6 ? `rank ${name}` : name, plot.left - 8, y);
  });
}
