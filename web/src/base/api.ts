// Questions to the server, one function each. Every answer is decoded before anyone sees it.
import { decodeJobs, decodeRank, decodeRanks, decodeWhy, object, text } from './decode';
import type { JobList, RankDetail, RankList, Why } from './decode';
import { decodeMatrix, type StepMatrix } from './matrix';

// The server answered, and the answer is no: shown as it is. Anything else that fails is "no answer".
export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const kTimeoutMs = 10_000;

export const paths = {
  jobs: () => '/api/jobs',
  why: (job: string) => `/api/jobs/${encodeURIComponent(job)}/why`,
  steps: (job: string, last: number) => `/api/jobs/${encodeURIComponent(job)}/steps?last=${last}`,
  stepRange: (job: string, from: number, to: number) => `/api/jobs/${encodeURIComponent(job)}/steps?from=${from}&to=${to}`,
  ranks: (job: string, last: number) => `/api/jobs/${encodeURIComponent(job)}/ranks?last=${last}`,
  rank: (job: string, rank: number, last: number) => `/api/jobs/${encodeURIComponent(job)}/ranks/${rank}?last=${last}`,
};

export const api = {
  jobs: async (signal: AbortSignal): Promise<JobList> => decodeJobs(await get(paths.jobs(), signal)),
  why: async (job: string, signal: AbortSignal): Promise<Why> => decodeWhy(await get(paths.why(job), signal)),
  steps: async (path: string, signal: AbortSignal): Promise<StepMatrix> => decodeMatrix(await get(path, signal)),
  ranks: async (job: string, last: number, signal: AbortSignal): Promise<RankList> => decodeRanks(await get(paths.ranks(job, last), signal)),
  rank: async (job: string, rank: number, last: number, signal: AbortSignal): Promise<RankDetail> =>
    decodeRank(await get(paths.rank(job, rank, last), signal)),
};

async function get(path: string, signal: AbortSignal): Promise<unknown> {
  const limit = new AbortController();
  const stop = (): void => limit.abort();
  const timer = setTimeout(stop, kTimeoutMs);
  signal.addEventListener('abort', stop);
  try {
    const response = await fetch(path, { signal: limit.signal, headers: { accept: 'application/json' } });
    if (response.ok) return await response.json();
    // A gateway's 502 is as good as silence; a 4xx is an answer.
    if (response.status >= 500) throw new Error(`status ${response.status}`);
    const said = text(object(await response.json().catch(() => null))['error']);
    throw new Refused(response.status, said || `The server answered ${response.status}.`);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
  }
}
