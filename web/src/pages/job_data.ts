// What the job page knows, kept fresh: the verdicts every second, the matrix by its newest columns only.
import { useSignal, type ReadonlySignal } from '@preact/signals';
import { api, paths } from '../base/api';
import type { RankList, Why } from '../base/decode';
import { merge, type StepMatrix } from '../base/matrix';
import { usePoll } from '../base/poll';
import type { JobPlace } from '../base/url';

export interface JobData {
  why: ReadonlySignal<Why | null>;
  matrix: ReadonlySignal<StepMatrix | null>;
  ranks: ReadonlySignal<RankList | null>;
  refused: ReadonlySignal<string | null>;
  // True while the window stands on an older step that the address asked for, instead of following the newest.
  pinned: ReadonlySignal<boolean>;
  follow: () => void;
}

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
  const follow = (): void => {
    loaded.value = { attempt: -1, last: 0 };
    restarts.value += 1;
  };
  return { why, matrix, ranks, refused, pinned, follow };
}
