// The fleet in a few numbers.
import { list, num, object, text } from './decode';

export interface FleetNumbers {
  jobs: number | null;
  running: number | null;
  nodes: number | null;
  silent: number | null;
  gpus: number | null;
  idle: number | null;
  ranks: number | null;
  verdicts: number | null;
  lostGpuSeconds: number | null;  // in 24 hours
  money: string;                  // what that cost, in words; empty: the server knows no prices
  otlp: string;                   // where agents send to: "0.0.0.0:4318"; empty: not told
  isTls: boolean;
}

export function decodeFleet(value: unknown): FleetNumbers {
  const json = object(value);
  return {
    jobs: num(json['jobs']), running: num(json['jobs_running']), nodes: num(json['nodes']), silent: num(json['nodes_silent']), gpus: num(json['gpus']),
    idle: num(json['gpus_idle']), ranks: num(json['ranks']), verdicts: num(json['verdicts_open']), lostGpuSeconds: num(json['lost_gpu_seconds_day']), money: text(json['money_day']),
    otlp: text(json['otlp_http']), isTls: json['is_tls'] === true,
  };
}

// What Lockstep itself costs: a sentence for people, and one for each thing that is not known.
export interface Overhead {
  sentence: string;
  unknown: string[];
}

export function decodeOverhead(value: unknown): Overhead {
  const json = object(value);
  return { sentence: text(json['sentence']), unknown: list(json['unknown']).map((row) => text(object(row)['sentence'])).filter((one) => one !== '') };
}

const kLocal = /^(127\.|localhost$|\[?::1)/;

// Where a job on another machine sends to, as far as the page knows: the name under which it was reached itself, and the receiver's port.
// `onlyHere`: the receiver listens for its own machine alone, though the page came from elsewhere.
export function otlpAddress(fleet: FleetNumbers | null, pageHost: string): { url: string; onlyHere: boolean } {
  const [, host = '', port = '4318'] = /^(.*):(\d+)$/.exec(fleet?.otlp ?? '') ?? [];
  return { url: `${fleet?.isTls ? 'https' : 'http'}://${pageHost}:${port}`, onlyHere: kLocal.test(host) && !kLocal.test(pageHost) };
}
