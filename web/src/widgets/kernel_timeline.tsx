// Kernels of all ranks on one axis. Wheel or W/S zoom, drag marks what to zoom into, Shift-drag or A/D pan, a double click shows the whole
// capture again; a click selects a kernel, beside the rows it opens a rank. Without a mouse: up and down choose a row, Enter opens it,
// comma and full stop walk from kernel to kernel, Space selects it.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { clip, count } from '../base/format';
import { useWidth } from '../base/hooks';
import { bandAt, bandsHeight, findSlice, layBands, neighbour, type Band } from '../base/kernel_rows';
import { shortKernel } from '../base/kernel_profile';
import { stepAt, type KernelTimeline, type Slice } from '../base/kernel_timeline';
import { begin } from '../base/plot';
import { theme } from '../base/theme';
import { fineDuration, fit, pan, timeAt, xAt, type View } from '../base/view';
import { Tip } from './crosshair';
import { Marked, useGestures } from './gestures';
import { drawBandLabels, drawKernelAxis, drawKernels, drawStepLines, kKernelAxis, Selection } from './kernel_draw';
import type { Plot } from './timeline_draw';

interface Props {
  overview: KernelTimeline;  // the whole capture, coarse
  tile: KernelTimeline;      // the newest answer for what was in view
  view: View;
  length: number;
  room: number;              // pixels of height there are without scrolling
  open: ReadonlySet<number>;
  kernel: string;
  strong: ReadonlySet<number>;
  hostOf: (rank: number) => string;
  onView: (view: View) => void;
  onKernel: (name: string, rank: number) => void;
  onOpen: (rank: number) => void;
  onColumns: (columns: number) => void;
}

// Room for the names of streams; on a phone they are cut.
const gutterLeft = (width: number): number => (width < 600 ? 72 : 112);
const kGutterRight = 16;
const kSlackPx = 2;

export function KernelTimelineView(props: Props) {
  const { overview, tile, view, length, room, open, kernel, strong, hostOf, onView, onKernel, onOpen, onColumns } = props;
  const [box, width] = useWidth();
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = useRef<HTMLCanvasElement>(null);
  const [row, setRow] = useState<number | null>(null);
  const [focused, setFocused] = useState<Slice | null>(null);
  const bands = useMemo(() => layBands(tile === overview ? [overview] : [overview, tile], open, room), [overview, tile, open, room]);
  const height = bandsHeight(bands);
  const plot: Plot = { left: gutterLeft(width), width: Math.max(1, width - gutterLeft(width) - kGutterRight), height };
  const selection = useMemo(() => new Selection(kernel), [kernel]);
  const shown = useWindow(box, height);
  const shade = theme.value;

  useEffect(() => { if (width > 0) onColumns(Math.max(64, Math.min(4_096, Math.round(plot.width)))); }, [width]);
  useEffect(() => {
    if (width === 0) return undefined;
    const frame = requestAnimationFrame(() => {
      const context = canvas.current && begin(canvas.current, width, Math.max(1, shown.height));
      if (context) {
        drawKernels(context, plot, view, { under: overview, over: tile }, bands, shown, selection);
        drawStepLines(context, plot, view, overview.steps, shown.height);
        drawBandLabels(context, plot.left, bands, shown, strong);
      }
      const above = axis.current && begin(axis.current, width, kKernelAxis);
      if (above) drawKernelAxis(above, plot, view, overview.steps);
    });
    return () => cancelAnimationFrame(frame);
  }, [overview, tile, view, width, bands, shown.top, shown.height, selection, strong, shade]);

  const slack = ((view.to - view.from) / plot.width) * kSlackPx;
  const sliceUnder = (x: number, y: number): { band: Band; slice: Slice | null } | null => {
    const index = bandAt(bands, y);
    if (index === null) return null;
    const [band, ns] = [bands[index]!, timeAt(view, x, plot.left, plot.width)];
    const from = ns >= tile.from && ns <= tile.to ? tile : overview;
    return { band, slice: findSlice(from, band, y - band.top, ns, slack) };
  };
  const pick = (slice: Slice): void => {
    // Many within a pixel: go nearer first.
    if (slice.count > 1) onView(fit({ from: slice.from - 2 * (slice.to - slice.from), to: slice.to + 2 * (slice.to - slice.from) }, length));
    else onKernel(slice.name, slice.rank);
  };
  const { pointer, marked, isPanning, handlers } = useGestures({
    box, plot, view, length, onView,
    onPick: ({ x, y }) => {
      const slice = sliceUnder(x, y)?.slice;
      if (slice) pick(slice);
    },
    onLabel: ({ y }) => {
      const index = bandAt(bands, y);
      if (index !== null) onOpen(bands[index]!.rank);
    },
  });

  const band = row === null ? undefined : bands[Math.min(row, bands.length - 1)];
  const walk = (way: 1 | -1): void => {
    if (!band) return;
    const from = focused !== null && focused.rank === band.rank ? focused.from : way === 1 ? view.from - 1 : view.to;
    const next = neighbour(tile.from <= from && tile.to >= from ? tile : overview, band, from, way);
    if (!next) return;
    setFocused(next);
    if (next.from < view.from || next.to > view.to) {
      const size = Math.max(view.to - view.from, (next.to - next.from) * 1.2);
      const middle = (next.from + next.to) / 2;
      onView(fit({ from: middle - size / 2, to: middle + size / 2 }, length));
    }
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const choose = (by: number): void => {
      setFocused(null);
      setRow(row === null ? 0 : Math.max(0, Math.min(bands.length - 1, row + by)));
    };
    const acts: Record<string, () => void> = {
      ArrowUp: () => choose(-1),
      ArrowDown: () => choose(1),
      ArrowLeft: () => onView(pan(view, -0.25, length)),
      ArrowRight: () => onView(pan(view, 0.25, length)),
      ',': () => walk(-1),
      '.': () => walk(1),
      Enter: () => { if (band) onOpen(band.rank); },
      ' ': () => { if (focused) pick(focused); },
    };
    const act = acts[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  };
  useEffect(() => {
    // The chosen row stays in sight.
    if (!band || !box.current) return;
    const top = box.current.getBoundingClientRect().top + band.top;
    if (top < kKernelAxis || top + band.height > window.innerHeight) window.scrollBy(0, top - window.innerHeight / 2);
  }, [row]);

  const under = pointer && sliceUnder(pointer.x, pointer.y);
  const said = focused ? describe(focused, overview, hostOf) : band ? [bandWords(band, hostOf)] : [];
  const focusBox = focused && band ? { left: xAt(view, focused.from, plot.left, plot.width), right: xAt(view, focused.to, plot.left, plot.width) } : null;
  return (
    <>
      <div class="kernel-axis" aria-hidden="true"><canvas ref={axis} style={{ width: `${width}px`, height: `${kKernelAxis}px` }} /></div>
      <div
        class={`plot timeline${isPanning ? ' panning' : ''}`}
        ref={box}
        id="kernels"
        style={{ height: `${height}px` }}
        tabIndex={0}
        role="application"
        aria-roledescription="timeline"
        aria-label={`Kernels of ${count(overview.ranks.length)} ranks over ${fineDuration(view.to - view.from)} of ${fineDuration(length)}. W and S zoom, A and D pan, 0 shows all, up and down choose a row, Enter opens a rank, comma and full stop go from kernel to kernel, Space selects one, t shows a table.`}
        onKeyDown={onKeyDown}
        onBlur={() => { setRow(null); setFocused(null); }}
        {...handlers}
      >
        <canvas ref={canvas} style={{ width: `${width}px`, height: `${shown.height}px`, top: `${shown.top}px` }} />
        <div class="overlay" aria-hidden="true">
          {band && <div class="row-picked" style={{ left: '0', width: `${plot.left + plot.width}px`, top: `${band.top}px`, height: `${band.height}px` }} />}
          {focusBox && band && focusBox.right > plot.left && (
            <div class="slice-focus" style={{ left: `${Math.max(plot.left, focusBox.left) - 1}px`, width: `${Math.max(3, focusBox.right - Math.max(plot.left, focusBox.left)) + 2}px`, top: `${band.top}px`, height: `${band.height}px` }} />
          )}
          {under && <div class="line-hover" style={{ left: `${pointer!.x}px`, width: '1px', height: `${height}px` }} />}
          {marked && <Marked {...{ marked, height, view, plot }} />}
        </div>
        {under && (
          <Tip x={pointer!.x} y={pointer!.y + 16} total={width}
               lines={under.slice ? describe(under.slice, overview, hostOf) : [bandWords(under.band, hostOf), `nothing runs, ${fineDuration(timeAt(view, pointer!.x, plot.left, plot.width))} into the capture`]} />
        )}
        {!under && focused && band && focusBox && <Tip x={Math.max(plot.left, Math.min(plot.left + plot.width, focusBox.left))} y={band.top + band.height + 4} total={width} lines={said} />}
      </div>
      <p class="offscreen" role="status">{said.join(', ')}</p>
    </>
  );
}

function bandWords(band: Band, hostOf: (rank: number) => string): string {
  const host = hostOf(band.rank);
  return `rank ${count(band.rank)}${host && `, ${host}`}${band.lane === null ? '' : `, ${band.lane}`}`;
}

// What is under the pointer, in words: which kernel, how long, of what kind, whose.
export function describe(slice: Slice, timeline: KernelTimeline, hostOf: (rank: number) => string): string[] {
  const host = hostOf(slice.rank);
  const whose = `rank ${count(slice.rank)}${host && `, ${host}`}, ${slice.lane}`;
  const step = stepAt(timeline, slice.from);
  const when = step ? `${fineDuration(slice.from - step.from)} into step ${count(step.step)}` : `${fineDuration(slice.from)} into the capture`;
  const length = fineDuration(slice.to - slice.from);
  if (slice.count > 1) return [`${count(slice.count)} in ${length}, mostly ${clip(shortKernel(slice.name), kNameShown)}`, slice.kernelClass, whose, when, 'click to go nearer'];
  return [clip(shortKernel(slice.name), kNameShown) || slice.kernelClass, `${length} · ${slice.kernelClass}`, whose, when];
}

const kNameShown = 64;

// The part of the rows that is on the screen: all that is drawn, however many ranks there are.
function useWindow(box: { current: HTMLElement | null }, height: number): { top: number; height: number } {
  const [shown, setShown] = useState({ top: 0, height: 0 });
  useEffect(() => {
    let frame = 0;
    const look = (): void => {
      const area = box.current?.getBoundingClientRect();
      if (!area) return;
      const top = Math.max(0, Math.min(height, Math.floor(-area.top)));
      const end = Math.max(top, Math.min(height, Math.ceil(window.innerHeight - area.top)));
      setShown((old) => (old.top === top && old.height === end - top ? old : { top, height: end - top }));
    };
    const soon = (): void => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(look);
    };
    look();
    window.addEventListener('scroll', soon, { passive: true });
    window.addEventListener('resize', soon);
    const observer = new ResizeObserver(soon);
    observer.observe(document.body);
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener('scroll', soon);
      window.removeEventListener('resize', soon);
      observer.disconnect();
    };
  }, [height]);
  return shown;
}
