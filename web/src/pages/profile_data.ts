// What the page of a kernel profile knows: where its ranks and its analysis stand, asked again until there is an answer; then the picture
// of what is in view, asked for whenever the view comes to rest; and the job's verdict that it belongs to.
import { useComputed, useSignal, type ReadonlySignal, type Signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, Refused, type KernelTile } from '../base/api';
import type { Why } from '../base/decode';
import type { ProfileSummary, SummaryAnswer } from '../base/kernel_profile';
import type { KernelTimeline } from '../base/kernel_timeline';
import { noteAnswer, noteSilence, unlessRefused, usePoll } from '../base/poll';
import { isUnderWay, type Profile } from '../base/profile';
import type { ProfilePlace } from '../base/url';
import { fit, wholeView, type View } from '../base/view';

export interface ProfileData {
  profile: ReadonlySignal<Profile | null>;
  answer: ReadonlySignal<SummaryAnswer | null>;    // null: not asked yet
  unanalysed: ReadonlySignal<string | null>;       // this server analyses nothing; what it said
  why: ReadonlySignal<Why | null>;
  others: ReadonlySignal<Profile[]>;               // captures of the job that this can be compared with
  before: ReadonlySignal<ProfileSummary | null>;   // what was found in the one that it is compared with
  notBefore: ReadonlySignal<string>;               // why there is none
  hasPerfetto: ReadonlySignal<boolean>;            // it may be too large to be kept
  overview: ReadonlySignal<KernelTimeline | null>; // the whole capture
  tile: ReadonlySignal<KernelTimeline | null>;     // the newest answer, of what was in view then
  noPicture: ReadonlySignal<string | null>;        // why there is none
  refused: ReadonlySignal<string | null>;
}

const kRestMs = 120;
const kSoonMs = 1_000;
const kSettledMs = 30_000;
// Beyond both ends of the view, so that a small move needs no answer.
const kMargin = 0.5;

// The view that the address means.
export function viewOf(place: ProfilePlace, overview: KernelTimeline): View {
  if (place.from !== null && place.to !== null) return fit({ from: place.from, to: place.to }, overview.length);
  const step = place.step === null ? undefined : overview.steps.find((one) => one.step === place.step);
  return step ? fit(step, overview.length) : wholeView(overview.length);
}

export function useProfileData(place: ProfilePlace, columns: number): ProfileData {
  const profile = useSignal<Profile | null>(null);
  const answer = useSignal<SummaryAnswer | null>(null);
  const unanalysed = useSignal<string | null>(null);
  const files = useSignal<string[] | null>(null);
  const why = useSignal<Why | null>(null);
  const others = useSignal<Profile[]>([]);
  const refused = useSignal<string | null>(null);
  const { job, capture } = place;
  const ready = answer.value?.state === 'ready';
  const picture = usePicture(place, ready ? columns : 0);
  // Nothing more is going to change: what comes next would be by chance.
  const isSettled = (): boolean => {
    if (answer.value?.state === 'ready') return files.value !== null;
    if (answer.value?.state === 'failed' || unanalysed.value !== null) return true;
    return answer.value?.state === 'none' && profile.value !== null && !isUnderWay(profile.value);
  };

  usePoll([job, capture], async (signal) => {
    profile.value = await api.profile(job, capture, signal);
    // What was analysed once stays as it is.
    if (answer.value?.state !== 'ready') {
      try {
        answer.value = await api.profileSummary(job, capture, signal);
        unanalysed.value = null;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        unanalysed.value = error.message;
      }
    }
    if (answer.value?.state === 'ready' && files.value === null) files.value = (await unlessRefused(api.profileFiles(job, capture, signal))) ?? [];
  }, (message) => { refused.value = message; }, () => (isSettled() ? kSettledMs : kSoonMs));

  usePoll([job, capture], async (signal) => {
    const [verdicts, all] = await Promise.all([unlessRefused(api.why(job, signal)), unlessRefused(api.profiles(job, signal))]);
    why.value = verdicts;
    others.value = (all?.profiles ?? []).filter((one) => one.capture !== capture && one.ended && one.ranks.some((rank) => rank.state === 'done'));
  }, () => {}, () => kSettledMs);

  const compared = useCompared(job, place.against);
  return {
    profile, answer, unanalysed, why, others, refused, ...compared, ...picture,
    hasPerfetto: useComputed(() => (files.value ?? []).some((file) => file.includes('.pftrace'))),
  };
}

// What was found in the capture that this one is compared with.
function useCompared(job: string, against: string): Pick<ProfileData, 'before' | 'notBefore'> {
  const before = useSignal<ProfileSummary | null>(null);
  const notBefore = useSignal('');
  useEffect(() => {
    before.value = null;
    notBefore.value = '';
    if (!against) return undefined;
    const over = new AbortController();
    api.profileSummary(job, against, over.signal).then(({ state, error, summary }) => {
      before.value = summary;
      if (!summary) notBefore.value = error || `its analysis is ${state}`;
    }, (error: unknown) => {
      if (!over.signal.aborted) notBefore.value = error instanceof Refused ? error.message : 'the server does not answer';
    });
    return () => over.abort();
  }, [job, against]);
  return { before, notBefore };
}

// columns: pixels there is room for; 0: not to be asked for yet.
function usePicture(place: ProfilePlace, columns: number): Pick<ProfileData, 'overview' | 'tile' | 'noPicture'> {
  const overview = useSignal<KernelTimeline | null>(null);
  const tile = useSignal<KernelTimeline | null>(null);
  const noPicture = useSignal<string | null>(null);
  const attempts = { whole: useSignal(0), near: useSignal(0) };
  const { job, capture, ranks } = place;

  // Asked again after a while where no answer came.
  function fetchTile(attempt: Signal<number>, wanted: KernelTile, done: (timeline: KernelTimeline) => void): () => void {
    const over = new AbortController();
    let again = 0;
    api.profileTimeline(job, capture, wanted, over.signal).then((timeline) => {
      noteAnswer();
      noPicture.value = null;
      done(timeline);
    }, (error: unknown) => {
      if (over.signal.aborted) return;
      if (error instanceof Refused) {
        noPicture.value = error.message;
        return;
      }
      noteSilence();
      again = window.setTimeout(() => { attempt.value += 1; }, kSoonMs);
    });
    return () => {
      clearTimeout(again);
      over.abort();
    };
  }

  useEffect(() => {
    if (columns === 0) return undefined;
    return fetchTile(attempts.whole, { from: null, to: null, width: columns, ranks }, (whole) => {
      overview.value = whole;
      tile.value = whole;
    });
  }, [job, capture, ranks, columns, attempts.whole.value]);

  const whole = overview.value;
  const { from, to } = whole ? viewOf(place, whole) : { from: 0, to: 0 };
  useEffect(() => {
    if (whole === null || columns === 0 || to <= from) return undefined;
    if (from <= 0 && to >= whole.length) {
      tile.value = whole;
      return undefined;
    }
    const margin = (to - from) * kMargin;
    const wanted = { from: Math.max(0, Math.floor(from - margin)), to: Math.min(whole.length, Math.ceil(to + margin)) };
    const width = Math.min(8_000, Math.round((columns * (wanted.to - wanted.from)) / (to - from)));
    let stop = (): void => {};
    const timer = window.setTimeout(() => {
      stop = fetchTile(attempts.near, { from: wanted.from + whole.origin, to: wanted.to + whole.origin, width, ranks }, (near) => { tile.value = near; });
    }, kRestMs);
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [whole, from, to, columns, attempts.near.value]);

  return { overview, tile, noPicture };
}
