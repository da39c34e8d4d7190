// How a job's step time went over the last hour, from the series that the server keeps of jobs.
import { list, num, object, text } from './decode';

export const kTrendPoints = 60;
const kTrendQuery = 'lockstep_job_step_time_seconds{quantile="0.5"}';

// One value a minute, in ms; null: no step ended then.
export type Trend = (number | null)[];

export function trendPath(now_s: number): string {
  const end = Math.floor(now_s / 60) * 60 + 60;
  const query = { query: kTrendQuery, start: String(end - (kTrendPoints - 1) * 60), end: String(end), step: '60' };
  return `/prometheus/api/v1/query_range?${new URLSearchParams(query)}`;
}

// By job id.
export function decodeTrends(value: unknown, now_s: number): Map<string, Trend> {
  const end = Math.floor(now_s / 60) * 60 + 60;
  const trends = new Map<string, Trend>();
  for (const item of list(object(object(value)['data'])['result'])) {
    const one = object(item);
    const trend: Trend = new Array<number | null>(kTrendPoints).fill(null);
    for (const sample of list(one['values'])) {
      const [time, told] = list(sample);
      const at = kTrendPoints - 1 - Math.round((end - (num(time) ?? 0)) / 60);
      const seconds = Number.parseFloat(text(told));
      if (at >= 0 && at < kTrendPoints && Number.isFinite(seconds)) trend[at] = seconds * 1e3;
    }
    trends.set(text(object(one['metric'])['job_id']), trend);
  }
  return trends;
}

// Lines between neighbours, from 0 at the bottom, so that a step that takes twice as long stands twice as high. A point alone is a short
// line of its own.
export function trendPathData(trend: Trend, width: number, height: number): string {
  const most = Math.max(...trend.map((value) => value ?? 0));
  if (!(most > 0)) return '';
  const parts: string[] = [];
  trend.forEach((value, at) => {
    if (value === null) return;
    const x = (at * (width - 1)) / (kTrendPoints - 1);
    const y = (1 - value / most) * (height - 2) + 1;
    const joined = at > 0 && trend[at - 1] !== null;
    parts.push(`${joined ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}${joined ? '' : 'h0.5'}`);
  });
  return parts.join('');
}
