#!/usr/bin/env python3
"""What metrics cost: the same frames into Lockstep, VictoriaMetrics and Prometheus, one after the other, on loopback.

    compare.py --bin DIR [--shapes wide,long,jitter,churn,second] [--nodes N] [--steps N] [--only NAME,...]
               [--lockstep PROGRAM] [--out FILE]

Frames are made first (bench/metrics/fleet.h says of what) and played from files by four connections as fast as they are
taken. The first step makes the series, the others are steady. CPU is user and system time of the server's process, until
it is quiet after the last request, so what else runs on the machine moves it little; wall times are moved by it. Ends with 1 where something could not be
measured or samples were refused."""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import peers  # noqa: E402
from processes import Failed, cpu_s, free_port, get, memory, size_of, wait_until  # noqa: E402

READY_S = 120


# name: PromQL, whether over a range of 22 steps, how often
QUERIES = {
    "slowest rank, instant": ('topk(5, max by (rank) (train_step_seconds{job_id="train-0000"}))', False, 9),
    "slowest rank over 2 min": (
        'topk(5, avg by (rank) (avg_over_time(train_step_seconds{job_id="train-0000"}[2m])))',
        False,
        9,
    ),
    "power by job": ("avg by (job_id) (gpu_power_watts)", False, 9),
    "power by job, range": ("avg by (job_id) (gpu_power_watts)", True, 9),
    "slowest rank, range": ('topk(5, max by (rank) (train_step_seconds{job_id="train-0000"}))', True, 9),
    "NVLink rate by job": ("sum by (job_id) (rate(nvlink_tx_kibibytes_total[1m]))", False, 3),
    "NVLink rate by job, range": ("sum by (job_id) (rate(nvlink_tx_kibibytes_total[1m]))", True, 3),
    "all series of one rank": ('{job_id="train-0000",rank="17"}', False, 9),
}
# Over everything the shape has, at one time.
WINDOW_QUERIES = {
    "highest power of two hours": ("max by (job_id) (max_over_time(gpu_power_watts[2h]))", False, 9),
    "mean power of two hours": ("avg by (job_id) (avg_over_time(gpu_power_watts[2h]))", False, 9),
    "mean temperature of two hours": ("avg by (job_id) (avg_over_time(gpu_temp_celsius[2h]))", False, 9),
    "NVLink rate over two hours": ("sum by (job_id) (rate(nvlink_tx_kibibytes_total[2h]))", False, 9),
    "NVLink rate, a point each five minutes": ("sum by (job_id) (rate(nvlink_tx_kibibytes_total[5m]))", True, 9),
}


@dataclasses.dataclass(frozen=True)
class Shape:
    about: str
    nodes: int
    steps: int
    interval_ms: int = 10_000
    jitter_ms: int = 0
    churn: float = 0
    churn_steps: int = 60
    queries: dict = dataclasses.field(default_factory=dict)
    query_step_s: float = 10


SHAPES = {
    "wide": Shape("many series", 1280, 24, queries=QUERIES),
    "long": Shape("two hours of few, after which blocks are made", 16, 750, queries=WINDOW_QUERIES, query_step_s=300),
    "jitter": Shape("every push up to 2 s off its time", 320, 24, jitter_ms=2000, queries=QUERIES),
    "churn": Shape("half of the small jobs are new ones every two minutes", 320, 48, churn=0.5, churn_steps=12),
    "second": Shape("a sample every second", 128, 240, interval_ms=1000, queries=QUERIES),
}


class Server:
    """One that takes remote write and answers PromQL."""

    name = ""
    write = "/api/v1/write"
    base = ""
    no_cache = {}
    ready_s = READY_S
    at_rest_first = True  # what is on disk is tidied up before the restart is timed
    before = []  # what comes before the program

    def __init__(self, folder: pathlib.Path, program: pathlib.Path):
        self.folder = folder
        self.program = program
        self.data = folder / "data"
        self.port = free_port()
        self.one = None

    def arguments(self) -> list:
        raise NotImplementedError

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.one = subprocess.Popen(
                list(map(str, self.before + self.arguments())), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(f"{self.name} answering", lambda: self.ready(), self.ready_s)

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

    def disk(self) -> tuple[int, int, int]:
        """Bytes at rest, index included; of that the index where it has files of its own, and rollups."""
        raise NotImplementedError

    def query(self, text: str, at_s: float, step_s: float | None = None, count: int = 1) -> tuple[float, list]:
        """Median seconds of so many times, and the result."""
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
            try:
                body = get(url)
            except urllib.error.HTTPError as error:
                if error.code // 100 == 4:
                    raise Failed(f"{self.name}: {text}: {error.read()[:300].decode()}") from error
                raise
            times.append(time.monotonic() - began)
        answer = json.loads(body)
        if answer["status"] != "success":
            raise Failed(f"{self.name}: {text}: {answer}")
        return statistics.median(times), answer["data"]["result"]


class VictoriaMetrics(Server):
    name = "VictoriaMetrics 1.150.0"
    no_cache = {"nocache": "1"}

    def arguments(self):
        return [
            self.program,
            f"-storageDataPath={self.data}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=100y",
            "-search.maxUniqueTimeseries=10000000",
            "-search.latencyOffset=0s",
            "-search.maxQueryDuration=120s",
        ]

    def settle(self):
        get(f"http://127.0.0.1:{self.port}/internal/force_flush")

    def disk(self):
        get(f"http://127.0.0.1:{self.port}/internal/force_flush")
        base = f"http://127.0.0.1:{self.port}"
        get(f"{base}/internal/force_merge")
        time.sleep(1)
        wait_until("the merge", lambda: b"vm_active_force_merges 0" in get(f"{base}/metrics"), READY_S)
        self.stop()  # what is in memory goes to disk
        return size_of(self.data) - size_of(self.data / "cache"), sum(map(size_of, self.data.rglob("indexdb"))), 0


class Prometheus(Server):
    name = "Prometheus 3.14.0"

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
        block = self.data / "snapshots" / name
        return size_of(block), sum(path.stat().st_size for path in block.rglob("index")), 0


class Lockstep(Server):
    name = "Lockstep"
    write = "/prometheus/api/v1/write"
    base = "/prometheus"
    at_rest_first = False  # a snapshot would spare it the log

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
            "--admin-api",
        ]

    def disk(self):
        # As with Prometheus: what is in memory goes into a block on demand.
        path = f"{self.base}/api/v1/admin/tsdb/snapshot"
        name = json.loads(get(f"http://127.0.0.1:{self.port}{path}", b""))["data"]["name"]
        blocks = self.data / "metrics" / "snapshots" / name
        return size_of(blocks), 0, sum(path.stat().st_size for path in blocks.rglob("block-*-t[12]-*"))


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
    index: int = 0
    rollups: int = 0
    restart_s: float = 0
    stolen: float = 0  # share of the machine's CPU time that it did not get meanwhile
    queries: dict = dataclasses.field(default_factory=dict)


def machine_jiffies() -> tuple[int, int]:
    """CPU time of the whole machine so far, and what of it the host gave to others (a virtual machine's steal)."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[7]


def quiet(pid: int):
    """What is written behind counts too: until next to nothing is done any more, a minute at most."""
    for _ in range(30):
        before = cpu_s(pid)
        time.sleep(2)
        if cpu_s(pid) - before < 0.1:
            return


def load(program: pathlib.Path, *arguments) -> dict:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"metrics_load {arguments[0]}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def measure(server: Server, player: pathlib.Path, frames: pathlib.Path, end_s: float, shape: Shape) -> Measured:
    result = Measured(server.name)
    all_before, stolen_before = machine_jiffies()
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}{server.write}"
        pid = server.one.pid
        before = cpu_s(pid)
        load(player, "replay", "--frames", frames, "--url", url, "--to", 1)
        quiet(pid)
        after_new = cpu_s(pid)
        sent = load(player, "replay", "--frames", frames, "--url", url, "--from", 1)
        quiet(pid)
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
            lambda: server.query("count(train_step_seconds)", end_s)[1],
            READY_S,
        )
        for name, (text, is_range, times) in shape.queries.items():
            result.queries[name] = server.query(text, end_s, shape.query_step_s if is_range else None, times)[0]
        if server.at_rest_first:
            result.disk, result.index, result.rollups = server.disk()
        server.stop()
        began = time.monotonic()
        server.start()
        wait_until("the restart", lambda: server.query(count, end_s)[1], 600)
        result.restart_s = time.monotonic() - began
        if not server.at_rest_first:
            result.disk, result.index, result.rollups = server.disk()
    finally:
        server.stop()
    all_after, stolen_after = machine_jiffies()
    result.stolen = (stolen_after - stolen_before) / max(1, all_after - all_before)
    return result


def table(rows: list[Measured], made: dict, name: str, shape: Shape) -> str:
    """A column for each server; budgets are told where the shape is the one they were made for."""
    million = 1e6
    ours = next((row for row in rows if row.name == Lockstep.name), None)
    peer = next((row for row in rows if row.name == VictoriaMetrics.name), None)
    has_budgets = name == "wide" and ours is not None and peer is not None

    def line(what, value, digits, times=None, at_most=None, is_compared=True):
        cells = []
        for row in rows:
            text = f"{value(row):,.{digits}f}"
            if is_compared and ours is not None and row is not ours and value(ours) > 0:
                text += f" ({value(row) / value(ours):.1f}x)"
            cells.append(text)
        if has_budgets:
            if at_most is not None:
                cells.append(f"{at_most:g}: {'met' if value(ours) <= at_most else 'missed'}")
            else:
                cells.append(f"{times:g}x: {'met' if value(peer) >= times * value(ours) else 'missed'}" if times else "")
        return f"| {what} | " + " | ".join(cells) + " |\n"

    new_later = made["series_made"] - made["series"]
    text = f"\n## {name}: {made['series']:,} series of {made['series'] // 784:,} nodes, {made['steps']} steps, {made['samples']:,} samples\n\n"
    text += f"{shape.about[0].upper() + shape.about[1:]}. {made['plain_bytes'] / made['samples']:.0f} bytes a sample as protobuf, {made['frame_bytes'] / made['samples']:.1f} as sent."
    text += f" {new_later:,} series come after the first step.\n\n" if new_later else "\n\n"
    titles = [row.name for row in rows] + (["budget"] if has_budgets else [])
    text += "| | " + " | ".join(titles) + " |\n|---|" + "---|" * len(titles) + "\n"
    text += line("CPU-s per million samples, after the first step", lambda r: r.steady_cpu_s / r.steady_samples * million, 2, times=8)
    text += line("CPU-s per million new series (with their first sample)", lambda r: r.new_series_cpu_s / made["series"] * million, 1, times=8)
    text += line("samples/s taken (wall)", lambda r: r.steady_samples / r.steady_wall_s, 0)
    text += line("request p50, ms", lambda r: r.p50_ms, 1)
    text += line("request p99, ms", lambda r: r.p99_ms, 1)
    text += line("memory, bytes per series", lambda r: r.rss / made["series_made"], 0, times=4)
    text += line("memory at most, bytes per series", lambda r: r.rss_peak / made["series_made"], 0)
    text += line("disk, bytes per sample (index included, our rollups left out)", lambda r: (r.disk - r.rollups) / made["samples"], 2, times=1)
    text += line("disk, bytes per sample (their index and our rollups left out)", lambda r: (r.disk - r.index - r.rollups) / made["samples"], 2, times=1)
    text += line("disk, bytes per sample (all)", lambda r: r.disk / made["samples"], 2)
    text += line("restart until all series answer, s", lambda r: r.restart_s, 1, at_most=5)
    text += line("CPU time that the host kept from this machine meanwhile, %", lambda r: r.stolen * 100, 1, is_compared=False)
    for query in rows[0].queries:
        times = 6 if query.startswith(("slowest rank", "NVLink rate")) else None
        text += line(f"query, ms: {query}", lambda r: r.queries[query] * 1000, 1, times=times)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--shapes", default="wide,long", help=", ".join(f"{name}: {shape.about}" for name, shape in SHAPES.items()))
    for name in ("nodes", "steps", "interval-ms", "jitter-ms", "churn-steps"):
        parser.add_argument(f"--{name}", type=int, help="instead of what the shape has")
    parser.add_argument("--churn", type=float, help="share of the small jobs that change, instead of what the shape has")
    parser.add_argument("--only", default="lockstep,victoriametrics,prometheus")
    parser.add_argument("--lockstep", type=pathlib.Path, help="the server, instead of lockstepd of --bin")
    parser.add_argument("--folder", type=pathlib.Path, help="where frames and data go (default: a temporary folder)")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    player = options.bin / "metrics_load"
    only = options.only.split(",")
    report = (
        "# What metrics cost\n\nMade by `./dev bench metrics`: remote write 1.0 from four connections, the same frames into each server, "
        "write-ahead logs on, each server alone and new. CPU is the server's user and system time until it is quiet again. In brackets: how many times ours. "
        f"{platform.machine()}, {os.cpu_count()} cores, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}. Queries: median over HTTP, "
        "VictoriaMetrics without its cache. Disk: VictoriaMetrics after a forced merge and a stop, Prometheus as a snapshot block"
        + (", Lockstep as a snapshot (it alone keeps rollups, of a minute and of an hour).\n" if "lockstep" in only else ".\n")
    )
    if "lockstep" not in only:
        report += "\nLockstep is left out of this run.\n"
    failed = False
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        folder = pathlib.Path(folder)
        for name in options.shapes.split(","):
            told = {field.name: getattr(options, field.name, None) for field in dataclasses.fields(Shape)}
            shape = dataclasses.replace(SHAPES[name], **{key: value for key, value in told.items() if value is not None})
            span_s = shape.steps * shape.interval_ms / 1000
            start_s = int(time.time() - span_s - 60)
            frames = folder / f"frames-{name}"
            made = load(
                player, "generate", "--out", frames, "--nodes", shape.nodes, "--steps", shape.steps, "--start-ms", start_s * 1000,
                "--interval-ms", shape.interval_ms, "--jitter-ms", shape.jitter_ms, "--churn", shape.churn, "--churn-steps", shape.churn_steps,
            )  # fmt: skip
            end_s = start_s + span_s + shape.interval_ms / 1000
            rows = []
            for key, kind, program in (
                ("lockstep", Lockstep, lambda: options.lockstep or options.bin / "lockstepd"),
                ("victoriametrics", VictoriaMetrics, lambda: peers.build(peers.VICTORIA_METRICS)),
                ("prometheus", Prometheus, lambda: peers.build(peers.PROMETHEUS)),
            ):
                if key not in only:
                    continue
                binary = program()
                if binary is None or not pathlib.Path(binary).exists():
                    print(f"bench metrics: {key} left out: there is no {binary}", file=sys.stderr)
                    failed = True
                    continue
                place = folder / f"{key}-{name}"
                place.mkdir()
                began = time.monotonic()
                try:
                    rows.append(measure(kind(place, binary), player, frames, end_s, shape))
                except Failed as error:
                    print(f"bench metrics: {name}: {key}: {error}", file=sys.stderr)
                    failed = True
                print(f"bench metrics: {name}: {key} took {time.monotonic() - began:.0f} s", file=sys.stderr)
                shutil.rmtree(place, ignore_errors=True)
            if rows:
                report += table(rows, made, name, shape)
            shutil.rmtree(frames, ignore_errors=True)
    print(report)
    if options.out:
        options.out.write_text(report)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
