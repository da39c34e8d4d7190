// The keyboard of the step page: W and S zoom, A and D pan, 0 shows the whole step, up and down choose a rank, c hides the critical
// path, t shows the table, Esc goes one level up (rank, step, job).
import { useKeys } from '../base/hooks';
import type { Timeline } from '../base/timeline';
import { go, jobPlace, type StepPlace } from '../base/url';
import { pan, viewByKey, type View } from '../base/view';
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
  useKeys((key, target) => act(key, target, keys));
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
  const wanted = viewByKey(key, view, length);
  if (wanted) {
    move(wanted);
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
