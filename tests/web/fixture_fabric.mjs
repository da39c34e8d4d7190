// A made-up fabric of 100,000 GPUs, shaped as in docs/formats/api.md: 12,500 hosts of 8 GPUs and adapters, 16 hosts to a pod of 8 leaves, 32
// spines above all leaves. Nothing of it is stored: names say where a part stands.
//
// What is wrong: leaf-5:Ethernet50 is full and drops, leaf-9:Ethernet52 has errors, spine-3:Ethernet8 went down; two cables are elsewhere.

const kHosts = 12_500;
const kPodHosts = 16;
const kRails = 8;
const kSpines = 32;
const kLeaves = Math.ceil(kHosts / kPodHosts) * kRails;
const kFanOut = 32;

// job -> where its ranks run
const kPlaced = { 'llama-70b': { ranks: 64, first: 12, perHost: 8 }, 'vit-pretrain': { ranks: 16, first: 30, perHost: 4 }, 'frontier-4096': { ranks: 4_096, first: 100, perHost: 8 } };
const kTroubled = { 'job:llama-70b': 1, 'rank:llama-70b/43': 1, 'host:node-17': 1, 'gpu:GPU-17-3': 1 };
const kSentence = 'Rank 43 (node-17, GPU 3) makes all 64 ranks wait 118 ms a step.';

const hostOfRank = (job, rank) => kPlaced[job].first + Math.floor(rank / kPlaced[job].perHost);
const leafOf = (host, rail) => Math.floor(host / kPodHosts) * kRails + rail;
const uplink = (leaf, spine) => `leaf-${leaf}:Ethernet${49 + spine} - spine-${spine}:Ethernet${leaf + 1}`;

// Rank 43 is late: its group waits for it, rank 44 longest. Its host has a new driver.
const isWaiting = (job, rank) => job === 'llama-70b' && rank >= 40 && rank < 48;
const waited = (from, to) => ({ from, to, weight: from.endsWith('/44') ? 12.4 : 3.5 });
const kDriver = ['version:driver 570.124.06', 'changed-at', 'was 550.90', 'agent', { from: 'host:node-17', to: 'version:driver 570.124.06', at_unix_ns: 1_768_446_000_000_000_000 }];

// [id, kind of the edge, label, known, what else it has] of everything beside a part.
function neighbours(id) {
  const [kind, ...rest] = id.split(':');
  const name = rest.join(':');
  if (kind === 'job') return Array.from({ length: kPlaced[name].ranks }, (_, rank) => [`rank:${name}/${rank}`, 'member-of', '', '']);
  if (kind === 'rank') {
    const [job, rank] = [name.slice(0, name.lastIndexOf('/')), Number(name.slice(name.lastIndexOf('/') + 1))];
    const waits = !isWaiting(job, rank) ? [] : rank !== 43 ? [[`rank:${job}/43`, 'waits-for', '', 'diagnosis', waited(id, `rank:${job}/43`)]]
      : [40, 41, 42, 44, 45, 46, 47].map((other) => [`rank:${job}/${other}`, 'waits-for', '', 'diagnosis', waited(`rank:${job}/${other}`, id)]);
    return [...waits, [`job:${job}`, 'member-of', '', ''], [`gpu:GPU-${hostOfRank(job, rank)}-${rank % kPlaced[job].perHost}`, 'runs-on', '', 'agent']];
  }
  if (kind === 'gpu' || kind === 'nic') {
    const [host, index] = (kind === 'gpu' ? /^GPU-(\d+)-(\d+)$/ : /^node-(\d+):mlx5_(\d+)$/).exec(name).slice(1).map(Number);
    const other = kind === 'gpu' ? `nic:node-${host}:mlx5_${index}` : `gpu:GPU-${host}-${index}`;
    const beside = [[`host:node-${host}`, 'member-of', '', 'agent'], [other, 'carries', 'PIX', 'agent']];
    if (kind === 'nic') return [...beside, [`leaf:leaf-${leafOf(host, index)}`, 'carries', `${name} - leaf-${leafOf(host, index)}:Ethernet1/${(host % kPodHosts) + 1}`, 'LLDP']];
    const ranks = Object.entries(kPlaced).flatMap(([job, { ranks: all, first, perHost }]) => {
      const rank = (host - first) * perHost + index;
      return index < perHost && rank >= 0 && rank < all ? [[`rank:${job}/${rank}`, 'runs-on', '', 'agent']] : [];
    });
    return [...ranks, ...beside];
  }
  if (kind === 'host') {
    const host = Number(name.slice(5));
    const parts = Array.from({ length: kRails }, (_, index) => [[`gpu:GPU-${host}-${index}`, 'member-of', '', 'agent'], [`nic:${name}:mlx5_${index}`, 'member-of', '', 'agent']]).flat();
    return host === 17 ? [kDriver, ...parts] : parts;
  }
  if (kind === 'version') return [['host:node-17', ...kDriver.slice(1)]];
  if (kind === 'link') {
    const [leaf, spine] = name.split(' - ').map((port) => port.slice(0, port.indexOf(':')));
    return [[`leaf:${leaf}`, 'carries', '', 'file'], [`spine:${spine}`, 'carries', '', 'file']];
  }
  if (kind === 'leaf') {
    const leaf = Number(name.slice(5));
    const first = Math.floor(leaf / kRails) * kPodHosts;
    return [...Array.from({ length: kPodHosts }, (_, host) => [`nic:node-${first + host}:mlx5_${leaf % kRails}`, 'carries', '', 'LLDP']),
      ...Array.from({ length: kSpines }, (_, spine) => [`spine:spine-${spine}`, 'carries', uplink(leaf, spine), 'file'])];
  }
  return Array.from({ length: kLeaves }, (_, leaf) => [`leaf:leaf-${leaf}`, 'carries', uplink(leaf, Number(name.slice(6))), 'file']);
}

const kFocus = [
  [/^(?:job:)?(llama-70b|vit-pretrain|frontier-4096)$/, (name) => `job:${name}`], [/^(rank:(?:llama-70b|vit-pretrain|frontier-4096)\/\d+)$/, (id) => id],
  [/^(?:leaf:)?(leaf-\d+)$/, (name) => `leaf:${name}`], [/^(?:spine:)?(spine-\d+)$/, (name) => `spine:${name}`], [/^(?:host:)?(node-\d+)$/, (name) => `host:${name}`],
  [/^link:leaf-(\d+:Ethernet\d+)(?: - .*)?$/, (port) => `link:${uplink(...port.split(':Ethernet').map((number, at) => Number(number) - 49 * at))}`],
  [/^(version:driver 570\.124\.06)$/, (id) => id],
  [/^(?:nic:)?(node-\d+:mlx5_\d)$/, (name) => `nic:${name}`], [/^(?:gpu:)?(GPU-\d+-\d)$/, (name) => `gpu:${name}`],
];
function named(text) {
  for (const [pattern, id] of kFocus) {
    const match = pattern.exec(text);
    if (match) return id(match[1]);
  }
  return null;
}

function graph(query) {
  const focus = named(query.get('focus'));
  if (!focus) return [404, { error: `no component "${query.get('focus')}". Did you mean leaf-5?` }];
  const [depth, limit] = [Number(query.get('depth') ?? 2), Number(query.get('limit') ?? 200)];
  const node = (id, at) => ({ id, kind: id.slice(0, id.indexOf(':')), name: id.slice(id.indexOf(':') + 1), depth: at, ...(kTroubled[id] ? { trouble: kSentence } : {}) });
  const nodes = new Map([[focus, node(focus, 0)]]);
  const edges = new Map();
  for (const one of nodes.values()) {
    if (one.depth >= depth) continue;
    let taken = 0;
    for (const [id, kind, label, known, more] of neighbours(one.id).sort(([a], [b]) => (kTroubled[b] ?? 0) - (kTroubled[a] ?? 0))) {
      if (!nodes.has(id) && (taken >= kFanOut || nodes.size >= limit)) {
        one.neighbours_left_out = (one.neighbours_left_out ?? 0) + 1;
        continue;
      }
      if (!nodes.has(id)) {
        taken += 1;
        nodes.set(id, node(id, one.depth + 1));
      }
      const key = [one.id, id].sort().join(' ');
      if (!edges.has(key)) edges.set(key, { from: one.id, to: id, kind, weight: 1, ...(label && { label }), ...(known && { known }), ...more });
    }
  }
  return [200, { at_unix_ns: 1, nodes: [...nodes.values()], edges: [...edges.values()] }];
}

function summary() {
  const undeclared = Array.from({ length: 20 }, (_, host) => ({ kind: 'not_declared', subject: `node-${host + 40}:mlx5_0`, expected: '', seen: `leaf-${leafOf(host + 40, 0)}:Ethernet1/1` }));
  return {
    nodes: { host: kHosts, gpu: 8 * kHosts, nic: 8 * kHosts, leaf: kLeaves, spine: kSpines }, links: 8 * kHosts + kLeaves * kSpines, bytes: 1, forwarding_tables: false, reports_refused: 0,
    differences: [...undeclared, { kind: 'other_port', subject: 'node-13:mlx5_2', expected: 'leaf-2:Ethernet1/9', seen: 'leaf-2:Ethernet1/14' },
      { kind: 'not_seen', subject: 'node-31:mlx5_7', expected: 'leaf-15:Ethernet1/16', seen: '' }],
    differences_total: 22,
    changes: [{ time_unix_ns: 1_768_446_000e9, subject: 'node-13:mlx5_2', before: 'leaf-2:Ethernet1/9', after: 'leaf-2:Ethernet1/14' }], changes_total: 1,
  };
}

const kUsual = { errors: 0, discards: 0, pause: 0, ecn: 12, queue: 40e3, used: 0.26, load: 13.1e9 };
const kPorts = [
  ...Array.from({ length: 30 }, (_, index) => ({ switch: `leaf-${index + 20}`, port: 'Ethernet49', ...kUsual, ecn: 12 + index / 10 })),
  { switch: 'leaf-5', port: 'Ethernet49', ...kUsual }, { switch: 'leaf-5', port: 'Ethernet50', ...kUsual, discards: 880, ecn: 41_000, pause: 2_200, queue: 3.1e6, used: 0.92, load: 46e9 },
  { switch: 'leaf-9', port: 'Ethernet52', ...kUsual, errors: 120 }, { switch: 'spine-3', port: 'Ethernet8', ...kUsual, down: 1, used: 0, load: 0, ecn: 0 },
];

// Both questions of the page: the worst of each kind, and all values of those that are shown.
function ports(promql) {
  const of = /topk\(.*?\{switch="([^"]*)"\}/.exec(promql)?.[1];
  const isWorst = promql.includes('topk(');
  const bySwitch = promql.includes('by (switch) ');
  const rows = new Map();
  for (const { switch: name, port, ...values } of kPorts) {
    if (of && name !== of) continue;
    const key = bySwitch ? name : `${name}:${port}`;
    const row = rows.get(key) ?? { switch: name, ...(bySwitch ? {} : { port }) };
    for (const [what, value] of Object.entries(values)) row[what] = Math.max(row[what] ?? 0, value);
    rows.set(key, row);
  }
  const result = [...rows.values()].flatMap(({ switch: name, port, ...values }) => Object.entries(values).filter(([, value]) => !isWorst || value > 0)
    .map(([what, value]) => ({ metric: { switch: name, ...(port && { port }), what }, value: [1, String(value)] })));
  return { status: 'success', data: { resultType: 'vector', result } };
}

function end(text, job) {
  if (job && !kPlaced[job]) return { error: `no job "${job}". Did you mean llama-70b?` };
  const [host, index] = job && /^\d+$/.test(text) ? [hostOfRank(job, Number(text)), Number(text) % kPlaced[job].perHost] : (/^node-(\d+):gpu(\d+)$/.exec(text)?.slice(1).map(Number) ?? []);
  if (host === undefined) return { error: `no GPU "${text}"` };
  if (index >= 8) return { error: `node-${host} has no "gpu${index}"` };
  return { gpu: `GPU-${host}-${index}`, host: `node-${host}`, index, ...(job && { rank: Number(text) }), model: 'NVIDIA H100', nic: `node-${host}:mlx5_${index}`, rail: index };
}

// Leaf 5's second uplink is in trouble, and the adapter of node-17's GPU 3 has errors; of hosts from 10,000 on nobody reports counters.
function path(query) {
  const [a, b] = [end(query.get('a'), query.get('job')), end(query.get('b'), query.get('job'))];
  if (a.error || b.error) return [404, { error: a.error ?? b.error }];
  const at = Number(query.get('at') ?? 1_768_446_845e9);
  const value = (metric, meaning, direction, own, siblings, more = {}) => ({ metric, meaning, direction, unit: 'per second', value: own, siblings, sibling_count: 3, odd: meaning !== 'load' && own > 3 * siblings && own > 1, ...more });
  const isHeard = Number(a.host.slice(5)) < 10_000;
  const nic = (end_) => !isHeard ? [] : [value('hw.network.io', 'load', 'transmit', 4.64e9, 4.62e9), value('lockstep_nic_symbol_error_total', 'errors', '', end_.host === 'node-17' && end_.index === 3 ? 11.5 : 0, 0),
    value('lockstep_nic_pause_seconds_total', 'pause', '', 0.02, 0.02), value('lockstep_nic_fec_corrected_bits_total', 'optics', '', 130, 128)];
  const port = (isBad) => !isHeard ? [] : [value('lockstep_port_bytes_total', 'load', 'out', isBad ? 46e9 : 13.4e9, 13.2e9), value('lockstep_port_bytes_total', 'load', 'in', 13.3e9, 13.2e9), value('lockstep_port_errors_total', 'errors', 'in', 0, 0),
    value('lockstep_port_discards_total', 'drops', 'out', isBad ? 880 : 0, 0), value('lockstep_port_ecn_marked_packets_total', 'ecn', 'out', isBad ? 41_000 : 9, 9), value('lockstep_port_pfc_pause_frames_total', 'pause', 'in', isBad ? 2_200 : 0, 0),
    value('lockstep_port_queue_bytes', 'queue', 'out', isBad ? 3.1e6 : 40e3, 40e3, { unit: '' })];
  const head = { at_unix_ns: at, a, b, notes: [], hops_left_out: 0, ...(query.get('job') && { job_id: query.get('job') }) };
  const node = (position, kind, name, more = {}) => ({ position, kind, name, known: 'agent', sure: 'reported', share: 1, ...more });
  const link = (position, from, to, more = {}) => ({ position, kind: 'link', link: 'network', name: `${from} - ${to}`, from, to, known: 'LLDP', sure: 'reported', share: 1, ...more });
  if (a.host === b.host) {
    return [200, { ...head, sentence: 'Over NVLink, within one domain.', kind: 'nvlink', equal_paths: 1,
      hops: [node(0, 'gpu', a.gpu), link(1, a.gpu, `${a.host}:nvlink`, { link: 'nvlink' }), node(2, 'nvlink', `${a.host}:nvlink`), link(3, `${a.host}:nvlink`, b.gpu, { link: 'nvlink' }), node(4, 'gpu', b.gpu)] }];
  }
  const number = (end_) => Number(end_.host.slice(5));
  const [up, down] = [leafOf(number(a), a.index), leafOf(number(b), b.index)];
  const ways = up === down ? 0 : 8;
  const guess = { known: 'file', sure: 'possible', share: 1 / ways };
  const middle = Array.from({ length: ways }, (_, spine) => [
    link(5, `leaf-${up}:Ethernet${49 + spine}`, `spine-${spine}:Ethernet${up + 1}`, { ...guess, gbit_s: 400, from_state: port(up === 5 && spine === 1), to_state: port(false) }),
    node(6, 'spine', `spine-${spine}`, guess),
    link(7, `spine-${spine}:Ethernet${down + 1}`, `leaf-${down}:Ethernet${49 + spine}`, { ...guess, gbit_s: 400, from_state: port(false), to_state: port(false) }),
  ]).flat();
  const hops = [
    node(0, 'gpu', a.gpu), link(1, a.gpu, a.nic, { link: 'pcie', distance: 'PIX', known: 'agent' }), node(2, 'nic', a.nic, { state: nic(a) }),
    link(3, a.nic, `leaf-${up}:Ethernet1/${(number(a) % kPodHosts) + 1}`), node(4, 'leaf', `leaf-${up}`, { known: 'LLDP and file' }), ...middle,
    ...(ways > 0 ? [node(8, 'leaf', `leaf-${down}`, { known: 'LLDP and file' })] : []),
    link(9, `leaf-${down}:Ethernet1/${(number(b) % kPodHosts) + 1}`, b.nic), node(10, 'nic', b.nic, { state: nic(b) }), link(11, b.nic, b.gpu, { link: 'pcie', distance: 'PIX', known: 'agent' }), node(12, 'gpu', b.gpu),
  ].sort((one, other) => one.position - other.position);
  const sentence = ways > 0 ? `Over the network, by 1 of ${ways} equal paths, not observed.` : 'Over the network, through one switch.';
  return [200, { ...head, sentence, kind: 'network', equal_paths: Math.max(1, ways), hops, notes: ways > 0 ? [`${ways} equal paths, none observed: each switch is taken to spread evenly`] : [] }];
}

function affected(query) {
  const id = named(query.get('component'));
  if (!id) return [404, { error: `no component "${query.get('component')}"` }];
  const jobs = id.startsWith('leaf:leaf-5') || id === 'host:node-17' ? [{ job_id: 'llama-70b', ranks_hit: 8, ranks: 64, share: 1, first_ranks: [5, 13, 21, 29, 37, 45, 53, 61] }] : [];
  return [200, { component: id.slice(id.indexOf(':') + 1), kind: id.slice(0, id.indexOf(':')), at_unix_ns: 1, gpus: 8 * jobs.length, hosts: 8 * jobs.length, note: '', jobs, total: jobs.length, shown: jobs.length }];
}

// Null where it is not about the fabric.
export function fabricAnswer(path_, query, body) {
  if (path_ === '/api/fabric') return [200, summary()];
  if (path_ === '/api/graph') return graph(query);
  if (path_ === '/api/fabric/affected') return affected(query);
  if (path_ === '/api/fabric/path') return path(query);
  if (path_ === '/prometheus/api/v1/query') return [200, ports(query.get('query') ?? new URLSearchParams(body).get('query') ?? '')];
  return null;
}
