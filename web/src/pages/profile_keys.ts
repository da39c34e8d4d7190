// The keyboard of a kernel profile: W and S zoom, A and D pan, 0 shows all, k selects the kernel that the verdict names, x turns the order
// of the kernels, t shows the table; Esc goes one level up (kernel, profiles of the job).
import { useKeys } from '../base/hooks';
import { go, profilesPlace, type ProfilePlace } from '../base/url';
import { viewByKey, type View } from '../base/view';

interface Keys {
  place: ProfilePlace;
  view: View | null;
  length: number;
  guilty: string;
  move: (view: View) => void;
  pickKernel: (kernel: string) => void;
}

export function useProfileKeys(keys: Keys): void {
  useKeys((key) => act(key, keys));
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
  const wanted = viewByKey(key, view, length);
  if (!wanted) return false;
  move(wanted);
  return true;
}
