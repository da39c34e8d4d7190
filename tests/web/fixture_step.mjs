// A step of a made-up job in detail, shaped as in docs/formats/api.md: every rank reads its input, works forward and backward, waits
// for the slowest in one all-reduce, exchanges, and steps its optimizer.

const kLetters = { '.': 'nothing', o: 'own work', i: 'input', f: 'forward', b: 'backward', p: 'optimizer', k: 'checkpoint', e: 'eval', s: 'sync', w: 'waiting', c: 'collective', m: 'message' };
const kMs = 1e6;
const kComm = '0x2b00000000000001';

export function isTraced(step) {
  return step % 8 === 0;
}

// [letter, from_ns, to_ns] in time, or null where nothing was heard.
function parts(job, rank, column) {
  const self = column.self[rank];
  if (self === null) return null;
  const slowest = Math.max(...column.self.filter((value) => value !== null));
  const lengths = [['i', job.input], ['f', self * 0.32], ['b', self * 0.6], ['w', (slowest - self) * 0.92], ['c', job.comm], ['p', self * 0.08]];
  let at = 0;
  return lengths.map(([letter, ms]) => {
    const from = at;
    at += ms * kMs;
    return [letter, Math.round(from), Math.round(at)];
  });
}

function ranksOf(text) {
  if (!text) return null;
  const wanted = new Set();
  for (const range of text.split(',')) {
    const [from, to = from] = range.split('-').map(Number);
    for (let rank = from; rank <= to; rank += 1) wanted.add(rank);
  }
  return wanted;
}

function cells(runs, from, to, columns) {
  let text = '';
  let last = '';
  let times = 0;
  const flush = () => { if (times > 0) text += last + (times > 1 ? times : ''); };
  for (let column = 0; column < columns; column += 1) {
    const at = from + ((column + 0.5) * (to - from)) / columns;
    const letter = runs.find(([, begin, end]) => at >= begin && at < end)?.[0] ?? '.';
    if (letter === last) times += 1;
    else {
      flush();
      last = letter;
      times = 1;
    }
  }
  flush();
  return text;
}

export function timeline(job, step, column, traced, query) {
  const columns = Number(query.get('columns') ?? 1200);
  const lines = Number(query.get('lines') ?? 400);
  const wanted = ranksOf(query.get('ranks'));
  const heard = column.self.flatMap((self, rank) => (self === null || !traced ? [] : [{ rank, runs: parts(job, rank, column) }]));
  const shown = heard.filter(({ rank }) => !wanted || wanted.has(rank));
  const length = Math.max(0, ...heard.map(({ runs }) => runs[runs.length - 1][2]));
  const from = Number(query.get('from_ns') ?? 0);
  const to = Number(query.get('to_ns') ?? 0) || length;
  const together = Math.max(1, Math.ceil(shown.length / lines));
  const groups = [];
  for (let first = 0; first < shown.length; first += together) groups.push(shown.slice(first, first + together));
  const waits = ({ runs }) => runs.find(([letter]) => letter === 'w')[2] - runs.find(([letter]) => letter === 'w')[1];
  const spans = shown.flatMap(({ rank, runs }) => {
    const [, inputFrom, inputTo] = runs[0];
    const wait = runs.find(([letter]) => letter === 'w');
    const exchange = runs.find(([letter]) => letter === 'c');
    const phase = (kind, name, begin, end) => ({ rank, kind, name, from_ns: begin, duration_ns: end - begin });
    return [
      phase('i', 'input', inputFrom, inputTo), phase('f', 'forward', runs[1][1], runs[1][2]), phase('b', 'backward', runs[2][1], runs[2][2]),
      phase('p', 'optimizer', runs[5][1], runs[5][2]),
      { rank, kind: 'c', name: job.hostile ? '<i>AllReduce</i>' : 'AllReduce', from_ns: wait[1], duration_ns: exchange[2] - wait[1], wait_ns: wait[2] - wait[1], comm_id: kComm, ordinal: step + 1, bytes: 2.2e9, queue_ns: 12000 },
    ].filter((span) => span.from_ns < to && span.from_ns + span.duration_ns > from);
  });
  const most = Number(query.get('spans') ?? 4000);
  return {
    job_id: job.name, step, start_unix_ns: 1, length_ns: length, from_ns: from, to_ns: to, columns, ranks_shown: shown.length, ranks_traced: heard.length,
    ranks_total: job.ranks, clock_error_us: traced ? 6.2 : 0, kinds: kLetters,
    lines: groups.map((group) => {
      const least = group.reduce((best, one) => (waits(one) < waits(best) ? one : best));
      return { first_rank: group[0].rank, last_rank: group[group.length - 1].rank, shown_rank: least.rank, cells: cells(least.runs, from, to, columns) };
    }),
    spans: spans.length > most ? [] : spans, spans_in_view: spans.length,
  };
}

export function analysis(job, step, column, traced) {
  const heard = column.self.flatMap((self, rank) => (self === null ? [] : [{ rank, self, runs: parts(job, rank, column) }]));
  const missing = column.self.flatMap((self, rank) => (self === null || !traced ? [rank] : []));
  const worst = heard.reduce((best, one) => (one.self > best.self ? one : best), heard[0]);
  const of = (runs, letter) => runs.filter((run) => run[0] === letter).reduce((sum, run) => sum + run[2] - run[1], 0) / kMs;
  const length = Math.max(0, ...heard.map(({ runs }) => runs[5][2])) / kMs;
  const late = heard.filter(({ runs }) => of(runs, 'w') > length / 100);
  const stands = late.length > 1 && worst.self - column.median > length / 20;
  const comm = { comm_id: kComm, comm: 'dp', comm_index: 0 };
  return {
    job_id: job.name, attempt: 0, step, trace_id: '00', sentence: stands
      ? `Rank ${worst.rank} (${job.host(worst.rank)}) made ${late.length} ranks wait ${Math.round(worst.self - column.median)} ms, in its backward: ${Math.round(100 * (worst.self - column.median) / length)} % of a step of ${Math.round(length)} ms.`
      : `Nobody waited long for anybody: the step took ${Math.round(length)} ms.`,
    detail: traced, inferred: false, begin_unix_ns: 1, length_ms: length, median_ms: length,
    coverage: { ranks: job.ranks, detailed: traced ? heard.length : 0, summarized: heard.length, ranks_missing: missing.slice(0, 20).join(), missing: missing.length, left_out: 0, untimed: 0 },
    clock: { error_us: traced ? 6.2 : 0, unknown: 0 },
    culprit: stands ? { rank: worst.rank, ranks_waiting: late.length, wait_ms: 118, longest_ms: 124, caused_ms: 7000, doing: 'backward' } : null,
    ranks: heard.map(({ rank, self, runs }) => ({
      rank, host: job.host(rank), detail: traced, start_ms: 0, duration_ms: length, own_ms: self, wait_ms: of(runs, 'w'), transfer_ms: of(runs, 'c'),
      caused_ms: rank === worst.rank ? late.reduce((sum, one) => sum + of(one.runs, 'w'), 0) : 0, last: rank === worst.rank ? 1 : 0, path_ms: rank === worst.rank ? length : 0,
    })).sort((a, b) => b.caused_ms - a.caused_ms || b.own_ms - a.own_ms).slice(0, 1000),
    ranks_total: heard.length, ranks_shown: Math.min(1000, heard.length),
    waits: late.filter(({ rank }) => rank !== worst.rank).slice(0, 100).map(({ rank, runs }) => ({
      rank, for: worst.rank, wait_ms: of(runs, 'w'), operations: 1, longest_ms: of(runs, 'w'), ...comm, operation: traced ? `AllReduce #${step + 1}` : '', from_summary: !traced,
    })),
    waits_total: Math.max(0, late.length - 1), waits_shown: Math.max(0, Math.min(100, late.length - 1)),
    path: traced ? parts(job, worst.rank, column).filter(([, from, to]) => to > from).map(([letter, from, to]) => ({
      rank: worst.rank, kind: letter === 'c' ? 'communication' : 'own', from_ms: from / kMs, to_ms: to / kMs, phase: 'backward' })) : [],
    path_total: traced ? 5 : 0, path_shown: traced ? 5 : 0, path_ms: { own: length - job.comm, communication: job.comm, waiting: 0, before: 0 },
    comms: [{ ...comm, size: job.ranks, ranks: `0-${job.ranks - 1}`, operations: heard.length, functions: 'AllReduce x 1', bytes: 2.2e9 * heard.length, gpu_ms: 144, wait_ms: 100, transfer_ms: 44,
      bus_gb_s: 41.2, last_rank: worst.rank, last: 1 }],
    comms_total: 1, comms_shown: 1,
    phases: ['input', 'forward', 'backward', 'optimizer'].map((phase, index) => ({ phase, ranks: heard.length, mean_ms: 10 * (index + 1), own_ms: 9 * (index + 1), longest_ms: 12 * (index + 1), longest_rank: worst.rank })),
    late: { below_us: [10, 100, 1000, 10000, 100000, 1000000, null], operations: [0, 0, 0, 0, 0, 1, 0], undecided: 0 },
  };
}

export function service(name, now) {
  const quantiles = (p50) => ({ p50, p90: p50 * 2, p99: p50 * 6, mean: p50 * 1.2, count: 1812 });
  return {
    service: name, sentence: 'First token after 182 ms for half of 1,812 requests, 1.1 s for one in a hundred: the queue makes the slowest slow.', source: 'spans',
    from_unix_ns: now - 900e9, to_unix_ns: now, requests: 1812, cut: false, ttft_ms: quantiles(182), tpot_ms: quantiles(21), e2e_ms: quantiles(4200), queue_ms: quantiles(12),
    prefill_ms: quantiles(150), decode_ms: null, prompt_tokens_per_s: 8123, completion_tokens_per_s: 2110, requests_running: 31, requests_waiting: 4, kv_cache_share: 0.62,
    slowest: Array.from({ length: 10 }, (_, index) => ({ trace_id: `${index}`.padStart(32, 'a'), start_unix_ns: now - index * 1e9, ttft_ms: 1100 - 20 * index, queue_ms: 900 - 20 * index, prefill_ms: 190, e2e_ms: 5200 })),
  };
}
