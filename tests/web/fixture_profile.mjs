// A kernel profile of a made-up job, shaped as in docs/formats/api.md: the summary is what `lockstep analyze --json` said of four ranks
// made by bench/analyze/make_traces.py (one has operands aligned to 1); the timeline is made here, of the same kernels.
import { readFileSync } from 'node:fs';

const kSummary = JSON.parse(readFileSync(new URL('./profile_summary.json', import.meta.url), 'utf8'));
// Before, rank 43 ran what rank 42 runs.
const kHealthySummary = { ...kSummary, ranks: kSummary.ranks.filter(({ rank }) => rank === 42).flatMap((one) => [one, { ...one, rank: 43 }]) };
const kGuilty = kSummary.verdict.kernel;
const kGemm = kSummary.verdict.instead_of;
const kGelu = 'void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::gelu>';
const kNorm = 'void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*)';
const kAdam = 'void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>';
const kReduce = 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)';
const kLoader = 'enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__';
const kStart = 1300;
const kSteps = 4;

// capture -> how it stands. `large` is what profile_speed.mjs measures: so many ranks, so many slices each.
export const kCaptures = {
  'p-before': { state: 'ready', ranks: [42, 43], start: 1_100 },
  'p-ready': { state: 'ready', ranks: [41, 42, 43, 44] },
  'p-analysing': { state: 'analysing', ranks: [41, 42, 43, 44], start: 1_320 },
  'p-failed': { state: 'failed', error: 'rank-43.json.gz: not a JSON trace (at byte 0)', ranks: [41, 43], start: 1_340 },
  'p-none': { state: 'none', ranks: [41, 43], start: 1_360, failed: 'no Kineto: its process does not ask for orders' },
  'p-underway': { state: 'waiting', ranks: [41, 42, 43, 44], start: 1_380, underway: true },
};
export const kLargeCapture = 'p-large';

export function capture(name, begun) {
  const known = kCaptures[name] ?? { ranks: Array.from({ length: 64 }, (_, rank) => rank), state: 'ready' };
  const rankState = (rank, index) => {
    const base = { rank, host: 'node-17', reported: true, reason: '', at_unix_ns: begun };
    if (known.failed) return { ...base, state: 'failed', reason: known.failed };
    if (known.underway && index > 0) return { ...base, state: index === 1 ? 'tracing' : 'armed' };
    return { ...base, state: 'done', file: `rank-${rank}.json.gz`, bytes: 1_400_000 + rank, first_step: kStart, steps: kSteps };
  };
  return {
    capture: name, job_id: '', attempt: 0, begun_unix_ns: begun, by: name === 'p-ready' ? 'verdict slow-43' : 'person', start_step: known.start ?? kStart, steps: kSteps,
    ended: !known.underway, ranks: known.ranks.map(rankState),
  };
}

export function summary(name) {
  const { state, error = '' } = kCaptures[name] ?? { state: 'ready' };
  return { state, error, ...(state === 'ready' ? { summary: name === 'p-before' ? kHealthySummary : kSummary } : {}) };
}

// Events of a rank by lane: [start_ns, duration_ns, name, class].
function events(rank) {
  const isSlow = rank === 43;
  const us = 1_000;
  const lanes = { 'stream 7': [], 'stream 20': [], 'main thread': [] };
  const steps = [];
  let at = 100 * us + rank * 20;
  for (let step = 0; step < kSteps; step += 1) {
    const from = at;
    const cpu = lanes['main thread'];
    const begun = cpu.length;
    cpu.push([from, 55 * us, kLoader, 'cpu op']);
    let host = from + 60 * us;
    at += 60 * us;
    const run = (length, name) => {
      cpu.push([host, 9 * us, name === kAdam ? 'aten::_fused_adam_' : 'aten::mm', 'cpu op'], [host + 5 * us, 3 * us, 'cudaLaunchKernel', 'runtime']);
      host += 11 * us;
      lanes['stream 7'].push([at, length, name, 'compute']);
      at += length + 800;
    };
    let free = 0;
    for (let layer = 0; layer < 8; layer += 1) {
      run(17 * us, kNorm);
      for (let mm = 0; mm < 3; mm += 1) run((isSlow ? 496 : 198) * us, isSlow ? kGuilty : kGemm);
      run(17 * us, kGelu);
      if (layer % 2 === 0 || layer < 4) continue;
      // All meet when the slow one comes.
      const slowest = from + 60 * us + (layer + 1) * (3 * 496.8 + 36) * us;
      const start = Math.max(at, free);
      const end = Math.max(start, slowest) + 1343 * us;
      lanes['stream 20'].push([start, end - start, kReduce, 'communication']);
      free = end;
    }
    at = Math.max(at, free);
    run(298 * us, kAdam);
    cpu.splice(begun, 0, [from, at - from, `ProfilerStep#${kStart + step}`, 'step']);
    steps.push([from, at]);
    at += 20 * us;
  }
  return { lanes, steps, end: at };
}

// What is shorter than a pixel goes together with its neighbours, as on the server.
function merged(list, from, to, width, ids) {
  const pixel = (to - from) / width;
  const out = [];
  for (const [start, duration, name, kind] of list) {
    if (start >= to || start + duration <= from) continue;
    const last = out[out.length - 1];
    if (duration < pixel && last && last[4] >= 1 && start + duration - last[0] < pixel) {
      last[1] = start + duration - last[0];
      last[4] += 1;
    } else {
      out.push([start, duration, ids(name), kind, 1]);
    }
  }
  return out;
}

export function timeline(name, query) {
  if (name === kLargeCapture) return large();
  const all = kCaptures[name].ranks;
  const wanted = query.get('ranks');
  const ranks = wanted ? all.filter((rank) => wanted.split(',').some((one) => { const [a, b = a] = one.split('-').map(Number); return rank >= a && rank <= b; })) : all;
  const known = all.map((rank) => [rank, events(rank)]);
  const length = Math.max(...known.map(([, { end }]) => end));
  const [from, to] = query.has('from_ns') ? [Number(query.get('from_ns')), Number(query.get('to_ns'))] : [0, length];
  const width = Number(query.get('width') ?? 1200);
  const names = [];
  const at = new Map();
  const ids = (text) => {
    if (!at.has(text)) at.set(text, names.push(text) - 1);
    return at.get(text);
  };
  const lanes = known.filter(([rank]) => ranks.includes(rank)).flatMap(([rank, { lanes: own }]) => Object.entries(own).map(([lane, list]) => (
    { rank, lane, kind: lane.startsWith('stream') ? 'gpu' : 'cpu', slices: merged(list, from, to, width, ids) })));
  const slow = known.find(([rank]) => rank === 43)?.[1] ?? known[0][1];
  return {
    from_ns: from, to_ns: to, whole: { from_ns: 0, to_ns: length }, steps: slow.steps.map(([begin, end], step) => ({ step: kStart + step, from_ns: begin, to_ns: end })),
    names, lanes, truncated: false,
  };
}

// More than any answer of the server has: nothing merged.
export function large(ranks = 64, slices = 20_000) {
  const lanes = Array.from({ length: ranks }, (_, rank) => ({
    rank, lane: 'stream 7', kind: 'gpu',
    slices: Array.from({ length: slices }, (__, index) => [index * 10_000 + rank * 7, 4_000 + ((index * 2_654_435_761) >>> 19) % 5_000, index % 5, index % 7 === 0 ? 'communication' : index % 11 === 0 ? 'memory' : 'compute', 1]),
  }));
  const to = slices * 10_000;
  return { from_ns: 0, to_ns: to, whole: { from_ns: 0, to_ns: to }, steps: [0, 1, 2, 3].map((step) => ({ step, from_ns: (step * to) / 4, to_ns: ((step + 1) * to) / 4 })),
    names: [kGuilty, kGemm, kGelu, kNorm, kAdam], lanes, truncated: false };
}

const kStacks = {
  6: { load_batch: 61, step: 30, rest: 9 },
  5: { load_batch: 2, step: 88, rest: 10 },
  7: { load_batch: 3, step: 87, rest: 10 },
};

// What `lockstep lines` is made of: looks at three ranks, a line each; the stacks are many times deeper in a real job.
export function samples(job, format, time) {
  const looks = 500;
  if (format === 'collapsed') {
    return Object.entries(kStacks).map(([rank, { load_batch: load, step, rest }]) => {
      const at = (share) => Math.round((share * looks) / 100);
      const main = `rank ${rank};main thread;<module> (train.py:210);train (train.py:95)`;
      return [
        `${main};load_batch (train.py:142);open (Image.py:2912) ${at(load * 0.95)}`, `${main};load_batch (train.py:143) ${at(load * 0.05)}`,
        `${main};step (train.py:160);backward (_tensor.py:581);_engine_run_backward (graph.py:825) ${at(step * 0.7)}`,
        `${main};step (train.py:161);adam (adam.py:432) ${at(step * 0.3)}`, `${main};log (train.py:99) ${at(rest)}`,
        `rank ${rank};another thread pin_memory;run (threading.py:982);_pin_memory_loop (pin_memory.py:54) ${looks}`, '',
      ].join('\n');
    }).join('');
  }
  const line = (name, file, number, share, peer, isLibrary = false) => ({ thread: 'main thread', function: name, file, line: number,
    text: `${file.slice(file.lastIndexOf('/') + 1)}:${number} in ${name}`, is_library: isLibrary, share, own_share: 0, peer_share: peer, difference: share - peer });
  const rank = (number) => ({ rank: number, host: `node-${30 + (number >> 2)}`, pid: 4700 + number, time_unix_ns: time, duration_ms: 5000, looks, hz: 100, python: '3.12.3', note: '',
    stacks_whole: 980, stacks_cut: 18, stacks_dropped: 2, stacks_left_out: 0,
    threads: [{ thread: 'main thread', pid: 4700 + number, tid: 4700 + number, name: 'python', state: 'R', wchan: '', looks, running: 320, with_gil: 280, cpu_ms: 3100 },
      { thread: 'another thread', pid: 4700 + number, tid: 4900, name: 'pin_memory', state: 'S', wchan: 'futex_wait', looks, running: 0, with_gil: 0, cpu_ms: 3 }] });
  const named = line('load_batch', '/job/train.py', 142, 0.58, 0.024);
  return {
    job_id: job, attempt: 0, ranks: [5, 6, 7].map(rank),
    difference: { rank: 6, peers: [5, 7], sentence: "train.py:142 in load_batch: 58 % of rank 6's time, 2 % of ranks 5 and 7's.", named,
      instead: line('step', '/job/train.py', 160, 0.21, 0.61),
      lines: [named, line('open', '/usr/lib/python3/PIL/Image.py', 2912, 0.58, 0.024, true), line('load_batch', '/job/train.py', 143, 0.03, 0.001), line('step', '/job/train.py', 160, 0.21, 0.61)],
      functions: [] },
  };
}
