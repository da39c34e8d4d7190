// Geometry that the charts of a job share: the same gutters and the same column for a step, so that one crosshair fits all.

export const kGutterLeft = 72;
export const kGutterRight = 48;

export interface Axis {
  steps: readonly number[];
  slots: number;  // columns there is room for, at least steps.length
  left: number;   // CSS pixels
  width: number;  // of the plot, without the gutters
}

// Room grows in few, large steps: while a young job fills its window, the columns do not crawl.
export function axisOf(steps: readonly number[], total: number): Axis {
  const slots = [25, 50, 100, 200, 400, 800].find((room) => room >= steps.length) ?? steps.length;
  return { steps, slots, left: kGutterLeft, width: Math.max(1, total - kGutterLeft - kGutterRight) };
}

export function columnX(axis: Axis, column: number): number {
  return axis.left + (column * axis.width) / axis.slots;
}

// The column under a pointer, or null beside the data.
export function columnAt(axis: Axis, x: number): number | null {
  const column = Math.floor(((x - axis.left) * axis.slots) / axis.width);
  return column >= 0 && column < axis.steps.length ? column : null;
}

// Columns that get a tick: round steps, at least 72 pixels apart.
export function ticks(axis: Axis): number[] {
  const perColumn = axis.width / axis.slots;
  const every = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, 2000, 5000].find((step) => step * perColumn >= 72) ?? 10_000;
  const columns: number[] = [];
  axis.steps.forEach((step, column) => {
    if (step % every === 0) columns.push(column);
  });
  return columns;
}

export function hatch(context: CanvasRenderingContext2D, line: string, ground: string): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const paint = tile.getContext('2d');
  if (!paint) return ground;
  paint.fillStyle = ground;
  paint.fillRect(0, 0, 8, 8);
  paint.strokeStyle = line;
  paint.lineWidth = 1.5;
  paint.beginPath();
  for (const shift of [-8, 0, 8]) {
    paint.moveTo(shift, 8);
    paint.lineTo(shift + 8, 0);
  }
  paint.stroke();
  return context.createPattern(tile, 'repeat') ?? ground;
}

// Colours of the current theme, for canvases.
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Sizes the canvas for the screen and clears it; drawing is then in CSS pixels.
export function begin(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
