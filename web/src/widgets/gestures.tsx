// What a pointer does on a picture with a time axis: the wheel zooms or pans, a drag marks what to zoom into, Shift-drag pans, a double
// click shows all of it, a click picks.
import { useEffect, useRef, useState } from 'preact/hooks';
import { fineDuration, fit, isWhole, pan, timeAt, zoom, type View } from '../base/view';
import type { Plot } from './timeline_draw';

interface Props {
  box: { current: HTMLElement | null };
  plot: Plot;
  view: View;
  length: number;
  onView: (view: View) => void;
  onPick: (at: Pixel) => void;   // a click into the plot that no second one followed
  onLabel: (at: Pixel) => void;  // a click on what stands beside it
}

interface Pixel {
  x: number;
  y: number;
}

interface Drag {
  from: number;  // pixels
  to: number;
  isPan: boolean;
  start: View;
}

const kDragFrom = 4;
const kDoubleClickMs = 220;
const kWheelLinePx = 16;

const isFar = (drag: Drag): boolean => Math.abs(drag.to - drag.from) >= kDragFrom;

export function useGestures({ box, plot, view, length, onView, onPick, onLabel }: Props) {
  const [pointer, setPointer] = useState<Pixel | null>(null);
  const [drag, setDrag] = useState<Drag | null>(null);
  const click = useRef(0);
  const dragged = useRef(false);
  useEffect(() => () => clearTimeout(click.current), []);

  const inPlot = (x: number): boolean => x >= plot.left && x <= plot.left + plot.width;
  const pixelOf = (event: MouseEvent): Pixel => {
    const area = box.current?.getBoundingClientRect();
    return { x: event.clientX - (area?.left ?? 0), y: event.clientY - (area?.top ?? 0) };
  };
  const at = (x: number): number => timeAt(view, x, plot.left, plot.width);

  useWheel(box, (event, x) => {
    if (!inPlot(x)) return false;
    const by = event.deltaMode === 1 ? kWheelLinePx : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      if (isWhole(view, length)) return false;
      onView(pan(view, ((event.deltaX || event.deltaY) * by) / plot.width, length));
      return true;
    }
    // Zoomed out as far as it goes, the wheel scrolls the page again.
    if (event.deltaY > 0 && isWhole(view, length)) return false;
    onView(zoom(view, at(x), Math.exp(Math.max(-1, Math.min(1, event.deltaY * by * 0.002))), length));
    return true;
  });

  const handlers = {
    onPointerDown: (event: PointerEvent): void => {
      dragged.current = false;
      const { x } = pixelOf(event);
      if (event.button !== 0 || !inPlot(x)) return;
      (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
      setDrag({ from: x, to: x, isPan: event.shiftKey, start: view });
    },
    onPointerMove: (event: PointerEvent): void => {
      const pixel = pixelOf(event);
      setPointer(pixel);
      if (!drag) return;
      const x = Math.max(plot.left, Math.min(plot.left + plot.width, pixel.x));
      setDrag({ ...drag, to: x });
      if (drag.isPan) onView(pan(drag.start, (drag.from - x) / plot.width, length));
    },
    onPointerUp: (): void => {
      if (!drag) return;
      setDrag(null);
      dragged.current = isFar(drag);
      if (!drag.isPan && isFar(drag)) onView(fit({ from: at(Math.min(drag.from, drag.to)), to: at(Math.max(drag.from, drag.to)) }, length));
    },
    onPointerCancel: (): void => setDrag(null),
    onPointerLeave: (): void => setPointer(null),
    onClick: (event: MouseEvent): void => {
      const pixel = pixelOf(event);
      // The click that ends a drag, and the first of two, pick nothing.
      if (dragged.current || pixel.x > plot.left + plot.width) return;
      clearTimeout(click.current);
      if (event.detail > 1) return;
      if (pixel.x < plot.left) onLabel(pixel);
      else click.current = window.setTimeout(() => onPick(pixel), kDoubleClickMs);
    },
    onDblClick: (event: MouseEvent): void => {
      if (!inPlot(pixelOf(event).x)) return;
      clearTimeout(click.current);
      onView({ from: 0, to: length });
    },
  };
  return {
    pointer: pointer && inPlot(pointer.x) && !drag ? pointer : null,  // of whoever only looks
    marked: drag && !drag.isPan && isFar(drag) ? drag : null,
    isPanning: drag?.isPan === true,
    handlers,
  };
}

// What a drag has marked so far.
export function Marked({ marked, height, view, plot }: { marked: { from: number; to: number }; height: number; view: View; plot: Plot }) {
  const left = Math.min(marked.from, marked.to);
  const size = Math.abs(marked.to - marked.from);
  return (
    <div class="range" style={{ left: `${left}px`, width: `${size}px`, height: `${height}px` }}>
      <span>{fineDuration((size / plot.width) * (view.to - view.from))}</span>
    </div>
  );
}

// Preact listens passively to the wheel; this must be able to keep the page still.
function useWheel(box: { current: HTMLElement | null }, turn: (event: WheelEvent, x: number) => boolean): void {
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
