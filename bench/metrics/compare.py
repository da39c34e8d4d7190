#!/usr/bin/env python3
"""What metrics cost: the same frames into Lockstep, VictoriaMetrics and Prometheus, one after the other, on loopback.

    compare.py --bin DIR [--shapes wide,long] [--nodes N] [--steps N] [--only NAME,...] [--lockstep PROGRAM] [--out FILE]

Frames are made first (bench/metrics/fleet.h says of what) and played from files by four connections as fast as they are
taken. The first step makes the series, the others are steady. CPU is user and system time of the server's process, so
what else runs on the machine moves it little; wall times are moved by it. Ends with 1 where something could not be
measured or samples were refused."""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import peers  # noqa: E402

READY_S = 120
# name: PromQL, whether over a range of 22 steps, how often
QUERIES = {
    "slowest rank, instant": ('topk(5, max by (rank) (train_step_seconds{job_id="train-0000"}))', False, 15),
    "slowest rank over 2 min": (
        'topk(5, avg by (rank) (avg_over_time(train_step_seconds{job_id="train-0000"}[2m])))',
        False,
        15,
    ),
    "power by job": ("avg by (job_id) (gpu_power_watts)", False, 15),
    "power by job, range": ("avg by (job_id) (gpu_power_watts)", True, 15),
    "slowest rank, range": ('topk(5, max by (rank) (train_step_seconds{job_id="train-0000"}))', True, 15),
    "NVLink rate by job": ("sum by (job_id) (rate(nvlink_tx_kibibytes_total[1m]))", False, 5),
    "NVLink rate by job, range": ("sum by (job_id) (rate(nvlink_tx_kibibytes_total[1m]))", True, 5),
    "all series of one rank": ('{job_id="train-0000",rank="17"}', False, 15),
}


class Failed(Exception):
    pass


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cpu_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> tuple[int, int]:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return tuple(int(re.search(rf"{key}:\s+(\d+)", status)[1]) * 1024 for key in ("VmRSS", "VmHWM"))


def size_of(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0


def get(url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=300) as answer:
        return answer.read()


def wait_until(what: str, ready, seconds: float = READY_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, urllib.error.URLError, ValueError, KeyError, IndexError):
            if ready():
                return
        time.sleep(0.1)
    raise Failed(f"{what} did not happen within {seconds} s")


class Server:
    """One that takes remote write and answers PromQL."""

    name = ""
    write = "/api/v1/write"
    base = ""
    no_cache = {}

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.one = None

    def arguments(self) -> list:
        raise NotImplementedError

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.one = subprocess.Popen(
                list(map(str, self.arguments())), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(f"{self.name} answering", lambda: self.ready())

    def ready(self) -> bool:
        if self.one.poll() is not None:
            raise Failed(f"{self.name} ended at once; see its log: {(self.folder / 'log').read_text()[-500:]}")
        return bool(get(f"http://127.0.0.1:{self.port}{self.base}/api/v1/query?query=1"))

    def stop(self):
        if self.one is not None and self.one.poll() is None:
            self.one.send_signal(signal.SIGTERM)
            try:
                self.one.wait(timeout=300)
            except subprocess.TimeoutExpired:
                self.one.kill()
                self.one.wait()

    def settle(self):
        """After the load: everything can be asked for."""

    def disk(self) -> int:
        """Bytes at rest, index included; the server runs and is stopped after."""
        raise NotImplementedError

    def query(self, text: str, at_s: float, step_s: float | None, count: int) -> list:
        parameters = {"query": text, **self.no_cache}
        path = "query"
        if step_s is None:
            parameters["time"] = f"{at_s:.3f}"
        else:
            path = "query_range"
            parameters |= {"start": f"{at_s - 21 * step_s:.3f}", "end": f"{at_s:.3f}", "step": f"{step_s:g}"}
        url = f"http://127.0.0.1:{self.port}{self.base}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        times = []
        for _ in range(count):
            began = time.monotonic()
            body = get(url)
            times.append(time.monotonic() - began)
        answer = json.loads(body)
        if answer["status"] != "success":
            raise Failed(f"{self.name}: {text}: {answer}")
        return [statistics.median(times), len(answer["data"]["result"])]


class VictoriaMetrics(Server):
    name = "VictoriaMetrics 1.150.0"
    no_cache = {"nocache": "1"}

    def __init__(self, folder, program):
        super().__init__(folder)
        self.program = program

    def arguments(self):
        return [
            self.program,
            f"-storageDataPath={self.data}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            "-search.maxUniqueTimeseries=10000000",
            "-search.latencyOffset=0s",
        ]

    def settle(self):
        get(f"http://127.0.0.1:{self.port}/internal/force_flush")

    def disk(self):
        get(f"http://127.0.0.1:{self.port}/internal/force_flush")
        get(f"http://127.0.0.1:{self.port}/internal/force_merge")
        return size_of(self.data)


class Prometheus(Server):
    name = "Prometheus 3.14.0"

    def __init__(self, folder, program):
        super().__init__(folder)
        self.program = program

    def arguments(self):
        config = self.folder / "prometheus.yml"
        config.write_text("global: {}\n")
        return [
            self.program,
            f"--config.file={config}",
            f"--storage.tsdb.path={self.data}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--web.enable-admin-api",
            "--query.max-samples=200000000",
            "--log.level=error",
        ]

    def disk(self):
        # The head goes into a block on demand only; the write-ahead log is not what is kept.
        name = json.loads(get(f"http://127.0.0.1:{self.port}/api/v1/admin/tsdb/snapshot", b""))["data"]["name"]
        return size_of(self.data / "snapshots" / name)


class Lockstep(Server):
    name = "Lockstep"
    write = "/prometheus/api/v1/write"
    base = "/prometheus"

    def __init__(self, folder, program):
        super().__init__(folder)
        self.program = program

    def arguments(self):
        return [
            self.program,
            "--data",
            self.data,
            "--http",
            f"127.0.0.1:{self.port}",
            "--otlp-http",
            "127.0.0.1:0",
            "--otlp-grpc",
            "127.0.0.1:0",
        ]

    def disk(self):
        self.stop()  # what is in memory goes to disk
        size = size_of(self.data / "metrics")
        self.start()
        return size


@dataclasses.dataclass
class Measured:
    name: str
    new_series_cpu_s: float = 0  # for all of them, and their first sample
    steady_cpu_s: float = 0
    steady_wall_s: float = 0
    steady_samples: int = 0
    p50_ms: float = 0
    p99_ms: float = 0
    rss: int = 0
    rss_peak: int = 0
    disk: int = 0
    restart_s: float = 0
    queries: dict = dataclasses.field(default_factory=dict)


def load(program: pathlib.Path, *arguments) -> dict:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"metrics_load {arguments[0]}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def measure(server: Server, player: pathlib.Path, frames: pathlib.Path, made: dict, end_s: float, with_queries: bool):
    result = Measured(server.name)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}{server.write}"
        pid = server.one.pid
        before = cpu_s(pid)
        load(player, "replay", "--frames", frames, "--url", url, "--to", 1)
        after_new = cpu_s(pid)
        sent = load(player, "replay", "--frames", frames, "--url", url, "--from", 1)
        result.steady_cpu_s = cpu_s(pid) - after_new
        result.steady_samples = sent["samples"]
        result.steady_wall_s = sent["wall_s"]
        result.p50_ms, result.p99_ms = sent["p50_ms"], sent["p99_ms"]
        result.new_series_cpu_s = after_new - before
        server.settle()
        result.rss, result.rss_peak = memory(pid)
        count = 'count({__name__=~".+"})'
        wait_until(
            f"{server.name} showing all series",
            lambda: server.query("count(train_step_seconds)", end_s, None, 1)[1] == 1,
        )
        if with_queries:
            for name, (text, is_range, times) in QUERIES.items():
                result.queries[name] = server.query(text, end_s, 10 if is_range else None, times)
        result.disk = server.disk()
        server.stop()
        began = time.monotonic()
        server.start()
        wait_until("the restart", lambda: server.query(count, end_s, None, 1)[1] == 1, 600)
        result.restart_s = time.monotonic() - began
    finally:
        server.stop()
    return result


def table(rows: list[Measured], made: dict, shape: str, nodes: int) -> str:
    million = 1e6
    ours = next((row for row in rows if row.name == "Lockstep"), None)

    def line(what, value, digits):
        cells = []
        for row in rows:
            text = f"{value(row):,.{digits}f}"
            if ours is not None and row is not ours and value(ours) > 0:
                text += f" ({value(row) / value(ours):.1f}x)"
            cells.append(text)
        return f"| {what} | " + " | ".join(cells) + " |\n"

    text = f"\n## {shape}: {made['series']:,} series of {nodes:,} nodes, {made['steps']} steps, {made['samples']:,} samples\n\n"
    text += f"{made['plain_bytes'] / made['samples']:.0f} bytes a sample as protobuf, {made['frame_bytes'] / made['samples']:.1f} as sent.\n\n"
    text += "| | " + " | ".join(row.name for row in rows) + " |\n|---|" + "---|" * len(rows) + "\n"
    text += line("CPU-s per million samples, steady", lambda r: r.steady_cpu_s / r.steady_samples * million, 2)
    text += line("CPU-s per million new series (with their first sample)", lambda r: r.new_series_cpu_s / made["series"] * million, 1)
    text += line("samples/s taken (wall)", lambda r: r.steady_samples / r.steady_wall_s, 0)
    text += line("request p50, ms", lambda r: r.p50_ms, 1)
    text += line("request p99, ms", lambda r: r.p99_ms, 1)
    text += line("memory, bytes per series", lambda r: r.rss / made["series"], 0)
    text += line("memory at most, bytes per series", lambda r: r.rss_peak / made["series"], 0)
    text += line("disk, bytes per sample (index included)", lambda r: r.disk / made["samples"], 2)
    text += line("restart until all series answer, s", lambda r: r.restart_s, 1)
    for name in rows[0].queries:
        text += line(f"query, ms: {name}", lambda r: r.queries[name][0] * 1000, 1)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--shapes", default="wide,long")
    parser.add_argument("--nodes", type=int, help="instead of 1,280 (wide) and 64 (long)")
    parser.add_argument("--steps", type=int, help="instead of 24 (wide) and 360 (long)")
    parser.add_argument("--interval-ms", type=int, default=10_000)
    parser.add_argument("--jitter-ms", type=int, default=0)
    parser.add_argument("--churn", type=float, default=0.0)
    parser.add_argument("--only", default="lockstep,victoriametrics,prometheus")
    parser.add_argument("--lockstep", type=pathlib.Path, help="the server, instead of lockstepd of --bin")
    parser.add_argument("--folder", type=pathlib.Path, help="where frames and data go (default: a temporary folder)")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    player = options.bin / "metrics_load"
    only = options.only.split(",")
    report = (
        "# What metrics cost\n\nMade by `./dev bench metrics`: remote write 1.0 from four connections, the same frames into each server, "
        "write-ahead logs on, each server alone and new. CPU is the server's user and system time. In brackets: how many times ours. "
        f"{platform.machine()}, {os.cpu_count()} cores, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}. Queries: median over HTTP, "
        "VictoriaMetrics without its cache. Disk: VictoriaMetrics after a forced merge, Prometheus as a snapshot block"
        + (", Lockstep after a stop.\n" if "lockstep" in only else ".\n")
    )
    if "lockstep" not in only:
        report += "\nLockstep is left out of this run.\n"
    failed = False
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = pathlib.Path(folder)
        for shape in options.shapes.split(","):
            nodes = options.nodes or (1280 if shape == "wide" else 64)
            steps = options.steps or (24 if shape == "wide" else 360)
            span_s = steps * options.interval_ms / 1000
            start_s = int(time.time() - span_s - 60)
            frames = folder / f"frames-{shape}"
            made = load(
                player, "generate", "--out", frames, "--nodes", nodes, "--steps", steps, "--start-ms", start_s * 1000,
                "--interval-ms", options.interval_ms, "--jitter-ms", options.jitter_ms, "--churn", options.churn,
            )  # fmt: skip
            end_s = start_s + span_s + options.interval_ms / 1000
            rows = []
            for name, kind, program in (
                ("lockstep", Lockstep, lambda: options.lockstep or options.bin / "lockstepd"),
                ("victoriametrics", VictoriaMetrics, lambda: peers.build(peers.VICTORIA_METRICS)),
                ("prometheus", Prometheus, lambda: peers.build(peers.PROMETHEUS)),
            ):
                if name not in only:
                    continue
                binary = program()
                if binary is None or not pathlib.Path(binary).exists():
                    print(f"bench metrics: {name} left out: there is no {binary}", file=sys.stderr)
                    failed = True
                    continue
                place = folder / f"{name}-{shape}"
                place.mkdir()
                try:
                    print(f"bench metrics: {shape}: {name}", file=sys.stderr)
                    rows.append(measure(kind(place, binary), player, frames, made, end_s, shape == "wide"))
                except Failed as error:
                    print(f"bench metrics: {name}: {error}", file=sys.stderr)
                    failed = True
                shutil.rmtree(place, ignore_errors=True)
            if rows:
                report += table(rows, made, shape, nodes)
            shutil.rmtree(frames, ignore_errors=True)
    print(report)
    if options.out:
        options.out.write_text(report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
