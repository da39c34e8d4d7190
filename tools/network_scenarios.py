"""The plan of the network's board, tests/scenarios/network: what make_scenarios.py writes besides the plain and the harder one.

Fleets whose switches report and whose cabling is known: faults of adapters, links, leaves and spines, where the right place has to be
named, and decoys: what looks like the network and is not (a starved proxy thread, a slow receiver, a late GPU, uneven work).
"""
from __future__ import annotations

from hard_scenarios import HardJob
from make_scenarios import Job, Scenario, percent

SPINES = 4
MASK = (1 << 64) - 1


def mix(value: int) -> int:
    """As src/sim/fleet/random.h."""
    value = (value + 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def hash_of(text: str) -> int:
    value = 14695981039346656037
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) & MASK
    return mix(value)


T8D16 = HardJob(tp=8, dp=16, micro_batches=4)
T8P2D8 = HardJob(tp=8, pp=2, dp=8, micro_batches=8)
T4D24 = HardJob(tp=4, dp=24, micro_batches=4, rails=False)
D48 = HardJob(dp=48, micro_batches=2, gpus_per_host=4, rails=False)
F64 = HardJob(dp=64, micro_batches=1, layers=4, gpus_per_host=4, rails=False)
T4F16 = HardJob(tp=4, dp=16, micro_batches=1, layers=4, gpus_per_host=4)
E32 = HardJob(tp=2, dp=32, ep=16, micro_batches=2)
T8D3 = HardJob(tp=8, dp=3, micro_batches=4)  # fewer than 32 ranks

# (what is hit, cause, severity, job)
NETWORK = {
    "train": [("link", "link-degraded", 6.0, T8D16), ("link", "link-degraded", 4.0, E32), ("link", "congestion", 6.0, T4D24),
              ("link", "congestion", 4.0, F64), ("leaf", "congestion", 4.0, T8D16), ("leaf", "pfc-storm", 4.0, T4D24),
              ("leaf", "switch-down", 4.0, T8P2D8), ("rank", "nic-degraded", 6.0, T8D16), ("rank", "nic-degraded", 4.0, D48),
              ("rank", "nic-degraded", 6.0, T8D3), ("rank", "link-flap", 1.0, T4F16), ("spine", "congestion", 5.0, E32),
              ("job", "tcp-fallback", 6.0, T4D24), ("rank", "nvlink-degraded", 6.0, T8D16)],
    "test": [("link", "link-degraded", 5.0, T4D24), ("link", "link-degraded", 8.0, T8P2D8), ("link", "link-degraded", 4.0, F64),
             ("link", "link-degraded", 3.0, E32), ("link", "link-degraded", 6.0, T4F16), ("link", "link-degraded", 5.0, D48),
             ("link", "congestion", 5.0, T8D16), ("link", "congestion", 4.0, E32), ("link", "congestion", 6.0, T8P2D8),
             ("link", "congestion", 5.0, T4F16), ("link", "congestion", 5.0, D48), ("leaf", "congestion", 5.0, T4D24),
             ("leaf", "congestion", 4.0, E32), ("leaf", "congestion", 6.0, T4F16), ("leaf", "pfc-storm", 4.0, T8D16),
             ("leaf", "pfc-storm", 5.0, F64), ("leaf", "pfc-storm", 3.0, E32), ("leaf", "switch-down", 4.0, T8D16),
             ("leaf", "switch-down", 3.0, T4F16), ("leaf", "switch-down", 4.0, T4D24), ("rank", "nic-degraded", 5.0, E32),
             ("rank", "nic-degraded", 6.0, T4D24), ("rank", "nic-degraded", 4.0, F64), ("rank", "nic-degraded", 8.0, T8P2D8),
             ("rank", "nic-degraded", 8.0, T8D3), ("rank", "link-flap", 1.0, T8D16), ("rank", "link-flap", 1.0, D48),
             ("spine", "congestion", 4.0, E32), ("job", "tcp-fallback", 6.0, T8D16), ("rank", "nvlink-degraded", 6.0, T4D24)],
}
# (what is hit, cause, severity, job); "proxy": cpu-contention of NCCL's proxy thread alone; "receiver": of what it does with what arrives;
# "odd": an oddity
DECOYS = {
    "train": [("proxy", "cpu-contention", 6.0, T8D16), ("rank", "foreign-process", 0.5, E32), ("rank", "slow-compute", 0.4, T4D24),
              ("rank", "throttle-thermal", 0.4, T8P2D8), ("odd", "packing", 0.3, D48), ("rank", "process-paused", 0.5, T4F16),
              ("proxy", "cpu-contention", 8.0, T4D24), ("receiver", "cpu-contention", 5.0, T8D16),
              ("expert", "expert-imbalance", 1.0, E32)],
    "test": [("proxy", "cpu-contention", 6.0, E32), ("proxy", "cpu-contention", 5.0, F64), ("proxy", "cpu-contention", 8.0, D48),
             ("proxy", "cpu-contention", 6.0, T8P2D8), ("rank", "foreign-process", 0.6, T8D16), ("rank", "foreign-process", 0.5, F64),
             ("rank", "slow-compute", 0.3, E32), ("rank", "throttle-power", 0.4, D48), ("host", "cpu-contention", 0.4, T8D16),
             ("rank", "data-loader", 0.4, T4F16), ("host", "memory-pressure", 0.4, T4D24), ("job", "gc", 0.5, T8D16),
             ("rank", "ecc", 0.4, T8D3), ("odd", "expert-skew", 0.5, E32), ("job", "sequence-imbalance", 0.5, T4D24),
             ("receiver", "cpu-contention", 6.0, T8D16), ("receiver", "cpu-contention", 5.0, T4F16),
             ("receiver", "cpu-contention", 4.0, D48), ("receiver", "cpu-contention", 8.0, T4D24),
             ("rank", "slow-compute", 0.3, T8D16), ("rank", "throttle-thermal", 0.4, F64), ("rank", "slow-compute", 0.5, T8P2D8),
             ("rank", "process-paused", 0.5, T4D24), ("expert", "expert-imbalance", 1.5, E32),
             ("stage", "stage-imbalance", 0.4, T8P2D8), ("job", "storage", 0.5, D48), ("odd", "packing", 0.3, T8D16)],
}


class NetworkScenario(Scenario):
    def __init__(self, split: str, name: str, what: str, job: HardJob) -> None:
        super().__init__(f"network/{split}", name, what)
        draw = self.draw
        self.steps = draw.randrange(76, 90)
        more: dict[str, object] = {"step_ms": draw.choice([500, 1000, 1000]), "communication": round(draw.uniform(0.25, 0.4), 2)}
        if job.layers:
            more |= {"sharding": "full", "layers": job.layers, "overlap": draw.choice([0.3, 0.5])}
        if draw.random() < 0.4:
            more["noise"] = "{times: 3, tails: heavy}"
        self.jobs.append(("job", job, more))
        self.hosts_per_leaf = max(2, min(16, job.hosts // 4))
        self.topology = {"gpus_per_host": job.gpus_per_host, "rails": str(job.rails).lower(), "spines": SPINES, "switches": "true"}
        self.telemetry = {"all_series": False}

    def leaf(self, rank: int) -> int:
        job = self.jobs[0][1]
        pod = job.host(rank) // self.hosts_per_leaf
        return pod * job.gpus_per_host + rank % job.gpus_per_host if job.rails else pod

    def spine(self, sender: int, receiver: int) -> int:
        """As JobShape::spine_of."""
        seed = mix(self.seed) ^ hash_of("job")
        return mix(mix(seed ^ 0xEC3B) ^ mix(sender << 32 | receiver)) % SPINES

    def ways(self) -> list[tuple[int, int, int]]:
        """Flows between neighbours under two leaves, which everybody waits for: sender's leaf, receiver's leaf, spine."""
        job = self.jobs[0][1]
        found = []
        for rank in range(job.ranks):
            for role, (members, at) in job.groups(rank).items():
                # Messages between stages are few and small: what goes over their link costs next to nothing.
                peers = [members[(at + hop) % len(members)] for hop in (1, -1)] if role != "pp" else []
                for peer in peers:
                    if job.host(peer) != job.host(rank) and self.leaf(peer) != self.leaf(rank):
                        found.append((self.leaf(rank), self.leaf(peer), self.spine(rank, peer)))
        return found

    def target(self, kind: str, job: Job) -> dict[str, object]:
        if kind in ("link", "leaf", "spine"):
            sender, receiver, spine = self.draw.choice(self.ways())
            leaf = self.draw.choice([sender, receiver])
            return {"link": {"leaf": leaf, "spine": spine}, "leaf": {"leaf": leaf}, "spine": {"spine": spine}}[kind]
        if kind in ("rank", "proxy", "receiver"):
            able = [rank for rank in range(job.ranks) if job.sends_out(rank, ("dp", "ep"))]
            return {"rank": self.draw.choice(able)}
        if kind in ("host", "stage", "expert"):
            return {kind: self.draw.randrange({"host": job.hosts, "stage": job.pp, "expert": job.ep}[kind])}
        return {}

    def hit(self, kind: str, cause: str, severity: float) -> None:
        job = self.jobs[0][1]
        if kind == "odd":
            self.oddity(cause, severity, 60 if cause == "expert-skew" else None)
            return
        fault: dict[str, object] = {"cause": cause, **self.target(kind, job)}
        if cause != "tcp-fallback":
            fault["from_step"] = self.draw.randrange(28, 40)
        fault["severity"] = severity
        if cause == "link-flap":
            fault |= {"shape": "intermittent", "period_steps": 4}
        if cause == "process-paused":
            fault |= {"shape": "pulsed", "period_steps": 6}
        if kind in ("proxy", "receiver"):
            fault["threads"] = kind
        self.faults.append(fault)


def everything(split: str) -> list[Scenario]:
    made = []
    for title, plan in (("", NETWORK), ("decoy-", DECOYS)):
        for i, (kind, cause, severity, job) in enumerate(plan[split]):
            name = f"{title}{kind}-{cause}-{percent(severity)}-{job.name}"
            what = {"proxy": f"NCCL's proxy thread of one rank gets no CPU, in a job of {job.ranks} ranks",
                    "receiver": f"One rank is slow to take what arrives for it, in a job of {job.ranks} ranks",
                    "odd": f"Healthy, but {cause}, in a job of {job.ranks} ranks"}.get(
                        kind, f"{cause} of a {kind}, in a job of {job.ranks} ranks")
            made.append(NetworkScenario(split, name, what + (": not the network." if title else "; its switches report."), job))
            made[-1].hit(kind, cause, severity)
    return made
