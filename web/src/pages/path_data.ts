// What the page of a path knows: the way itself, and that of its sibling pairs: the other GPUs of the same two hosts, each with the one of
// the same number. They share hosts, leaves and often spines; what only one of them has is its own.
import { useSignal, type ReadonlySignal } from '@preact/signals';
import { api } from '../base/api';
import type { FabricPath } from '../base/fabric';
import { everyAt, unlessRefused, usePoll } from '../base/poll';
import type { PathPlace } from '../base/url';

export interface PathData {
  path: ReadonlySignal<FabricPath | null>;
  siblings: ReadonlySignal<FabricPath[]>;
  refused: ReadonlySignal<string | null>;
}

const kSiblingsMax = 8;

export function usePathData(place: PathPlace): PathData {
  const path = useSignal<FabricPath | null>(null);
  const siblings = useSignal<FabricPath[]>([]);
  const refused = useSignal<string | null>(null);
  const { a, b, job, at, qp, sourcePort } = place;
  usePoll([a, b, job, at, qp, sourcePort], async (signal) => {
    if (!a || !b) {
      path.value = null;
      siblings.value = [];
      return;
    }
    const found = await api.path(place, signal);
    path.value = found;
    if (found.kind !== 'network' || !found.a.host || !found.b.host) {
      siblings.value = [];
      return;
    }
    const numbers = Array.from({ length: kSiblingsMax }, (_, index) => index).filter((index) => index !== found.a.index || index !== found.b.index);
    const others = await Promise.all(numbers.map((index) => (
      unlessRefused(api.path({ a: `${found.a.host}:gpu${index}`, b: `${found.b.host}:gpu${index}`, job: '', at, qp: '', sourcePort: '' }, signal)))));
    siblings.value = others.filter((other): other is FabricPath => other !== null && other.kind === 'network');
  }, (message) => { refused.value = message; }, everyAt(at));
  return { path, siblings, refused };
}
