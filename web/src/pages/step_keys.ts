// The keyboard of the step page: W and S zoom, A and D pan, 0 shows the whole step, up and down choose a rank, c hides the critical
// path, t shows the table, Esc goes one level up (rank, step, job).
import { useEffect, useRef } from 'preact/hooks';
import type { Timeline } from '../base/timeline';
import { go, jobPlace, type StepPlace } from '../base/url';
import { pan, zoom, type View } from '../base/view';
import { lineOfRank } from '../widgets/timeline_draw';

interface Keys {
  place: StepPlace;
  tile: Timeline | null;
  view: View | null;
  length: number;
  move: (view: View) => void;
  pick: (rank: number | null, replace?: boolean) => void;
  togglePath: () => void;
}

export function useStepKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const target = event.target as HTMLElement;
      if (target.closest('input, select, textarea, [role=menu]')) return;
      if (act(event.key, target, latest.current)) event.preventDefault();
    };
    window.addEventListener('keydown', listen);
    return () => window.removeEventListener('keydown', listen);
  }, []);
}

function act(key: string, target: HTMLElement, { place, tile, view, length, move, pick, togglePath }: Keys): boolean {
  if (key === 'Escape') {
    if (place.rank !== null) pick(null);
    else go({ ...jobPlace(place.job), step: place.step });
    return true;
  }
  if (key === 't') {
    go({ ...place, view: place.view === 'table' ? 'chart' : 'table' }, true);
    return true;
  }
  if (key === 'c') {
    togglePath();
    return true;
  }
  if (view === null || place.view === 'table') return false;
  const middle = (view.from + view.to) / 2;
  const moves: Record<string, () => View> = {
    w: () => zoom(view, middle, 0.6, length),
    s: () => zoom(view, middle, 1 / 0.6, length),
    a: () => pan(view, -0.25, length),
    d: () => pan(view, 0.25, length),
    '+': () => zoom(view, middle, 0.6, length),
    '-': () => zoom(view, middle, 1 / 0.6, length),
    '0': () => ({ from: 0, to: length }),
  };
  const wanted = moves[key.toLowerCase()];
  if (wanted) {
    move(wanted());
    return true;
  }
  // Elsewhere the arrows scroll the page.
  const onTimeline = target.id === 'timeline';
  if (onTimeline && (key === 'ArrowLeft' || key === 'ArrowRight')) {
    move(pan(view, key === 'ArrowLeft' ? -0.25 : 0.25, length));
    return true;
  }
  if (onTimeline && tile && (key === 'ArrowUp' || key === 'ArrowDown')) {
    const at = place.rank === null ? -1 : lineOfRank(tile.lines, place.rank);
    const next = at < 0 ? 0 : Math.max(0, Math.min(tile.lines.length - 1, at + (key === 'ArrowUp' ? -1 : 1)));
    const line = tile.lines[next];
    if (line) pick(line.shown, place.rank !== null);
    return true;
  }
  return false;
}
