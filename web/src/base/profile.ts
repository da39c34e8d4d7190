// Kernel profiles of a job: what was ordered, and where each rank stands.
import { list, num, object, text } from './decode';

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
