// The part of a step or of a capture that is looked at. While a gesture moves it the address stays; once it rests, it is one stop on the
// way back.
import { useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { go, writePlace, type ProfilePlace, type StepPlace } from '../base/url';
import { fit, isWhole, type View } from '../base/view';

const kSettleMs = 250;

interface Moving {
  view: View | null;  // null while `length` is not known
  move: (wanted: View) => void;
}

// `asked`: the view that the address means. `write`: the address of another; null for all of it.
export function useMoving<Place extends StepPlace | ProfilePlace>(place: Place, length: number, asked: View | null, write: (now: Place, view: View | null) => Place): Moving {
  const moving = useSignal<View | null>(null);
  const settle = useRef(0);
  const latest = useRef({ place, write });
  latest.current = { place, write };
  const [from, to] = [asked?.from ?? null, asked?.to ?? null];
  const resting = useMemo(() => (from === null || to === null ? null : { from, to }), [from, to]);
  const written = useRef('');
  // Whoever goes back in the middle of a gesture means it; an address written here ends nothing that has begun since.
  useEffect(() => {
    if (writePlace(latest.current.place) === written.current) return;
    moving.value = null;
    clearTimeout(settle.current);
  }, [from, to]);
  useEffect(() => () => clearTimeout(settle.current), []);
  const move = (wanted: View): void => {
    const view = fit(wanted, length);
    moving.value = view;
    clearTimeout(settle.current);
    settle.current = window.setTimeout(() => {
      const now = latest.current;
      const next = now.write(now.place, isWhole(view, length) ? null : view);
      moving.value = null;
      written.current = writePlace(next);
      if (written.current !== writePlace(now.place)) go(next);
    }, kSettleMs);
  };
  return { view: moving.value ?? resting, move };
}
