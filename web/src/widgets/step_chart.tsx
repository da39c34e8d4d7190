// Where each step's time goes: stacked columns (mean over the ranks), the median step as a line on top.
import { useEffect, useRef } from 'preact/hooks';
import { count, duration, percent } from '../base/format';
import { useWidth } from '../base/hooks';
import { kParts, type StepMatrix } from '../base/matrix';
import { axisOf, begin, columnAt, columnX, hatch, token, type Axis } from '../base/plot';
import { niceCeil } from '../base/scale';
import type { Why } from '../base/decode';
import { theme } from '../base/theme';
import { Crosshair, Tip } from './crosshair';
import type { PointSignal } from './point';

interface Props {
  matrix: StepMatrix;
  hover: PointSignal;
  selected: number | null;
  since: readonly number[];
  traced: ReadonlySet<number>;  // steps with detail
  onPick: (step: number) => void;
}

const kHeight = 128;
// Room above the columns for "since STEP", below for the notches of steps with detail.
const kTop = 24;
const kNotch = 8;

export function StepChart({ matrix, hover, selected, since, traced, onPick }: Props) {
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = axisOf(matrix.steps, width);
  const shade = theme.value;
  useEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, matrix, axis, width, traced);
  }, [matrix, width, shade, traced]);

  const stepAt = (event: MouseEvent): number | null => {
    const column = columnAt(axis, event.clientX - (box.current?.getBoundingClientRect().left ?? 0));
    return column === null ? null : matrix.steps[column]!;
  };
  const pointed = hover.value && hover.value.rank === null ? matrix.steps.indexOf(hover.value.step) : -1;
  return (
    <div
      class="plot"
      ref={box}
      style={{ height: `${kHeight}px` }}
      role="img"
      aria-label={summary(matrix)}
      onMouseMove={(event) => {
        const step = stepAt(event);
        hover.value = step === null ? null : { step, rank: null };
      }}
      onMouseLeave={() => { hover.value = null; }}
      onClick={(event) => {
        const step = stepAt(event);
        if (step !== null) onPick(step);
      }}
    >
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${kHeight}px` }} />
      <Crosshair axis={axis} hover={hover} selected={selected} since={since} labelled />
      {pointed >= 0 && <Tip x={columnX(axis, pointed)} y={24} total={width} lines={tip(matrix, pointed, traced)} />}
    </div>
  );
}

// The others are rare: said only where there is any to speak of.
const kAlways = ['compute', 'waiting', 'communication', 'input'];

// The key of the colours with each part's share of the time, as the server gives it.
// Where no rank reports communication, what they wait for each other is in compute, and is called so.
export function PartsLegend({ why, traced = 0 }: { why: Pick<Why, 'breakdown' | 'communication_seen'>; traced?: number }) {
  const { breakdown, communication_seen: seen } = why;
  const unseen = (part: string): boolean => !seen && (part === 'waiting' || part === 'communication');
  return (
    <ul class="legend">
      {kParts.filter((part) => !unseen(part) && (kAlways.includes(part) || (breakdown[part] ?? 0) >= 0.005)).map((part) => (
        <li key={part}>
          <span class={`swatch part-${part}`} aria-hidden="true" />
          {!seen && part === 'compute' ? 'compute and unseen communication' : part} {breakdown[part] !== undefined && <b>{percent(breakdown[part])}</b>}
        </li>
      ))}
      <li><span class="swatch-line" aria-hidden="true" />median step</li>
      {traced > 0 && <li><span class="notch" aria-hidden="true">▴</span>step in detail</li>}
    </ul>
  );
}

function draw(canvas: HTMLCanvasElement, matrix: StepMatrix, axis: Axis, width: number, traced: ReadonlySet<number>): void {
  const context = begin(canvas, width, kHeight);
  if (!context) return;
  const bottom = kHeight - kNotch - 1;
  const heights = columnHeights(matrix);
  const top = niceCeil(usualTop(heights));
  const y = (ms: number): number => bottom - (Math.min(ms, top) / top) * (bottom - kTop);
  const columns = matrix.steps.length;
  const end = columnX(axis, columns);

  context.font = `12px ${token('--font')}`;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const share of [0.5, 1]) {
    context.fillStyle = token('--rule');
    context.fillRect(axis.left, Math.round(y(top * share)), axis.width, 1);
    context.fillStyle = token('--muted');
    context.fillText(duration(top * share), axis.left - 8, y(top * share));
  }

  const unknown = hatch(context, token('--hatch'), token('--raised'));
  const gap = axis.width / axis.slots >= 12 ? 1 : 0;
  const colours = kParts.map((part) => token(`--part-${part}`));
  for (let column = 0; column < columns; column += 1) {
    // Whole pixels: columns that touch must not leave a seam.
    const x = Math.round(columnX(axis, column));
    const size = Math.max(1, Math.round(columnX(axis, column + 1)) - x - gap);
    let sum = 0;
    kParts.forEach((part, index) => {
      const value = matrix.parts[part][column]!;
      if (!(value > 0)) return;
      context.fillStyle = colours[index]!;
      context.fillRect(x, y(sum + value), size, y(sum) - y(sum + value));
      sum += value;
    });
    if (sum === 0 && Number.isNaN(matrix.stepMs[column])) {
      context.fillStyle = unknown;
      context.fillRect(x, kTop, size + gap, bottom - kTop);
    }
  }

  context.strokeStyle = token('--text');
  context.lineWidth = 1.5;
  context.beginPath();
  let drawing = false;
  for (let column = 0; column < columns; column += 1) {
    const value = matrix.stepMs[column]!;
    const x = columnX(axis, column + 0.5);
    if (Number.isNaN(value)) drawing = false;
    else if (drawing) context.lineTo(x, y(value));
    else {
      context.moveTo(x, y(value));
      drawing = true;
    }
  }
  context.stroke();
  labelCut(context, heights, top, axis);
  markTraced(context, matrix, axis, bottom, traced);
  context.fillStyle = token('--rule-strong');
  context.fillRect(axis.left, bottom, Math.max(axis.width, end - axis.left), 1);
}

function columnHeights(matrix: StepMatrix): number[] {
  return matrix.steps.map((_, column) => {
    let sum = 0;
    for (const part of kParts) {
      const value = matrix.parts[part][column]!;
      if (value > 0) sum += value;
    }
    return Math.max(sum, matrix.stepMs[column]! || 0);
  });
}

// The top of the axis: the tallest column, unless a few (a first step, a checkpoint) tower over the rest; those are cut and labelled.
function usualTop(heights: readonly number[]): number {
  const sorted = [...heights].sort((a, b) => a - b);
  const most = sorted[sorted.length - 1] ?? 0;
  const usual = sorted[Math.floor(sorted.length * 0.95)] ?? most;
  return usual > 0 && most > 2 * usual ? 1.2 * usual : most;
}

function labelCut(context: CanvasRenderingContext2D, heights: readonly number[], top: number, axis: Axis): void {
  context.textAlign = 'left';
  context.fillStyle = token('--text');
  let free = -Infinity;
  heights.forEach((height, column) => {
    const x = columnX(axis, column);
    if (height <= top || x < free) return;
    const text = `↑ ${duration(height)}`;
    context.fillText(text, x, kTop / 2);
    free = x + context.measureText(text).width + 8;
  });
}

// A notch below the columns of steps that can be opened rank by rank.
function markTraced(context: CanvasRenderingContext2D, matrix: StepMatrix, axis: Axis, bottom: number, traced: ReadonlySet<number>): void {
  context.fillStyle = token('--accent');
  matrix.steps.forEach((step, column) => {
    if (!traced.has(step)) return;
    const x = columnX(axis, column + 0.5);
    context.beginPath();
    context.moveTo(x - 3, bottom + 8);
    context.lineTo(x + 3, bottom + 8);
    context.lineTo(x, bottom + 2);
    context.fill();
  });
}

function tip(matrix: StepMatrix, column: number, traced: ReadonlySet<number>): string[] {
  return [
    `step ${count(matrix.steps[column])}: ${duration(matrix.stepMs[column])}`,
    ...kParts.filter((part) => matrix.parts[part][column]! > 0).map((part) => `${part} ${duration(matrix.parts[part][column])}`),
    ...(traced.has(matrix.steps[column]!) ? ['▴ detail of its ranks: click, then open'] : []),
  ];
}

function summary(matrix: StepMatrix): string {
  const end = matrix.steps.length - 1;
  if (end < 0) return 'No steps yet.';
  return `Step time over ${count(matrix.steps.length)} steps; the newest, step ${count(matrix.steps[end])}, took ${duration(matrix.stepMs[end])}. The table view has the numbers.`;
}
