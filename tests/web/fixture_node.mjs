// Canned answers of /api/nodes and /api/gpus: a node whose GPU is slowed by heat while a job waits for it, a healthy one with idle GPUs, one
// that went silent, one whose agent reads nothing, and one whose name is hostile.

export const kFaultyNode = 'node-17';
export const kHealthyNode = 'node-3.rack2';
export const kSilentNode = 'node-9';
export const kBareNode = 'node-40';
const kPoints = 180;
const uuid = (host, index) => (host === kFaultyNode && index === 3 ? 'GPU-5b1e0f2a-43' : `GPU-${host}-${index}`);

function noise(a, b) {
  const x = Math.sin(a * 12.9898 + b * 78.233) * 43758.5453;
  return x - Math.floor(x);
}

export class NodeAnswers {
  constructor(nowNs, slow, hostile, verdict, incident) {
    Object.assign(this, { nowNs, slow, hostile, verdict, incident });
    this.hosts = { [kFaultyNode]: 'faulty', [kHealthyNode]: 'healthy', [kSilentNode]: 'silent', [kBareNode]: 'bare', [hostile]: 'bare' };
  }

  answer(path, query, isEmpty) {
    if (path === '/api/nodes') return [200, isEmpty ? { nodes: [], total: 0, shown: 0, gpus: 0, gpus_idle: 0 } : this.#list(query.get('host') ?? '')];
    const match = /^\/api\/(nodes|gpus)\/([^/]+)(\/series)?$/.exec(path);
    if (!match) return null;
    const name = decodeURIComponent(match[2]);
    const host = match[1] === 'nodes' ? name : Object.keys(this.hosts).find((one) => this.#gpus(one).some((gpu) => gpu.gpu_uuid === name));
    if (!host || !(host in this.hosts)) return [404, { error: `no ${match[1] === 'nodes' ? 'node' : 'GPU'} "${name}" is known; /api/nodes lists all` }];
    const only = match[1] === 'gpus' ? name : '';
    return [200, match[3] ? this.#series(host, only) : this.#detail(host, only)];
  }

  #list(part) {
    const nodes = Object.entries(this.hosts).filter(([host]) => host.includes(part)).map(([host, kind]) => ({
      ...this.#state(host), gpus: this.#gpus(host).length, gpus_idle: this.#gpus(host).filter((gpu) => gpu.state === 'idle').length,
      ranks: kind === 'faulty' ? 8 : 0, verdicts_open: kind === 'faulty' ? 1 : 0, incidents_open: kind === 'faulty' ? 1 : 0, job_ids: kind === 'faulty' ? [this.slow] : [],
      jobs_total: kind === 'faulty' ? 1 : 0,
    }));
    const sum = (key) => nodes.reduce((all, one) => all + one[key], 0);
    return { nodes, total: nodes.length, shown: nodes.length, gpus: sum('gpus'), gpus_idle: sum('gpus_idle') };
  }

  #state(host) {
    const silent = this.hosts[host] === 'silent';
    return { host, state: silent ? 'silent' : 'ok', last_seen_unix_ns: this.nowNs - (silent ? 400e9 : 1e9), has_agent: true, records_lost: silent ? 17 : 0 };
  }

  #gpus(host) {
    const kind = this.hosts[host];
    if (kind === 'bare') return [];
    return Array.from({ length: 8 }, (_, index) => {
      const busy = kind === 'faulty' || (kind === 'healthy' && index < 2);
      const holders = busy ? [{ job_id: kind === 'faulty' ? this.slow : 'eval-sweep-3.1', rank: kind === 'faulty' ? 40 + index : index, user: 'anna' }] : [];
      return { gpu_uuid: uuid(host, index), index, model: 'NVIDIA H100 80GB HBM3', state: kind === 'silent' ? 'unknown' : busy ? 'busy' : 'idle', holders, holders_total: holders.length };
    });
  }

  #detail(host, only) {
    const kind = this.hosts[host];
    const faulty = kind === 'faulty' && (!only || only === uuid(host, 3));
    const gpus = this.#gpus(host).filter((gpu) => !only || gpu.gpu_uuid === only);
    const ranks = gpus.flatMap((gpu) => gpu.holders.map((one) => ({ job_id: one.job_id, rank: one.rank, local_rank: gpu.index, gpu_uuid: gpu.gpu_uuid, last_step: 1388,
      last_seen_unix_ns: this.nowNs, status: 'ok' })));
    const brief = (one) => ({ id: one.id, job_id: this.slow, state: one.state, kind: one.kind, layer: one.culprit.layer, cause: one.culprit.cause, sentence: one.sentence,
      gpu_uuid: one.culprit.gpu_uuid, since_unix_ns: one.since_unix_ns, found_unix_ns: one.found_unix_ns, lost_gpu_seconds: one.lost_gpu_seconds, ranks: one.culprit.rank, ranks_total: 1 });
    const verdicts = faulty ? [brief(this.verdict), { ...brief(this.verdict), id: 'older', state: 'cleared', since_unix_ns: this.nowNs - 3 * 86400e9 }] : [];
    const incidents = faulty ? this.incident() : [];
    const events = faulty ? [
      { time_unix_ns: this.nowNs - 300e9, event: 'gpu.xid', severity: 'critical', text: 'NVRM: Xid 79', gpu_uuid: uuid(host, 3), device: '', meaning: 'GPU fell off the bus.', action: 'Reset the node.',
        job_id: this.slow, rank: 43, code: 79, count: 3 },
      { time_unix_ns: this.nowNs - 86400e9, event: 'link.down', severity: 'warn', text: '<b>mlx5_0</b>', gpu_uuid: '', device: 'mlx5_0/1', meaning: '', action: '', job_id: '', rank: -1, code: -1, count: 1 },
    ] : [];
    return { ...this.#state(host), days: 7, gpus, gpus_total: gpus.length, ranks, ranks_total: ranks.length, verdicts, verdicts_total: verdicts.length, incidents,
      incidents_total: incidents.length, events, events_total: events.length, warnings: [] };
  }

  #series(host, only) {
    const kind = this.hosts[host];
    const stretch = 5e9;
    const base = { host, gpu_uuid: only, from_unix_ns: this.nowNs - kPoints * stretch, stretch_ns: stretch, points: kPoints, rows: [], rows_left_out: 0, steps: [], jobs_total: 1 };
    if (kind === 'bare') return base;
    const gpus = this.#gpus(host).filter((gpu) => !only || gpu.gpu_uuid === only);
    const gone = (at) => (kind === 'silent' ? at > 100 : kind === 'faulty' && at > 60 && at < 72);
    const line = (row, of) => Array.from({ length: kPoints }, (_, at) => (gone(at) ? null : of(at, row)));
    const hot = (row, at) => kind === 'faulty' && row.index === 3 && at > 90;
    const quantity = (key, words, unit, of) => gpus.map((gpu) => ({ key, words, unit, of: 'gpu', id: gpu.gpu_uuid, values: line(gpu, of) }));
    base.rows = [
      ...quantity('sm_clock', 'GPU clock', 'MHz', (at, row) => (hot(row, at) ? 1155 : row.state === 'idle' ? 345 : 1980) - 12 * noise(at, row.index)),
      ...quantity('temperature', 'GPU temperature', '°C', (at, row) => (hot(row, at) ? 91 : row.state === 'idle' ? 34 : 62) + 2 * noise(at, row.index)),
      ...quantity('power', 'GPU power', 'W', (at, row) => (hot(row, at) ? 410 : row.state === 'idle' ? 70 : 640) + 20 * noise(at, row.index)),
      ...['mlx5_0', 'mlx5_1'].map((id, nic) => ({ key: 'nic_sent', words: 'sent by the adapter', unit: 'MB/s', of: 'device', id, values: line({ index: nic }, (at) => 21000 + 900 * noise(at, nic)) })),
      { key: 'cpu_pressure', words: 'tasks stalled for CPU', unit: '%', of: 'host', id: '', values: line({ index: 0 }, (at) => 0.4 + noise(at, 5)) },
    ];
    base.steps = gpus.flatMap((gpu) => gpu.holders.map((one) => ({ job_id: one.job_id, rank: one.rank, local_rank: gpu.index, gpu_uuid: gpu.gpu_uuid, first_step: 1000, last_step: 1388,
      step_ms: line(gpu, (at) => (kind === 'faulty' && at > 90 ? 540 : 412) + 4 * noise(at, 1)), excess_ms: line(gpu, (at, row) => (hot(row, at) ? 118 : 0) + 3 * noise(at, row.index)) })));
    return base;
  }
}
