#!/usr/bin/env python3
"""One very large job through the real receivers: lockstepd on loopback, `lockstep sim` of a scenario into it.

    run.py [--scenario FILE] [--bin DIR] [--steps N] [--speed X] [--metrics off|on|both] [--metrics-every S] [--out FILE] [--keep DIR]

--metrics on: every series of every GPU (bench/metrics, 98 of each) arrives beside the step summaries every ten seconds of
the job, from the scenario's hosts and under its job's name, by remote write; both: a run without and one with them. --speed
below 1 stretches the job where the machine is too small to play and to serve it at its pace: delays are told in the job's
time, and as they passed here.

Prints, as Markdown: whether the server keeps up (how late the simulator's requests are, how long diagnosis takes after
the last rank's report), how long each fault took to be named, CPU and memory of the programs, bytes on disk, and how
quick and how large the answers about the job are. Ends with 1 where a fault was not named or a request was lost."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from processes import cpu_s, get, memory, pinned, size_of  # noqa: E402

LOOK_S = 1.0
SAMPLED_EVERY_S = 10  # of the job's time


def free_memory_gb():
    with open("/proc/meminfo") as text:
        return int(re.search(r"MemAvailable:\s+(\d+)", text.read()).group(1)) / 1e6


class Use:
    """CPU and memory of a process, as last seen."""

    def __init__(self, name, pid):
        self.name, self.pid = name, pid
        self.cpu_s = 0.0
        self.peak_mb = 0.0
        self.now_mb = 0.0

    def look(self):
        try:
            self.cpu_s = cpu_s(self.pid)
            self.now_mb, self.peak_mb = (size / 1e6 for size in memory(self.pid))
        except (OSError, TypeError):  # it has ended
            return


def own_metrics(http):
    values = {}
    for line in get(f"http://{http}/metrics", timeout=60).decode().splitlines():
        if line.startswith("lockstep_"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


@dataclasses.dataclass
class Clock:
    """The job's time, from the wall's: as told by how far the simulator says it is behind."""

    began: float
    speed: float
    behind: list = dataclasses.field(default_factory=lambda: [(0.0, 0.0)])  # wall time of the line, seconds

    def job_s(self, wall):
        behind = [late for at, late in self.behind if at <= wall][-1]
        return max(0.0, (wall - self.began - behind) * self.speed)


@dataclasses.dataclass
class Played:
    with_metrics: bool
    speed: float
    took: float
    clock: Clock
    lines: list
    injected: list
    seen: dict
    delays: list
    uses: list
    disk: dict
    lost: dict
    answers: list
    why: str
    stopped: str
    returncode: int
    series: int = 0
    samples: int = 0
    load: dict = dataclasses.field(default_factory=dict)  # what metrics_load says at its end

    def verdicts_of(self, i):
        at = self.injected[i][0]
        until = self.injected[i + 1][0] if i + 1 < len(self.injected) else float("inf")
        return [one for one in self.seen.values() if at <= min(one["states"].values()) < until]

    def named(self, i):
        return any("confirmed" in one["states"] for one in self.verdicts_of(i))

    def after(self, i, state):
        """Until a state was seen: in the job's time, and here."""
        at = self.injected[i][0]
        times = [one["states"][state] for one in self.verdicts_of(i) if state in one["states"]]
        if not times:
            return "-"
        wall_s, job_s = min(times) - at, self.clock.job_s(min(times)) - self.clock.job_s(at)
        return f"{job_s:.0f} s" if abs(wall_s - job_s) < 1 else f"{job_s:.0f} s ({wall_s:.0f} s here)"


def play(arguments, with_metrics, folder):
    programs = pathlib.Path(arguments.bin)
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    server = subprocess.Popen(
        arguments.before + [programs / "lockstepd", "--data", data, "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=open(folder / "server.log", "w"), text=True)
    ready = dict(part.split("=", 1) for part in server.stdout.readline().split()[1:])
    http = ready["http"]
    scenario = pathlib.Path(arguments.scenario)
    text = scenario.read_text()
    if arguments.metrics_every:
        scenario = folder / scenario.name
        scenario.write_text(re.sub(r"metrics_every_s: [0-9.]+", f"metrics_every_s: {arguments.metrics_every}", text))
    command = [programs / "lockstep", "sim", scenario, "--server", f"http://{ready['otlp_http']}", "--speed", str(arguments.speed)]
    if arguments.steps:
        command += ["--steps", str(arguments.steps)]
    clock = Clock(time.time(), arguments.speed)
    player = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    uses = [Use("server", server.pid), Use("simulator", player.pid)]
    load, load_log = None, folder / "load.jsonl"
    lines, injected = [], []
    series = 0

    def listen():
        for line in player.stdout:
            lines.append(line.rstrip())
            print(line.rstrip(), file=sys.stderr, flush=True)
            if " inject " in line:
                injected.append((time.time(), line.split(" inject ", 1)[1].strip()))
            if late := re.search(r", (\d+) s behind", line):
                clock.behind.append((time.time(), float(late.group(1))))
            elif "requests sent" in line:
                clock.behind.append((time.time(), 0.0))

    ear = threading.Thread(target=listen, daemon=True)
    ear.start()
    if with_metrics:
        while not lines and player.poll() is None:
            time.sleep(0.1)
        ranks = int(re.search(r"([\d,]+) ranks", lines[0]).group(1).replace(",", ""))
        job = re.search(r"job: (\w[\w-]*)", text).group(1)
        series = ranks * 98
        interval_s = SAMPLED_EVERY_S / arguments.speed
        # Until it is told to stop: the job's steps become longer by its faults.
        load = subprocess.Popen(
            [programs / "metrics_load", "fleet", "--url", f"http://{http}/prometheus/api/v1/write", "--nodes", str(ranks // 8), "--job", job,
             "--interval-ms", str(int(interval_s * 1000)), "--ramp-s", str(int(arguments.ramp_s / arguments.speed)), "--seconds", "86400",
             "--late-s-max", "86400"],
            stdout=open(load_log, "w"), stderr=open(folder / "load.log", "w"))
        uses.append(Use("metrics", load.pid))
    seen = {}  # id -> verdict with the times at which its states were first seen
    delays = []
    stopped = ""
    last_delay = None
    while player.poll() is None:
        time.sleep(LOOK_S)
        for use in uses:
            use.look()
        try:
            verdicts = json.loads(get(f"http://{http}/api/verdicts", timeout=60))["verdicts"]
            values = own_metrics(http)
        except OSError:
            continue
        for verdict in verdicts:
            states = seen.setdefault(verdict["id"], {"states": {}})
            states["verdict"] = verdict
            states["states"].setdefault(verdict["state"], time.time())
        delay = values.get('lockstep_diagnosis_delay_ms{which="last"}')
        if delay is not None and delay != last_delay:
            last_delay = delay
            delays.append((delay, values.get('lockstep_diagnosis_look_ms{which="last"}', 0)))
        if uses[0].now_mb > arguments.memory_gb * 1e3 or free_memory_gb() < 2:
            stopped = f"stopped: the server had {uses[0].now_mb / 1e3:.1f} GB, {free_memory_gb():.1f} GB were free"
            player.send_signal(signal.SIGINT)
            break
    player.wait()
    ear.join()
    took = time.time() - clock.began
    for use in uses:
        use.look()
    told = {}
    if load is not None:
        load.send_signal(signal.SIGTERM)
        load.wait()
        rows = [json.loads(line) for line in load_log.read_text().splitlines()]
        told = rows[-1] if rows and rows[-1].get("done") else {}
    values = own_metrics(http)
    answers = []
    job = json.loads(get(f"http://{http}/api/jobs"))["jobs"][0]["job_id"]
    name = urllib.parse.quote(job, safe="")
    for path in (f"/api/jobs/{name}/why", f"/api/jobs/{name}", "/api/jobs", "/api/verdicts", f"/api/jobs/{name}/steps?last=200", f"/api/jobs/{name}/ranks?last=50",
                 f"/api/jobs/{name}/slowest"):
        tries = []
        for _ in range(3):
            before = time.monotonic()
            try:
                size = len(get(f"http://{http}{path}", timeout=60))
                tries.append((time.monotonic() - before, size))
            except OSError:
                tries.append((60.0, 0))
        answers.append((path, min(tries)[0], max(tries)[0], tries[0][1]))
    before = time.monotonic()
    why = subprocess.run([programs / "lockstep", "why", job, "--server", f"http://{http}"], capture_output=True, text=True)
    answers.append((f"`lockstep why {job}`", time.monotonic() - before, time.monotonic() - before, len(why.stdout)))
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=300)
    disk = {part: size_of(data / part) for part in ("log", "steps", "metrics")} | {"all": size_of(data)}
    lost = {key: value for key, value in values.items() if ("refused" in key or "dropped" in key) and value > 0}
    return Played(with_metrics, arguments.speed, took, clock, lines, injected, seen, delays, uses, disk, lost, answers, why.stdout, stopped,
                  player.returncode, series, int(values.get("lockstep_metric_samples_stored_total", 0)), told)


def compared(runs):
    """A column for each run."""
    rows = [("",) + tuple("with every series" if run.with_metrics else "without" for run in runs), ("---",) * (len(runs) + 1)]

    def row(what, value):
        rows.append((what,) + tuple(value(run) for run in runs))

    def use_of(run, name):
        return next((use for use in run.uses if use.name == name), None)

    def cpu_text(run, name):
        use = use_of(run, name)
        if use is None:
            return "-"
        return f"{use.cpu_s:.0f} s ({use.cpu_s / run.took:.2f} cores here, {use.cpu_s / run.clock.job_s(run.clock.began + run.took):.2f} at the job's pace)"

    row("series of metrics_load, samples stored in all", lambda run: f"{run.series:,}, {run.samples:,}")
    row("played: the job's time, here", lambda run: f"{run.clock.job_s(run.clock.began + run.took):.0f} s, {run.took:.0f} s")
    for name in ("server", "simulator", "metrics"):
        row(f"CPU of the {name}", lambda run: cpu_text(run, name))
    for name in ("server", "simulator", "metrics"):
        row(f"peak memory of the {name}", lambda run: f"{use_of(run, name).peak_mb:,.0f} MB" if use_of(run, name) else "-")
    row("simulator behind its time at most, at the end", lambda run: f"{max(late for _, late in run.clock.behind):.0f} s, {run.clock.behind[-1][1]:.0f} s")
    row("samples offered and taken, request p99", lambda run: f"{run.load['offered']:,}, {run.load['samples']:,}, {run.load['p99_ms']:.0f} ms" if run.load else "-")

    def looked(run, quantile):
        each = sorted(delay for delay, _ in run.delays)
        return f"{each[int(quantile * (len(each) - 1))]:.0f} ms" if each else "-"

    row("from a step's last report to diagnosis having looked: median, most", lambda run: f"{looked(run, 0.5)}, {looked(run, 1)}")
    for i, (_, text) in enumerate(runs[0].injected):
        row(f"{text}: suspected, confirmed after", lambda run: f"{run.after(i, 'suspected')}, {run.after(i, 'confirmed')}" if i < len(run.injected) else "not played")
    row("on disk: log, steps, metrics", lambda run: ", ".join(f"{run.disk[part] / 1e6:,.0f} MB" for part in ("log", "steps", "metrics")))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def details(run):
    report = []
    say = report.append
    say(f"### {'With every series' if run.with_metrics else 'Without'}\n")
    if run.stopped:
        say(run.stopped + "\n")
    say("Refused or dropped by the server: " + (", ".join(f"{key} {value:.0f}" for key, value in run.lost.items()) or "nothing") + ".\n")
    say("| fault | suspected after | confirmed after | verdict |\n|---|---|---|---|")
    for i, (_, text) in enumerate(run.injected):
        cell = "; ".join(f"{one['verdict']['culprit']['layer']}/{one['verdict']['culprit']['cause']}: {one['verdict']['sentence']}" for one in run.verdicts_of(i))
        say(f"| {text} | {run.after(i, 'suspected')} | {run.after(i, 'confirmed')} | {cell or 'none'} |")
    for one in run.seen.values():
        if run.injected and min(one["states"].values()) < run.injected[0][0]:
            say(f"| before any fault | | | {one['verdict']['sentence']} |")
    say("\n| answer | quickest of three | slowest | bytes |\n|---|---|---|---|")
    for path, quickest, slowest, size in run.answers:
        say(f"| {path} | {quickest * 1e3:.0f} ms | {slowest * 1e3:.0f} ms | {size:,} |")
    say("")
    say("\n".join(f"    {line}" for line in run.lines[-8:]))
    say("\n".join(f"    {line}" for line in run.why.splitlines()[:40]))
    return "\n".join(report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default=str(ROOT / "tests/scenarios/scale/fleet-100k.yaml"))
    parser.add_argument("--bin", default=str(ROOT / "build/bin"))
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1, help="of the job: 0.5 takes twice as long as it would")
    parser.add_argument("--metrics", choices=("off", "on", "both"), default="off", help="every series of every GPU beside the steps")
    parser.add_argument("--ramp-s", type=float, default=60, help="of the job, within which the hosts' series come")
    parser.add_argument("--metrics-every", type=float, default=0, help="seconds between the simulator's own readings of a node (default: the file's)")
    parser.add_argument("--memory-gb", type=float, default=18, help="stop the run where the server takes more than this")
    parser.add_argument("--out", default="")
    parser.add_argument("--keep", default="", help="leave the data folder and the logs here")
    parser.add_argument("--server-cpus", default="", help="cores that the server alone has, as 0,1 (default: all are shared)")
    arguments = parser.parse_args()
    arguments.before = pinned(arguments.server_cpus)
    runs = []
    for with_metrics in {"off": (False,), "on": (True,), "both": (False, True)}[arguments.metrics]:
        folder = pathlib.Path(arguments.keep) / ("with" if with_metrics else "without") if arguments.keep else pathlib.Path(tempfile.mkdtemp(prefix="lockstep-fleet-"))
        runs.append(play(arguments, with_metrics, folder))
        if not arguments.keep:
            shutil.rmtree(folder)
    text = f"Scenario {arguments.scenario.removeprefix(str(ROOT) + '/')}, played on {datetime.date.today()}, {os.cpu_count()} cores. {runs[0].lines[0] if runs[0].lines else ''}\n"
    if arguments.speed != 1:
        text += f"Played at {arguments.speed:g} of its speed: a second of the job is {1 / arguments.speed:g} s here. Delays are in the job's time.\n"
    if arguments.server_cpus:
        text += f"The server had the cores {arguments.server_cpus} and no others; the simulator and the load had the rest.\n"
    text += "\n" + compared(runs) + "\n\n" + "\n\n".join(details(run) for run in runs)
    print(text)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text + "\n")
    good = all(run.returncode == 0 and all(run.named(i) for i in range(len(run.injected))) for run in runs)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
