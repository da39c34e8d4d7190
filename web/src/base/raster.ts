// The heat map as pixels. Where there are more ranks or steps than pixels, a pixel shows its worst cell: one slow rank among
// 4,096 must not vanish in an average. A pixel with nothing heard stays transparent, so that the hatching below it shows.
//
// Rows lie in bands. Usually there is one; when rows would be too thin to see and the worst come first, those get a band of
// their own, tall enough to read, above the rest.
import { kScale, scaleIndex } from './scale';
import type { StepMatrix } from './matrix';

export interface Band {
  from: number;   // places in the order of rows: [from, to)
  to: number;
  top: number;    // CSS pixels
  height: number;
}

const kThin = 5;
const kMagnifiedRows = 16;
const kMagnifiedHeight = 8;
const kBandGap = 4;

export function bandsOf(rows: number, height: number, worstFirst: boolean): Band[] {
  const tall = kMagnifiedRows * kMagnifiedHeight;
  if (!worstFirst || height / Math.max(1, rows) >= kThin || height < 1.5 * tall) return [{ from: 0, to: rows, top: 0, height }];
  const top = tall + kBandGap;
  return [{ from: 0, to: kMagnifiedRows, top: 0, height: tall }, { from: kMagnifiedRows, to: rows, top, height: height - top }];
}

export function placeBox(bands: readonly Band[], place: number): { top: number; height: number } {
  const band = bands.find((one) => place < one.to) ?? bands[bands.length - 1]!;
  const size = band.height / Math.max(1, band.to - band.from);
  return { top: band.top + (place - band.from) * size, height: size };
}

export interface Raster {
  width: number;  // pixel columns, at most one per step
  height: number; // pixel rows, at most one per rank
  pixels: Uint32Array;
}

export function rasterize(matrix: StepMatrix, rows: readonly number[], max: number, widthMax: number, heightMax: number): Raster {
  const steps = matrix.steps.length;
  const width = Math.max(0, Math.min(steps, Math.floor(widthMax)));
  const height = Math.max(0, Math.min(rows.length, Math.floor(heightMax)));
  const pixels = new Uint32Array(width * height);
  if (width === 0 || height === 0) return { width, height, pixels };
  const columnOf = Int32Array.from({ length: steps }, (_, step) => Math.floor((step * width) / steps));
  const worst = new Float32Array(width);
  for (let y = 0; y < height; y += 1) {
    worst.fill(NaN);
    for (let index = firstOf(y, rows.length, height); index < firstOf(y + 1, rows.length, height); index += 1) {
      const base = rows[index]! * steps;
      for (let step = 0; step < steps; step += 1) {
        const value = matrix.excess[base + step]!;
        const x = columnOf[step]!;
        // NaN compares false: an unknown cell never hides a known one.
        if (value > worst[x]! || (worst[x]! !== worst[x]! && value === value)) worst[x] = value;
      }
    }
    for (let x = 0; x < width; x += 1) {
      const value = worst[x]!;
      if (value === value) pixels[y * width + x] = kScale[scaleIndex(value, max)]!;
    }
  }
  return { width, height, pixels };
}

// The place in `rows` that a pointer at height `y` means: the worst of the rows that share its pixel. Null beside the bands.
export function placeAt(matrix: StepMatrix, rows: readonly number[], bands: readonly Band[], y: number, column: number): number | null {
  const band = bands.find((one) => y >= one.top && y < one.top + one.height);
  if (!band || band.to <= band.from) return null;
  const held = band.to - band.from;
  const height = Math.max(1, Math.min(held, Math.floor(band.height)));
  const pixel = Math.min(height - 1, Math.floor(((y - band.top) / band.height) * height));
  let best = band.from + firstOf(pixel, held, height);
  const end = band.from + firstOf(pixel + 1, held, height);
  for (let index = best + 1; index < end; index += 1) {
    const value = matrix.excess[rows[index]! * matrix.steps.length + column]!;
    const most = matrix.excess[rows[best]! * matrix.steps.length + column]!;
    if (value > most || (Number.isNaN(most) && !Number.isNaN(value))) best = index;
  }
  return best;
}

// Rows of pixel y are [firstOf(y), firstOf(y + 1)).
function firstOf(y: number, rows: number, height: number): number {
  return Math.ceil((y * rows) / height);
}
