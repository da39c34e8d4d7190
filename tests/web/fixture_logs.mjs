// Canned answers of /api/logs: what a slow job's ranks and its nodes said, by the filters of the page, and what comes while it follows.

const kSeverityOf = { trace: 1, debug: 5, info: 9, warn: 13, error: 17, fatal: 21 };
const kAfter = 1_700_000_000_000_000_000;  // records are numbered from here on, in the order in which they came
const kStep = 1_024;                       // such numbers are told apart by JavaScript

export class LogAnswers {
  constructor(nowNs, slow, hostile) {
    Object.assign(this, { nowNs, slow });
    this.records = [];
    for (let at = 0; at < 300; at += 1) this.say({ ago: 300 - at, rank: at % 64, body: `step ${1000 + at} took ${412 + (at % 7)} ms`, attributes: { 'step.number': 1000 + at } });
    this.say({ ago: 40, rank: 43, severity: 13, body: 'NCCL WARN timed out waiting for rank 5\n  opCount 118', attributes: { comm: '0x7f' } });
    this.say({ ago: 35, host: 'node-17', rank: null, job: '', severity: 17, event: 'gpu.xid', body: null, service: 'lockstep-agent', attributes: { code: 79, text: 'GPU fell off the bus' } });
    this.say({ ago: 30, host: hostile, rank: null, job: hostile, severity: 0, body: '<img src=x onerror=hacked()> \u202e\u001b[2J', attributes: { [hostile]: hostile } });
  }

  say({ ago = 0, rank = 0, job = this.slow, host = `node-${12 + Math.floor((rank ?? 0) / 8)}`, severity = 9, event = '', body, service = 'trainer', attributes = {} }) {
    const resource = { 'service.name': service, 'host.name': host, ...(job && { 'lockstep.job_id': job }), ...(rank !== null && { 'lockstep.rank': rank }) };
    this.records.push({ time_unix_ns: this.nowNs - ago * 1e9, service, event, severity, severity_text: '', body, attributes, resource });
  }

  answer(path, query, isEmpty) {
    if (path !== '/api/logs') return null;
    if (query.get('grep') === '(refused)') return [400, { error: 'grep is refused here' }];
    const least = kSeverityOf[query.get('severity')] ?? 0;
    const after = Number(query.get('after') ?? 0);
    const wanted = (one, at) => (!query.get('job') || one.resource['lockstep.job_id'] === query.get('job'))
      && (!query.get('rank') || one.resource['lockstep.rank'] === Number(query.get('rank')))
      && (!query.get('host') || one.resource['host.name'] === query.get('host'))
      && one.severity >= least && (!query.get('to') || one.time_unix_ns <= Number(query.get('to')))
      && JSON.stringify([one.event, one.body, one.attributes]).includes(query.get('grep') ?? '')
      && (after === 0 || kAfter + at * kStep > after);
    const all = isEmpty ? [] : this.records.filter(wanted);
    all.sort((a, b) => (query.get('order') === 'oldest' ? a.time_unix_ns - b.time_unix_ns : b.time_unix_ns - a.time_unix_ns));
    const logs = all.slice(0, Number(query.get('limit')));
    return [200, { logs, total: logs.length + (all.length > logs.length ? 1 : 0), shown: logs.length, whole: true, after: kAfter + (this.records.length - 1) * kStep }];
  }
}
