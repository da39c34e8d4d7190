// Canned answers of the API, shaped as in docs/formats/api.md. Numbers come from a hash, so that every run sees the same ones.

import { fabricAnswer } from './fixture_fabric.mjs';
import { Incidents, kIncident } from './fixture_incident.mjs';
import { LogAnswers } from './fixture_logs.mjs';
import { NodeAnswers } from './fixture_node.mjs';
import { capture, kCaptures, kLargeCapture, samples, summary, timeline as kernelTimeline } from './fixture_profile.mjs';
import { sleAnswer } from './fixture_sle.mjs';
import { analysis, isTraced, service, timeline } from './fixture_step.mjs';

const kNow = Date.UTC(2026, 0, 15, 3, 14, 5);
const ns = (ms) => ms * 1e6;

function noise(part, other) {
  let hash = Math.imul(2166136261 ^ (part + 0x9e3779b9), 16777619);
  if (other !== undefined) hash = Math.imul(hash ^ (other + 0x9e3779b9), 16777619);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x85ebca6b);
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 32;
}
const round = (value) => Math.round(value * 10) / 10;

export const kHostile = '<img src=x onerror="window.hacked=1">\u202e"\'`/../x';
export const kSlow = 'llama-70b';
export const kHung = 'mixtral-8x22b';
export const kHealthy = 'eval-sweep-3.1';
export const kSuspected = 'vit-pretrain';
export const kLarge = 'frontier-4096';
export const kService = 'chat-v1.2';

// name -> how the job behaves. `self(rank, step)` is the rank's own time in ms, or null where nothing was heard.
const kJobs = {
  [kSlow]: {
    ranks: 64, step: 1388, told: true, host_ms: 12, health: 'slow', state: 'running', perHost: 8, firstHost: 12, comm: 44, input: 2,
    self: (rank, step) => 290 + 8 * noise(rank, step) + (rank === 43 && step >= 1204 ? 118 + 6 * noise(step) : 0),
    verdicts: [slowVerdict(), clearedVerdict()],
    summary: 'GPU slowed by heat (gpu): Rank 43 (node-17, GPU 3) makes all 64 ranks wait 118 ms a step since step 1,204: 31 % of the job.',
  },
  [kHung]: {
    ranks: 32, step: 412, health: 'hang', state: 'running', perHost: 8, firstHost: 0, comm: 60, input: 3, reporting: 24,
    self: (rank, step) => (rank >= 8 && rank < 16 && step > 380 ? null : rank === 21 && step > 411 ? null : 210 + 12 * noise(rank, step)),
    verdicts: [hangVerdict()],
    summary: 'Rank 21 never entered all-reduce 88,121.',
  },
  [kSuspected]: {
    ranks: 16, step: 900, health: 'suspected', state: 'running', perHost: 4, firstHost: 30, comm: 20, input: 30,
    self: (rank, step) => (step === 800 ? 900 : 120) + 6 * noise(rank, step) + (rank === 6 && step > 880 ? 22 : 0),
    verdicts: [suspectedVerdict()],
    summary: 'Rank 6 may be slow.',
  },
  [kHostile]: {
    ranks: 4, step: 60, health: 'unknown', state: 'silent', perHost: 2, firstHost: 0, comm: 5, input: 1, reporting: 0, hostile: true,
    self: (rank, step) => (step % 11 === 3 ? null : 50 + noise(rank, step)),
    verdicts: [],
    summary: 'Cannot tell: <script>window.hacked=1</script> ranks 0-3 have sent nothing for 40 s; last seen on node-0.',
  },
  [kHealthy]: {
    ranks: 8, step: 5120, health: 'ok', state: 'running', perHost: 8, firstHost: 3, comm: 40, input: 4,
    self: (rank, step) => 360 + 5 * noise(rank, step),
    verdicts: [],
    summary: 'Healthy: 8 ranks, step 412 ms, slowest rank +1.4 % (normal here).',
  },
  [kLarge]: {
    ranks: 4096, step: 800, health: 'unknown', state: 'ended', perHost: 8, firstHost: 0, comm: 90, input: 2,
    self: (rank, step) => (rank % 512 === 77 && step % 97 < 6 ? null : 300 + 9 * noise(rank, step) + (rank === 3000 && step > 700 ? 60 : 0)),
    verdicts: [],
    summary: 'Cannot tell: rank 3000 is 60 ms slower than its peers since step 701, but the job ended before its cause was seen.',
  },
};

function verdict(fields) {
  return {
    id: 'v', job_id: '', attempt: 0, state: 'confirmed', kind: 'slow', since_step: -1, through_step: -1,
    since_unix_ns: ns(kNow - 3600e3), found_unix_ns: ns(kNow - 3590e3), lost_gpu_seconds: 0, lost_share: 0, confidence: 0.97,
    coverage: 1, clock_error_us: 12, sentence: '', culprit: { rank: [], host: '', gpu_uuid: '', layer: 'unknown', component: '', cause: '' },
    chain: [], victims: { ranks: [], groups: [], gpu_minutes: 0 }, alternatives: [], next: [], runbook: fields.culprit?.cause ? `/docs/runbooks/${fields.culprit.cause}` : '', ...fields,
  };
}
function claim(kind, text, subject, value, unit, baseline, peers, query) {
  return { claim: text, kind, subject, value, unit, baseline, peers, from: 1204, to: 1388, query };
}

function alerts() {
  const alert = (fields) => ({ state: 'firing', severity: 'warning', starts_unix_ns: ns(kNow - 600e3), ends_unix_ns: 0, episodes: 1, delivery: 'told', deliveries: [], annotations: {}, ...fields });
  const list = [
    alert({ fingerprint: 'a-1', name: 'LockstepSlow', severity: 'critical', sentence: slowVerdict().sentence, path: `/jobs/${kSlow}?rank=43`, annotations: { cost: '19.8 GPU-hours', action: 'Drain node-17.', incident: `/incidents/${kIncident}` } }),
    alert({ fingerprint: 'a-2', name: 'DiskFull', state: 'resolved', sentence: 'The disk of node-3 is full.', path: '/alerts?id=a-2', ends_unix_ns: ns(kNow) }),
  ];
  return { alerts: list, total: list.length, shown: list.length, receivers: [{ name: 'hook' }], alertmanagers: [] };
}

function cardinality(empty) {
  const creators = (names) => (empty ? [] : names.map((name, at) => ({ name, series: 40_000 - 9_000 * at })));
  return {
    series: empty ? 0 : 61_234, limits: { series: 10_000_000, metric: 5_000_000, job: 20_000_000, tenant: 10_000_000, stream: 200_000 },
    metrics: creators(['lockstep_network_wait_seconds_total', 'lockstep_gpu_throttle_seconds_total', 'lockstep_thread_runqueue_wait_seconds_total']),
    jobs: creators([kSlow, kHostile]), tenants: creators(['default']),
    streams: creators(['OTLP from node-17, lockstep-agent, job llama-70b, rank 43', 'scraped from a-host-with-a-long-name.rack2.example.com:9400', 'remote write of n1:9100, job node, tenant team']),
    refused_samples: empty ? {} : { label_forbidden: 12, too_old: 3 },
  };
}

function slowVerdict() {
  return verdict({
    id: 'slow-43', job_id: kSlow, since_step: 1204, through_step: 1388, lost_gpu_seconds: 71280, lost_share: 0.31,
    sentence: 'GPU slowed by heat (gpu): Rank 43 (node-17, GPU 3) makes all 64 ranks wait 118 ms a step since step 1,204: 31 % of the job, 19.8 GPU-hours so far.',
    culprit: { rank: [43], host: 'node-17', gpu_uuid: 'GPU-5b1e0f2a-43', layer: 'gpu', component: 'GPU of rank 43', cause: 'throttle-thermal' },
    chain: [
      claim('waits_for', '63 ranks wait for dp group 2, group 2 waits for rank 43.', 'rank 43', 63, 'ranks', 0, 0, `/api/jobs/${kSlow}/ranks?last=50`),
      claim('self_time', 'Its own time is 411 ms a step, its peers\' 293 ms.', 'rank 43', 411, 'ms', 294, 293, `/api/jobs/${kSlow}/ranks/43?last=50`),
      claim('counter', 'Its GPU runs at 1,155 MHz, its peers at 1,980: thermal slowdown, 91 °C.', 'GPU of rank 43', 1155, 'MHz', 1980, 1980, '/api/metrics?name=hw.gpu.clock'),
      claim('counterfactual', 'Without it a step would take 421 ms.', 'step', 421, 'ms', 540, 0, `/api/jobs/${kSlow}/steps?last=200`),
      claim('exclusion', 'Not the network: its links carry what its siblings\' do.', 'links of rank 43', 41, 'GB/s', 41, 41, `/api/jobs/${kSlow}/ranks/43?last=50`),
      claim('exclusion', 'Not the input: 2 ms, as everywhere.', 'input of rank 43', 2, 'ms', 2, 2, 'javascript:alert(1)'),
    ],
    victims: { ranks: [0, 1, 2], groups: ['dp 2'], gpu_minutes: 1188 },
    alternatives: [{ culprit: 'link node-17 to leaf-3', cause: '', score: 0.08, why_lower: 'its bandwidth did not change', decided_by: 'port counters of leaf-3' },
      { culprit: 'ecc (gpu)', cause: 'ecc', score: 0.02, checked: false, why_lower: 'its node reports nothing that would show it', decided_by: 'its ECC counters' }],
    next: [
      { action: 'Drain node-17 and check its airflow.', command: 'scontrol update nodename=node-17 state=drain reason=thermal' },
      { action: 'See the next finding as it comes.', command: `lockstep why ${kSlow}` },
    ],
    incident: { id: kIncident, state: 'acknowledged' },
  });
}
function clearedVerdict() {
  return verdict({
    id: 'slow-9', job_id: kSlow, state: 'cleared', since_step: 300, through_step: 340, lost_gpu_seconds: 300, lost_share: 0.01,
    sentence: 'Rank 9 (node-13, GPU 1) made all 64 ranks wait 40 ms a step from step 300 to 340.',
    culprit: { rank: [9], host: 'node-13', gpu_uuid: '', layer: 'input', component: 'data loader of rank 9', cause: 'data-loader' },
  });
}
function hangVerdict() {
  return verdict({
    id: 'hang-21', job_id: kHung, kind: 'hang', since_step: 412, through_step: 412, lost_gpu_seconds: 5400, lost_share: 0.12, coverage: 0.75,
    sentence: 'Rank 21 (node-2, GPU 5) never entered all-reduce 88,121; 23 ranks have waited in it for 3 min.',
    culprit: { rank: [21], host: 'node-2', gpu_uuid: 'GPU-77aa-21', layer: 'software', component: 'process of rank 21', cause: 'rank-missing' },
    chain: [
      { ...claim('waits_for', '23 ranks entered all-reduce 88,121 of communicator 0x1a; rank 21 did not.', 'rank 21', 88120, '', 0, 88121, `/api/jobs/${kHung}/ranks/21?last=50`), from: 412, to: 412 },
      { ...claim('event', 'Its process is alive, in phase "checkpoint", and silent for 3 min.', 'rank 21', 180, 's', 0, 1, `/api/jobs/${kHung}/ranks/21?last=50`), from: 412, to: 412 },
      { ...claim('exclusion', 'Not ranks 8-15: they sent nothing since step 380, but their agents are gone, not their work.', 'ranks 8-15', 8, 'ranks', 0, 0, '/api/agents'), from: 380, to: 412 },
    ],
    alternatives: [{ culprit: 'ranks 8-15', score: 0.3, why_lower: 'their peers saw them enter 88,121', decided_by: 'an answer from the agent of node-1' }],
    next: [{ action: 'Look at the stack of rank 21.', command: 'ssh node-2 py-spy dump --pid 4711' }],
  });
}
function suspectedVerdict() {
  return verdict({
    id: 'sus-6', job_id: kSuspected, state: 'suspected', since_step: 881, through_step: 900, lost_gpu_seconds: 90, lost_share: 0.02, confidence: 0.6,
    sentence: 'Rank 6 (node-31, GPU 2) may make all 16 ranks wait 22 ms a step since step 881.',
    culprit: { rank: [6], host: 'node-31', gpu_uuid: 'GPU-6', layer: 'unknown', component: 'rank 6', cause: '', place: 'link:leaf-5:Ethernet50' },
    chain: [claim('self_time', 'Its own time is 145 ms a step, its peers\' 123 ms.', 'rank 6', 145, 'ms', 123, 123, `/api/jobs/${kSuspected}/ranks/6?last=50`),
      claim('exclusion', 'Not the input: 30 ms, as everywhere.', 'input of rank 6', 30, 'ms', 30, 30, `/api/jobs/${kSuspected}/ranks/6?last=50`)],
    alternatives: [{ culprit: 'GPU of rank 6', score: 0.5, why_lower: 'no clock or temperature was heard from node-31', decided_by: 'NVML metrics of node-31' }],
    next: [{ action: 'Check what the agent on node-31 can see.', command: 'ssh node-31 lockstep doctor' },
      { action: 'See the way between them: every hop, its load and errors, beside like pairs.', command: `lockstep path 6 15 --job ${kSuspected}` }],
  });
}

const kWarnings = [
  {
    id: 'node-02/GPU-6/temperature_margin', state: 'raised', host: 'node-02', gpu_uuid: 'GPU-6', layer: 'gpu', cause: 'throttle-thermal', horizon_s: 2400,
    sentence: `GPU 6 of node-02 (rank 6 of ${kSuspected}): its thermal margin shrinks, from 19 to 9 C in 42 min; throttle-thermal expected in about 40 min.`,
    raised_unix_ns: 1_767_225_600e9,
    claims: [claim('counter', 'Degrees left before it slows down: 9 C now, -14 an hour over 0.7 h; the fleet -0.3.', 'GPU-6 of node-02', 9, 'C', 19, 0, '/api/metrics?name=lockstep_gpu_temperature_margin_celsius')],
    next: { action: 'look at fans, airflow and cold plate of this node before it slows the job', command: 'nvidia-smi -q -d TEMPERATURE -i GPU-6' },
    record: { raised: 12, came_true: 9 },
  },
  {
    id: 'node-09/mlx5_3/symbol_errors', state: 'raised', host: 'node-09', device: 'mlx5_3', layer: 'link', cause: 'nic-degraded', horizon_s: 18000,
    sentence: 'mlx5_3 of node-09: symbol errors of its link rise, from 0 to 1.2/s in 71 min; nic-degraded expected in about 5 h.',
    raised_unix_ns: 1_767_225_600e9, claims: [],
    next: { action: 'clean or swap cable and transceiver of this port before the link fails', command: 'mlxlink -d mlx5_3 -c -e' },
  },
];

// One job's step time of the last hour: half of it at 318 ms, then 430.
function slowTrend(query) {
  const from = Number(query.get('start')), to = Number(query.get('end')), step = Number(query.get('step'));
  const values = [];
  for (let at = from; at <= to; at += step) values.push([at, at < (from + to) / 2 ? '0.318' : '0.43']);
  return { status: 'success', data: { resultType: 'matrix', result: [{ metric: { job_id: kSlow, quantile: '0.5' }, values }] } };
}

export class Fixture {
  extraSteps = 0;
  asked = new Set();
  empty = false;

  analysed = new Set();  // captures whose analysis has come meanwhile
  said = new Map();  // what was said of verdicts, by id
  storeFails = false;
  logs = new LogAnswers(ns(kNow), kSlow, kHostile);
  nodes = new NodeAnswers(ns(kNow), kSlow, kHostile, slowVerdict(), () => this.incidents.answer('/api/incidents', '')[1].incidents.slice(0, 1));
  incidents = new Incidents(ns(kNow), kSlow, kHung, kHostile, [{ ...slowVerdict(), feedback: null }, { ...hangVerdict(), state: 'cleared' }]);

  // What a job of so many ranks answers, as text: longer in the making than a page waits, so whoever visits it asks for it first.
  #large = new Map();
  #largeSteps(steps) {
    const key = `${steps[0]} ${steps.length}`;
    if (!this.#large.has(key)) this.#large.set(key, JSON.stringify(this.#steps(kLarge, steps)));
    return this.#large.get(key);
  }

  // The last word counts; null takes it back.
  #judge(id, body) {
    const verdict = Object.values(kJobs).flatMap((job) => job.verdicts).find((one) => one.id === id);
    if (!verdict) return [404, { error: `no verdict "${id}" is known` }];
    if (this.storeFails) return [409, { error: 'the disk is full' }];
    const asked = JSON.parse(body);
    this.said.set(id, asked.right === null ? null : { right: asked.right, cause: asked.cause ?? '', note: '', said: 'x', at_unix_ns: this.said.size + 1 });
    return [200, { ...verdict, feedback: this.said.get(id) }];
  }

  // [status, answer] for a path, its query and what was sent along.
  answer(path, query, body = '') {
    if (path === '/api/jobs') return [200, this.empty ? { jobs: [], known: 0, total: 0, shown: 0 } : this.#filtered(query)];
    if (path === '/api/cardinality') return [200, cardinality(this.empty)];
    if (path === '/api/fleet') return [200, this.empty ? { jobs: 0, jobs_running: 0, nodes: 0, gpus: 0, gpus_idle: 0, ranks: 0, verdicts_open: 0, lost_gpu_seconds_day: 0, otlp_http: '0.0.0.0:5318', is_tls: false }
      : { jobs: 6, jobs_running: 4, nodes: 40, nodes_silent: 1, gpus: 312, gpus_idle: 14, ranks: 124, verdicts_open: 3, lost_gpu_seconds_day: 76680, money_day: '42.60 at 2.00 a GPU-hour', otlp_http: '0.0.0.0:4318', is_tls: false }];
    if (path === '/api/overhead') return [200, { sentence: 'Agents take 0.31 of 5,120 cores on 39 hosts (0.0061 %), most on node-07 (0.02 %); they send 14 kB/s, 45 B/s a GPU. The server takes 0.02 cores, 140 MB of memory and 1.2 GB of disk.', unknown: [{ what: 'cores', hosts: 1, example: 'node-12', sentence: 'node-12: number of cores unknown' }] }];
    if (path.startsWith('/api/sle')) return sleAnswer(path, query);
    if (path === '/api/warnings') return [200, this.empty ? { warnings: [], total: 0, shown: 0 } : { warnings: kWarnings, total: kWarnings.length, shown: kWarnings.length }];
    if (path === '/prometheus/api/v1/query_range') return [200, this.empty ? { status: 'success', data: { result: [] } } : slowTrend(query)];
    const ofFabric = this.empty ? null : fabricAnswer(path, query, body);
    if (ofFabric) return ofFabric;
    if (path === '/api/alerts') return [200, this.empty ? { alerts: [], total: 0 } : alerts()];
    const ofLogs = this.logs.answer(path, query, this.empty);
    if (ofLogs) return ofLogs;
    const ofNode = this.nodes.answer(path, query, this.empty);
    if (ofNode) return ofNode;
    const incident = this.incidents.answer(path, body);
    if (incident) return incident;
    const judged = /^\/api\/verdicts\/([^/]+)\/feedback$/.exec(path);
    if (judged) return this.#judge(decodeURIComponent(judged[1]), body);
    if (path === '/api/services') return [200, this.empty ? { services: [], total: 0, shown: 0 } : { services: [kService], total: 1, shown: 1 }];
    if (path === `/api/services/${encodeURIComponent(kService)}`) return [200, service(kService, ns(kNow))];
    const inStep = /^\/api\/jobs\/([^/]+)\/(traced|steps\/(\d+)(?:\/(timeline|detail|perfetto))?)$/.exec(path);
    if (inStep && kJobs[decodeURIComponent(inStep[1])]) return this.#step(decodeURIComponent(inStep[1]), inStep[3], inStep[4] ?? '', query);
    const profiled = /^\/api\/jobs\/([^/]+)\/(profiles|samples)(?:\/([^/]+))?(?:\/(summary|timeline|files))?$/.exec(path);
    if (profiled && kJobs[decodeURIComponent(profiled[1])]) return this.#profile(decodeURIComponent(profiled[1]), profiled[2], profiled[3], profiled[4], query);
    const match = /^\/api\/jobs\/([^/]+)(?:\/(why|cost|mfu|steps|ranks)(?:\/(\d+))?)?$/.exec(path);
    if (!match) return [404, { error: `no such path: ${path}` }];
    const name = decodeURIComponent(match[1]);
    const job = kJobs[name];
    if (!job) return [404, { error: `no job "${name}". Did you mean ${kSlow}? (lockstep jobs lists ${Object.keys(kJobs).length})` }];
    if (match[2] === 'why') return [200, this.#why(name)];
    if (match[2] === 'cost') return [200, this.#cost(name)];
    if (match[2] === 'mfu') return [200, this.#mfu(name)];
    if (match[2] === 'steps' && name === kLarge) return [200, this.#largeSteps(this.#window(name, query, 200))];
    if (match[2] === 'steps') return [200, this.#steps(name, this.#window(name, query, 200))];
    if (match[3] !== undefined) return [200, this.#rank(name, Number(match[3]), this.#window(name, query, 50))];
    if (match[2] === 'ranks') return [200, this.#ranks(name, this.#window(name, query, 50))];
    return [200, this.#job(name)];
  }

  // As the server: names contain, words are.
  #filtered(query) {
    const all = this.#list();
    const hosts = (job) => Array.from({ length: kJobs[job.job_id].ranks }, (_, rank) => this.#host(job.job_id, rank));
    const jobs = all.jobs.filter((job) => job.job_id.includes(query.get('job') ?? '') && hosts(job).some((host) => host.includes(query.get('host') ?? ''))
      && (query.get('user') ?? 'anna') === 'anna' && (query.get('state') ?? job.state) === job.state && (query.get('health') ?? job.health) === job.health
      && (query.get('cause') ?? '') === (query.has('cause') ? kJobs[job.job_id].verdicts[0]?.culprit.cause : ''));
    return { jobs, known: all.jobs.length, total: jobs.length, shown: jobs.length };
  }

  // The slow job has profiles, the suspected one samples of stacks.
  #profile(job, what, name, part, query) {
    if (what === 'samples') {
      const answer = samples(job, query.get('format') ?? 'json', ns(kNow));
      return [200, job === kSuspected ? answer : { job_id: job, attempt: 0, ranks: [], difference: null }];
    }
    const known = job === kSlow ? Object.keys(kCaptures).reverse() : [];
    const one = (capture_) => ({ ...capture(capture_, ns(kNow - 60e3)), job_id: job });
    if (name === undefined) return [200, { job_id: job, automatic: false, profiles: known.map(one), total: known.length, shown: known.length }];
    if (!known.includes(name) && name !== kLargeCapture) return [404, { error: `job ${job} has no profile ${name}` }];
    if (part === undefined) return [200, one(name)];
    if (part === 'files') return [200, { files: name === 'p-ready' ? [{ file: 'analysis-perfetto.pftrace.gz', bytes: 1 }] : [], total: 1, shown: 1 }];
    if (part === 'summary') return [200, this.analysed.has(name) ? summary('p-ready') : summary(name)];
    return [200, kernelTimeline(this.analysed.has(name) ? 'p-ready' : name, query)];
  }

  // One step in eight is there in detail, and those that were asked for.
  #step(name, number, what, query) {
    const newest = this.#newest(name);
    if (number === undefined) {
      const steps = Array.from({ length: newest + 1 }, (_, step) => newest - step).filter((step) => this.#traced(name, step));
      const shown = steps.slice(0, Number(query.get('limit') ?? 100));
      return [200, { job_id: name, steps: shown.map((step) => ({ step, start_unix_ns: ns(kNow), ranks: kJobs[name].ranks, spans: 6 * kJobs[name].ranks })),
        total: steps.length, shown: shown.length }];
    }
    const step = Number(number);
    if (step > newest) return [404, { error: `no step ${step} of job "${name}"; its last is ${newest}` }];
    if (what === 'detail') {
      this.asked.add(`${name}/${step}`);
      return [202, { job_id: name, attempt: 0, step, trace_id: '00', hosts_asked: 8, ranks_asked: 64, ranks_refused: 0, ranks_unknown: 0 }];
    }
    const job = { ...kJobs[name], name, host: (rank) => this.#host(name, rank) };
    const column = this.#column(name, step);
    if (what === 'timeline') return [200, timeline(job, step, column, this.#traced(name, step), query)];
    if (what === 'perfetto') return [200, {}];
    return [200, analysis(job, step, column, this.#traced(name, step))];
  }
  #traced(name, step) {
    return isTraced(step) || this.asked.has(`${name}/${step}`);
  }
  #newest(name) {
    return kJobs[name].step + (kJobs[name].state === 'running' && kJobs[name].health !== 'hang' ? this.extraSteps : 0);
  }
  #window(name, query, usual) {
    const newest = this.#newest(name);
    // The server refuses a window of more than 500 steps; so does this one, loudly.
    if (Number(query.get('last') ?? 1) > 500 || Number(query.get('to') ?? 0) - Number(query.get('from') ?? 0) >= 500) throw new Error('window too wide');
    const to = Math.min(newest, Number(query.get('to') ?? newest));
    const from = query.has('from') ? Number(query.get('from')) : Math.max(0, newest - Number(query.get('last') ?? usual) + 1);
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, index) => from + index);
  }
  #list() {
    const jobs = Object.keys(kJobs).map((name) => this.#job(name));
    return { jobs, total: jobs.length, shown: jobs.length };
  }
  #job(name) {
    const job = kJobs[name];
    return {
      job_id: name, attempt: 0, world_size: job.ranks, ranks_seen: job.ranks, ranks_reporting: job.reporting ?? job.ranks, state: job.state,
      last_step: this.#newest(name), step_ms: this.#column(name, this.#newest(name) - 1).duration, first_seen_unix_ns: ns(kNow - 7200e3),
      last_seen_unix_ns: ns(kNow), health: job.health, sentence: job.verdicts[0]?.sentence ?? job.summary, verdicts_open: job.verdicts.length,
    };
  }
  #why(name) {
    const job = kJobs[name];
    return {
      job: this.#job(name), health: job.health, summary: job.summary, verdicts: job.verdicts.map((verdict) => ({ ...verdict, feedback: this.said.get(verdict.id) ?? null })),
      warnings: name === kSuspected ? kWarnings.slice(0, 1) : [],
      breakdown: this.#breakdown(name), answers: this.answers, answers_unknown: this.answersUnknown,
    };
  }
  #cost(name) {
    const job = kJobs[name];
    const slow = name === kSlow;
    const part = (kind, share, fields) => ({ kind, share, lost_gpu_seconds: 71280 * share, lost_money: 49.5 * share, steps: 185, ...fields });
    return {
      job_id: name, from_step: 0, to_step: job.step, steps: 200, gpus: job.ranks, step_ms: 540, baseline_ms: 412, gpu_hour_price: slow ? 2.5 : null, money: slow ? '49.50 at 2.50 a GPU-hour' : '',
      sentence: slow ? '24 % of the last 200 steps is lost: 540 ms a step where 412 ms would do. 81 % of that: rank 43 (throttle-thermal).'
        : 'Nothing to speak of is lost in the last 200 steps: 412 ms a step, and 412 ms before.',
      lost_share: slow ? 0.24 : 0.002, lost_gpu_seconds: slow ? 71280 : 40, lost_money: slow ? 49.5 : null,
      parts: slow ? [
        part('verdict', 0.81, { name: 'rank 43 (throttle-thermal)', verdict: 'slow-43', state: 'confirmed' }),
        part('told', 0.07, { name: 'checkpoints and evaluation', steps: 4 }),
        part('unexplained', 0.12, { name: 'unexplained', steps: 200 }),
      ] : [part('unexplained', 1, { name: 'unexplained', steps: 200, lost_money: null })],
    };
  }
  #mfu(name) {
    const told = kJobs[name].told === true;
    const bar = (key, words, points, note = '') => ({ key, words, points, known: key !== 'unknown', note });
    return {
      job_id: name, from_step: 1339, to_step: 1388, steps: 50, ranks: kJobs[name].ranks, ranks_counted: kJobs[name].ranks, mfu: told ? 0.38 : null,
      sentence: told ? 'MFU is 38 %: 22 points go to stragglers that verdicts name, 18 to what happens inside the kernels, 11 to communication that nothing hides.'
        : 'MFU is not known: the job reports no FLOPs (lockstep.set_flops(), or the scalars "parameters" and "tokens").',
      next: told ? 'Drain node-17 and check its airflow' : '', peak: { tflops: told ? 989.4 : null, from: told ? 'table' : 'unknown', precision: 'bf16', gpu: 'NVIDIA H100 80GB HBM3' },
      flops: { per_step: told ? 6.9e14 : null, tokens_per_step: null, from: told ? 'job' : 'unknown' },
      bars: told ? [bar('stragglers', 'stragglers that verdicts name', 0.22), bar('slow_links', 'slow links that verdicts name', 0), bar('waiting', 'waiting for other ranks', 0.02),
        bar('communication', 'communication that nothing hides', 0.11), bar('input', 'waiting for input', 0.02), bar('host', 'gaps in which the host is late', 0.03),
        bar('clocks', 'clocks below their highest', 0.04, 'SM clocks 1901 MHz, at most 1980'),
        bar('kernels', 'what happens inside the kernels', 0.18, 'memory-bound or small kernels, shapes, precision: a profile shows it'), bar('unknown', 'what is unknown', 0)]
        : [bar('communication', 'communication that nothing hides', 0.2), bar('unknown', 'what is unknown', 0.8, 'time at work: how much of it was the model\'s is not known')],
      change: told ? { step: 1204, before: 0.59, after: 0.38, verdict: 'slow-43', grew: {}, sentence: 'MFU fell from 59 % to 38 % at step 1,204: 22 points more go to stragglers that verdicts name.',
        what: ['a verdict of the same time: Rank 43 (node-17, GPU 3) makes all 64 ranks wait 118 ms a step since step 1,204.'] } : null,
    };
  }
  #breakdown(name) {
    const { comm, input } = kJobs[name];
    const { duration, compute, waiting } = this.#column(name, this.#newest(name) - 1);
    return { compute: compute / duration, waiting: waiting / duration, communication: comm / duration, input: input / duration, host: (kJobs[name].host_ms ?? 0) / duration, checkpoint: 0, idle: 0.4 / duration, other: 0 };
  }
  #host(name, rank) {
    const job = kJobs[name];
    return job.hostile ? `<b onmouseover=hacked()>node-${rank}</b>` : `node-${job.firstHost + Math.floor(rank / job.perHost)}`;
  }
  // One step over all ranks: the slowest sets the pace, the others wait for it.
  #column(name, step) {
    const job = kJobs[name];
    const self = Array.from({ length: job.ranks }, (_, rank) => job.self(rank, step));
    const sorted = Float64Array.from(self.filter((value) => value !== null)).sort();
    if (sorted.length === 0) return { self, median: null, duration: null, compute: null, waiting: null };
    const slowest = sorted[sorted.length - 1];
    const mean = sorted.reduce((sum, value) => sum + value, 0) / sorted.length;
    return { self, median: sorted[sorted.length >> 1], duration: round(slowest + job.comm + job.input), compute: round(mean), waiting: round(slowest - mean) };
  }
  #steps(name, steps) {
    const job = kJobs[name];
    const columns = steps.map((step) => this.#column(name, step));
    const ranks = Array.from({ length: job.ranks }, (_, rank) => rank);
    const cells = (pick) => ranks.map((rank) => columns.map((column) => (column.self[rank] === null ? null : round(pick(column, rank)))));
    const line = (value) => columns.map((column) => (column.median === null ? null : value(column)));
    return {
      job_id: name, ranks, hosts: ranks.map((rank) => this.#host(name, rank)), steps, step_ms: line((column) => column.duration),
      compute_ms: line((column) => column.compute), waiting_ms: line((column) => column.waiting),
      communication_ms: line(() => job.comm), input_ms: line(() => job.input), host_ms: line(() => job.host_ms ?? 0), checkpoint_ms: line(() => 0),
      idle_ms: line(() => 0.4), other_ms: line(() => 0),
      duration_ms: cells((column) => column.duration), self_ms: cells((column, rank) => column.self[rank]),
      excess_ms: cells((column, rank) => column.self[rank] - column.median), input_ms_rank: cells(() => job.input),
      total_steps: this.#newest(name) + 1, shown: steps.length,
    };
  }
  #ranks(name, steps) {
    const job = kJobs[name];
    const { excess_ms: excess, self_ms: self, duration_ms: duration } = this.#steps(name, steps);
    const mean = (values) => {
      const heard = values.filter((value) => value !== null);
      return heard.length === 0 ? null : round(heard.reduce((sum, value) => sum + value, 0) / heard.length);
    };
    const ranks = excess.map((row, rank) => ({
      rank, host: this.#host(name, rank), local_rank: rank % job.perHost, gpu_uuid: `GPU-${name.length}-${rank}`,
      steps: row.filter((value) => value !== null).length, step_ms: mean(duration[rank]), self_ms: mean(self[rank]), excess_ms: mean(row),
      comm_ms: job.comm, input_ms: job.input, last_seen_unix_ns: ns(kNow), status: row[row.length - 1] === null ? 'silent' : 'ok',
    })).sort((a, b) => (b.excess_ms ?? 1e9) - (a.excess_ms ?? 1e9));
    return { job_id: name, from_step: steps[0], to_step: steps[steps.length - 1], ranks, total: ranks.length, shown: ranks.length };
  }
  #rank(name, rank, steps) {
    const job = kJobs[name];
    const entries = steps.flatMap((step) => {
      const column = this.#column(name, step);
      const self = column.self[rank];
      if (self === null) return [];
      return [{
        step, duration_ms: column.duration, self_ms: round(self), comm_ms: round(column.duration - self - job.input), queue_ms: 1, quiet_ms: 0.5,
        scalars: job.told ? { loss: round(9 - step / 200), tokens: 16384, flops: 6.9e14, peak_flops: 9.894e14 } : {}, mfu: job.told ? 0.38 : null,
        phases_ms: { input: job.input, forward: round(self * 0.32), backward: round(self * 0.6), optimizer: round(self * 0.08) },
        comms: [
          { comm_id: '0x1a', size: 8, p2p: false, count: 160, bytes: 8.1e9, gpu_ms: 31.2, shortest_ms: 0.1, longest_ms: 0.5, gb_s: 212.4 },
          { comm_id: '0x2b', size: job.ranks, p2p: false, count: 24, bytes: 2.2e9, gpu_ms: 12.8, shortest_ms: 0.4, longest_ms: 1.9, gb_s: 41.2 },
        ],
        flows: Array.from({ length: 10 }, (_, index) => ({ comm_id: '0x2b', peer: (rank + index + 1) % job.ranks, send: index % 2 === 0, transfers: 8,
          bytes: 2.7e8, wire_ms: 3 + index / 10, own_gpu_ms: 0.4, peer_ms: 0.8 })),
      }];
    });
    return {
      job_id: name, rank, host: this.#host(name, rank), gpu_uuid: `GPU-5b1e0f2a-${rank}`, state: job.health === 'hang' ? 'quiet' : 'ok', last_seen_unix_ns: ns(kNow),
      communicators: [{ comm_id: '0x1a', size: 8, rank_in_comm: rank % 8, nodes: 1, name: 'tp' }], steps: entries,
      status: { quiet_ms: job.health === 'hang' ? 180000 : 20, alive: true, phase: job.health === 'hang' ? 'checkpoint' : 'forward',
        comms: job.health === 'hang' ? [{
          comm_id: '0x1a', size: 32, rank_in_comm: rank, collectives_enqueued: 88120, collectives_completed: 88119, p2p_enqueued: 0, p2p_completed: 0,
          collective: { state: 'started', ordinal: 88120, seq: 88120, function: 'AllReduce', datatype: 'bf16', bytes: 2.2e9, peer: -1, since_unix_ns: ns(kNow - 180e3) },
          p2p: { state: 'none', ordinal: 0, seq: 0, function: '', datatype: '', bytes: 0, peer: -1, since_unix_ns: 0 },
        }] : [] },
    };
  }
}
