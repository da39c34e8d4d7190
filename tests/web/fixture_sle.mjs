// A canned SLE ledger: a day in which one GPU was hot, a host fell silent and an hour is unexplained.
const kBuckets = 96, kBucketMinutes = 15, kGpus = 160;
const kDay = 24 * 3600;

function sle(name, title, bad, { unknown = 0, classifiers = [], measured = true, money = null } = {}) {
  const total = kBuckets * kBucketMinutes * kGpus;
  const degraded = classifiers.reduce((sum, part) => sum + part.minutes, 0);
  const trend = [];
  for (let i = 0; i < kBuckets; ++i) {
    const all = kBucketMinutes * kGpus;
    const here = bad(i) ? Math.round(0.4 * all) : 0, gap = unknown > 0 && i > 70 && i < 76 ? 320 : 0;
    trend.push([all - here - gap, here, gap]);
  }
  const good = total - degraded - unknown;
  return {
    name, title, good_when: `${title.toLowerCase()} is as it usually is`, measured_from: measured ? 'steps' : 'FLOPs that steps report', measured,
    threshold: { against: 'baseline', direction: 'below', unit: 's', value: 1.05, minimum: 0, maximum: null },
    minutes: measured ? { good, degraded, unknown } : { good: 0, degraded: 0, unknown: 0 },
    success: measured ? good / (good + degraded) : null, success_least: measured ? good / total : null,
    success_most: measured ? (good + unknown) / total : null, coverage: measured ? 1 - unknown / total : null,
    chosen_minutes: degraded, chosen_money: money, classifiers, trend: measured ? trend : [],
  };
}

const kProgress = sle('progress', 'Training progress', (i) => i > 20 && i < 30, {
  unknown: 1_600, money: 412.5, classifiers: [
    { name: 'gpu', minutes: 6_900, share: 0.69, subs: [{ name: 'throttle-thermal', minutes: 6_900 }] },
    { name: 'unexplained', minutes: 2_100, share: 0.21, subs: [{ name: '', minutes: 2_100 }] },
    { name: 'host', minutes: 1_000, share: 0.1, subs: [{ name: 'memory-pressure', minutes: 700 }, { name: '', minutes: 300 }] },
  ],
});
const kAll = [
  kProgress,
  sle('goodput', 'Goodput', (i) => i === 40, { classifiers: [{ name: 'restart', minutes: 900, share: 1, subs: [{ name: 'recompute', minutes: 900 }] }] }),
  sle('gpu', 'GPU health', (i) => i > 20 && i < 30, { classifiers: [{ name: 'gpu', minutes: 120, share: 1, subs: [{ name: 'throttle-thermal', minutes: 120 }] }] }),
  sle('coverage', 'Telemetry coverage', () => false, { classifiers: [] }),
  sle('mfu', 'Model FLOP/s', () => false, { measured: false }),
];

export function sleAnswer(path, query) {
  const now = Math.floor(Date.now() / 60_000) * 60;
  const head = { scope: query.get('job') ? `job ${query.get('job')}` : 'fleet', ledger: 'victim', from_unix_s: now - kDay, to_unix_s: now, bucket_minutes: kBucketMinutes, priced: true };
  if (path === '/api/sle') return [200, { ...head, sles: kAll }];
  const one = kAll.find((each) => path === `/api/sle/${each.name}`);
  if (!one) return [404, { error: 'no such SLE: /api/sle lists them' }];
  const classifier = query.get('classifier');
  const culprits = [
    { name: 'GPU of rank 5', degraded: 6_900, job_id: 'llama-70b', host: 'node-17', kind: 'gpu', classifier: 'gpu', sub: 'throttle-thermal', verdict_id: 'v1' },
    { name: '', degraded: 2_100, kind: 'nobody', classifier: 'unexplained', sub: '', verdict_id: '' },
  ].filter((row) => !classifier || row.classifier === classifier);
  const list = (rows) => ({ total: rows.length, list: rows });
  return [200, {
    ...head, ...one,
    affected: {
      jobs: list([{ name: 'llama-70b', degraded: 9_000, total: 92_160 }]), hosts: list([{ name: 'node-17', degraded: 1_000, total: 11_520 }]),
      gpus: list([{ name: 'GPU-5', degraded: 140, total: 1_440, job_id: 'llama-70b', host: 'node-17', rank: 5 }]), models: list([]), culprits: list(culprits),
    },
  }];
}
