// Where ranks and their lanes lie in the picture of a kernel profile, from top to bottom; and what is found there. A rank is one row of
// two strips, what computes above and what communicates below; opened, its lanes follow, a strip for each depth of nesting.
import { firstAfter, sliceAt, sliceOf, type KernelTimeline, type Lane, type Slice, type SliceRow } from './kernel_timeline';

export interface Band {
  rank: number;
  lane: string | null;  // null: the rank's own row
  isGpu: boolean;
  isOpen: boolean;
  depths: number;
  top: number;
  height: number;
}

export const kStripHeight = 15;
const kRankMost = 26;
const kRankLeast = 8;
const kGap = 2;

const laneKey = (rank: number, lane: string): string => `${rank}/${lane}`;

// `room`: pixels there are without scrolling; ranks shrink to fit, down to kRankLeast.
export function layBands(timelines: readonly KernelTimeline[], open: ReadonlySet<number>, room: number): Band[] {
  const lanes = new Map<string, { lane: Lane; depths: number }>();
  for (const timeline of timelines) {
    for (const lane of timeline.lanes) {
      const held = lanes.get(laneKey(lane.rank, lane.lane));
      lanes.set(laneKey(lane.rank, lane.lane), { lane, depths: Math.max(1, held?.depths ?? 0, lane.rows.length) });
    }
  }
  const byRank = new Map<number, { lane: Lane; depths: number }[]>();
  for (const one of lanes.values()) byRank.set(one.lane.rank, [...(byRank.get(one.lane.rank) ?? []), one]);
  const ranks = [...byRank.keys()].sort((a, b) => a - b);
  const opened = ranks.filter((rank) => open.has(rank)).flatMap((rank) => byRank.get(rank)!);
  const taken = opened.reduce((sum, { depths }) => sum + depths * kStripHeight + kGap, 0);
  const height = Math.max(kRankLeast, Math.min(kRankMost, Math.floor((room - taken) / Math.max(1, ranks.length))));
  const bands: Band[] = [];
  let top = 0;
  const add = (band: Omit<Band, 'top'>): void => {
    bands.push({ ...band, top });
    top += band.height;
  };
  for (const rank of ranks) {
    const isOpen = open.has(rank);
    // An opened rank can always be read.
    add({ rank, lane: null, isGpu: false, isOpen, depths: 1, height: isOpen ? kRankMost : height });
    if (!isOpen) continue;
    const own = byRank.get(rank)!.sort((a, b) => Number(b.lane.isGpu) - Number(a.lane.isGpu));
    for (const { lane, depths } of own) add({ rank, lane: lane.lane, isGpu: lane.isGpu, isOpen: false, depths, height: depths * kStripHeight + kGap });
  }
  return bands;
}

export function bandsHeight(bands: readonly Band[]): number {
  const last = bands[bands.length - 1];
  return last ? last.top + last.height : 0;
}

export function bandAt(bands: readonly Band[], y: number): number | null {
  if (y < 0) return null;
  let [low, high] = [0, bands.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bands[middle]!.top + bands[middle]!.height > y) high = middle;
    else low = middle + 1;
  }
  return low < bands.length ? low : null;
}

// Of a rank's row: how much of it is for what computes.
export const workHeight = (height: number): number => Math.max(4, Math.round(height * 0.7) - 1);

// Lanes by rank, found once per answer: a frame asks for those of every row it draws.
const lanesByRank = new WeakMap<KernelTimeline, Map<number, { all: Lane[]; own: Lane[] }>>();
const kNoLanes: { all: Lane[]; own: Lane[] } = { all: [], own: [] };

function lanesOf(timeline: KernelTimeline, rank: number): { all: Lane[]; own: Lane[] } {
  let known = lanesByRank.get(timeline);
  if (!known) {
    const byRank = new Map<number, Lane[]>();
    for (const lane of timeline.lanes) {
      const held = byRank.get(lane.rank);
      if (held) held.push(lane);
      else byRank.set(lane.rank, [lane]);
    }
    known = new Map([...byRank].map(([of, all]) => [of, { all, own: standingFor(timeline, all) }]));
    lanesByRank.set(timeline, known);
  }
  return known.get(rank) ?? kNoLanes;
}

// Lanes that a rank's own row stands for: its GPU's, or the host's where there is no GPU.
export const ownLanes = (timeline: KernelTimeline, rank: number): Lane[] => lanesOf(timeline, rank).own;

export const laneNamed = (timeline: KernelTimeline, rank: number, name: string): Lane | undefined => lanesOf(timeline, rank).all.find((lane) => lane.lane === name);

function standingFor(timeline: KernelTimeline, all: Lane[]): Lane[] {
  const gpu = all.filter((lane) => lane.isGpu);
  if (gpu.length > 0) return gpu;
  // A lane of steps alone says nothing of what runs.
  const steps = timeline.classes.indexOf('step');
  const working = all.filter((lane) => lane.rows[0]?.kind.some((kind) => kind !== steps));
  return working.length > 0 ? working : all;
}

const isCommunication = (timeline: KernelTimeline, row: SliceRow, index: number): boolean => timeline.classes[row.kind[index]!] === 'communication';

// What is under a pointer: `y` within the band, `slack` how many nanoseconds a finger is wide.
export function findSlice(timeline: KernelTimeline, band: Band, y: number, ns: number, slack: number): Slice | null {
  if (band.lane !== null) {
    const lane = laneNamed(timeline, band.rank, band.lane);
    const row = lane?.rows[Math.floor(y / kStripHeight)];
    const index = row ? sliceAt(row, ns, slack) : null;
    return lane && row && index !== null ? sliceOf(timeline, lane, row, index) : null;
  }
  const wantsComm = y > workHeight(band.height);
  let other: Slice | null = null;
  for (const lane of ownLanes(timeline, band.rank)) {
    const row = lane.rows[0];
    const index = row ? sliceAt(row, ns, slack) : null;
    if (!row || index === null) continue;
    const found = sliceOf(timeline, lane, row, index);
    if (isCommunication(timeline, row, index) === wantsComm) return found;
    other = found;
  }
  return wantsComm ? other : null;
}

// The slice after (1) or before (-1) a moment on a row, for whoever has no pointer.
export function neighbour(timeline: KernelTimeline, band: Band, ns: number, way: 1 | -1): Slice | null {
  const named = band.lane === null ? undefined : laneNamed(timeline, band.rank, band.lane);
  const lanes = band.lane === null ? ownLanes(timeline, band.rank) : named ? [named] : [];
  let best: Slice | null = null;
  for (const lane of lanes) {
    for (const row of band.lane === null ? lane.rows.slice(0, 1) : lane.rows) {
      // Starts ascend as ends do: search by the end, then step to the start.
      let index = firstAfter(row, ns);
      if (way === 1) while (index < row.length && row.start[index]! <= ns) index += 1;
      else {
        index = Math.min(index, row.length - 1);
        while (index >= 0 && row.start[index]! >= ns) index -= 1;
      }
      if (index < 0 || index >= row.length) continue;
      const found = sliceOf(timeline, lane, row, index);
      if (best === null || (way === 1 ? found.from < best.from : found.from > best.from)) best = found;
    }
  }
  return best;
}
