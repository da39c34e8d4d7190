// Generated from src/model/verdict_terms.h: what states, kinds, patterns, layers, causes and claims of verdicts there are, and what each means.
// Not to be edited; a test compares it, and `LOCKSTEP_REFRESH=1 model_test --gtest_filter='Generated.*'` writes it.

export const kVerdictStates = {
  'suspected': 'A few steps of evidence.',
  'confirmed': 'It lasts.',
  'cleared': 'It was confirmed and is over, or was suspected and has not been seen again.',
} as const;
export type VerdictState = keyof typeof kVerdictStates;

export const kVerdictKinds = {
  'slow': 'Somebody or something makes the job wait.',
  'hang': 'Nothing moves.',
  'fail': 'Ranks of the job died.',
  'incorrect': 'The loss is not a number, or jumps.',
  'inefficient': 'Time is wasted and nothing is broken: work dealt unevenly, less work, the slower transport.',
} as const;
export type VerdictKind = keyof typeof kVerdictKinds;

export const kPatterns = {
  'persistent': 'In nearly every step since it began.',
  'periodic': 'It comes back after the same number of steps, the period.',
  'transient': 'It comes and goes without a period, or came once and is over.',
} as const;
export type Pattern = keyof typeof kPatterns;

export const kLayers = {
  'gpu': 'A GPU: its clocks, memory, PCIe or other users.',
  'host': 'A host or a process on it: CPU, memory, scheduling, whether it lives.',
  'input': 'Reading input, or the storage behind it.',
  'nvlink': 'NVLinks and NVSwitches inside a host.',
  'nic': 'A network adapter.',
  'link': 'A link: port, cable, transceiver.',
  'switch': 'The fabric between hosts.',
  'software': 'The job\'s program or its settings.',
  'workload': 'The work itself and how it is dealt; nothing is broken.',
  'unknown': 'Nothing says where.',
} as const;
export type Layer = keyof typeof kLayers;

export const kCauses = {
  'throttle-thermal': 'The GPU is slowed by heat.',
  'throttle-power': 'The GPU is slowed by its power limit or brake.',
  'ecc': 'Memory errors of the GPU, or rows of it replaced or about to be.',
  'xid': 'Another hardware fault that the GPU\'s driver reports, or the GPU is lost.',
  'foreign-process': 'Processes of others run on the GPU.',
  'slow-compute': 'The host is on time and the GPU is behind, and no other reason shows.',
  'pcie-degraded': 'Fewer PCIe lanes, a lower generation or errors, of a GPU or an adapter.',
  'cpu-contention': 'The rank enqueues late, or its transfers crawl: its threads do not get the CPU.',
  'memory-pressure': 'The host or the cgroup is short of memory; an OOM kill.',
  'process-paused': 'The whole process stands still, now and then or for good.',
  'gc': 'Garbage collection, or other work on the host, at every rank\'s own time.',
  'data-loader': 'The rank waits for its input longer than its peers.',
  'storage': 'What the input is read from answers slowly.',
  'checkpoint': 'Checkpoints take longer than the job\'s first ones.',
  'nvlink-degraded': 'NVLinks are down, have errors or transfer slower than others.',
  'nic-degraded': 'Data leaves or reaches the rank slower than comparable flows: adapter, port or cable.',
  'link-flap': 'A link goes down and comes back; its transfers stand still meanwhile.',
  'congestion': 'The fabric carries more than it can; no rank or host stands out.',
  'pfc-storm': 'Pause frames stop sending for more than a few percent of the time.',
  'tcp-fallback': 'The job\'s data goes over TCP though its hosts have RDMA.',
  'stage-imbalance': 'One pipeline stage has more work than the others.',
  'expert-imbalance': 'An expert gets more than its share of the tokens.',
  'rank-missing': 'A rank has not entered an operation that others wait in.',
  'sequence-imbalance': 'Sequences are packed unevenly: the rank with the most tokens changes.',
  'op-mismatch': 'Ranks called different operations, or sizes, at the same place.',
  'deadlock': 'Ranks wait for each other in a circle of groups.',
  'rank-dead': 'The process is gone.',
  'code-regression': 'All ranks take longer for their own work than this job did before.',
  'nan-source': 'Loss or gradient norm is not a finite number.',
  'in-operation-stall': 'All ranks are inside the same operation and nothing moves.',
  'loss-spike': 'Loss or gradient norm jumps to a multiple of the usual.',
  'less-work': 'Steps take as long as ever and do less work.',
  'link-degraded': 'A link between two switches damages or loses packets: cable, optic or port.',
  'switch-down': 'A switch is down or silent; what it carried takes another way.',
} as const;
export type Cause = keyof typeof kCauses;

export const kClaimKinds = {
  'waits_for': 'Who waits for whom.',
  'self_time': 'What a rank\'s own work takes beside its peers\'.',
  'counter': 'A number that a node or the job reports.',
  'path': 'How fast data moves on a way through the network.',
  'event': 'Something that happened once.',
  'counterfactual': 'What a step would take without the culprit.',
  'exclusion': 'What was looked at and found healthy.',
} as const;
export type ClaimKind = keyof typeof kClaimKinds;
