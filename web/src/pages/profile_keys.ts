// The keyboard of a kernel profile: W and S zoom, A and D pan, 0 shows all, k selects the kernel that the verdict names, x turns the order
// of the kernels, t shows the table; Esc goes one level up (kernel, profiles of the job).
import { useEffect, useRef } from 'preact/hooks';
import { go, profilesPlace, type ProfilePlace } from '../base/url';
import { pan, zoom, type View } from '../base/view';

interface Keys {
  place: ProfilePlace;
  view: View | null;
  length: number;
  guilty: string;
  move: (view: View) => void;
  pickKernel: (kernel: string) => void;
}

export function useProfileKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if ((event.target as HTMLElement).closest('input, select, textarea, [role=menu]')) return;
      if (act(event.key, latest.current)) event.preventDefault();
    };
    window.addEventListener('keydown', listen);
    return () => window.removeEventListener('keydown', listen);
  }, []);
}

function act(key: string, { place, view, length, guilty, move, pickKernel }: Keys): boolean {
  if (key === 'Escape') {
    if (place.kernel) pickKernel(place.kernel);
    else go(profilesPlace(place.job));
    return true;
  }
  if (key === 't') {
    go({ ...place, view: place.view === 'table' ? 'chart' : 'table' }, true);
    return true;
  }
  if (key === 'x') {
    go({ ...place, sort: place.sort === 'total' ? 'difference' : 'total' }, true);
    return true;
  }
  if (key === 'k' && guilty) {
    pickKernel(guilty);
    return true;
  }
  if (view === null) return false;
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
  if (!wanted) return false;
  move(wanted());
  return true;
}
