#!/usr/bin/env python3
"""One very large job through the real doors: lockstepd on loopback, `lockstep sim` of a scenario into it.

    run.py [--scenario FILE] [--bin DIR] [--steps N] [--metrics-every S] [--out FILE] [--keep DIR]

Prints, as Markdown: whether the server keeps up (how late the simulator's requests are, how long diagnosis takes after
the last rank's report), how long each fault took to be named, CPU and memory of both programs, bytes on disk, and how
quick and how large the answers about the job are. Ends with 1 where a fault was not named or a request was lost."""

import argparse
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
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOOK_S = 1.0


def free_memory_gb():
    with open("/proc/meminfo") as text:
        return int(re.search(r"MemAvailable:\s+(\d+)", text.read()).group(1)) / 1e6


class Use:
    """CPU and memory of a process, as the kernel counts them."""

    def __init__(self, pid):
        self.pid = pid
        self.cpu_s = 0.0
        self.peak_mb = 0.0
        self.now_mb = 0.0

    def look(self):
        try:
            with open(f"/proc/{self.pid}/stat") as text:
                fields = text.read().rsplit(")", 1)[1].split()
            self.cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            with open(f"/proc/{self.pid}/status") as text:
                status = text.read()
        except OSError:
            return
        peak, now = (re.search(name + r":\s+(\d+) kB", status) for name in ("VmHWM", "VmRSS"))
        if peak and now:
            self.peak_mb, self.now_mb = int(peak.group(1)) / 1e3, int(now.group(1)) / 1e3


def get(url, timeout=60):
    began = time.monotonic()
    with urllib.request.urlopen(url, timeout=timeout) as answer:
        body = answer.read()
    return body, time.monotonic() - began


def own_metrics(http):
    body, _ = get(f"http://{http}/metrics")
    values = {}
    for line in body.decode().splitlines():
        if line.startswith("lockstep_"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    return values


def folder_bytes(path):
    return sum(file.stat().st_size for file in pathlib.Path(path).rglob("*") if file.is_file())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default=str(ROOT / "tests/scenarios/scale/fleet-100k.yaml"))
    parser.add_argument("--bin", default=str(ROOT / "build/bin"))
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--metrics-every", type=float, default=0, help="seconds between readings of a node (default: the file's)")
    parser.add_argument("--memory-gb", type=float, default=12, help="stop the run where the server takes more than this")
    parser.add_argument("--out", default="")
    parser.add_argument("--keep", default="", help="leave the data folder and the logs here")
    arguments = parser.parse_args()
    programs = pathlib.Path(arguments.bin)

    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="lockstep-fleet-"))
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    server = subprocess.Popen(
        [programs / "lockstepd", "--data", data, "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=open(folder / "server.log", "w"), text=True)
    ready = dict(part.split("=", 1) for part in server.stdout.readline().split()[1:])
    http = ready["http"]
    scenario = pathlib.Path(arguments.scenario)
    if arguments.metrics_every:
        scenario = folder / scenario.name
        text = pathlib.Path(arguments.scenario).read_text()
        scenario.write_text(re.sub(r"metrics_every_s: [0-9.]+", f"metrics_every_s: {arguments.metrics_every}", text))
    command = [programs / "lockstep", "sim", scenario, "--server", f"http://{ready['otlp_http']}", "--speed", str(arguments.speed)]
    if arguments.steps:
        command += ["--steps", str(arguments.steps)]
    began = time.time()
    player = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    uses = {"server": Use(server.pid), "simulator": Use(player.pid)}
    lines, injected, behind = [], [], []

    def listen():
        for line in player.stdout:
            lines.append(line.rstrip())
            print(line.rstrip(), file=sys.stderr, flush=True)
            if " inject " in line:
                injected.append((time.time(), line.split(" inject ", 1)[1].strip()))
            if late := re.search(r", (\d+) s behind", line):
                behind.append(int(late.group(1)))
            elif "requests sent" in line:
                behind.append(0)

    ear = threading.Thread(target=listen, daemon=True)
    ear.start()
    seen = {}  # id -> verdict with the times at which its states were first seen
    delays = []
    stopped = ""
    last_delay = None
    while player.poll() is None:
        time.sleep(LOOK_S)
        for use in uses.values():
            use.look()
        try:
            verdicts = json.loads(get(f"http://{http}/api/verdicts")[0])["verdicts"]
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
        if uses["server"].now_mb > arguments.memory_gb * 1e3 or free_memory_gb() < 2:
            stopped = f"stopped: the server had {uses['server'].now_mb / 1e3:.1f} GB, {free_memory_gb():.1f} GB were free"
            player.send_signal(signal.SIGINT)
            break
    player.wait()
    ear.join()
    took = time.time() - began
    values = own_metrics(http)
    answers = []
    job = json.loads(get(f"http://{http}/api/jobs")[0])["jobs"][0]["job_id"]
    name = urllib.parse.quote(job, safe="")
    for path in (f"/api/jobs/{name}/why", f"/api/jobs/{name}", "/api/jobs", "/api/verdicts", f"/api/jobs/{name}/steps?last=200", f"/api/jobs/{name}/ranks?last=50",
                 f"/api/jobs/{name}/slowest"):
        tries = []
        for _ in range(3):
            try:
                body, seconds = get(f"http://{http}{path}")
                tries.append((seconds, len(body)))
            except OSError as error:
                tries.append((60.0, 0))
        answers.append((path, min(tries)[0], max(tries)[0], tries[0][1]))
    before = time.monotonic()
    why = subprocess.run([programs / "lockstep", "why", job, "--server", f"http://{http}"], capture_output=True, text=True)
    answers.append((f"`lockstep why {job}`", time.monotonic() - before, time.monotonic() - before, len(why.stdout)))
    for use in uses.values():
        use.look()
    server.send_signal(signal.SIGTERM)
    server.wait(timeout=120)
    disk = {part: folder_bytes(data / part) for part in ("log", "steps")} | {"all": folder_bytes(data)}

    report = []
    say = report.append
    say(f"Scenario {arguments.scenario.removeprefix(str(ROOT) + '/')}, played on {datetime.date.today()}, {took:.0f} s. {lines[0] if lines else ''}")
    if stopped:
        say(stopped)
    say("")
    say("| | server | simulator |\n|---|---|---|")
    say(f"| CPU | {uses['server'].cpu_s:.0f} s ({uses['server'].cpu_s / took:.2f} cores) | {uses['simulator'].cpu_s:.0f} s ({uses['simulator'].cpu_s / took:.2f} cores) |")
    say(f"| peak memory | {uses['server'].peak_mb:.0f} MB | {uses['simulator'].peak_mb:.0f} MB |")
    say("")
    say(f"On disk: log {disk['log'] / 1e6:.0f} MB, steps {disk['steps'] / 1e6:.0f} MB, all {disk['all'] / 1e6:.0f} MB.")
    say(f"Requests late by at most {max(behind, default=0)} s, at the end {behind[-1] if behind else 0} s.")
    if delays:
        each = sorted(delay for delay, _ in delays)
        looks = sorted(look for _, look in delays)
        say(f"From a step's last report to diagnosis having looked at it: {each[len(each) // 2]:.0f} ms median, {each[-1]:.0f} ms most, of which looking "
            f"{looks[len(looks) // 2]:.0f} ms and {looks[-1]:.0f} ms ({len(each)} steps).")
    refused = {key: value for key, value in values.items() if ("refused" in key or "dropped" in key) and value > 0}
    say("Refused or dropped by the server: " + (", ".join(f"{key} {value:.0f}" for key, value in refused.items()) or "nothing") + ".")
    say("")
    say("| fault | suspected after | confirmed after | verdict |\n|---|---|---|---|")
    named = 0
    for i, (at, text) in enumerate(injected):
        until = injected[i + 1][0] if i + 1 < len(injected) else time.time()
        mine = [one for one in seen.values() if at <= min(one["states"].values()) < until]
        cell = "; ".join(f"{one['verdict']['culprit']['layer']}/{one['verdict']['culprit']['cause']}: {one['verdict']['sentence']}" for one in mine)

        def after(state):
            times = [one["states"][state] - at for one in mine if state in one["states"]]
            return f"{min(times):.0f} s" if times else "-"

        named += any("confirmed" in one["states"] for one in mine)
        say(f"| {text} | {after('suspected')} | {after('confirmed')} | {cell or 'none'} |")
    early = [one for one in seen.values() if injected and min(one["states"].values()) < injected[0][0]]
    for one in early:
        say(f"| before any fault | | | {one['verdict']['sentence']} |")
    say("")
    say("| answer | quickest of three | slowest | bytes |\n|---|---|---|---|")
    for path, quickest, slowest, size in answers:
        say(f"| {path} | {quickest * 1e3:.0f} ms | {slowest * 1e3:.0f} ms | {size:,} |")
    say("")
    say("\n".join(f"    {line}" for line in lines[-12:]))
    say("\n".join(f"    {line}" for line in why.stdout.splitlines()[:40]))
    text = "\n".join(report)
    print(text)
    if arguments.out:
        pathlib.Path(arguments.out).write_text(text + "\n")
    if not arguments.keep:
        shutil.rmtree(folder)
    return 0 if named == len(injected) and player.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
