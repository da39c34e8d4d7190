#!/usr/bin/env python3
"""Writes tests/scenarios/train, test, warnings and hard: what `lockstep score` plays.

    tools/make_scenarios.py                        write the files
    tools/make_scenarios.py --check                say which files are not as this program would write them
    tools/make_scenarios.py --calibrate PROGRAM    find the severities of the curve of small faults (hard_scenarios.py)

Rules are tuned on train/ alone; test/ has other seeds, so other jobs, ranks, times and sizes, and is only measured.
warnings/ has long runs for early warnings: faults that show signs before they come, and signs that come to nothing.
The plan is a table: every cause at every severity, then healthy and healthy-but-odd jobs, several faults at once, and
damaged telemetry. What the table leaves open is drawn from a seed per file, so that a new row changes no other file.
The harder board (hard/train and hard/test) has its own plan in hard_scenarios.py.
"""
from __future__ import annotations

import argparse
import dataclasses
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "scenarios"
GPUS_PER_HOST = 8


@dataclasses.dataclass(frozen=True)
class Job:
    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    micro_batches: int = 4
    schedule: str = "1f1b"
    gpus_per_host: int = GPUS_PER_HOST

    @property
    def ranks(self) -> int:
        return self.tp * self.pp * self.dp * self.cp

    @property
    def hosts(self) -> int:
        return (self.ranks + self.gpus_per_host - 1) // self.gpus_per_host

    @property
    def name(self) -> str:
        parts = [f"{key}{getattr(self, key)}" for key in ("tp", "cp", "pp", "dp", "ep") if getattr(self, key) > 1]
        return "".join(parts) + ("i" if self.schedule == "interleaved" else "")


DP8 = Job(dp=8, micro_batches=2)
DP32 = Job(dp=32, micro_batches=2)
TP8DP8 = Job(tp=8, dp=8)
TP8DP16 = Job(tp=8, dp=16)
TP4PP4DP4 = Job(tp=4, pp=4, dp=4, micro_batches=8)
INTERLEAVED = Job(tp=2, pp=4, dp=4, micro_batches=8, schedule="interleaved")
GPIPE = Job(tp=2, pp=4, dp=8, micro_batches=8, schedule="gpipe")
CP = Job(tp=2, cp=4, dp=8)
MOE = Job(dp=32, ep=8, micro_batches=2)
MOE_PP = Job(tp=4, pp=2, dp=8, ep=8)
TP8PP8DP16 = Job(tp=8, pp=8, dp=16, micro_batches=16)
TP8PP8DP64 = Job(tp=8, pp=8, dp=64, micro_batches=8)
TP8PP16DP64 = Job(tp=8, pp=16, dp=64, micro_batches=16)

SMALL = [TP8DP8, TP4PP4DP4, DP32, CP, MOE_PP, INTERLEAVED, TP8DP16, MOE, GPIPE]
PIPELINED = [TP4PP4DP4, INTERLEAVED, MOE_PP, GPIPE]
MIXED = [TP4PP4DP4, TP8DP8, CP, MOE_PP, INTERLEAVED]
ONE_HOST_GROUPS = [TP8DP8, TP4PP4DP4, TP8DP16, MOE_PP, CP]  # every rank has a group inside its host
ACROSS = [TP8DP8, TP4PP4DP4, TP8DP16]  # every rank sends to another host
EXPERTS = [MOE, MOE_PP]

USUAL = [0.02, 0.04, 0.08, 0.2, 1.0]
WIRE = [0.08, 0.2, 1.0, 3.0]  # of wire time, which is a small part of a step

# cause: (what it hits, severities, jobs)
SLOW: dict[str, tuple[str, list[float], list[Job]]] = {
    "slow-compute": ("rank", USUAL, SMALL),
    "throttle-thermal": ("rank", USUAL, SMALL),
    "throttle-power": ("host", USUAL, SMALL),
    "ecc": ("rank", USUAL, SMALL),
    "foreign-process": ("rank", USUAL, SMALL),
    "pcie-degraded": ("rank", WIRE, SMALL),
    "cpu-contention": ("host", USUAL, SMALL),
    "memory-pressure": ("host", USUAL, SMALL),
    "process-paused": ("rank", [0.08, 0.2, 1.0], SMALL),
    "gc": ("job", [0.08, 0.2, 1.0], SMALL),
    "data-loader": ("rank", USUAL, SMALL),
    "storage": ("job", [0.08, 0.2, 1.0], SMALL),
    "checkpoint": ("job", [0.2, 1.0, 4.0], SMALL),
    "nvlink-degraded": ("rank", WIRE, ONE_HOST_GROUPS),
    "nic-degraded": ("rank", WIRE, ACROSS),
    "link-flap": ("rank", [0.2, 1.0, 3.0], ACROSS),
    "congestion": ("leaf", WIRE, [TP8DP16, TP8DP8]),
    "pfc-storm": ("leaf", WIRE, [TP8DP16, TP8DP8]),
    "tcp-fallback": ("job", [1.0, 4.0, 9.0], [TP8DP8, DP32, TP8DP16]),
    "stage-imbalance": ("stage", [0.04, 0.08, 0.2, 1.0], PIPELINED),
    "sequence-imbalance": ("job", [0.08, 0.2, 1.0], [TP8DP8, TP8DP16, DP32]),
    "expert-imbalance": ("expert", [0.2, 1.0, 3.0], EXPERTS),
    "code-regression": ("job", [0.02, 0.04, 0.08, 0.2, 1.0], SMALL),
}
STOPS = {
    "xid": SMALL,
    "rank-missing": SMALL,
    "op-mismatch": SMALL,
    "deadlock": MIXED,
    "rank-dead": SMALL,
    "nan-source": SMALL,
}
# How a fault comes: most are there all the time.
SHAPES = ["constant", "constant", "constant", "pulsed", "ramp", "constant", "intermittent"]
OWN_SHAPE = {"gc": "constant", "tcp-fallback": "constant", "code-regression": "constant", "checkpoint": "constant",
             "sequence-imbalance": "constant", "stage-imbalance": "constant", "link-flap": "intermittent",
             "process-paused": "pulsed"}

ODDITIES: dict[str, tuple[list[float], list[int], list[Job]]] = {
    # kind: (amounts, every_steps, jobs)
    "packing": ([0.1, 0.3], [], SMALL),
    "expert-skew": ([0.2, 0.6], [60], EXPERTS),
    "stage-uneven": ([0.1, 0.2], [], PIPELINED),
    "compile": ([3, 20], [15], SMALL),
    "evaluation": ([2, 6], [25, 40], SMALL),
    "checkpoints": ([0.5, 3], [20, 35], SMALL),
    "garbage": ([0.2, 0.6], [5, 20], SMALL),
    "resize": ([0.25, 0.5], [60], [TP8DP8, DP32, TP8DP16]),
    "warm-up": ([0.1, 0.3], [20], SMALL),
    "daily-heat": ([0.01, 0.02], [80, 400], SMALL),
    "master-rank": ([0.01, 0.04], [], SMALL),
}

DAMAGE: dict[str, dict[str, object]] = {
    "1-percent-of-agents": {"lost_agents": 0.01},
    "agents-lost": {"lost_agents": 0.2},
    "culprit-agent-lost": {"guilty_agent_lost": True},
    "late": {"late_share": 0.2, "late_ms": 3000},
    "clocks": {"clock_error_us": 10000},
    "plugins-missing": {"no_plugin": 0.1},
    "metrics-missing": {"no_metrics": 1.0},
    "some-metrics-missing": {"no_metrics": 0.4},
    "duplicated": {"duplicated": 0.3},
    "all-at-once": {"lost_agents": 0.1, "late_share": 0.1, "late_ms": 2000, "clock_error_us": 5000, "no_plugin": 0.05,
                    "no_metrics": 0.2, "duplicated": 0.1},
}


class Scenario:
    """One file. `draw` is its own source of chance."""

    def __init__(self, split: str, name: str, what: str) -> None:
        self.name, self.what = name, what
        self.draw = random.Random(f"{split}/{name}")
        self.seed = self.draw.randrange(1, 1_000_000)
        self.steps = self.draw.randrange(110, 150)
        self.jobs: list[tuple[str, Job, dict[str, object]]] = []
        self.faults: list[dict[str, object]] = []
        self.oddities: list[dict[str, object]] = []
        self.signs: list[dict[str, object]] = []
        self.telemetry: dict[str, object] = {}
        self.topology: dict[str, object] = {}  # besides hosts_per_leaf
        self.taken: set[int] = set()  # hosts that have a fault already

    def job(self, job: Job, name: str = "job") -> Job:
        step_ms = self.draw.choice([250, 500, 500, 1000, 1000, 2000] if job.ranks <= 256 else [1000, 2000])
        more: dict[str, object] = {"step_ms": step_ms, "communication": round(self.draw.uniform(0.1, 0.25), 2)}
        if self.draw.random() < 0.4:
            more["overlap"] = self.draw.choice([0.3, 0.5])
        self.jobs.append((name, job, more))
        if job.ranks > 256:
            self.steps = 100
        return job

    def target(self, kind: str, job: Job) -> dict[str, object]:
        """Where: a rank, host, ... on a host that has no other fault."""
        hosts = [host for host in range(job.hosts) if host not in self.taken] or list(range(job.hosts))
        host = self.draw.choice(hosts)
        if kind == "rank":
            self.taken.add(host)
            return {"rank": min(job.ranks - 1, host * GPUS_PER_HOST + self.draw.randrange(GPUS_PER_HOST))}
        if kind == "host":
            self.taken.add(host)
            return {"host": host}
        if kind == "stage":
            return {"stage": self.draw.randrange(job.pp)}
        if kind == "expert":
            return {"expert": self.draw.randrange(job.ep)}
        if kind == "leaf":
            return {"leaf": self.draw.randrange(GPUS_PER_HOST)}
        return {}

    def fault(self, cause: str, severity: float | None = None, shape: str | None = None, at: int | None = None) -> None:
        _, job, _ = self.jobs[0]
        kind = SLOW[cause][0] if cause in SLOW else "rank"
        fault: dict[str, object] = {"cause": cause, **self.target(kind, job)}
        if cause != "tcp-fallback":  # a job has it from the start or not at all
            fault["from_step"] = at if at is not None else self.draw.randrange(38, 62)
        if severity is not None:
            fault["severity"] = severity
        if shape and shape != "constant":
            fault["shape"] = shape
            if shape in ("pulsed", "intermittent"):
                fault["period_steps"] = self.draw.choice([4, 6, 8, 12])
        # One in five is over before the end: then the verdict has to be cleared, and health has to be believed again.
        if cause in SLOW and cause != "tcp-fallback" and at is None and self.draw.random() < 0.2:
            fault["steps"] = self.draw.randrange(30, 45)
        self.faults.append(fault)

    def oddity(self, kind: str, amount: float, every: int | None) -> None:
        self.oddities.append({"kind": kind, "amount": amount, **({"every_steps": every} if every else {})})

    def text(self) -> str:
        lines = [f"# {self.what}",
                 "# Written by tools/make_scenarios.py; the words are explained in docs/guide/scenarios.md.",
                 f"name: {self.name}", f"seed: {self.seed}", f"steps: {self.steps}"]
        hosts = sum(job.hosts for _, job, _ in self.jobs)
        lines += ["topology:", f"  hosts_per_leaf: {max(2, min(16, hosts // 4))}"]
        lines += [f"  {key}: {value}" for key, value in self.topology.items()] + ["jobs:"]
        for name, job, more in self.jobs:
            lines.append(f"  - job: {name}")
            sizes = [(key, getattr(job, key)) for key in ("tp", "cp", "pp", "dp", "ep")]
            lines += [f"    {key}: {size}" for key, size in sizes if size > 1]
            lines.append(f"    micro_batches: {job.micro_batches}")
            if job.pp > 1:
                lines.append(f"    schedule: {job.schedule}")
            lines += [f"    {key}: {value}" for key, value in more.items()]
        for title, items in (("faults", self.faults), ("signs", self.signs), ("oddities", self.oddities)):
            if items:
                lines.append(f"{title}:")
            for item in items:
                for i, (key, value) in enumerate(item.items()):
                    lines.append(f"  {'-' if i == 0 else ' '} {key}: {value}")
        if self.telemetry:
            lines.append("telemetry:")
            lines += [f"  {key}: {str(value).lower() if isinstance(value, bool) else value}"
                      for key, value in self.telemetry.items()]
        return "\n".join(lines) + "\n"


def percent(severity: float) -> str:
    return f"{round(severity * 100)}"


def single_faults(split: str) -> list[Scenario]:
    """Every cause at every severity; train/ has every other severity, and other jobs."""
    made = []
    turn = 0 if split == "test" else 4
    for cause, (_, severities, jobs) in SLOW.items():
        for place, severity in enumerate(severities):
            turn += 1
            if split == "train" and place % 2 == turn % 2 and severity not in (0.2, 1.0):
                continue
            job = jobs[turn % len(jobs)]
            shape = OWN_SHAPE.get(cause, SHAPES[turn % len(SHAPES)])
            made.append(Scenario(split, f"{cause}-{percent(severity)}-{job.name}",
                                 f"{cause}, {percent(severity)} %, {shape}, in a job of {job.ranks} ranks."))
            made[-1].job(job)
            made[-1].fault(cause, severity, shape)
    for cause, jobs in STOPS.items():
        for i in range(3 if split == "test" else 2):
            turn += 1
            job = jobs[turn % len(jobs)]
            made.append(Scenario(split, f"{cause}-{i + 1}-{job.name}", f"{cause} in a job of {job.ranks} ranks."))
            made[-1].job(job)
            made[-1].fault(cause)
            made[-1].steps = min(made[-1].steps, int(made[-1].faults[0]["from_step"]) + 40)
    return made


def large(split: str) -> list[Scenario]:
    plan = [(TP8PP8DP16, "slow-compute", 0.2), (TP8PP8DP16, "data-loader", 0.2), (TP8PP8DP16, "nic-degraded", 3.0),
            (TP8PP8DP16, "throttle-thermal", 0.08), (TP8PP8DP16, "rank-missing", None), (TP8PP8DP16, None, None),
            (TP8PP8DP64, "throttle-power", 0.2), (TP8PP16DP64, "throttle-thermal", 0.2)]
    if split == "test":
        plan += [(TP8PP8DP16, "cpu-contention", 0.2), (TP8PP8DP16, "congestion", 3.0), (TP8PP8DP64, "rank-dead", None),
                 (TP8PP16DP64, "data-loader", 0.2), (TP8PP16DP64, None, None)]
    made = []
    for job, cause, severity in plan:
        title = f"{cause or 'healthy'}-large-{job.name}"
        size = f", {percent(severity)} %" if severity else ""
        made.append(Scenario(split, title, f"{cause or 'Healthy'}{size}, in a large job of {job.ranks} ranks."))
        made[-1].job(job)
        if job.ranks > 2000:
            made[-1].steps = 60
        if cause:
            made[-1].fault(cause, severity, at=30 if job.ranks > 2000 else 40)
    return made


def healthy(split: str) -> list[Scenario]:
    made = []
    for i, job in enumerate(SMALL + [DP8]):
        if split == "train" and i % 2:
            continue
        made.append(Scenario(split, f"healthy-{job.name}", f"Nothing is wrong in a job of {job.ranks} ranks."))
        made[-1].job(job)
    turn = 1 if split == "test" else 5
    for kind, (amounts, every, jobs) in ODDITIES.items():
        for place, amount in enumerate(amounts if split == "test" else amounts[:1]):
            turn += 1
            job = jobs[turn % len(jobs)]
            made.append(Scenario(split, f"odd-{kind}-{place + 1}-{job.name}",
                                 f"Healthy, but {kind} ({amount}) in a job of {job.ranks} ranks."))
            made[-1].job(job)
            made[-1].oddity(kind, amount, every[place % len(every)] if every else None)
    together = [("packing", "garbage", "checkpoints"), ("evaluation", "master-rank"),
                ("packing", "daily-heat", "warm-up"), ("expert-skew", "garbage"),
                ("stage-uneven", "evaluation", "checkpoints"), ("compile", "packing")]
    for i, kinds in enumerate(together if split == "test" else together[:3]):
        job = next(each for each in (MOE_PP if "expert-skew" in kinds else GPIPE, TP4PP4DP4)
                   if "stage-uneven" not in kinds or each.pp > 1)
        made.append(Scenario(split, f"odd-together-{i + 1}-{job.name}", f"Healthy, but {', '.join(kinds)} together."))
        made[-1].job(job)
        for kind in kinds:
            amounts, every, _ = ODDITIES[kind]
            made[-1].oddity(kind, amounts[0], every[0] if every else None)
    for name in ("agents-lost", "clocks", "all-at-once") if split == "test" else ("late", "plugins-missing"):
        made.append(Scenario(split, f"healthy-damaged-{name}", f"Nothing is wrong but the telemetry: {name}."))
        made[-1].job(TP8DP16)
        made[-1].telemetry = DAMAGE[name]
    made.append(Scenario(split, "healthy-two-jobs", "Two healthy jobs side by side."))
    made[-1].job(TP8DP8, "first")
    made[-1].job(TP4PP4DP4, "second")
    return made


def several(split: str) -> list[Scenario]:
    """Two or three faults, at once or one after the other."""
    pairs = [("slow-compute", "data-loader"), ("throttle-thermal", "nic-degraded"), ("slow-compute", "slow-compute"),
             ("cpu-contention", "throttle-power"), ("data-loader", "data-loader"), ("ecc", "congestion"),
             ("nvlink-degraded", "slow-compute"), ("foreign-process", "data-loader"), ("throttle-thermal", "rank-dead"),
             ("pcie-degraded", "memory-pressure"), ("slow-compute", "rank-missing"), ("nic-degraded", "nic-degraded"),
             ("storage", "throttle-thermal"), ("process-paused", "slow-compute"), ("code-regression", "slow-compute"),
             ("link-flap", "cpu-contention")]
    triples = [("slow-compute", "data-loader", "nic-degraded"),
               ("throttle-thermal", "throttle-thermal", "cpu-contention"),
               ("slow-compute", "slow-compute", "data-loader"),
               ("foreign-process", "nvlink-degraded", "memory-pressure"),
               ("throttle-power", "congestion", "data-loader"), ("ecc", "slow-compute", "rank-missing")]
    made = []
    for i, causes in enumerate(pairs + triples):
        if split == "train" and i % 2:
            continue
        job = [TP8DP16, TP8DP8, TP4PP4DP4, DP32, CP][(i + (split == "train")) % 5]
        if "congestion" in causes:
            job = TP8DP16
        if {"nvlink-degraded", "nic-degraded", "link-flap", "pcie-degraded"} & set(causes) and job in (DP32, CP):
            job = TP8DP8
        name = f"several-{i + 1:02}-{'-'.join(causes)}"
        made.append(Scenario(split, name, f"{' and '.join(causes)} in one job of {job.ranks} ranks."))
        scenario = made[-1]
        scenario.job(job)
        scenario.steps = 150
        apart = scenario.draw.choice([0, 15, 30])
        for place, cause in enumerate(causes):
            wire = cause in SLOW and SLOW[cause][1] is WIRE
            severity = None if cause in STOPS else scenario.draw.choice([1.0, 3.0] if wire else [0.2, 0.3, 0.5])
            if cause == "code-regression":
                severity = 0.2
            at = 40 + place * apart
            if cause in STOPS:
                at = 110  # a job that has stopped shows nothing more
            scenario.fault(cause, severity, at=at)
        if any(cause in STOPS for cause in causes):
            scenario.steps = 140
    return made


def damaged(split: str) -> list[Scenario]:
    """A fault that is plain enough, seen through broken glass."""
    causes = [("slow-compute", 0.3), ("data-loader", 0.3), ("nic-degraded", 3.0), ("throttle-thermal", 0.2),
              ("cpu-contention", 0.3), ("rank-missing", None), ("foreign-process", 0.5)]
    made = []
    turn = 0 if split == "test" else 3
    for name, damage in DAMAGE.items():
        for _ in range(3 if split == "test" else 1):
            cause, severity = causes[turn % len(causes)]
            turn += 1
            job = [TP8DP16, TP8DP8, TP4PP4DP4][turn % 3]
            made.append(Scenario(split, f"damaged-{name}-{cause}-{job.name}",
                                 f"{cause} in a job of {job.ranks} ranks whose telemetry is damaged: {name}."))
            made[-1].job(job)
            made[-1].fault(cause, severity, at=made[-1].draw.randrange(40, 60))
            made[-1].telemetry = damage
    return made


# What shows before it comes, with a severity that everybody would notice.
SIGNED = {"ecc": 0.2, "throttle-thermal": 0.2, "slow-compute": 0.2, "nvlink-degraded": 2.0, "nic-degraded": 2.0, "link-flap": 0.5}
WATCHED = Job(tp=8, dp=2, micro_batches=2)  # two hosts; every rank has a link, and a group inside its host
STEP_S = 10


def warnings() -> list[Scenario]:
    """Two hours of a small job each: a fault with signs before it, or signs that stay small, or fall again."""
    made = []

    def long_run(name: str, what: str) -> Scenario:
        scenario = Scenario("warnings", name, what)
        scenario.jobs.append(("job", WATCHED, {"step_ms": STEP_S * 1000, "communication": 0.2}))
        scenario.steps = 7200 // STEP_S
        made.append(scenario)
        return scenario

    for cause, severity in SIGNED.items():
        for i in range(3):
            scenario = long_run(f"{cause}-{i + 1}", f"{cause} that shows signs before it comes.")
            signs_s = scenario.draw.randrange(1500, 5400)
            at = scenario.draw.randrange(signs_s // STEP_S + 60, 690)
            scenario.faults.append({"cause": cause, "rank": scenario.draw.randrange(WATCHED.ranks), "from_step": at,
                                    "severity": severity, "precursor_s": signs_s})
            scenario.steps = at + 20
            if cause == "link-flap":
                scenario.faults[-1].update(shape="intermittent", period_steps=4)
        for i, then in enumerate(["stays", "falls", "falls"]):
            scenario = long_run(f"false-{cause}-{i + 1}", f"Signs of {cause} that come to nothing: they rise a little and "
                                f"then {'stay' if then == 'stays' else 'fall again'}.")
            rise = scenario.draw.randrange(90, 300)
            scenario.signs.append({"cause": cause, "rank": scenario.draw.randrange(WATCHED.ranks),
                                   "from_step": scenario.draw.randrange(60, 200), "steps": rise,
                                   "level": round(scenario.draw.uniform(0.15, 0.6), 2), "then": then})
    for i in range(4):
        scenario = long_run(f"healthy-{i + 1}", "Nothing is wrong, and a warm day comes over all nodes.")
        scenario.oddity("daily-heat", 0.015, 720)
    return made


SPLITS = ("train", "test", "warnings", "hard/train", "hard/test", "network/train", "network/test")


def everything() -> dict[pathlib.Path, str]:
    files: dict[pathlib.Path, str] = {}
    for split in ("train", "test"):
        for part in (single_faults, large, healthy, several, damaged):
            for scenario in part(split):
                path = ROOT / split / f"{scenario.name}.yaml"
                assert path not in files, f"two scenarios named {path.name}"
                files[path] = scenario.text()
    for scenario in warnings():
        files[ROOT / "warnings" / f"{scenario.name}.yaml"] = scenario.text()
    for split in ("train", "test"):
        for board, plan in (("hard", hard_scenarios), ("network", network_scenarios)):
            for scenario in plan.everything(split):
                path = ROOT / board / split / f"{scenario.name}.yaml"
                assert path not in files, f"two scenarios named {path.name}"
                files[path] = scenario.text()
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; say what differs")
    parser.add_argument("--calibrate", metavar="PROGRAM", help="the built `lockstep`; writes hard_scenarios.json")
    options = parser.parse_args()
    if options.calibrate:
        hard_scenarios.calibrate(options.calibrate)
    files = everything()
    there = {path for split in SPLITS for path in (ROOT / split).glob("*.yaml")}
    stale = sorted(there - set(files))
    if options.check:
        different = [path for path, text in sorted(files.items()) if not path.exists() or path.read_text() != text]
        for path in different + stale:
            print(f"{path.relative_to(ROOT)} is not as tools/make_scenarios.py writes it", file=sys.stderr)
        return 1 if different or stale else 0
    for path in stale:
        path.unlink()
    for path, text in sorted(files.items()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    damages = {key for damage in DAMAGE.values() for key in damage}
    for split in SPLITS:
        texts = [text for path, text in files.items() if path.parent == ROOT / split]
        print(f"{split}: {len(texts)} scenarios, {sum('faults:' not in text for text in texts)} healthy, "
              f"{sum(text.count('cause:') > 1 for text in texts)} with several faults, "
              f"{sum(any(f'  {key}: ' in text for key in damages) for text in texts)} with damaged telemetry")
    return 0


if __name__ == "__main__":
    import hard_scenarios  # they build on this file
    import network_scenarios

    sys.exit(main())
