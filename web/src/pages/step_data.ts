// What the step page knows: the analysis and the summaries, asked again while detail may still arrive, and the picture of what is
// in view, asked for whenever the view comes to rest.
import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, paths, Refused, type Tile } from '../base/api';
import type { StepMatrix } from '../base/matrix';
import { noteAnswer, noteSilence, unlessRefused, usePoll } from '../base/poll';
import type { Profile } from '../base/profile';
import type { StepAnalysis, TracedSteps } from '../base/step';
import type { Timeline } from '../base/timeline';
import type { StepPlace } from '../base/url';

export interface StepData {
  analysis: ReadonlySignal<StepAnalysis | null>;
  analysed: ReadonlySignal<boolean>;           // the server has been asked; null is its answer
  summary: ReadonlySignal<StepMatrix | null>;  // of this step alone
  traced: ReadonlySignal<TracedSteps | null>;  // null: not known yet, or this server does not tell
  overview: ReadonlySignal<Timeline | null>;   // the whole step
  tile: ReadonlySignal<Timeline | null>;       // the newest answer, of what was in view then
  refused: ReadonlySignal<string | null>;
  profiles: ReadonlySignal<Profile[]>;         // kernel profiles of the job, newest first
  soon: () => void;                            // somebody has asked the agents: look more often for a while
}

const kTracedShown = 500;
const kRestMs = 120;
const kUsualMs = 10_000;
const kSettledMs = 60_000;
const kSoonMs = 1_000;
const kSoonForMs = 60_000;

export function useStepData(place: StepPlace, room: { columns: number; lines: number }): StepData {
  const analysis = useSignal<StepAnalysis | null>(null);
  const analysed = useSignal(false);
  const summary = useSignal<StepMatrix | null>(null);
  const traced = useSignal<TracedSteps | null>(null);
  const overview = useSignal<Timeline | null>(null);
  const tile = useSignal<Timeline | null>(null);
  const profiles = useSignal<Profile[]>([]);
  const refused = useSignal<string | null>(null);
  const version = useSignal(0);
  const soonUntil = useSignal(0);
  const { job, step, ranks, from, to } = place;

  usePoll([job, step], async (signal) => {
    const [own, steps, found, taken] = await Promise.all([
      api.steps(paths.stepRange(job, step, step), signal), unlessRefused(api.traced(job, kTracedShown, signal)), unlessRefused(api.step(job, step, signal)),
      unlessRefused(api.profiles(job, signal)),
    ]);
    summary.value = own;
    traced.value = steps;
    analysis.value = found;
    profiles.value = taken?.profiles ?? [];
    analysed.value = true;
    // More ranks have told, or the last picture did not come: ask for it again.
    const known = analysis.value?.ranksDetailed ?? null;
    if (tile.value === null || tile.value.lines.length === 0 || (known !== null && known !== tile.value.ranksTraced)) version.value += 1;
  }, (message) => { refused.value = message; },
  () => {
    if (Date.now() < soonUntil.value || tile.value === null) return kSoonMs;
    // All have told: nothing is going to change.
    return analysis.value !== null && analysis.value.ranksDetailed === analysis.value.ranksTotal ? kSettledMs : kUsualMs;
  });

  useEffect(() => {
    if (room.columns === 0) return undefined;
    const over = new AbortController();
    const whole: Tile = { from: null, to: null, ranks, ...room };
    const fetchTile = async (): Promise<void> => {
      try {
        const isSame = overview.value !== null && overview.value.columns === room.columns;
        if (from === null || to === null || !isSame) {
          const first = await api.timeline(job, step, whole, over.signal);
          overview.value = first;
          if (from === null || to === null) tile.value = first;
        }
        if (from !== null && to !== null) tile.value = await api.timeline(job, step, { ...whole, from, to }, over.signal);
        noteAnswer();
      } catch (error) {
        if (over.signal.aborted) return;
        if (error instanceof Refused) refused.value = error.message;
        else noteSilence();
      }
    };
    const timer = window.setTimeout(() => void fetchTile(), tile.value === null ? 0 : kRestMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [job, step, ranks, from, to, room.columns, room.lines, version.value]);
  // Other ranks are other lines: the old overview does not fit below them.
  useEffect(() => () => { overview.value = null; }, [ranks]);

  const soon = (): void => {
    soonUntil.value = Date.now() + kSoonForMs;
    version.value += 1;
  };
  return { analysis, analysed, summary, traced, overview, tile, refused, profiles, soon };
}
