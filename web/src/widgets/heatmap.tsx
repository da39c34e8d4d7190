// Which rank is slower than its peers, and since when: one row per rank, one column per step, colour = own time above the
// median of the ranks. Focusable; the page moves the cursor with the arrow keys.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { kChargeGlyphs, type Charge } from '../base/accused';
import { count, duration, excess } from '../base/format';
import { useWidth } from '../base/hooks';
import { cell, type StepMatrix } from '../base/matrix';
import { axisOf, begin, columnAt, columnX, hatch, ticks, token, type Axis } from '../base/plot';
import { bandsOf, placeAt, placeBox, rasterize, type Band } from '../base/raster';
import { scaleCss } from '../base/scale';
import { theme } from '../base/theme';
import { Crosshair, Tip } from './crosshair';
import type { Point, PointSignal } from './point';

interface Props {
  matrix: StepMatrix;
  rows: readonly number[];  // indexes into matrix.ranks, top to bottom
  max: number;              // ms at the yellow end
  height: number;
  worstFirst: boolean;
  culprits: ReadonlySet<number>;
  charged: ReadonlyMap<number, Charge>;  // what they are accused of
  cursor: Point | null;
  hover: PointSignal;
  since: readonly number[];
  onPick: (rank: number, step: number) => void;
}

const kAxisHeight = 24;
const kLabelEvery = 14;

export function HeatMap({ matrix, rows, max, height, worstFirst, culprits, charged, cursor, hover, since, onPick }: Props) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [focused, setFocused] = useState(false);
  const axis = axisOf(matrix.steps, width);
  const shade = theme.value;
  const bands = useMemo(() => bandsOf(rows.length, height, worstFirst), [rows.length, height, worstFirst]);
  const placeOf = useMemo(() => new Map(rows.map((row, index) => [matrix.ranks[row]!, index])), [rows, matrix.ranks]);
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, matrix, rows, bands, max, axis, width, height, culprits);
  }, [matrix, rows, bands, max, width, height, shade, culprits]);

  const pointAt = (event: MouseEvent): { rank: number; step: number } | null => {
    const area = box.current?.getBoundingClientRect();
    if (!area) return null;
    const column = columnAt(axis, event.clientX - area.left);
    const place = column === null ? null : placeAt(matrix, rows, bands, event.clientY - area.top, column);
    return column === null || place === null ? null : { rank: matrix.ranks[rows[place]!]!, step: matrix.steps[column]! };
  };

  const shown = hover.value?.rank != null ? hover.value : focused && hover.value === null ? cursor : null;
  return (
    <div
      class="plot heat"
      ref={box}
      style={{ height: `${height + kAxisHeight}px` }}
      id="heatmap"
      tabIndex={0}
      role="application"
      aria-roledescription="heat map"
      aria-label={`${count(matrix.ranks.length)} ranks by ${count(matrix.steps.length)} steps, excess over the peers' median. Arrow keys move, Enter opens, t shows the table.`}
      onFocus={() => setFocused(true)}
      onBlur={() => setFocused(false)}
      onMouseMove={(event) => { hover.value = pointAt(event); }}
      onMouseLeave={() => { hover.value = null; }}
      onClick={(event) => {
        const point = pointAt(event);
        if (point) onPick(point.rank, point.step);
      }}
    >
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${height + kAxisHeight}px` }} />
      <Crosshair axis={axis} hover={hover} selected={null} since={since} />
      <RowMarks {...{ bands, cursor, culprits, charged, placeOf, axis, matrix }} />
      {shown && <PointTip {...{ point: shown, matrix, axis, placeOf, bands, height, width }} />}
      <span class="offscreen" role="status">{cursor && focused ? describe(matrix, cursor).join(', ') : ''}</span>
    </div>
  );
}

interface MarksProps {
  matrix: StepMatrix;
  bands: readonly Band[];
  cursor: Point | null;
  culprits: ReadonlySet<number>;
  charged: ReadonlyMap<number, Charge>;
  placeOf: ReadonlyMap<number, number>;
  axis: Axis;
}

// "◂ 5" beside the rows a verdict names and the selected one (⇄: for a link, ■: it stands still), and a frame around the cell under the cursor.
function RowMarks({ matrix, bands, cursor, culprits, charged, placeOf, axis }: MarksProps) {
  const marks = [...new Set([...culprits, ...(cursor?.rank != null ? [cursor.rank] : [])])].filter((rank) => placeOf.has(rank)).sort((a, b) => placeOf.get(a)! - placeOf.get(b)!);
  let free = -Infinity;
  const column = cursor ? matrix.steps.indexOf(cursor.step) : -1;
  const place = cursor?.rank != null ? placeOf.get(cursor.rank) : undefined;
  const box = place === undefined ? null : placeBox(bands, place);
  return (
    <div class="overlay" aria-hidden="true">
      {marks.map((rank) => {
        const { top, height } = placeBox(bands, placeOf.get(rank)!);
        const y = Math.max(8, top + height / 2);
        if (y < free) return null;
        free = y + kLabelEvery;
        return <div key={rank} class="row-mark" style={{ left: `${axis.left + axis.width + 4}px`, top: `${y}px` }}>{kChargeGlyphs[charged.get(rank) ?? 'slow']} {rank}</div>;
      })}
      {box && (
        <div class="row-cursor" style={{ left: `${axis.left}px`, width: `${axis.width}px`, top: `${box.top}px`, height: `${Math.max(2, box.height)}px` }} />
      )}
      {box && column >= 0 && (
        <div
          class="cell-cursor"
          style={{
            left: `${columnX(axis, column)}px`, width: `${Math.max(3, axis.width / axis.slots)}px`,
            top: `${box.top}px`, height: `${Math.max(3, box.height)}px`,
          }}
        />
      )}
    </div>
  );
}

interface TipProps {
  point: Point;
  matrix: StepMatrix;
  axis: Axis;
  placeOf: ReadonlyMap<number, number>;
  bands: readonly Band[];
  height: number;
  width: number;
}

function PointTip({ point, matrix, axis, placeOf, bands, height, width }: TipProps) {
  const column = matrix.steps.indexOf(point.step);
  const place = point.rank === null ? undefined : placeOf.get(point.rank);
  if (column < 0 || place === undefined) return null;
  const box = placeBox(bands, place);
  return <Tip x={columnX(axis, column)} y={Math.min(box.top + box.height + 8, height - 56)} total={width} lines={describe(matrix, point)} />;
}

export function describe(matrix: StepMatrix, point: Point): string[] {
  const row = point.rank === null ? -1 : matrix.ranks.indexOf(point.rank);
  const column = matrix.steps.indexOf(point.step);
  if (row < 0 || column < 0) return [];
  const head = `rank ${count(point.rank)}, ${matrix.hosts[row] || 'host unknown'}, step ${count(point.step)}`;
  const over = cell(matrix.excess, matrix, row, column);
  const whole = cell(matrix.duration, matrix, row, column);
  if (over === null) return [head, whole === null ? 'nothing heard: unknown' : `records of it were lost: own time unknown, of a step of ${duration(whole)}`];
  return [
    head,
    `${excess(over)} against the median of its peers`,
    `own time ${duration(cell(matrix.self, matrix, row, column))} of a step of ${duration(cell(matrix.duration, matrix, row, column))}`,
  ];
}

// The scale in numbers, with the hatching of the unknown beside it.
export function HeatLegend({ max }: { max: number }) {
  const stops = Array.from({ length: 9 }, (_, index) => scaleCss(index / 8)).join(', ');
  return (
    <div class="legend heat-legend" aria-hidden="true">
      <span>0</span>
      <span class="ramp" style={{ background: `linear-gradient(to right, ${stops})` }} />
      <span>{excess(max)} and more</span>
      <span class="pair"><span class="swatch hatched" />unknown</span>
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, matrix: StepMatrix, rows: readonly number[], bands: readonly Band[], max: number, axis: Axis,
              width: number, height: number, culprits: ReadonlySet<number>): void {
  const context = begin(canvas, width, height + kAxisHeight);
  if (!context) return;
  const across = columnX(axis, matrix.steps.length) - axis.left;
  for (const band of bands) {
    context.fillStyle = hatch(context, token('--hatch'), token('--raised'));
    context.fillRect(axis.left, band.top, across, band.height);
    // One pixel per cell at most, then enlarged without smoothing.
    const raster = rasterize(matrix, rows.slice(band.from, band.to), max, across, band.height);
    if (raster.width === 0 || raster.height === 0) continue;
    const small = document.createElement('canvas');
    small.width = raster.width;
    small.height = raster.height;
    const bytes = new Uint8ClampedArray(raster.pixels.buffer as ArrayBuffer);
    small.getContext('2d')?.putImageData(new ImageData(bytes, raster.width, raster.height), 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, axis.left, band.top, across, band.height);
  }
  drawRankLabels(context, matrix, rows, bands, axis, height, culprits);
  drawStepLabels(context, matrix, axis, height);
}

function drawRankLabels(context: CanvasRenderingContext2D, matrix: StepMatrix, rows: readonly number[], bands: readonly Band[], axis: Axis,
                        height: number, culprits: ReadonlySet<number>): void {
  context.font = `12px ${token('--font')}`;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const [text, muted] = [token('--text'), token('--muted')];
  let free = -Infinity;
  for (let place = 0; place < rows.length; place += 1) {
    const box = placeBox(bands, place);
    const y = Math.max(7, Math.min(height - 7, box.top + box.height / 2));
    if (y < free) continue;
    free = y + kLabelEvery;
    const rank = matrix.ranks[rows[place]!]!;
    context.fillStyle = culprits.has(rank) ? text : muted;
    context.fillText(place === 0 ? `rank ${rank}` : String(rank), axis.left - 8, y);
  }
}

function drawStepLabels(context: CanvasRenderingContext2D, matrix: StepMatrix, axis: Axis, height: number): void {
  context.textAlign = 'center';
  context.textBaseline = 'top';
  context.fillStyle = token('--muted');
  let first = Infinity;
  for (const column of ticks(axis)) {
    const x = columnX(axis, column + 0.5);
    first = Math.min(first, x);
    context.fillRect(Math.round(x), height, 1, 4);
    context.fillText(count(matrix.steps[column]), x, height + 8);
  }
  context.textAlign = 'right';
  if (first - axis.left > 16) context.fillText('step', axis.left - 8, height + 8);
}
