// Kernel profiles of a job: what was ordered, and where each rank stands.
import { list, num, object, text } from './decode';
import { count } from './format';

export interface ProfileRank {
  rank: number;
  host: string;
  state: string;  // armed, waiting, tracing, uploading, done, failed
  reason: string;
  file: string;   // empty: not there yet
  bytes: number | null;
}

export interface Profile {
  capture: string;
  by: string;
  begun_unix_ns: number | null;
  start_step: number | null;  // null: by time
  steps: number | null;
  ended: boolean;
  analysis: string;  // none, waiting, analysing, ready, failed; empty: the server does not say
  ranks: ProfileRank[];
}

export interface ProfileList {
  automatic: boolean;
  profiles: Profile[];
}

export function decodeProfile(value: unknown): Profile {
  const json = object(value);
  const start = num(json['start_step']);
  return {
    capture: text(json['capture']),
    by: text(json['by']),
    begun_unix_ns: num(json['begun_unix_ns']),
    start_step: start !== null && start >= 0 ? start : null,
    steps: num(json['steps']),
    ended: json['ended'] === true,
    analysis: text(json['analysis']),
    ranks: list(json['ranks']).map((item) => {
      const rank = object(item);
      return {
        rank: num(rank['rank']) ?? -1, host: text(rank['host']), state: text(rank['state']), reason: text(rank['reason']),
        file: text(rank['file']), bytes: num(rank['bytes']),
      };
    }),
  };
}

export function decodeProfiles(value: unknown): ProfileList {
  const json = object(value);
  return { automatic: json['automatic'] === true, profiles: list(json['profiles']).map(decodeProfile) };
}

// "worst,median,0-7,17": what the API takes.
export function isRankChoice(choice: string): boolean {
  return choice.length <= 1_000 && /^(worst|median|all|\d{1,7}(-\d{1,7})?)(,(worst|median|all|\d{1,7}(-\d{1,7})?))*$/.test(choice);
}

// The capture that was taken for a verdict: the newest that was ordered by it, else the newest of one of its ranks since it began.
export function captureOf(verdict: { id: string; since_step: number | null; culprit: { ranks: number[] } }, profiles: readonly Profile[]): Profile | null {
  const useful = (profile: Profile): boolean => !profile.ended || profile.ranks.some((rank) => rank.state === 'done');
  const ordered = profiles.find((profile) => profile.by === `verdict ${verdict.id}` && useful(profile));
  if (ordered) return ordered;
  return profiles.find((profile) => useful(profile)
    && (profile.start_step === null || verdict.since_step === null || profile.start_step + (profile.steps ?? 1) > verdict.since_step)
    && profile.ranks.some((rank) => verdict.culprit.ranks.includes(rank.rank) && (!profile.ended || rank.state === 'done'))) ?? null;
}

// The newest capture that has this step.
export function captureOfStep(step: number, profiles: readonly Profile[]): Profile | null {
  return profiles.find((profile) => profile.start_step !== null && step >= profile.start_step && step < profile.start_step + (profile.steps ?? 1)
    && profile.ranks.some((rank) => rank.state === 'done')) ?? null;
}

// "steps 1,241–1,245"
export function stepsText(profile: Profile): string {
  if (profile.start_step === null) return 'by time';
  const last = profile.start_step + (profile.steps ?? 1) - 1;
  return last > profile.start_step ? `steps ${count(profile.start_step)}–${count(last)}` : `step ${count(last)}`;
}

const pendingOf = (profile: Profile): number => profile.ranks.filter((rank) => rank.state !== 'done' && rank.state !== 'failed').length;
export const isUnderWay = (profile: Profile): boolean => !profile.ended || pendingOf(profile) > 0;

// Why there is no answer yet, in one sentence. `refused`: what a server said that analyses nothing.
export function standing(profile: Profile, state: string, error: string, refused: string | null): string {
  const all = count(profile.ranks.length);
  const done = profile.ranks.filter((rank) => rank.state === 'done').length;
  if (isUnderWay(profile)) return `Under way: ${count(done)} of ${all} ranks have sent their trace, ${count(pendingOf(profile))} are still to come. The answer comes by itself.`;
  if (refused !== null) return `This server does not analyse profiles: ${refused}`;
  if (state === 'failed') return `The analysis failed: ${error || 'the server does not say why.'}`;
  if (state === 'analysing') return `Analysing ${done === 1 ? 'the trace' : `the traces of ${count(done)} ranks`} … The answer comes by itself.`;
  if (state === 'waiting') return 'All traces are here and wait for their turn to be analysed. The answer comes by itself.';
  if (done === 0) return `Nothing to analyse: none of ${all} ranks could be profiled.`;
  return 'Not analysed: this server analyses no profiles (--analysis-cpu-s 0), or the traces were removed.';
}
