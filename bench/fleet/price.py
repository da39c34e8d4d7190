#!/usr/bin/env python3
"""What one rank and step costs the server: CPU of a real lockstepd over the rows of steps that it took.

    price.py [--bin DIR] [--only NAME,...] [--steps N] [--warm-s S] [--out FILE] [--perf] [--server-cpus LIST]

Plays fleets by `lockstep sim` into a lockstepd on loopback: `many` (300 jobs of 8 ranks, a step a second), `large` (one
job of 8,192 ranks, a step every 5 s), `thousand` (1,000 jobs of 16 ranks, a step a second). Everything is in it: receiving,
decoding, log, stores, diagnosis, node metrics. --perf: samples the server with perf and tells the stages apart by the
functions on the stack (build with -fno-omit-frame-pointer). Ends with 1 where a fault was not named, another job was, or a
request was lost."""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from processes import cpu_s, get, memory, pinned  # noqa: E402

SETTLE_S = 1.5  # after the last request: diagnosis looks a few times a second

# Of the functions on a stack, from the innermost on, the first that is in a row says the stage.
STAGES = (
    ("log", ("SegmentLog",)),
    ("store: metrics", ("MetricEngine", "metrics::", "MetricIntake", "MetricMapping", "AliasFeed")),
    ("store: steps", ("ColumnarStepStore", "MemoryStepStore", "StepWriter", "StepColumns", "steps::", "SealWorker", "int_codec")),
    ("diagnosis: signals", ("SignalStore", "EarlyWarnings", "heard_of")),
    ("diagnosis: steps", ("DiagnosisEngine", "JobWindow")),
    ("rollups, tail sampling", ("JobRollups", "TailSampler", "StackRequester", "VerdictKeeper", "AgentCommands")),
    ("apply", ("Applier", "JobAttempts", "AgentRegistry", "DurableSink")),
    ("decode", ("otlp::", "decompress", "ZSTD", "admit", "identity_from_resource", "step_from_record", "status_from_record")),
    ("receivers", ("OtlpHandler", "ClockWitness", "Counters", "beast", "asio", "HttpServer", "http_server", "Listener")),
)


def fleet(name, steps):
    """A scenario, and its faulty jobs."""
    if name == "large":
        return f"""name: large
seed: 5
steps: {steps or 24}
jobs:
  - {{job: large, tp: 8, pp: 8, dp: 128, micro_batches: 32, step_ms: 5000, overlap: 0.5}}
faults:
  - {{cause: throttle-thermal, rank: 4013, from_step: 8, severity: 0.3}}
telemetry: {{metrics_every_s: 60, all_series: false}}
""", {"large"}
    jobs, ranks = {"many": (300, 8), "thousand": (1000, 16)}[name]
    lines = [f"name: {name}", "seed: 5", f"steps: {steps or 150}", "jobs:"]
    lines += [f"  - {{job: j{i:04d}, tp: 1, pp: 1, dp: {ranks}, step_ms: 1000}}" for i in range(jobs)]
    faulty = [f"j{i * 41 + 7:04d}" for i in range(5)]
    lines.append("faults:")
    lines += [f"  - {{job: {job}, cause: throttle-thermal, rank: 3, from_step: 20, severity: 0.4}}" for job in faulty]
    return "\n".join(lines) + "\n", set(faulty)


def stages_of(data, total_us):
    """Microseconds of each stage, by share of the samples."""
    script = subprocess.run(["perf", "script", "-i", data, "-F", "ip,sym"], capture_output=True, text=True, errors="replace")
    counts = collections.Counter()
    for stack in script.stdout.split("\n\n"):
        frames = [line.split(None, 1)[1] for line in stack.strip().splitlines() if len(line.split(None, 1)) == 2]
        if not frames:
            continue
        stage = next((name for frame in frames for name, keys in STAGES if any(key in frame for key in keys)), "other")
        counts[stage] += 1
    samples = sum(counts.values()) or 1
    return [(name, count / samples * total_us) for name, count in counts.most_common()]


def play(arguments, name, folder):
    scenario, faulty = fleet(name, arguments.steps)
    (folder / "scenario.yaml").write_text(scenario)
    programs = pathlib.Path(arguments.bin)
    server = subprocess.Popen(
        arguments.before + [programs / "lockstepd", "--data", folder / "data", "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0",
                            "--otlp-grpc", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=open(folder / "server.log", "w"), text=True)
    ready = dict(part.split("=", 1) for part in server.stdout.readline().split()[1:])

    def rows_now():
        own = get(f"http://{ready['http']}/metrics", timeout=60).decode()
        return int(float(re.search(r'^lockstep_store_rows_received_total\{table="steps"\} (\S+)', own, re.M).group(1)))

    log = open(folder / "sim.log", "w+")
    player = subprocess.Popen([programs / "lockstep", "sim", folder / "scenario.yaml", "--server", f"http://{ready['otlp_http']}"],
                              stdout=log, stderr=subprocess.STDOUT, text=True)
    time.sleep(arguments.warm_s)
    began, cpu_before, rows_before = time.time(), cpu_s(server.pid), rows_now()
    perf = None
    if arguments.perf:
        perf = subprocess.Popen(["perf", "record", "-F", "499", "-g", "-p", str(server.pid), "-o", folder / "perf.data"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    player.wait()
    took = time.time() - began
    time.sleep(SETTLE_S)
    cpu, (_, peak) = cpu_s(server.pid) - cpu_before, memory(server.pid)
    rows = rows_now() - rows_before
    log.seek(0)
    said = log.read()
    verdicts = json.loads(get(f"http://{ready['http']}/api/verdicts", timeout=60))["verdicts"]
    named = {one["job_id"] for one in verdicts if one["state"] == "confirmed"}
    if perf:
        perf.send_signal(signal.SIGINT)
        perf.wait()
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=300)
    price = cpu / max(rows, 1) * 1e6
    late = re.findall(r", (\d+) s behind", said)
    return {"name": name, "rows": rows, "cpu": cpu, "took": took, "price": price, "cores": cpu / took, "peak_mb": peak / 1e6,
            "late": int(late[-1]) if late else 0, "missed": sorted(faulty - named), "false": sorted(named - faulty),
            "lost": player.returncode, "stages": stages_of(folder / "perf.data", price) if perf else []}


def report(runs):
    text = ["| | " + " | ".join(run["name"] for run in runs) + " |", "|---" * (len(runs) + 1) + "|"]

    def row(what, value):
        text.append(f"| {what} | " + " | ".join(value(run) for run in runs) + " |")

    row("**CPU of one rank and step**", lambda run: f"**{run['price']:.1f} us**")
    row("rows of steps, CPU, time", lambda run: f"{run['rows']:,}, {run['cpu']:.1f} s, {run['took']:.0f} s")
    row("cores", lambda run: f"{run['cores']:.2f}")
    row("peak memory", lambda run: f"{run['peak_mb']:,.0f} MB")
    row("simulator behind at the end", lambda run: f"{run['late']} s")
    row("faulty jobs not named, others named", lambda run: f"{', '.join(run['missed']) or 'none'}; {', '.join(run['false']) or 'none'}")
    for stage in dict.fromkeys(name for run in runs for name, _ in run["stages"]):
        row(f"of it {stage}", lambda run: f"{dict(run['stages']).get(stage, 0):.1f} us")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/bin"))
    parser.add_argument("--only", default="many,large")
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--warm-s", type=float, default=30, help="what is before that is not measured: series are new then")
    parser.add_argument("--out", default="")
    parser.add_argument("--keep", default="", help="leave data, logs and samples here")
    parser.add_argument("--perf", action="store_true")
    parser.add_argument("--server-cpus", default="", help="cores that the server alone has, as 0,1 (default: all are shared)")
    arguments = parser.parse_args()
    arguments.before = pinned(arguments.server_cpus)
    runs = []
    for name in arguments.only.split(","):
        folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="lockstep-price-")) / name
        folder.mkdir(parents=True, exist_ok=True)
        runs.append(play(arguments, name, folder))
        if not arguments.keep:
            shutil.rmtree(folder.parent)
    text = f"{os.cpu_count()} cores" + (f", the server on {arguments.server_cpus}" if arguments.server_cpus else "") + f"\n\n{report(runs)}\n"
    print(text)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text)
    return 1 if any(run["missed"] or run["false"] or run["lost"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
