// Canned answers of /api/incidents: a GPU that two jobs suffer from and that was guilty before, one that is over, and one whose names
// are hostile.

export const kIncident = 'i-5b1e0f2a43c0';
const kHostileIncident = 'i-000000000bad';

function row(fields) {
  return {
    id: '', state: 'open', active: true, severity: 'warning', sentence: '', action: '', component: '', component_text: '', part: 'gpu', host: '', gpu_uuid: '',
    cause: '', begin_unix_ns: 0, end_unix_ns: 0, resolved_unix_ns: 0, acknowledged_by: '', resolved_by: '', lost_gpu_seconds: 0, lost_money: null, money: '', cost: '', times: 1,
    repeat: '', path: `/incidents/${fields.id}`, job_ids: [], ...fields,
  };
}

export class Incidents {
  #state = 'open';
  #notes = [];

  constructor(nowNs, slow, hung, hostile, verdicts) {
    Object.assign(this, { nowNs, slow, hung, hostile, verdicts });
  }

  #main() {
    const since = this.nowNs - 3600e9;
    return row({
      id: kIncident, state: this.#state, severity: 'critical', component: 'gpu:GPU-5b1e0f2a-43', component_text: 'GPU-5b1e0f2a-43 of node-17', host: 'node-17',
      sentence: this.verdicts[0].sentence, action: 'Drain node-17 and check its airflow.', cause: 'throttle-thermal', begin_unix_ns: since,
      acknowledged_by: this.#state === 'acknowledged' ? 'token 3f9a1c20 (on call)' : '', lost_gpu_seconds: 76680, lost_money: 42.6, money: '42.60 at 2.00 a GPU-hour',
      cost: '21.3 GPU-hours lost, 42.60 at 2.00 a GPU-hour', times: 4,
      repeat: 'GPU-5b1e0f2a-43 of node-17 was guilty 4 times in 30 days.', job_ids: [this.slow, this.hung],
    });
  }

  #others() {
    return [
      row({ id: 'i-0e55aa01beef', state: 'resolved', active: false, component_text: 'leaf-3', sentence: 'The fabric between 6 hosts (node-12 ...) is congested.',
            begin_unix_ns: this.nowNs - 86400e9, end_unix_ns: this.nowNs - 80000e9, lost_money: 2.4, money: '2.40 at 4.00 a GPU-hour, and 36.0 GPU-minutes without a price (NVIDIA L4)',
            cost: '1.2 GPU-hours lost, 2.40 at 4.00 a GPU-hour, and 36.0 GPU-minutes without a price (NVIDIA L4)', job_ids: ['vit-pretrain'] }),
      row({ id: kHostileIncident, active: false, component_text: `job ${this.hostile}`, sentence: '<script>window.hacked=1</script> stands still.',
            begin_unix_ns: this.nowNs - 7200e9, end_unix_ns: this.nowNs - 7000e9, job_ids: [this.hostile] }),
    ];
  }

  #report(summary) {
    const since = summary.begin_unix_ns;
    return {
      ...summary, link: `https://lockstep.example${summary.path}`, has_more: false, also: [],
      jobs: [
        { job_id: this.slow, suffers: true, lost_gpu_seconds: 71280, lost_share: 0.31, victims: 63, path: `/jobs/${this.slow}?step=1388&rank=43`, verdicts: ['slow-43'],
          completion: { delay_s: 1113, slower_by: 0.45, stands_still: false, ends_unix_ns: null,
                        sentence: '19 min later so far; while it lasts, an hour’s work takes 87 min. When it ends is not known: the job does not report how many steps are planned.' } },
        { job_id: this.hung, suffers: false, lost_gpu_seconds: 5400, lost_share: 1, victims: 23, path: `/jobs/${this.hung}?rank=21`, verdicts: ['hang-21'], completion: null },
      ],
      blast_radius: { known: true, component: summary.component, at_unix_ns: since, gpus: 1, hosts: 1, jobs_total: 3, note: '',
        jobs: [{ job_id: this.slow, ranks_hit: 1, ranks: 64, has_verdict: true }, { job_id: this.hung, ranks_hit: 1, ranks: 32, has_verdict: true },
          { job_id: this.hostile, ranks_hit: 1, ranks: 4, has_verdict: false }] },
      timeline: [
        { at_unix_ns: since, what: 'began', who: '', text: summary.sentence, path: `/jobs/${this.slow}?step=1388&rank=43` },
        { at_unix_ns: since + 9e9, what: 'opened', who: '', text: '', path: '' },
        { at_unix_ns: since + 64e9, what: 'event', who: '', text: 'XID 79 on GPU-5b1e0f2a-43 of node-17: GPU fell off the bus (3 times)', path: '' },
        { at_unix_ns: since + 300e9, what: 'over', who: '', text: `No longer seen in job ${this.hung}.`, path: `/jobs/${this.hung}?rank=21` },
        ...this.#notes,
      ],
      earlier: [1, 2, 3].map((week) => ({ id: `i-00000000000${week}`, component: summary.component, sentence: 'Rank 3 (node-17, GPU 3) makes all 16 ranks wait 60 ms a step.', state: 'resolved',
        begin_unix_ns: this.nowNs - week * 7 * 86400e9, path: `/incidents/i-00000000000${week}` })),
      beside: [], verdicts: this.verdicts,
    };
  }

  // [status, answer], or null where the path is another's.
  answer(path, body) {
    if (path === '/api/incidents') {
      const incidents = [this.#main(), ...this.#others().reverse()];
      return [200, { offenders: [{ component: 'gpu:GPU-5b1e0f2a-43', host: 'node-17', times: 4, sentence: this.#main().repeat, incidents: [kIncident] }], incidents, total: 3, shown: 3 }];
    }
    const match = /^\/api\/incidents\/([\w-]+)(?:\/(markdown|acknowledge|resolve|reopen))?$/.exec(path);
    if (!match) return null;
    const found = [this.#main(), ...this.#others()].find((one) => one.id === match[1]);
    if (!found) return [404, { error: `no incident "${match[1]}" is known; /api/incidents?state=all lists them` }];
    if (match[2] === 'markdown') return [200, `# Incident ${match[1]}\n`];
    if (match[2]) {
      const [state, what] = { acknowledge: ['acknowledged', 'acknowledged'], resolve: ['resolved', 'resolved'], reopen: ['open', 'reopened'] }[match[2]];
      this.#state = state;
      this.#notes.push({ at_unix_ns: this.nowNs, what, who: 'token 3f9a1c20 (on call)', text: JSON.parse(body || '{}').note ?? '', path: '' });
    }
    return [200, this.#report(match[1] === kIncident ? this.#main() : found)];
  }
}
