// What the page of a kernel profile knows: where its ranks and its analysis stand, asked again until there is an answer; then the picture
// of what is in view, asked for whenever the view comes to rest; and the job's verdict that it belongs to.
import { useSignal, type ReadonlySignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { api, Refused, type KernelTile } from '../base/api';
import type { Why } from '../base/decode';
import type { ProfileSummary, SummaryAnswer } from '../base/kernel_profile';
import type { KernelTimeline } from '../base/kernel_timeline';
import { noteAnswer, noteSilence, unlessRefused, usePoll } from '../base/poll';
import type { Profile } from '../base/profile';
import type { ProfilePlace } from '../base/url';

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

export function useProfileData(place: ProfilePlace, view: { from: number; to: number } | null, columns: number): ProfileData {
  const profile = useSignal<Profile | null>(null);
  const answer = useSignal<SummaryAnswer | null>(null);
  const unanalysed = useSignal<string | null>(null);
  const why = useSignal<Why | null>(null);
  const others = useSignal<Profile[]>([]);
  const before = useSignal<ProfileSummary | null>(null);
  const notBefore = useSignal('');
  const hasPerfetto = useSignal(false);
  const overview = useSignal<KernelTimeline | null>(null);
  const tile = useSignal<KernelTimeline | null>(null);
  const noPicture = useSignal<string | null>(null);
  const refused = useSignal<string | null>(null);
  const { job, capture, ranks } = place;
  const isSettled = (): boolean => answer.value?.state === 'ready' || answer.value?.state === 'failed' || unanalysed.value !== null;

  usePoll([job, capture], async (signal) => {
    const isReady = answer.value?.state === 'ready';
    const [known, verdicts, all] = await Promise.all([
      api.profile(job, capture, signal), unlessRefused(api.why(job, signal)), unlessRefused(api.profiles(job, signal)),
    ]);
    profile.value = known;
    why.value = verdicts;
    others.value = (all?.profiles ?? []).filter((one) => one.capture !== capture && one.ended && one.ranks.some((rank) => rank.state === 'done'));
    // What was analysed once stays as it is.
    if (isReady) return;
    try {
      answer.value = await api.profileSummary(job, capture, signal);
      unanalysed.value = null;
      if (answer.value.state === 'ready') hasPerfetto.value = ((await unlessRefused(api.profileFiles(job, capture, signal))) ?? []).some((file) => file.includes('.pftrace'));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      unanalysed.value = error.message;
    }
  }, (message) => { refused.value = message; }, () => (isSettled() ? kSettledMs : kSoonMs));

  useEffect(() => {
    before.value = null;
    notBefore.value = '';
    if (!place.against) return undefined;
    const over = new AbortController();
    api.profileSummary(job, place.against, over.signal).then(({ state, error, summary }) => {
      before.value = summary;
      if (!summary) notBefore.value = error || `its analysis is ${state}`;
    }, (error: unknown) => {
      if (!over.signal.aborted) notBefore.value = error instanceof Refused ? error.message : 'the server does not answer';
    });
    return () => over.abort();
  }, [job, place.against]);

  const ready = answer.value?.state === 'ready';
  useEffect(() => {
    if (!ready || columns === 0) return undefined;
    return fetchTile({ from: null, to: null, width: columns, ranks }, (whole) => {
      overview.value = whole;
      tile.value = whole;
    });
  }, [job, capture, ranks, ready, columns]);

  const whole = overview.value;
  const [from, to] = [view?.from ?? 0, view?.to ?? 0];
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
      stop = fetchTile({ from: wanted.from + whole.origin, to: wanted.to + whole.origin, width, ranks }, (near) => { tile.value = near; });
    }, kRestMs);
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [whole, from, to, columns]);

  function fetchTile(wanted: KernelTile, done: (timeline: KernelTimeline) => void): () => void {
    const over = new AbortController();
    api.profileTimeline(job, capture, wanted, over.signal).then((timeline) => {
      noteAnswer();
      noPicture.value = null;
      done(timeline);
    }, (error: unknown) => {
      if (over.signal.aborted) return;
      if (error instanceof Refused) noPicture.value = error.message;
      else noteSilence();
    });
    return () => over.abort();
  }
  return { profile, answer, unanalysed, why, others, before, notBefore, hasPerfetto, overview, tile, noPicture, refused };
}
