// Where the reader is: kept in the address alone, so that a link pasted into a chat shows the same thing, and Back works.
//
//   /                                              the fleet
//   /jobs/JOB?step=&rank=&sort=&view=&last=        a job; step and rank open the side panel
import { signal } from '@preact/signals';
import type { Sort } from './matrix';

export interface JobPlace {
  page: 'job';
  job: string;
  step: number | null;
  rank: number | null;
  sort: Sort;
  view: 'chart' | 'table';
  last: number;
}
export type Place = { page: 'fleet' } | JobPlace | { page: 'missing'; path: string };

export const kLastChoices = [50, 100, 200, 400] as const;
const kLastDefault = 200;
// The server's limit for one window.
export const kLastMax = 500;

export function parsePlace(path: string, search: string): Place {
  if (path === '/' || path === '') return { page: 'fleet' };
  const match = /^\/jobs\/([^/]+)\/?$/.exec(path);
  const job = match && decode(match[1]!);
  if (!job) return { page: 'missing', path };
  const query = new URLSearchParams(search);
  const sort = query.get('sort');
  const last = whole(query.get('last'));
  return {
    page: 'job',
    job,
    step: whole(query.get('step')),
    rank: whole(query.get('rank')),
    sort: sort === 'rank' || sort === 'host' ? sort : 'badness',
    view: query.get('view') === 'table' ? 'table' : 'chart',
    last: last === null ? kLastDefault : Math.max(10, Math.min(kLastMax, last)),
  };
}

// What is as it usually is stays out of the address.
export function writePlace(place: Place): string {
  if (place.page === 'fleet') return '/';
  if (place.page === 'missing') return place.path;
  const query = new URLSearchParams();
  if (place.step !== null) query.set('step', String(place.step));
  if (place.rank !== null) query.set('rank', String(place.rank));
  if (place.sort !== 'badness') query.set('sort', place.sort);
  if (place.view !== 'chart') query.set('view', place.view);
  if (place.last !== kLastDefault) query.set('last', String(place.last));
  const text = query.toString();
  // The server takes a path whose last segment has a dot for a file; the slash keeps `llama-3.1` a page.
  return `/jobs/${encodeURIComponent(place.job)}${place.job.includes('.') ? '/' : ''}${text && '?' + text}`;
}

export function jobPlace(job: string): JobPlace {
  return { page: 'job', job, step: null, rank: null, sort: 'badness', view: 'chart', last: kLastDefault };
}

export const place = signal<Place>({ page: 'fleet' });

// `replace` for what need not be a stop on the way back: moving a cursor, sorting.
export function go(to: Place, replace = false): void {
  const url = writePlace(to);
  if (url !== location.pathname + location.search) {
    if (replace) history.replaceState(null, '', url);
    else history.pushState(null, '', url);
  }
  place.value = to;
}

export function watchAddress(): void {
  const read = (): void => {
    place.value = parsePlace(location.pathname, location.search);
  };
  window.addEventListener('popstate', read);
  read();
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null;
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
