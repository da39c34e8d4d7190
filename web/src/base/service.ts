// An inference service as the server sums it up, from its spans or its metrics.
import { list, num, object, text } from './decode';

export interface Quantiles {
  p50: number | null;
  p90: number | null;
  p99: number | null;
  mean: number | null;
  count: number | null;
}

export interface Service {
  service: string;
  sentence: string;
  source: string;  // "spans", "metrics"; empty: it tells neither
  from_unix_ns: number | null;
  to_unix_ns: number | null;
  requests: number | null;
  cut: boolean;
  times: { name: ServiceTime; ms: Quantiles | null }[];
  prompt_tokens_per_s: number | null;
  completion_tokens_per_s: number | null;
  requests_running: number | null;
  requests_waiting: number | null;
  kv_cache_share: number | null;
  slowest: { trace_id: string; start_unix_ns: number | null; ttft_ms: number | null; queue_ms: number | null; prefill_ms: number | null; e2e_ms: number | null }[];
}

export const kServiceTimes = ['ttft', 'tpot', 'queue', 'prefill', 'decode', 'e2e'] as const;
export type ServiceTime = (typeof kServiceTimes)[number];

// Names stay exact: they are sent back in paths.
export function decodeServices(value: unknown): string[] {
  return list(object(value)['services']).filter((name): name is string => typeof name === 'string' && name !== '');
}

export function decodeService(value: unknown): Service {
  const json = object(value);
  return {
    service: text(json['service']),
    sentence: text(json['sentence']),
    source: text(json['source']),
    from_unix_ns: num(json['from_unix_ns']),
    to_unix_ns: num(json['to_unix_ns']),
    requests: num(json['requests']),
    cut: json['cut'] === true,
    times: kServiceTimes.map((name) => ({ name, ms: decodeQuantiles(json[`${name}_ms`]) })),
    prompt_tokens_per_s: num(json['prompt_tokens_per_s']),
    completion_tokens_per_s: num(json['completion_tokens_per_s']),
    requests_running: num(json['requests_running']),
    requests_waiting: num(json['requests_waiting']),
    kv_cache_share: num(json['kv_cache_share']),
    slowest: list(json['slowest']).map((item) => {
      const slow = object(item);
      return {
        trace_id: text(slow['trace_id']), start_unix_ns: num(slow['start_unix_ns']), ttft_ms: num(slow['ttft_ms']),
        queue_ms: num(slow['queue_ms']), prefill_ms: num(slow['prefill_ms']), e2e_ms: num(slow['e2e_ms']),
      };
    }),
  };
}

function decodeQuantiles(value: unknown): Quantiles | null {
  if (typeof value !== 'object' || value === null) return null;
  const json = object(value);
  return { p50: num(json['p50']), p90: num(json['p90']), p99: num(json['p99']), mean: num(json['mean']), count: num(json['count']) };
}
