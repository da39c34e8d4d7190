// Where a rank spends its time beside its peers, by stack: what `lockstep lines` has sampled, as a tree of frames for a differential
// flame graph. A share is of wall time: looks at which the frame was on the stack, of all looks at a thread of that kind.
import { list, num, object, text } from './decode';
import { clean } from './format';

export interface SampledLine {
  words: string;  // "train.py:142 in load_batch"
  file: string;
  thread: string;
  isLibrary: boolean;
  share: number;
  peers: number;
}

export interface SampledRank {
  rank: number;
  host: string;
  time_unix_ns: number | null;
  looks: number;
  duration_ms: number | null;
  note: string;
  threads: Map<string, number>;  // kind -> how many
}

export interface Samples {
  ranks: SampledRank[];
  rank: number | null;  // compared with the others; null: nothing was sampled
  peers: number[];
  sentence: string;
  named: SampledLine | null;
  lines: SampledLine[];
}

export function decodeSamples(value: unknown): Samples {
  const json = object(value);
  const difference = object(json['difference']);
  return {
    ranks: list(json['ranks']).flatMap((item): SampledRank[] => {
      const rank = object(item);
      const number = num(rank['rank']);
      if (number === null) return [];
      const threads = new Map<string, number>();
      for (const thread of list(rank['threads'])) {
        const kind = text(object(thread)['thread']);
        threads.set(kind, (threads.get(kind) ?? 0) + 1);
      }
      return [{
        rank: number, host: text(rank['host']), time_unix_ns: num(rank['time_unix_ns']), looks: num(rank['looks']) ?? 0, duration_ms: num(rank['duration_ms']),
        note: text(rank['note']), threads,
      }];
    }),
    rank: num(difference['rank']),
    peers: list(difference['peers']).flatMap((rank) => num(rank) ?? []),
    sentence: text(difference['sentence']),
    named: decodeLine(difference['named'])[0] ?? null,
    lines: list(difference['lines']).flatMap(decodeLine),
  };
}

function decodeLine(value: unknown): SampledLine[] {
  const line = object(value);
  const words = text(line['text']);
  if (!words) return [];
  return [{
    words, file: text(line['file']), thread: text(line['thread']), isLibrary: line['is_library'] === true, share: num(line['share']) ?? 0, peers: num(line['peer_share']) ?? 0,
  }];
}

export interface Frame {
  name: string;    // "load_batch (train.py:142)"
  own: number;     // share of the rank
  peers: number;   // mean share of the others
  children: Frame[];
  parent: Frame | null;
}

// Of both, so that what only one of them does has room too.
const weight = (frame: Frame): number => (frame.own + frame.peers) / 2;
export const points = (frame: { own: number; peers: number }): number => Math.round(100 * (frame.own - frame.peers));
export function signedPoints(frame: { own: number; peers: number }): string {
  const by = points(frame);
  return by === 0 ? '0' : `${by > 0 ? '+' : '−'}${Math.abs(by)}`;
}

const kDepthMost = 64;

// "rank 6;main thread;train (train.py:95);load_batch (train.py:142) 290", a line each. Threads of the same kind count by their mean,
// as do peers. Frames that take a rank most beyond its peers stand first.
export function flameOf(collapsed: string, samples: Samples, kind: string): Frame {
  const root: Frame = { name: kind, own: 0, peers: 0, children: [], parent: null };
  const index = new Map<Frame, Map<string, Frame>>();
  const ranks = new Map(samples.ranks.map((one) => [one.rank, one]));
  const peers = new Set(samples.peers);
  for (const line of collapsed.split('\n')) {
    const end = line.lastIndexOf(' ');
    const counted = Number(line.slice(end + 1));
    if (end < 0 || !(counted > 0)) continue;
    const [who, thread, ...frames] = line.slice(0, end).split(';');
    const rank = ranks.get(Number(/^rank (\d+)$/.exec(who ?? '')?.[1] ?? NaN));
    if (!rank || !isOfKind(thread ?? '', kind)) continue;
    const isOwn = rank.rank === samples.rank;
    if (!isOwn && !peers.has(rank.rank)) continue;
    const share = counted / Math.max(1, rank.looks) / Math.max(1, rank.threads.get(kind) ?? 1) / (isOwn ? 1 : peers.size);
    let at = root;
    add(at, isOwn, share);
    for (const raw of frames.slice(0, kDepthMost)) {
      const name = clean(raw);
      let known = index.get(at);
      if (!known) index.set(at, known = new Map());
      let next = known.get(name);
      if (!next) {
        next = { name, own: 0, peers: 0, children: [], parent: at };
        known.set(name, next);
        at.children.push(next);
      }
      add(next, isOwn, share);
      at = next;
    }
  }
  sort(root);
  return root;
}

// "worker process 4711" is a worker process, "another thread pin_memory" another thread.
const isOfKind = (thread: string, kind: string): boolean => thread === kind || thread.startsWith(`${kind} `);

function add(frame: Frame, isOwn: boolean, share: number): void {
  if (isOwn) frame.own += share;
  else frame.peers += share;
}

function sort(frame: Frame): void {
  frame.children.sort((a, b) => (b.own - b.peers) - (a.own - a.peers) || weight(b) - weight(a));
  frame.children.forEach(sort);
}

// Below here stacks differ: what is above, the interpreter's start and the like, tells nothing.
export function forkOf(root: Frame): Frame {
  let at = root;
  while (at.children.length === 1 && weight(at.children[0]!) >= kShared * weight(at)) at = at.children[0]!;
  return at.children.length === 0 && at.parent ? at.parent : at;
}
const kShared = 0.98;

export function depthOf(frame: Frame): number {
  let depth = 0;
  for (let at = frame.parent; at; at = at.parent) depth += 1;
  return depth;
}

export interface Box {
  frame: Frame;
  depth: number;
  left: number;   // shares of the width
  width: number;
}

// Frames from `top` down, those that are wide enough to be seen; what is between it and `root` above it, over the whole width.
export function layFrames(top: Frame, root = top, least = 0.003): Box[] {
  const boxes: Box[] = [];
  const above: Frame[] = [];
  for (let frame: Frame | null = top; frame && frame !== root; frame = frame.parent) if (frame.parent) above.unshift(frame.parent);
  above.forEach((frame, depth) => boxes.push({ frame, depth, left: 0, width: 1 }));
  const whole = weight(top);
  if (!(whole > 0)) return boxes;
  const lay = (frame: Frame, depth: number, left: number): void => {
    const width = weight(frame) / whole;
    if (width < least) return;
    boxes.push({ frame, depth, left, width });
    let at = left;
    for (const child of frame.children) {
      lay(child, depth + 1, at);
      at += weight(child) / whole;
    }
  };
  lay(top, above.length, 0);
  return boxes;
}

// Kinds of threads that were seen, the one with the named line first.
export function kindsOf(samples: Samples): string[] {
  const kinds = new Set<string>();
  if (samples.named?.thread) kinds.add(samples.named.thread);
  for (const rank of samples.ranks) for (const kind of rank.threads.keys()) kinds.add(kind);
  return [...kinds];
}
