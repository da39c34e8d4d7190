// Every rank's step on one axis. Wheel or W/S zoom, drag marks what to zoom into, Shift-drag or A/D pan, a double click shows the
// whole step again, a click picks a rank. What is in view is the page's business: this widget only says what the reader wants.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { bytes, count } from '../base/format';
import { useWidth } from '../base/hooks';
import { begin, kGutterLeft } from '../base/plot';
import type { PathPiece } from '../base/step';
import { collectiveKey, kKinds, kWaiting, lastToCome, runAt, spanAt, type Line, type Timeline, type TimeSpan } from '../base/timeline';
import { fineDuration, timeAt, type View } from '../base/view';
import { theme } from '../base/theme';
import { Tip } from './crosshair';
import { Marked, useGestures } from './gestures';
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

export function TimelineView(props: Props) {
  const { overview, tile, view, length, height, path, selected, culprit, hostOf, commName, onView, onPick, onColumns } = props;
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
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
  const pick = ({ y }: { y: number }): void => {
    const at = lineAt(tile.lines.length, height, y);
    if (at !== null) onPick(tile.lines[at]!.shown);
  };
  const { pointer, marked, isPanning, handlers } = useGestures({ box, plot, view, length, onView, onPick: pick, onLabel: pick });
  const line = pointer ? lineAt(tile.lines.length, height, pointer.y) : null;
  const rankLine = selected === null ? -1 : lineOfRank(tile.lines, selected);
  return (
    <div
      class={`plot timeline${isPanning ? ' panning' : ''}`}
      ref={box}
      id="timeline"
      style={{ height: `${height + kTimeAxisHeight}px` }}
      tabIndex={0}
      role="application"
      aria-roledescription="timeline"
      aria-label={`${count(tile.ranksShown)} ranks over ${fineDuration(view.to - view.from)} of a step of ${fineDuration(length)}. W and S zoom, A and D pan, 0 shows the whole step, up and down choose a rank, t shows the table.`}
      {...handlers}
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

