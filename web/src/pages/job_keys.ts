// The keyboard of the job page: arrows move the cursor over the heat map, Enter goes one level down (cell, step page), Esc goes one level up (rank, step,
// job, fleet), s changes the order, t shows the table, p the kernel profile.
import type { Signal } from '@preact/signals';
import { useKeys } from '../base/hooks';
import type { Sort, StepMatrix } from '../base/matrix';
import { go, stepPlace, type JobPlace } from '../base/url';
import type { Point } from '../widgets/point';

interface Keys {
  place: JobPlace;
  matrix: StepMatrix | null;
  rows: readonly number[];
  cursor: Signal<Point | null>;
  selected: Point | null;
  pick: (rank: number | null, step: number | null, replace?: boolean) => void;
  showKernels: () => void;
}

const kSorts: Sort[] = ['badness', 'rank', 'host'];
const kMoves: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

export function useJobKeys(keys: Keys): void {
  useKeys((key, target) => act(key, target, keys));
}

function act(key: string, target: HTMLElement, keys: Keys): boolean {
  const { place, selected, pick } = keys;
  // Elsewhere the arrows scroll and Enter presses the focused button.
  const onMap = target === document.body || target.id === 'heatmap';
  const move = kMoves[key];
  if (move && onMap && place.view === 'chart') return moveCursor(keys, move[0], move[1], target.id === 'heatmap');
  // Down: from the map to the cell's panel, from an open panel to the step with all its ranks.
  if (key === 'Enter' && onMap && place.step !== null && (place.rank !== null || selected === null)) {
    go({ ...stepPlace(place.job, place.step), rank: place.rank });
    return true;
  }
  if (key === 'Enter' && onMap && selected && selected.rank !== null) {
    pick(selected.rank, selected.step);
    return true;
  }
  if (key === 'Escape') {
    if (place.rank !== null) pick(null, place.step);
    else if (place.step !== null) pick(null, null);
    else go({ page: 'fleet' });
    return true;
  }
  if (key === 'p') {
    keys.showKernels();
    return true;
  }
  if (key === 's') {
    go({ ...place, sort: kSorts[(kSorts.indexOf(place.sort) + 1) % kSorts.length]! }, true);
    return true;
  }
  if (key === 't') {
    go({ ...place, view: place.view === 'table' ? 'chart' : 'table' }, true);
    return true;
  }
  return false;
}

// The first press starts at the top row, newest step: the worst rank, now. With the panel open, it follows.
function moveCursor({ place, matrix, rows, cursor, selected, pick }: Keys, down: number, right: number, focused: boolean): boolean {
  if (!matrix || rows.length === 0 || matrix.steps.length === 0) return false;
  if (!selected && !focused) return false;
  let row = selected ? rows.findIndex((index) => matrix.ranks[index] === selected.rank) : -1;
  let column = selected ? matrix.steps.indexOf(selected.step) : -1;
  if (row < 0 || column < 0) {
    row = Math.max(0, row);
    column = matrix.steps.length - 1;
  } else {
    row = Math.max(0, Math.min(rows.length - 1, row + down));
    column = Math.max(0, Math.min(matrix.steps.length - 1, column + right));
  }
  const point = { rank: matrix.ranks[rows[row]!]!, step: matrix.steps[column]! };
  if (place.rank !== null) pick(point.rank, point.step, true);
  else cursor.value = point;
  return true;
}
