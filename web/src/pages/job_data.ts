// What the job page knows, kept fresh: the verdicts every second, the matrix by its newest columns only.
import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { api, paths, Refused } from '../base/api';
import type { Cost, Mfu } from '../base/cost';
import type { RankList, RankStep, Why } from '../base/decode';
import { merge, type StepMatrix } from '../base/matrix';
import { unlessRefused, usePoll } from '../base/poll';
import type { Profile } from '../base/profile';
import type { JobPlace } from '../base/url';

export interface JobData {
  why: ReadonlySignal<Why | null>;
  matrix: ReadonlySignal<StepMatrix | null>;
  ranks: ReadonlySignal<RankList | null>;
  refused: ReadonlySignal<string | null>;
  traced: ReadonlySignal<ReadonlySet<number>>;  // steps with detail
  told: ReadonlySignal<Told>;
  cost: ReadonlySignal<Cost | null>;  // null: not asked yet, or an older server
  mfu: ReadonlySignal<Mfu | null>;
  profiles: ReadonlySignal<Profile[]>;  // kernel profiles, newest first
  // True while the window stands on an older step that the address asked for, instead of following the newest.
  pinned: ReadonlySignal<boolean>;
  follow: () => void;
}

// What the job tells of itself, over the last steps of its first rank: newest first, only steps that tell it.
export interface Told {
  loss: { step: number; value: number }[];
}

const kTracedShown = 500;
const kReportedSteps = 50;
const kSlowlyMs = 5_000;

// Summaries of a step may come late, by a slow agent; columns this young are asked for again.
const kOverlapSteps = 16;

export function useJobData(place: JobPlace): JobData {
  const why = useSignal<Why | null>(null);
  const matrix = useSignal<StepMatrix | null>(null);
  const ranks = useSignal<RankList | null>(null);
  const refused = useSignal<string | null>(null);
  const pinned = useSignal(false);
  const loaded = useSignal({ attempt: -1, last: 0 });
  const restarts = useSignal(0);
  const traced = useSignal<ReadonlySet<number>>(new Set());
  const told = useSignal<Told>({ loss: [] });
  const cost = useSignal<Cost | null>(null);
  const mfu = useSignal<Mfu | null>(null);
  const profiles = useSignal<Profile[]>([]);
  const early = useRef(true); // the last round of what changes slowly came before the ranks were known
  const { job, last, view } = place;

  const ask = async (signal: AbortSignal): Promise<void> => {
    const answer = await api.why(job, signal);
    why.value = answer;
    if (view === 'table') ranks.value = await api.ranks(job, last, signal);
    matrix.value = await askMatrix(answer, signal);
  };

  const askMatrix = async (answer: Why, signal: AbortSignal): Promise<StepMatrix> => {
    const { attempt, last_step: newest, state } = answer.job;
    const held = loaded.value.attempt === attempt && loaded.value.last === last ? matrix.value : null;
    if (held === null) pinned.value = place.step !== null && newest !== null && place.step <= newest - last;
    if (pinned.value && held) return held;
    if (pinned.value) {
      const from = Math.max(0, place.step! - Math.floor(last / 2));
      const fetched = await api.steps(paths.stepRange(job, from, from + last - 1), signal);
      loaded.value = { attempt, last };
      return fetched;
    }
    const end = held?.steps[held.steps.length - 1];
    if (held && end !== undefined && newest !== null) {
      if (state === 'ended' && end === newest) return held;
      const from = Math.max(0, end - kOverlapSteps);
      // After a long sleep of the tab, little of the window is left to keep.
      if (newest - from < last) {
        const merged = merge(held, await api.steps(paths.stepRange(job, from, Math.max(end, newest)), signal), last);
        if (merged) return merged;
      }
    }
    const fetched = await api.steps(paths.steps(job, last), signal);
    loaded.value = { attempt, last };
    return fetched;
  };

  usePoll([job, last, view, restarts.value], ask, (message) => { refused.value = message; });
  // What changes slowly, and what an older server does not know of.
  usePoll([job], async (signal) => {
    early.current = matrix.value === null;
    const first = matrix.value?.ranks[0];
    profiles.value = (await unlessRefused(api.profiles(job, signal)))?.profiles ?? [];
    try {
      const steps = (await api.traced(job, kTracedShown, signal)).steps.map((one) => one.step);
      if (steps.length !== traced.value.size || steps.some((step) => !traced.value.has(step))) traced.value = new Set(steps);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
    if (first === undefined) return;
    told.value = toldBy((await api.rank(job, first, kReportedSteps, signal)).steps);
    try {
      [cost.value, mfu.value] = await Promise.all([api.cost(job, signal), api.mfu(job, signal)]);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
    }
  }, () => {}, () => (early.current ? 1_000 : kSlowlyMs));
  const follow = (): void => {
    loaded.value = { attempt: -1, last: 0 };
    restarts.value += 1;
  };
  return { why, matrix, ranks, refused, traced, told, cost, mfu, profiles, pinned, follow };
}

function toldBy(steps: RankStep[]): Told {
  const newestFirst = [...steps].sort((a, b) => b.step - a.step);
  const of = (value: (entry: RankStep) => number | null | undefined) => newestFirst.flatMap((entry) => {
    const known = value(entry);
    return known === null || known === undefined ? [] : [{ step: entry.step, value: known }];
  });
  return { loss: of((entry) => entry.scalars.find(([name]) => name === 'loss')?.[1]) };
}
