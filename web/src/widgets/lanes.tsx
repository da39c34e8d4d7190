// Quantities one below the other on one time axis, one line for each GPU, adapter or rank. Who is named by an open verdict is red; where
// nobody told anything it is hatched. Moving along one lane reads all of them.
import { useEffect, useRef, useState } from 'preact/hooks';
import { clean, clock, duration, number } from '../base/format';
import { useWidth } from '../base/hooks';
import { newestKnown, oddAt, type Lane, type Line, type NodeSeries } from '../base/node';
import { begin, hatch, token } from '../base/plot';
import { theme } from '../base/theme';

const kHeight = 56;
const kLeft = 72;
const kRight = 8;
const kTop = 6;

interface Props {
  series: NodeSeries;
  accused: (line: Line, lane: Lane) => boolean;
  onPick: (lane: Lane, line: Line) => void;
}

export function Lanes({ series, accused, onPick }: Props) {
  const [box, width] = useWidth();
  const [at, setAt] = useState<number | null>(null);
  const plot = Math.max(1, width - kLeft - kRight);
  const pointAt = (event: MouseEvent): number | null => {
    const x = event.clientX - (box.current?.getBoundingClientRect().left ?? 0) - kLeft;
    return x < 0 || x > plot ? null : Math.min(series.points - 1, Math.floor((x / plot) * series.points));
  };
  return (
    <div class="lanes" ref={box}>
      {width > 0 && series.lanes.map((lane) => (
        <LaneView key={`${lane.key}/${lane.job}`} {...{ lane, series, width, at, accused, onPick }} onMove={(event) => setAt(event && pointAt(event))} />
      ))}
      {width > 0 && <TimeAxis series={series} plot={plot} at={at} />}
    </div>
  );
}

// onMove: of a pointer over the picture alone, so that what the heads say does not change under it; null: it has left.
function LaneView({ lane, series, width, at, accused, onPick, onMove }: Props & { lane: Lane; width: number; at: number | null; onMove: (event: MouseEvent | null) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const shade = theme.value;
  useEffect(() => {
    if (canvas.current) draw(canvas.current, lane, series.points, width, (line) => accused(line, lane));
  }, [lane, series, width, shade]);
  const plot = width - kLeft - kRight;
  const read = at ?? newestKnown(lane, series.points);
  const odd = read < 0 ? null : oddAt(lane, read);
  return (
    <div class="lane">
      <p class="lane-head">
        <b>{lane.title}</b>
        {lane.job && <span class="muted">{clean(lane.job)}</span>}
        {odd && lane.lines.length > 1 && (
          <button type="button" class="plain" onClick={() => onPick(lane, odd.line)}>{odd.line.label} {say(odd.value, lane.unit)}</button>
        )}
        {odd && lane.lines.length === 1 && <span>{odd.line.label} {say(odd.value, lane.unit)}</span>}
        {odd && lane.lines.length > 1 && <span class="muted">median of {lane.lines.length} {say(odd.middle, lane.unit)}</span>}
        {!odd && <span class="muted">nothing was reported then</span>}
      </p>
      <div class="plot" role="img" aria-label={words(lane, series)} style={{ height: `${kHeight}px` }} onMouseMove={onMove} onMouseLeave={() => onMove(null)}>
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${kHeight}px` }} />
        {at !== null && <div class="line-hover" aria-hidden="true" style={{ left: `${kLeft + ((at + 0.5) * plot) / series.points}px`, width: '1px' }} />}
      </div>
    </div>
  );
}

function TimeAxis({ series, plot, at }: { series: NodeSeries; plot: number; at: number | null }) {
  const time = (point: number): string => clock(series.fromNs + point * series.stretchNs, series.points * series.stretchNs < 4 * 3600e9);
  const shares = plot > 480 ? [0, 0.25, 0.5, 0.75, 1] : [0, 0.5, 1];
  return (
    <div class="lane-axis muted" aria-hidden="true">
      {at === null
        ? shares.map((share) => <span key={share} style={{ left: `${kLeft + share * plot}px` }}>{time(share * series.points)}</span>)
        : <span style={{ left: `${kLeft + ((at + 0.5) * plot) / series.points}px` }}><b>{time(at + 0.5)}</b></span>}
    </div>
  );
}

export function say(value: number | null, unit: string): string {
  if (unit === 'MB/s' && value !== null && Math.abs(value) >= 1_000) return `${number(value / 1e3)} GB/s`;
  return unit === 'ms' ? duration(value) : `${number(value)} ${unit}`;
}

// For whoever cannot see the picture.
function words(lane: Lane, series: NodeSeries): string {
  const odd = oddAt(lane, newestKnown(lane, series.points));
  const last = odd ? ` Newest: ${odd.line.label} ${say(odd.value, lane.unit)}, median ${say(odd.middle, lane.unit)}.` : '';
  return `${lane.title}${lane.job && ` in ${lane.job}`} over time, ${lane.lines.length} ${lane.lines.length === 1 ? 'line' : 'lines'}.${last}`;
}

// Room for the lines: from 0 where that does not flatten them.
function rangeOf(lane: Lane): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const line of lane.lines) {
    for (const value of line.values) {
      if (value === null) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (low > high || (low === 0 && high === 0)) return [0, 1];
  if (low >= 0 && high - low > high * 0.4) low = 0;
  // What hardly moves is drawn as that, not blown up to the height of the lane.
  const least = Math.abs(high) * 0.1;
  if (low !== 0 && high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const room = Math.max((high - low) * 0.08, Math.abs(high) * 0.01, 1e-6);
  return [low === 0 ? 0 : low - room, high + room];
}

function draw(canvas: HTMLCanvasElement, lane: Lane, points: number, width: number, accused: (line: Line) => boolean): void {
  const context = begin(canvas, width, kHeight);
  if (!context) return;
  const plot = width - kLeft - kRight;
  const [low, high] = rangeOf(lane);
  const x = (at: number): number => kLeft + (at * plot) / points;
  const y = (value: number): number => kHeight - 2 - ((value - low) / (high - low)) * (kHeight - 2 - kTop);
  context.font = `12px ${token('--font')}`;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const [value, shift] of [[high, 4], [low, -4]] as const) {
    context.fillStyle = token('--rule');
    context.fillRect(kLeft, Math.round(y(value)), plot, 1);
    context.fillStyle = token('--muted');
    context.fillText(say(value, lane.unit), kLeft - 6, y(value) + shift);
  }
  context.fillStyle = hatch(context, token('--hatch'), token('--raised'));
  for (let at = 0; at < points; at += 1) {
    if (lane.lines.every((line) => line.values[at] === null)) context.fillRect(x(at), kTop, x(at + 1) - x(at) + 0.5, kHeight - kTop - 2);
  }
  // Those that are accused last: on top.
  for (const line of [...lane.lines].sort((a, b) => Number(accused(a)) - Number(accused(b)))) stroke(context, line, x, y, accused(line));
}

function stroke(context: CanvasRenderingContext2D, line: Line, x: (at: number) => number, y: (value: number) => number, loud: boolean): void {
  context.strokeStyle = token(loud ? '--alarm' : '--part-compute');
  context.globalAlpha = loud ? 1 : 0.7;
  context.lineWidth = loud ? 2 : 1.25;
  context.beginPath();
  line.values.forEach((value, at) => {
    if (value === null) return;
    const joined = at > 0 && line.values[at - 1] !== null;
    if (joined) context.lineTo(x(at + 0.5), y(value));
    else context.moveTo(x(at), y(value));
    // A stretch alone is a short line of its own.
    if (!joined) context.lineTo(x(at + 0.5), y(value));
  });
  context.stroke();
  context.globalAlpha = 1;
}
