#!/usr/bin/env python3
"""The fleet proof: so many series, each sampled every ten seconds, into lockstepd over HTTP for ten minutes, with the
load on the same machine.

    proof.py --bin DIR [--series N,...] [--minutes M] [--ramp-s N] [--interval-s S] [--lockstep PROGRAM] [--folder DIR]
             [--out FILE]

The fleet (bench/metrics/fleet.h) comes within the ramp, since all of its series are new; then every node pushes its 784
series once in ten seconds, in a request of its own, in real time. Holds means: from the end of the ramp on every push
was sent before the node's next was due, all were acknowledged and nothing was refused or lost. What is stored is counted
three ways: the server's counters, and a query for all samples of some nodes, before and after a restart. Ends with 1
where it does not hold."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare import Lockstep, machine_jiffies

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from processes import Failed, cpu_s, get, memory, pinned, size_of, wait_until  # noqa: E402

SERIES_PER_NODE = 8 * 98
QUERY_EVERY_S = 20
RESTART_S = 900  # at most
FREE_BYTES_MIN = 1 << 30  # of memory; the run is stopped before the kernel ends something
HOSTS_1024 = 'host=~"gpu-node-0(0...|10[01].|102[0-3])"'
QUERIES = {
    "slowest of 8,192 ranks": f"topk(5, max by (rank) (train_step_seconds{{{HOSTS_1024}}}))",
    "slowest of 8,192 ranks over 2 min": f"topk(5, avg by (rank) (avg_over_time(train_step_seconds{{{HOSTS_1024}}}[2m])))",
    "NVLink rate by job, 147,456 series": f"sum by (job_id) (rate(nvlink_tx_kibibytes_total{{{HOSTS_1024}}}[1m]))",
    "slowest rank of the whole large job": 'topk(5, max by (rank) (train_step_seconds{job_id="train-0000"}))',
    "power by job, all GPUs": "avg by (job_id) (gpu_power_watts)",
    "all series of one node": 'count({host="gpu-node-00017"})',
}
LOST = re.compile(r"(refused|dropped|write_failed|damage|undecodable)")


@dataclasses.dataclass
class Look:
    """The state at the end of ten seconds."""

    t_s: float
    offered: int
    taken: int
    late_ms: float
    latency_ms: float
    server_cpu_s: float
    client_cpu_s: float
    rss: int
    disk: int
    lost: dict
    machine: tuple = (0, 0)  # CPU time of all cores, and what the host gave to others


def stolen(before: Look, after: Look) -> float:
    """The share of the machine's CPU time that the host gave to others between two looks."""
    return (after.machine[1] - before.machine[1]) / max(1, after.machine[0] - before.machine[0])


def free_bytes() -> int:
    return int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) * 1024


def counters(server) -> dict:
    text = get(f"http://127.0.0.1:{server.port}/metrics").decode()
    return {
        key: float(value)
        for key, value in (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("lockstep_"))
    }


def lost_of(values: dict) -> dict:
    return {key: value for key, value in values.items() if LOST.search(key) and value > 0}


class Asker(threading.Thread):
    """Asks the queries in turn while the load runs."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.times, self.problems, self.ending = server, {}, {}, threading.Event()

    def run(self):
        while not self.ending.wait(QUERY_EVERY_S):
            for name, text in QUERIES.items():
                if self.ending.is_set():
                    return
                try:
                    seconds, result = self.server.query(text, time.time())
                    if result:
                        self.times.setdefault(name, []).append(seconds)
                except (OSError, Failed) as error:
                    self.problems[name] = str(error)[:200]


@dataclasses.dataclass
class Run:
    series: int
    nodes: int
    ramp_s: int
    interval_s: float
    looks: list = dataclasses.field(default_factory=list)
    done: dict = dataclasses.field(default_factory=dict)
    problem: str = ""
    stored: float = 0
    passed: float = 0
    counted: list = dataclasses.field(default_factory=list)  # per node asked: expected, found, found after the restart
    rss_peak: int = 0
    disk_end: int = 0
    blocks_end: int = 0
    restart_s: float = 0
    times: dict = dataclasses.field(default_factory=dict)
    query_problems: dict = dataclasses.field(default_factory=dict)

    def steady(self) -> list:
        return [look for look in self.looks if look.t_s >= self.ramp_s]

    def late_ms(self) -> float:
        return max((look.late_ms for look in self.steady()[1:]), default=0)

    def holds(self) -> bool:
        exact = self.done and self.done["samples"] == self.done["offered"] == self.stored == self.passed
        counted = bool(self.counted) and all(expected == found == again for expected, found, again in self.counted)
        return bool(not self.problem and exact and counted and not self.looks[-1].lost and self.late_ms() < self.interval_s * 1000)


def count_samples(server, nodes: list, span_s: float) -> dict:
    """All samples of these nodes, as they come out: counted here."""
    found = {}
    for node in nodes:
        _, series = server.query(f'{{host="gpu-node-{node:05d}"}}[{int(span_s) + 120}s]', time.time())
        found[node] = sum(len(one["values"]) for one in series)
    return found


def play(options, series: int, place: pathlib.Path) -> Run:
    nodes = max(16, round(series / SERIES_PER_NODE))
    ramp_s = options.ramp_s if options.ramp_s is not None else max(20, min(180, series // 80_000 // 10 * 10))
    run = Run(nodes * SERIES_PER_NODE, nodes, ramp_s, options.interval_s)
    server = Lockstep(place, options.lockstep or options.bin / "lockstepd")
    server.ready_s = RESTART_S
    server.before = options.before
    server.start()
    pid = server.one.pid
    asker = Asker(server)
    command = [options.bin / "metrics_load", "fleet", "--url", f"http://127.0.0.1:{server.port}{server.write}"]
    command += ["--nodes", nodes, "--ramp-s", ramp_s, "--seconds", int(options.minutes * 60)]
    command += ["--interval-ms", int(options.interval_s * 1000)]
    print(f"bench metrics: {run.series:,} series of {nodes:,} nodes, {ramp_s} s to come, {options.minutes:g} min", file=sys.stderr)
    try:
        with open(place / "load.log", "w") as log:
            player = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True)
        asker.start()
        machine_before = machine_jiffies()
        for line in player.stdout:
            told = json.loads(line)
            if told.get("done"):
                run.done = told
                continue
            values = counters(server)
            look = Look(told["t_s"], told["offered"], told["taken"], told["late_ms_most"], told["latency_ms_most"],
                        cpu_s(pid), told["client_cpu_s"], memory(pid)[0], size_of(server.data), lost_of(values),
                        machine_jiffies())  # fmt: skip
            before = run.looks[-1] if run.looks else Look(0, 0, 0, 0, 0, 0, 0, 0, 0, {}, machine_before)
            run.looks.append(look)
            passed_s = look.t_s - before.t_s or 1
            print(
                f"{look.t_s:6.0f} s  offered {(look.offered - before.offered) / passed_s:12,.0f}/s  "
                f"taken {(look.taken - before.taken) / passed_s:12,.0f}/s  late {look.late_ms / 1000:6.2f} s  "
                f"server {(look.server_cpu_s - before.server_cpu_s) / passed_s:5.2f} cores  "
                f"load {(look.client_cpu_s - before.client_cpu_s) / passed_s:5.2f}  "
                f"kept by the host {stolen(before, look):4.0%}  "
                f"memory {look.rss / 1e9:6.2f} GB  disk {look.disk / 1e9:6.2f} GB  lost {look.lost or 'nothing'}",
                file=sys.stderr,
            )
            if free_bytes() < FREE_BYTES_MIN:
                run.problem = f"stopped: {free_bytes() / 1e9:.1f} GB of memory were free"
                player.terminate()
        player.wait()
        asker.ending.set()
        asker.join()
        run.times, run.query_problems = asker.times, asker.problems
        if player.returncode != 0 and not run.problem:
            run.problem = (place / "load.log").read_text().strip()[-300:] or f"the load ended with {player.returncode}"
        values = counters(server)
        run.stored = values.get("lockstep_metric_samples_stored_total", 0)
        run.passed = sum(value for key, value in values.items() if key.startswith("lockstep_ingest_passed_records_total") and 'receiver="remote_write"' in key)
        run.rss_peak = memory(pid)[1]
        if run.done:
            # As metrics_load has it: a node's first step, by its number.
            steps, ramp_steps = run.done["steps"], run.done["ramp_steps"]
            asked = sorted({round(i * (nodes - 1) / 7) for i in range(8)})
            expected = {node: (steps - ramp_steps * node // nodes) * SERIES_PER_NODE for node in asked}
            span_s = time.time() - run.done["start_ms"] / 1000
            found = count_samples(server, asked, span_s)
            began = time.monotonic()
            server.stop()
            run.disk_end, run.blocks_end = size_of(server.data), size_of(server.data / "metrics" / "blocks")
            print(f"bench metrics: stopped in {time.monotonic() - began:.1f} s", file=sys.stderr)
            began = time.monotonic()
            server.start()
            wait_until("the restart", lambda: server.query("count(train_step_seconds)", time.time())[1], RESTART_S)
            run.restart_s = time.monotonic() - began
            again = count_samples(server, asked, span_s + 600)
            run.counted = [(expected[node], found[node], again[node]) for node in asked]
    except Failed as error:
        run.problem = run.problem or str(error)
    finally:
        server.stop()
    return run


def report(run: Run) -> str:
    text = f"\n## {run.series:,} series of {run.nodes:,} nodes, every {run.interval_s:g} s: {'holds' if run.holds() else 'does not hold'}\n\n"
    if run.problem:
        text += f"{run.problem}.\n\n"
    steady = run.steady()
    if len(steady) < 2:
        return text + "It did not get past the ramp.\n"
    first, last = steady[0], steady[-1]
    span_s, samples = last.t_s - first.t_s, last.taken - first.taken
    server_s, client_s = last.server_cpu_s - first.server_cpu_s, last.client_cpu_s - first.client_cpu_s
    text += "| | |\n|---|---|\n"

    def row(what, value):
        nonlocal text
        text += f"| {what} | {value} |\n"

    row("from the end of the ramp", f"{span_s:.0f} s")
    row("samples/s offered, taken", f"{(last.offered - first.offered) / span_s:,.0f}, {samples / span_s:,.0f}")
    row("behind its time at most", f"{run.late_ms() / 1000:.2f} s")
    row("server: cores, CPU-s per million samples", f"{server_s / span_s:.2f}, {server_s / samples * 1e6:.2f}")
    row("load: cores, CPU-s per million samples", f"{client_s / span_s:.2f}, {client_s / samples * 1e6:.2f}")
    ramp = first.taken
    row("ramp: seconds, CPU-s of the server per million new series, with their samples",
        f"{first.t_s:.0f}, {first.server_cpu_s / run.series * 1e6:.1f} (with {ramp:,} samples)")
    row("memory of the server at the end, at most; bytes per series at most",
        f"{last.rss / 1e9:.2f} GB, {run.rss_peak / 1e9:.2f} GB; {run.rss_peak / run.series:.0f}")
    row("disk at the end of the load, after the stop (blocks alone)",
        f"{last.disk / 1e9:.2f} GB, {run.disk_end / 1e9:.2f} GB ({run.blocks_end / 1e9:.2f} GB)")
    row("refused, dropped, damaged", ", ".join(f"{key} {value:.0f}" for key, value in last.lost.items()) or "nothing")
    if run.done:
        row("request p50, p99", f"{run.done['p50_ms']:.1f} ms, {run.done['p99_ms']:.1f} ms ({run.done['requests']:,} requests, {run.done['retried']} tried again)")
        row("samples acknowledged, passed by the receiver, stored", f"{run.done['samples']:,}, {run.passed:,.0f}, {run.stored:,.0f}")
        right = sum(expected == found == again for expected, found, again in run.counted)
        row("nodes asked for all their samples: exact before and after the restart", f"{right} of {len(run.counted)}")
        row("restart until series answer", f"{run.restart_s:.1f} s")
    for name, times in run.times.items():
        row(f"query under load: {name}", f"{statistics.median(times) * 1000:,.0f} ms median, {max(times) * 1000:,.0f} ms most, of {len(times)}")
    for name, problem in run.query_problems.items():
        row(f"query under load: {name}", problem)
    row("CPU time that the host kept from this machine meanwhile", f"{stolen(first, last):.0%}")
    text += "\n| minute | offered/s | taken/s | late at most | request at most | server cores | load cores | kept by the host | memory | disk |\n|---|---|---|---|---|---|---|---|---|---|\n"
    begin = Look(0, 0, 0, 0, 0, 0, 0, 0, 0, {}, run.looks[0].machine)
    for minute in range(int(last.t_s // 60) + 1):
        mine = [look for look in run.looks if minute * 60 < look.t_s - 1 <= (minute + 1) * 60]
        if not mine:
            continue
        end = mine[-1]
        passed_s = end.t_s - begin.t_s
        text += (
            f"| {minute + 1}{' (ramp)' if end.t_s <= run.ramp_s + 1 else ''} | {(end.offered - begin.offered) / passed_s:,.0f} | {(end.taken - begin.taken) / passed_s:,.0f} "
            f"| {max(look.late_ms for look in mine) / 1000:.2f} s | {max(look.latency_ms for look in mine):,.0f} ms "
            f"| {(end.server_cpu_s - begin.server_cpu_s) / passed_s:.2f} | {(end.client_cpu_s - begin.client_cpu_s) / passed_s:.2f} "
            f"| {stolen(begin, end):.0%} | {end.rss / 1e9:.2f} GB | {end.disk / 1e9:.2f} GB |\n"
        )
        begin = end
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--series", default="15000000", help="how many, or several numbers, one run each")
    parser.add_argument("--minutes", type=float, default=10, help="after the ramp")
    parser.add_argument("--ramp-s", type=int, help="within which the fleet comes (default: 80,000 new series/s, at most 180 s)")
    parser.add_argument("--interval-s", type=float, default=10, help="between two samples of a series")
    parser.add_argument("--lockstep", type=pathlib.Path, help="the server, instead of lockstepd of --bin")
    parser.add_argument("--folder", type=pathlib.Path, help="where the data goes (default: a temporary folder)")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--server-cpus", default="", help="cores that the server alone has, as 0,1 (default: all are shared)")
    options = parser.parse_args()
    options.before = pinned(options.server_cpus)
    shared = f"the server has the cores {options.server_cpus} and no others, the load the rest" if options.server_cpus else "server and load share the machine"
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    text = (
        "# A fleet's metrics on one machine\n\nMade by `./dev bench metrics --fleet`: the series of bench/metrics (98 per GPU, 784 a node), every node in a request of its own, in real "
        f"time, remote write 1.0 in snappy over 16 connections on loopback, write-ahead log on; {shared}. The load writes values into frames that are there already "
        "(bench/metrics/push_frames.h). Late: how long after its moment a push was sent. "
        f"{platform.machine()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, load of the machine before {os.getloadavg()[0]:.1f}.\n"
    )
    held = True
    for series in (int(one) for one in options.series.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            run = play(options, series, pathlib.Path(folder))
        held = held and run.holds()
        text += report(run)
        if options.out:
            options.out.write_text(text)
    print(text)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
