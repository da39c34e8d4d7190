// Every rank's step on one axis. Wheel or W/S zoom, drag marks what to zoom into, Shift-drag or A/D pan, a double click shows the
// whole step again, a click picks a rank. What is in view is the page's business: this widget only says what the reader wants.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { bytes, count } from '../base/format';
import { useWidth } from '../base/hooks';
import { begin, kGutterLeft } from '../base/plot';
import type { PathPiece } from '../base/step';
import { collectiveKey, kKinds, kWaiting, lastToCome, runAt, spanAt, type Line, type Timeline, type TimeSpan } from '../base/timeline';
import { fineDuration, fit, isWhole, pan, timeAt, zoom, type View } from '../base/view';
import { theme } from '../base/theme';
import { Tip } from './crosshair';
import { drawPath, drawRankLabels, drawTimeAxis, drawTimeline, kTimeAxisHeight, lineAt, lineBox, lineOfRank, paintTile, type Plot } from './timeline_draw';

interface Props {
  overview: Timeline;     // the whole step, coarse
  tile: Timeline;         // the newest answer for what was in view
  view: View;
  length: number;
  height: number;
  path: readonly PathPiece[];
  selected: number | null;
  culprit: number | null;
  hostOf: (rank: number) => string;
  commName: (comm: string) => string;
  onView: (view: View) => void;
  onPick: (rank: number) => void;
  onColumns: (columns: number) => void;  // pixels there is room for
}

const kGutterRight = 64;
const kDragFrom = 4;
const kDoubleClickMs = 220;

export function TimelineView(props: Props) {
  const { overview, tile, view, length, height, path, selected, culprit, hostOf, commName, onView, onPick, onColumns } = props;
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const [pointer, setPointer] = useState<{ x: number; y: number } | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number; pan: boolean; start: View } | null>(null);
  const click = useRef(0);
  const dragged = useRef(false);
  const plot: Plot = { left: kGutterLeft, width: Math.max(1, width - kGutterLeft - kGutterRight), height };
  const shade = theme.value;
  const below = useMemo(() => paintTile(overview), [overview, shade]);
  const above = useMemo(() => (tile === overview ? below : paintTile(tile)), [tile, below, shade]);
  const last = useMemo(() => lastToCome(tile.spans), [tile]);

  useEffect(() => { if (width > 0) onColumns(Math.max(64, Math.min(4_096, Math.round(plot.width)))); }, [width]);
  useEffect(() => {
    if (!canvas.current || width === 0) return undefined;
    const frame = requestAnimationFrame(() => {
      const context = canvas.current && begin(canvas.current, width, height + kTimeAxisHeight);
      if (!context) return;
      // An overview of other ranks lies on other lines.
      const fits = overview.lines.length === tile.lines.length && overview.ranksShown === tile.ranksShown;
      drawTimeline(context, plot, view, fits && above !== below ? [below, above] : [above]);
      drawPath(context, plot, view, tile.lines, path);
      drawTimeAxis(context, plot, view);
      drawRankLabels(context, plot, tile.lines, new Set([selected ?? -1, culprit ?? -1]));
    });
    return () => cancelAnimationFrame(frame);
  }, [below, above, view, width, height, path, selected, culprit, shade]);
  useWheel(box, (event, x) => {
    const at = timeAt(view, x, plot.left, plot.width);
    const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
    const by = event.deltaMode === 1 ? 16 : 1;
    if (sideways) {
      if (isWhole(view, length)) return false;
      onView(pan(view, (((event.deltaX || event.deltaY) * by) / plot.width), length));
      return true;
    }
    // Zoomed out as far as it goes, the wheel scrolls the page again.
    if (event.deltaY > 0 && isWhole(view, length)) return false;
    onView(zoom(view, at, Math.exp(Math.max(-1, Math.min(1, event.deltaY * by * 0.002))), length));
    return true;
  });

  const place = (event: MouseEvent): { x: number; y: number } => {
    const area = box.current?.getBoundingClientRect();
    return { x: event.clientX - (area?.left ?? 0), y: event.clientY - (area?.top ?? 0) };
  };
  const inPlot = (x: number): boolean => x >= plot.left && x <= plot.left + plot.width;
  const release = (): void => {
    if (!drag) return;
    setDrag(null);
    dragged.current = Math.abs(drag.to - drag.from) >= kDragFrom;
    if (drag.pan || Math.abs(drag.to - drag.from) < kDragFrom) return;
    const [a, b] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    onView(fit({ from: timeAt(view, a, plot.left, plot.width), to: timeAt(view, b, plot.left, plot.width) }, length));
  };
  const marked = drag && !drag.pan && Math.abs(drag.to - drag.from) >= kDragFrom ? drag : null;
  const line = pointer && inPlot(pointer.x) && !drag ? lineAt(tile.lines.length, height, pointer.y) : null;
  const rankLine = selected === null ? -1 : lineOfRank(tile.lines, selected);
  return (
    <div
      class={`plot timeline${drag?.pan ? ' panning' : ''}`}
      ref={box}
      id="timeline"
      style={{ height: `${height + kTimeAxisHeight}px` }}
      tabIndex={0}
      role="application"
      aria-roledescription="timeline"
      aria-label={`${count(tile.ranksShown)} ranks over ${fineDuration(view.to - view.from)} of a step of ${fineDuration(length)}. W and S zoom, A and D pan, 0 shows the whole step, up and down choose a rank, t shows the table.`}
      onPointerDown={(event) => {
        const { x } = place(event);
        if (event.button !== 0 || !inPlot(x)) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        setDrag({ from: x, to: x, pan: event.shiftKey, start: view });
      }}
      onPointerMove={(event) => {
        const at = place(event);
        setPointer(at);
        if (!drag) return;
        const x = Math.max(plot.left, Math.min(plot.left + plot.width, at.x));
        setDrag({ ...drag, to: x });
        if (drag.pan) onView(pan(drag.start, (drag.from - x) / plot.width, length));
      }}
      onPointerUp={release}
      onPointerCancel={() => setDrag(null)}
      onPointerLeave={() => setPointer(null)}
      onClick={(event) => {
        const { x, y } = place(event);
        const at = lineAt(tile.lines.length, height, y);
        // The click that ends a drag, and the first of two, pick nobody.
        if (at === null || dragged.current || x > plot.left + plot.width) return;
        clearTimeout(click.current);
        if (event.detail > 1) return;
        click.current = window.setTimeout(() => onPick(tile.lines[at]!.shown), kDoubleClickMs);
      }}
      onDblClick={() => {
        clearTimeout(click.current);
        onView({ from: 0, to: length });
      }}
    >
      <canvas ref={canvas} style={{ width: `${width}px`, height: `${height + kTimeAxisHeight}px` }} />
      <div class="overlay" aria-hidden="true">
        {rankLine >= 0 && <LineMark {...{ plot, lines: tile.lines, index: rankLine, name: 'row-picked', text: `◂ ${selected}` }} />}
        {culprit !== null && culprit !== selected && lineOfRank(tile.lines, culprit) >= 0 &&
          <LineMark {...{ plot, lines: tile.lines, index: lineOfRank(tile.lines, culprit), name: '', text: `◂ ${culprit}` }} />}
        {line !== null && <div class="line-hover" style={{ left: `${pointer!.x}px`, width: '1px', height: `${height}px` }} />}
        {marked && <Marked {...{ marked, height, view, plot }} />}
      </div>
      {line !== null && (
        <Tip x={pointer!.x} y={Math.min(pointer!.y + 16, height - 72)} total={width}
             lines={describe(tile, tile.lines[line]!, timeAt(view, pointer!.x, plot.left, plot.width), hostOf, commName, last)} />
      )}
    </div>
  );
}

function LineMark({ plot, lines, index, name, text }: { plot: Plot; lines: readonly Line[]; index: number; name: string; text: string }) {
  const box = lineBox(lines.length, plot.height, index);
  const y = Math.max(8, Math.min(plot.height - 8, box.top + box.height / 2));
  return (
    <>
      <div class="row-mark" style={{ left: `${plot.left + plot.width + 4}px`, top: `${y}px` }}>{text}</div>
      {name && <div class={name} style={{ left: `${plot.left}px`, width: `${plot.width}px`, top: `${box.top}px`, height: `${Math.max(3, box.height)}px` }} />}
    </>
  );
}

function Marked({ marked, height, view, plot }: { marked: { from: number; to: number }; height: number; view: View; plot: Plot }) {
  const left = Math.min(marked.from, marked.to);
  const size = Math.abs(marked.to - marked.from);
  return (
    <div class="range" style={{ left: `${left}px`, width: `${size}px`, height: `${height}px` }}>
      <span>{fineDuration((size / plot.width) * (view.to - view.from))}</span>
    </div>
  );
}

// Preact listens passively to the wheel; this must be able to keep the page still.
export function useWheel(box: { current: HTMLElement | null }, turn: (event: WheelEvent, x: number) => boolean): void {
  const latest = useRef(turn);
  latest.current = turn;
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const listen = (event: WheelEvent): void => {
      if (latest.current(event, event.clientX - element.getBoundingClientRect().left)) event.preventDefault();
    };
    element.addEventListener('wheel', listen, { passive: false });
    return () => element.removeEventListener('wheel', listen);
  }, []);
}

// What is under the pointer, in words: who, what, how long, waited for whom.
export function describe(tile: Timeline, line: Line, ns: number, hostOf: (rank: number) => string, commName: (comm: string) => string,
                         last: ReadonlyMap<string, number>): string[] {
  const head = `rank ${count(line.shown)}, ${hostOf(line.shown) || 'host unknown'}`;
  const stands = line.first === line.last ? [] : [`waits least of ranks ${count(line.first)}–${count(line.last)}`];
  const run = runAt(tile, line, ns);
  const at = `${fineDuration(Math.max(0, ns))} into the step`;
  const span = spanAt(tile.spans, line.shown, ns);
  if (span) return [head, ...stands, ...describeSpan(span, ns, commName, last), at];
  if (!run) return [head, ...stands, at];
  const more = tile.spans.length === 0 && tile.spansInView > 0 ? [`zoom in for names: ${count(tile.spansInView)} spans in view`] : [];
  return [head, ...stands, `${kKinds[run.kind]!.word}, ${fineDuration(run.to - run.from)}`, at, ...more];
}

function describeSpan(span: TimeSpan, ns: number, commName: (comm: string) => string, last: ReadonlyMap<string, number>): string[] {
  if (span.comm === '') return [`${span.name || kKinds[span.kind]!.word}, ${fineDuration(span.duration)}`];
  const key = collectiveKey(span);
  const name = `${span.name}${span.ordinal === null ? '' : ` ${count(span.ordinal)}`} of ${commName(span.comm)}, ${fineDuration(span.duration)}, ${bytes(span.bytes)}`;
  if (key === null) return [name, span.peer === null ? 'message' : `with member ${count(span.peer)} of ${commName(span.comm)}; its wait for the other is in it`];
  const whom = last.get(key);
  if (whom === span.rank) return [name, 'came last: the others waited for it'];
  const waiting = ns < span.from + span.wait ? kKinds[kWaiting]!.word : 'all in it, exchanging';
  return [name, `${waiting}; waited ${fineDuration(span.wait)}${whom === undefined ? '' : ` until rank ${count(whom)} came`}`];
}

