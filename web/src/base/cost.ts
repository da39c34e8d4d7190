// Where a job's lost time goes, and why its MFU is what it is.
import { list, num, object, step, text } from './decode';

export interface CostPart {
  kind: 'verdict' | 'told' | 'start' | 'unexplained';
  name: string;
  share: number;  // of what is lost
  lost_gpu_seconds: number | null;
  lost_money: number | null;
  steps: number | null;
  verdict: string;
  state: string;
}

export interface Cost {
  sentence: string;
  steps: number | null;
  step_ms: number | null;
  baseline_ms: number | null;
  lost_share: number | null;
  lost_gpu_seconds: number | null;
  lost_money: number | null;
  gpu_hour_price: number | null;  // on average over the GPUs that have one
  money: string;  // in words, with what has no price; empty: the server knows no prices
  parts: CostPart[];
}

export interface MfuBar {
  key: string;
  words: string;
  points: number;  // of 1
  known: boolean;
  note: string;
  parts: MfuPart[];  // of the kernels, where a profile tells; they add up to the bar
}

export interface MfuPart {
  key: string;
  words: string;
  points: number;
}

export interface Mfu {
  sentence: string;
  next: string;
  mfu: number | null;
  from_step: number | null;
  to_step: number | null;
  ranks: number | null;
  ranks_counted: number | null;
  peak: { tflops: number | null; from: string; precision: string; gpu: string };
  flops_from: string;
  bars: MfuBar[];
  change: { step: number | null; sentence: string; what: string[] } | null;
}

export function decodeCost(value: unknown): Cost {
  const json = object(value);
  return {
    sentence: text(json['sentence']),
    steps: num(json['steps']),
    step_ms: num(json['step_ms']),
    baseline_ms: num(json['baseline_ms']),
    lost_share: num(json['lost_share']),
    lost_gpu_seconds: num(json['lost_gpu_seconds']),
    lost_money: num(json['lost_money']),
    gpu_hour_price: num(json['gpu_hour_price']),
    money: text(json['money']),
    parts: list(json['parts']).map((item) => {
      const part = object(item);
      const kind = text(part['kind']);
      return {
        kind: kind === 'verdict' || kind === 'told' || kind === 'start' ? kind : 'unexplained',
        name: text(part['name']),
        share: share(part['share']),
        lost_gpu_seconds: num(part['lost_gpu_seconds']),
        lost_money: num(part['lost_money']),
        steps: num(part['steps']),
        verdict: text(part['verdict']),
        state: text(part['state']),
      };
    }),
  };
}

export function decodeMfu(value: unknown): Mfu {
  const json = object(value);
  const peak = object(json['peak']);
  const change = object(json['change']);
  return {
    sentence: text(json['sentence']),
    next: text(json['next']),
    mfu: num(json['mfu']),
    from_step: step(json['from_step']),
    to_step: step(json['to_step']),
    ranks: num(json['ranks']),
    ranks_counted: num(json['ranks_counted']),
    peak: { tflops: num(peak['tflops']), from: text(peak['from']), precision: text(peak['precision']), gpu: text(peak['gpu']) },
    flops_from: text(object(json['flops'])['from']),
    bars: list(json['bars']).map((item) => {
      const bar = object(item);
      return { key: text(bar['key']), words: text(bar['words']), points: num(bar['points']) ?? 0, known: bar['known'] === true, note: text(bar['note']), parts: list(bar['by_bound']).map(decodePart) };
    }),
    change: text(change['sentence']) === '' ? null : {
      step: step(change['step']), sentence: text(change['sentence']), what: list(change['what']).map(text).filter((one) => one !== ''),
    },
  };
}

function decodePart(value: unknown): MfuPart {
  const part = object(value);
  return { key: text(part['key']), words: text(part['words']), points: num(part['points']) ?? 0 };
}

// Where each bar of the waterfall begins and ends, in shares of the peak: down from 1, ending at what was achieved.
export function falls(bars: readonly { points: number }[], top = 1): { from: number; to: number }[] {
  let left = top;
  return bars.map((bar) => {
    const to = left;
    left -= bar.points;
    return { from: clamp(Math.min(left, to)), to: clamp(Math.max(left, to)) };
  });
}

function share(value: unknown): number {
  return clamp(num(value) ?? 0);
}

function clamp(value: number): number {
  return Math.max(0, Math.min(1, value));
}
