"""The plan of the harder board, tests/scenarios/hard: what make_scenarios.py writes besides the plain one.

Other shapes than the plain board has: 4 and 8 GPUs a host, with and without rails, odd sizes, sharded jobs (FSDP, ZeRO-3), experts
across hosts, steps of 100 ms to 30 s, overlap to 0.9, noise of one, three and six times the usual with heavy tails, lasting
differences between ranks and shocks that hit all of them; faults from the first step and on top of oddities; 1,024 to 8,192 ranks.

The rows of the curve ("curve-...") are named by what the fault costs the job, 2, 4 or 8 % of a step, not by how much slower the one
rank gets: of that the noise of the others hides a part. Which severity costs so much is played (`--calibrate PROGRAM`, seconds) and
kept in hard_scenarios.json, so that writing the files needs no built program.
"""
from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile

from make_scenarios import DAMAGE, ODDITIES, OWN_SHAPE, SHAPES, SLOW, STOPS, Job, Scenario, percent

SEVERITIES = pathlib.Path(__file__).with_suffix(".json")
NOISES = (1, 3, 6)


@dataclasses.dataclass(frozen=True)
class HardJob(Job):
    gpus_per_host: int = 8
    rails: bool = True
    layers: int = 0  # of a sharded job; 0: it is none

    @property
    def name(self) -> str:
        return super().name + (f"f{self.layers}" if self.layers else "") + f"g{self.gpus_per_host}" + ("" if self.rails else "n")

    def host(self, rank: int) -> int:
        return rank // self.gpus_per_host

    def groups(self, rank: int) -> dict[str, tuple[list[int], int]]:
        """Role: members and the rank's place among them; as src/sim/fleet/job_shape.h numbers them."""
        replicas, stage_ranks = self.dp * self.cp, self.tp * self.dp * self.cp
        replica = rank // self.tp % replicas

        def row(at: int, stride: int, size: int) -> tuple[list[int], int]:
            return [rank + (i - at) * stride for i in range(size)], at

        return {"tp": row(rank % self.tp, 1, self.tp), "cp": row(replica % self.cp, self.tp, self.cp),
                "ep": row(replica % self.ep, self.tp, self.ep), "dp": row(replica, self.tp, replicas),
                "pp": row(rank // stage_ranks, stage_ranks, self.pp)}

    def sends_out(self, rank: int, roles: tuple[str, ...]) -> bool:
        for role, (members, at) in self.groups(rank).items():
            beside = [members[(at + hop) % len(members)] for hop in (1, -1)]
            if role in roles and any(self.host(peer) != self.host(rank) for peer in beside):
                return True
        return False

    def inside_host(self, rank: int) -> bool:
        return any(role != "pp" and len(members) > 1 and self.host(members[0]) == self.host(members[-1])
                   for role, (members, _) in self.groups(rank).items())


D5 = HardJob(dp=5, micro_batches=4, gpus_per_host=4, rails=False)
D6 = HardJob(dp=6, micro_batches=4, gpus_per_host=4)
D12 = HardJob(dp=12, micro_batches=4, gpus_per_host=4)
D24 = HardJob(dp=24, micro_batches=4, rails=False)
F12 = HardJob(dp=12, micro_batches=1, gpus_per_host=4, layers=8)
F24 = HardJob(dp=24, micro_batches=2, layers=12)
F5 = HardJob(dp=5, micro_batches=2, gpus_per_host=4, rails=False, layers=6)
T4F6 = HardJob(tp=4, dp=6, micro_batches=1, rails=False, layers=8)
F16E8 = HardJob(dp=16, ep=8, micro_batches=1, gpus_per_host=4, layers=6)
T4D6 = HardJob(tp=4, dp=6, micro_batches=4, gpus_per_host=4)
T8D12 = HardJob(tp=8, dp=12, micro_batches=4, rails=False)
T4P2D5 = HardJob(tp=4, pp=2, dp=5, micro_batches=8, rails=False)
T2P4D6 = HardJob(tp=2, pp=4, dp=6, micro_batches=16, gpus_per_host=4, schedule="interleaved")
C2D6 = HardJob(tp=2, cp=2, dp=6, micro_batches=4)
E24 = HardJob(dp=24, ep=4, micro_batches=2, rails=False)
T2P2D12E6 = HardJob(tp=2, pp=2, dp=12, ep=6, micro_batches=8, gpus_per_host=4)

ANY = [T4D6, F12, D24, T2P4D6, T8D12, F24, D5, T4P2D5, E24, T4F6, C2D6, D12, F16E8, T2P2D12E6, D6, F5]
FOR_CURVE = [D12, F12, T4D6, F24, D24, T8D12, D6, F5, T4F6, E24, C2D6, T4P2D5]
PIPELINED = [T2P4D6, T4P2D5, T2P2D12E6]
EXPERTS = [E24, F16E8, T2P2D12E6]
TENSOR = [T4D6, T4F6, T8D12, C2D6, T4P2D5]  # a group inside a host that carries much
WIDE = [T8D12, T4D6, F24, D24, T4F6, F12]  # several hosts, gradients between them
# of a leaf: more hosts than it has, so that uplinks carry something
BY_CAUSE = {"nvlink-degraded": TENSOR, "nic-degraded": WIDE, "link-flap": WIDE, "congestion": [T8D12, D24, T4F6],
            "pfc-storm": [T4F6, T8D12], "tcp-fallback": WIDE, "stage-imbalance": PIPELINED, "expert-imbalance": EXPERTS,
            "sequence-imbalance": [T4D6, D12, F24, T8D12], "deadlock": TENSOR + PIPELINED, "pcie-degraded": WIDE}

# name: job, steps, the step with the fault
L1024 = (44, 22)
LARGE = {
    "1024-pipeline": (HardJob(tp=8, pp=8, dp=16, micro_batches=16), *L1024),
    "1024-sharded": (HardJob(dp=1024, micro_batches=1, layers=4, rails=False), *L1024),
    "1024-sharded-tp": (HardJob(tp=8, dp=128, micro_batches=1, layers=4), *L1024),
    "1024-four-gpus": (HardJob(tp=4, pp=4, dp=64, micro_batches=8, gpus_per_host=4, rails=False), *L1024),
    "1152-odd": (HardJob(tp=8, pp=6, dp=24, micro_batches=12), *L1024),
    "1024-experts": (HardJob(tp=2, dp=512, ep=16, micro_batches=2), *L1024),
    "1280-interleaved": (HardJob(tp=8, pp=4, dp=40, micro_batches=8, schedule="interleaved"), *L1024),
    "2048-pipeline": (HardJob(tp=8, pp=8, dp=32, micro_batches=16, rails=False), 34, 18),
    "2048-sharded-tp": (HardJob(tp=4, dp=512, micro_batches=1, layers=4, gpus_per_host=4), 34, 18),
    "4096-pipeline": (HardJob(tp=8, pp=8, dp=64, micro_batches=8), 28, 15),
    "4096-sharded-tp": (HardJob(tp=8, dp=512, micro_batches=1, layers=4), 28, 15),
    "8192-pipeline": (HardJob(tp=8, pp=16, dp=64, micro_batches=16), 24, 13),
}
# (job, cause or None, severity, noise); train has the first ones
LARGE_PLAN = {
    "train": [("1024-pipeline", "slow-compute", 0.3, 1), ("1024-sharded", "data-loader", 0.3, 1), ("1024-sharded-tp", "nic-degraded", 9.0, 3),
              ("1024-four-gpus", "throttle-thermal", 0.5, 3), ("1152-odd", "cpu-contention", 0.3, 1), ("1024-experts", "foreign-process", 1.0, 1),
              ("1280-interleaved", "rank-missing", None, 3), ("1024-sharded-tp", None, None, 3), ("1152-odd", None, None, 6),
              ("1024-sharded", "slow-compute", 0.2, 1), ("2048-pipeline", "data-loader", 0.3, 3), ("2048-sharded-tp", "throttle-power", 0.5, 1),
              ("4096-sharded-tp", "slow-compute", 0.5, 1), ("8192-pipeline", "throttle-thermal", 0.5, 1)],
    "test": [("1024-pipeline", "data-loader", 0.2, 1), ("1024-pipeline", "throttle-power", 0.5, 3), ("1024-pipeline", "nvlink-degraded", 9.0, 1),
             ("1024-sharded", "slow-compute", 0.3, 1), ("1024-sharded", "cpu-contention", 0.3, 3), ("1024-sharded", "nic-degraded", 9.0, 1),
             ("1024-sharded", None, None, 3), ("1024-sharded-tp", "slow-compute", 0.2, 1), ("1024-sharded-tp", "rank-dead", None, 1),
             ("1024-sharded-tp", "data-loader", 0.5, 3), ("1024-sharded-tp", "congestion", 9.0, 1), ("1024-four-gpus", "slow-compute", 0.5, 3),
             ("1024-four-gpus", "memory-pressure", 0.3, 1), ("1024-four-gpus", None, None, 1), ("1152-odd", "ecc", 0.5, 3),
             ("1152-odd", "data-loader", 0.3, 6), ("1152-odd", "nic-degraded", 15.0, 1), ("1024-experts", "throttle-thermal", 0.5, 3),
             ("1024-experts", "xid", None, 1), ("1024-experts", None, None, 1), ("1280-interleaved", "foreign-process", 0.5, 1),
             ("1280-interleaved", "cpu-contention", 0.5, 3), ("2048-pipeline", "slow-compute", 0.3, 1), ("2048-pipeline", "rank-missing", None, 3),
             ("2048-pipeline", None, None, 1), ("2048-sharded-tp", "data-loader", 0.3, 1), ("2048-sharded-tp", "throttle-thermal", 0.5, 3),
             ("2048-sharded-tp", "nic-degraded", 9.0, 1), ("4096-pipeline", "throttle-power", 0.5, 3), ("4096-sharded-tp", "data-loader", 0.3, 1),
             ("4096-sharded-tp", None, None, 1), ("8192-pipeline", "slow-compute", 0.5, 1), ("8192-pipeline", "data-loader", 0.5, 3)],
}

CURVE = ("slow-compute", "cpu-contention", "data-loader")  # compute, host, input
CURVE_COSTS = {0.02: 110, 0.04: 70, 0.08: 40}  # cost: steps behind the fault's first
CURVE_FILES = {"train": {1: 2, 3: 1, 6: 1}, "test": {1: 5, 3: 3, 6: 2}}  # noise: jobs for each cause and cost

# severity that hurts in any noise; of wire faults, which act on a part of the step, much more
PLAIN = {"nvlink-degraded": [9.0, 4.0], "nic-degraded": [9.0, 3.0], "pcie-degraded": [6.0, 3.0], "congestion": [9.0, 4.0],
         "pfc-storm": [9.0, 4.0], "tcp-fallback": [9.0, 4.0], "link-flap": [1.0, 0.5], "checkpoint": [4.0, 2.0],
         "expert-imbalance": [3.0, 1.5], "sequence-imbalance": [1.0, 0.5], "gc": [0.5, 1.0], "process-paused": [0.5, 1.0]}
USUAL_PLAIN = [0.3, 0.6, 1.0]

FROM_THE_START = [("slow-compute", 0.3), ("nic-degraded", 15.0), ("data-loader", 0.4), ("cpu-contention", 0.4), ("throttle-power", 0.5),
                  ("nvlink-degraded", 9.0), ("throttle-thermal", 1.0), ("tcp-fallback", 9.0), ("memory-pressure", 0.5), ("pcie-degraded", 9.0)]
ON_ODDITIES = ["slow-compute", "data-loader", "nic-degraded", "cpu-contention", "throttle-thermal", "rank-missing", "foreign-process"]
SEVERAL = [("slow-compute", "nic-degraded"), ("data-loader", "cpu-contention"), ("throttle-thermal", "throttle-thermal"),
           ("slow-compute", "data-loader"), ("nvlink-degraded", "slow-compute"), ("ecc", "data-loader", "nic-degraded"),
           ("cpu-contention", "rank-dead"), ("foreign-process", "memory-pressure"), ("nic-degraded", "nic-degraded"),
           ("throttle-power", "slow-compute", "data-loader")]
STEP_MS = [100, 200, 500, 1000, 2000, 4000, 8000, 15000, 30000]


class HardScenario(Scenario):
    def __init__(self, split: str, name: str, what: str, noise: int) -> None:
        super().__init__(f"hard/{split}", name, what)
        self.noise = noise

    def hard_job(self, job: HardJob, step_ms: int | None = None) -> HardJob:
        draw = self.draw
        step_ms = step_ms or draw.choice(STEP_MS)
        more: dict[str, object] = {"step_ms": step_ms}
        if job.layers:
            more |= {"sharding": "full", "layers": job.layers, "overlap": draw.choice([0.5, 0.8, 0.9, 0.9]),
                     "communication": round(draw.uniform(0.2, 0.45), 2)}
        else:
            more["communication"] = round(draw.uniform(0.1, 0.3), 2)
            if overlap := draw.choice([0, 0.3, 0.7, 0.9]):
                more["overlap"] = overlap
        more["noise"] = (f"{{times: {self.noise}, tails: heavy, rank_spread: {draw.choice([0.004, 0.004, 0.007, 0.01])}, "
                         f"shocks: {draw.choice([0, 0, 0.02, 0.05])}}}")
        self.jobs.append(("job", job, more))
        self.topology = {"gpus_per_host": job.gpus_per_host, "rails": str(job.rails).lower()}
        if step_ms >= 4000:  # an agent need not read a node oftener than the job does a step
            self.telemetry["metrics_every_s"] = 15 if step_ms < 15000 else 30
            self.steps = draw.randrange(65, 80)
        if job.ranks >= 1000:
            self.telemetry.update(all_series=False, metrics_every_s=max(10, int(self.telemetry.get("metrics_every_s", 0))))
        return job

    def begins(self) -> int:
        return self.draw.randrange(38, 62) if self.steps > 90 else self.draw.randrange(24, 34)

    def target(self, kind: str, job: Job) -> dict[str, object]:
        if kind == "leaf":
            pods = -(-job.hosts // max(2, min(16, job.hosts // 4)))
            return {"leaf": self.draw.randrange(job.gpus_per_host if job.rails else pods)}
        return super().target(kind, job)

    def hard_fault(self, cause: str, severity: float | None, shape: str = "constant", at: int | None = None, lasts: bool = False) -> None:
        self.fault(cause, severity, shape, at=self.begins() if at is None else at)
        fault, job = self.faults[-1], self.jobs[0][1]
        if at == 0:
            fault["from_step"] = 0
        able = {"nic-degraded": lambda rank: job.sends_out(rank, ("tp", "cp", "ep", "pp", "dp")),
                "link-flap": lambda rank: job.sends_out(rank, ("pp", "dp")), "nvlink-degraded": job.inside_host,
                "pcie-degraded": lambda rank: job.sends_out(rank, ("pp", "dp"))}.get(cause)
        if able and not able(fault["rank"]):
            taken = {other["rank"] for other in self.faults[:-1] if "rank" in other}
            ranks = [rank for rank in range(job.ranks) if rank not in taken and able(rank)]
            fault["rank"] = self.draw.choice(ranks)
        # One in six is over before the end.
        if lasts and cause in SLOW and shape == "constant" and cause != "tcp-fallback" and self.draw.random() < 1 / 6:
            fault["steps"] = self.draw.randrange(20, 30)


def turning(jobs: list, turn: int) -> HardJob:
    return jobs[turn % len(jobs)]


def severities() -> dict[str, float]:
    return json.loads(SEVERITIES.read_text()) if SEVERITIES.exists() else {}


def curve(split: str, found: dict[str, float] | None = None) -> list[Scenario]:
    """Small faults that last: what they cost is in the name, how severe they must be for that is kept beside this file."""
    found = severities() if found is None else found
    made = []
    turn = 0 if split == "test" else 7
    for noise, jobs in CURVE_FILES[split].items():
        for cause in CURVE:
            for cost, behind in CURVE_COSTS.items():
                for _ in range(jobs):
                    turn += 1
                    job = turning(FOR_CURVE, turn)
                    name = f"curve-{cause}-{percent(cost)}-x{noise}-{job.name}"
                    made.append(HardScenario(split, name, f"{cause} that costs {percent(cost)} % of a step, noise x{noise}, {job.ranks} ranks.",
                                             noise))
                    made[-1].hard_job(job, made[-1].draw.choice([200, 500, 1000, 2000, 4000]))
                    made[-1].hard_fault(cause, found.get(f"hard/{split}/{name}", 2 * cost), at=40)
                    if "host" in made[-1].faults[-1]:  # one rank of it: a whole host costs another share
                        host = made[-1].faults[-1].pop("host")
                        made[-1].faults[-1] = {"cause": cause, "rank": min(job.ranks - 1, host * job.gpus_per_host), **made[-1].faults[-1]}
                    made[-1].steps = 40 + behind
    return made


def single_faults(split: str) -> list[Scenario]:
    made = []
    turn = 0 if split == "test" else 5
    for cause in SLOW:
        amounts = PLAIN.get(cause, USUAL_PLAIN)
        for place in range(2 if split == "test" else 1):
            turn += 1
            noise = NOISES[turn % 3]
            severity = amounts[(place + turn) % len(amounts)]
            shape = OWN_SHAPE.get(cause, SHAPES[turn % len(SHAPES)])
            job = turning(BY_CAUSE.get(cause, ANY), turn)
            made.append(HardScenario(split, f"{cause}-{percent(severity)}-x{noise}-{job.name}",
                                     f"{cause}, {percent(severity)} %, {shape}, noise x{noise}, in a job of {job.ranks} ranks.", noise))
            made[-1].hard_job(job)
            made[-1].hard_fault(cause, severity, shape, lasts=True)
    for cause in STOPS:
        for _ in range(2 if split == "test" else 1):
            turn += 1
            noise, job = NOISES[turn % 3], turning(BY_CAUSE.get(cause, ANY), turn)
            made.append(HardScenario(split, f"{cause}-x{noise}-{job.name}", f"{cause}, noise x{noise}, in a job of {job.ranks} ranks.", noise))
            made[-1].hard_job(job)
            made[-1].hard_fault(cause, None)
            made[-1].steps = min(made[-1].steps, int(made[-1].faults[0]["from_step"]) + 30)
    return made


def from_the_start(split: str) -> list[Scenario]:
    made = []
    turn = 0 if split == "test" else 3
    for cause, severity in FROM_THE_START:
        for _ in range(2 if split == "test" else 1):
            turn += 1
            noise, job = NOISES[turn % 2], turning(BY_CAUSE.get(cause, ANY), turn)
            made.append(HardScenario(split, f"start-{cause}-{percent(severity)}-x{noise}-{job.name}",
                                     f"{cause}, {percent(severity)} %, from the first step on, noise x{noise}, {job.ranks} ranks.", noise))
            made[-1].hard_job(job)
            made[-1].hard_fault(cause, severity, at=0)
            made[-1].steps = 70
    return made


def fits(kind: str, job: HardJob) -> bool:
    return not (kind == "expert-skew" and job.ep == 1) and not (kind == "stage-uneven" and job.pp == 1) and not (
        kind == "resize" and (job.pp > 1 or job.ep > 1))


def on_oddities(split: str) -> list[Scenario]:
    made = []
    turn = 0 if split == "test" else 4
    for kind, (amounts, every, _) in ODDITIES.items():
        for _ in range(2 if split == "test" else 1):
            turn += 1
            noise = NOISES[turn % 3]
            cause = ON_ODDITIES[turn % len(ON_ODDITIES)]
            job = turning([each for each in BY_CAUSE.get(cause, ANY) if fits(kind, each)] or [each for each in ANY if fits(kind, each)], turn)
            severity = None if cause in STOPS else PLAIN.get(cause, USUAL_PLAIN)[turn % 2]
            made.append(HardScenario(split, f"odd-{kind}-{cause}-x{noise}-{job.name}",
                                     f"{cause} in a job with {kind}, noise x{noise}, {job.ranks} ranks.", noise))
            made[-1].hard_job(job, made[-1].draw.choice([200, 500, 1000, 2000, 4000]))
            # A job of another size has other ranks: the fault comes while it has the planned one.
            made[-1].oddity(kind, amounts[turn % len(amounts)], 70 if kind == "resize" else every[turn % len(every)] if every else None)
            made[-1].hard_fault(cause, severity, at=made[-1].begins())
    return made


def healthy(split: str) -> list[Scenario]:
    made = []
    turn = 0 if split == "test" else 9
    for noise in NOISES:
        for _ in range(5 if split == "test" else 2):
            turn += 1
            job = turning(ANY, turn)
            made.append(HardScenario(split, f"healthy-x{noise}-{job.name}", f"Nothing is wrong, noise x{noise}, {job.ranks} ranks.", noise))
            made[-1].hard_job(job)
    for kind, (amounts, every, _) in ODDITIES.items():
        for noise in NOISES if split == "test" else (NOISES[turn % 3],):
            turn += 1
            job = turning([each for each in ANY if fits(kind, each)], turn)
            amount = amounts[turn % len(amounts)]
            made.append(HardScenario(split, f"healthy-{kind}-x{noise}-{job.name}",
                                     f"Healthy, but {kind} ({amount}), noise x{noise}, {job.ranks} ranks.", noise))
            made[-1].hard_job(job)
            made[-1].oddity(kind, amount, every[turn % len(every)] if every else None)
    together = [("packing", "garbage", "checkpoints"), ("compile", "evaluation"), ("warm-up", "master-rank", "daily-heat"),
                ("packing", "evaluation", "checkpoints"), ("compile", "garbage", "master-rank")]
    for i, kinds in enumerate(together if split == "test" else together[:2]):
        turn += 1
        noise, job = NOISES[i % 3], turning(ANY, turn)
        made.append(HardScenario(split, f"healthy-together-{i + 1}-x{noise}-{job.name}", f"Healthy, but {', '.join(kinds)}, noise x{noise}.", noise))
        made[-1].hard_job(job)
        for kind in kinds:
            amounts, every, _ = ODDITIES[kind]
            made[-1].oddity(kind, amounts[0], every[0] if every else None)
    return made


def several(split: str) -> list[Scenario]:
    made = []
    for i, causes in enumerate(SEVERAL):
        if split == "train" and i % 2:
            continue
        noise = NOISES[i % 3]
        job = turning(TENSOR if "nvlink-degraded" in causes else [T8D12, F24, D24, T4F6], i + (split == "train"))
        made.append(HardScenario(split, f"several-{'-'.join(causes)}-x{noise}", f"{' and '.join(causes)}, noise x{noise}, {job.ranks} ranks.",
                                 noise))
        made[-1].hard_job(job, made[-1].draw.choice([200, 500, 1000, 2000]))
        made[-1].steps = 130
        apart = made[-1].draw.choice([0, 15, 30])
        for place, cause in enumerate(causes):
            severity = None if cause in STOPS else PLAIN.get(cause, [0.3, 0.5])[0]
            made[-1].hard_fault(cause, severity, at=100 if cause in STOPS else 38 + place * apart)
    return made


def damaged(split: str) -> list[Scenario]:
    causes = [("slow-compute", 0.5), ("nic-degraded", 9.0), ("data-loader", 0.5), ("rank-missing", None), ("cpu-contention", 0.5),
              ("throttle-thermal", 0.5)]
    names = ["agents-lost", "culprit-agent-lost", "late", "clocks", "plugins-missing", "metrics-missing", "all-at-once"]
    made = []
    for i, name in enumerate(names if split == "test" else names[1::2]):
        noise = NOISES[i % 2]
        cause, severity = causes[(i + (split == "train")) % len(causes)]
        job = turning([T8D12, F24, T4D6, D24], i + (split == "train"))
        made.append(HardScenario(split, f"damaged-{name}-{cause}-x{noise}-{job.name}",
                                 f"{cause} where telemetry is damaged ({name}), noise x{noise}, {job.ranks} ranks.", noise))
        made[-1].hard_job(job, made[-1].draw.choice([500, 1000, 2000]))
        made[-1].hard_fault(cause, severity)
        made[-1].telemetry.update(DAMAGE[name])
    return made


def large(split: str) -> list[Scenario]:
    made = []
    for size, cause, severity, noise in LARGE_PLAN[split]:
        job, steps, at = LARGE[size]
        hurts = f", {percent(severity)} %" if severity else ""
        made.append(HardScenario(split, f"large-{size}-{cause or 'healthy'}-x{noise}",
                                 f"{cause or 'Healthy'}{hurts}, noise x{noise}, in a job of {job.ranks} ranks.", noise))
        made[-1].hard_job(job, made[-1].draw.choice([1000, 2000, 4000, 8000]))
        made[-1].steps = steps
        if cause:
            made[-1].hard_fault(cause, severity, at=at)
    return made


def everything(split: str) -> list[Scenario]:
    return [scenario for part in (curve, single_faults, from_the_start, on_oddities, healthy, several, damaged, large) for scenario in part(split)]


def calibrate(program: str) -> None:
    """Plays each row of the curve with other severities until the job's step is as much longer as its name says."""
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    tried: dict[str, float] = {}
    wanted: dict[str, float] = {}
    for split in CURVE_FILES:
        for scenario in curve(split, {}):
            key = f"hard/{split}/{scenario.name}"
            wanted[key] = float(re.search(r"-(\d+)-x", scenario.name)[1]) / 100
            low[key], high[key], tried[key] = 0.5 * wanted[key], 40 * wanted[key], 2 * wanted[key]
    for _ in range(12):
        with tempfile.TemporaryDirectory() as folder:
            for split in CURVE_FILES:
                for scenario in curve(split, tried):
                    scenario.name = f"hard/{split}/{scenario.name}"
                    pathlib.Path(folder, scenario.name.replace("/", "+") + ".yaml").write_text(scenario.text())
            lines = subprocess.run([program, "score", folder, "--truth"], check=True, capture_output=True, text=True).stdout.splitlines()
        for line in lines:
            key, cost = line.split(": ")[0], float(re.search(r"costs (-?[\d.]+) %", line)[1]) / 100
            (low if cost < wanted[key] else high)[key] = tried[key]
            tried[key] = (low[key] * high[key]) ** 0.5
    SEVERITIES.write_text(json.dumps({key: round(value, 4) for key, value in sorted(tried.items())}, indent=0) + "\n")
