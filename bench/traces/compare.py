#!/usr/bin/env python3
"""What spans cost: decoding and storing in one thread, and through the OTLP/HTTP receiver beside Jaeger 2 with the same
requests in the same run.

    compare.py --bin DIR [--spans N] [--scale] [--without-peers] [--out FILE]

Each server runs alone, one after the other, started anew, on loopback. Requests are made first and sent from memory by
two connections, as fast as they are taken. Prints a report in Markdown; --out writes it to a file as well. Ends with 1
where something could not be measured, or spans were lost."""

import argparse
import dataclasses
import datetime
import hashlib
import http.client
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import peers  # noqa: E402
from processes import Failed, cpu_s, free_port, get, memory, process, size_of, wait_until  # noqa: E402

CONNECTIONS = 2
READY_S = 60
STEP_SPANS = 64 * 107


@dataclasses.dataclass
class Measured:
    name: str
    spans: int
    wall_s: float
    cpu_s: float
    rss: int
    rss_peak: int
    disk: int | None  # bytes of spans at rest
    log: int | None  # bytes of a write-ahead log besides
    trace_ms: float
    trace_spans: int


def send(port: int, requests: list[bytes]):
    """All of them, each once; a refusal is waited out as the answer asks."""
    failures = []

    def one_connection(mine: list[bytes]):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for body in mine:
            for _ in range(100):
                connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
                answer = connection.getresponse()
                answer.read()
                if answer.status not in (429, 503):
                    break
                time.sleep(0.1)
            if answer.status != 200:
                failures.append(answer.status)
                return
        connection.close()

    threads = [threading.Thread(target=one_connection, args=(requests[i::CONNECTIONS],)) for i in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed(f"a request was answered with {failures[0]}")


class Lockstep:
    name = "lockstepd"

    def __init__(self, program: pathlib.Path, folder: pathlib.Path):
        self.data = folder / "data"
        self.arguments = [program, "--data", self.data, "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0"]
        self.arguments += ["--otlp-grpc", "127.0.0.1:0"]

    def start(self, one):
        line = one.stdout.readline().decode()
        ports = dict(re.findall(r"(\w+)=\S*?:(\d+)", line))
        if "otlp_http" not in ports:
            raise Failed(f"lockstepd said {line!r}")
        self.http, self.otlp_http, self.otlp_grpc = (int(ports[key]) for key in ("http", "otlp_http", "otlp_grpc"))

    def counter(self, name: str) -> int:
        text = get(f"http://127.0.0.1:{self.http}/metrics").decode()
        return sum(int(float(value)) for value in re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE))

    def held(self) -> int:
        return self.counter('lockstep_store_rows{table="spans"}')

    def trace(self, trace_id: str) -> int:
        answer = json.loads(get(f"http://127.0.0.1:{self.http}/api/spans?trace_id={trace_id}&limit=10000"))
        return answer["total"]

    def disk(self):
        return size_of(self.data / "spans"), size_of(self.data / "log")


class Jaeger:
    name = "Jaeger 2"

    def __init__(self, program: pathlib.Path):
        self.http, self.otlp_http, self.otlp_grpc = free_port(), free_port(), free_port()
        self.metrics = free_port()
        settings = {
            "receivers.otlp.protocols.http.endpoint": f"127.0.0.1:{self.otlp_http}",
            "receivers.otlp.protocols.grpc.endpoint": f"127.0.0.1:{self.otlp_grpc}",
            "extensions.jaeger_query.http.endpoint": f"127.0.0.1:{self.http}",
            "extensions.jaeger_query.grpc.endpoint": f"127.0.0.1:{free_port()}",
        }
        self.arguments = [program] + [f"--set={key}={value}" for key, value in settings.items()]

    def start(self, one):
        wait_until("Jaeger's start", lambda: get(f"http://127.0.0.1:{self.http}/api/services") and one.poll() is None,
                   READY_S)

    def held(self) -> int:
        return -1  # its memory storage does not say; one trace is counted instead

    def trace(self, trace_id: str) -> int:
        answer = json.loads(get(f"http://127.0.0.1:{self.http}/api/traces/{trace_id}"))
        return sum(len(trace["spans"]) for trace in answer["data"])

    def disk(self):
        return None, None


def fnv1a_128(text: str) -> str:
    number = 0x6C62272E07BB014262B821756295C58D
    for byte in text.encode():
        number = ((number ^ byte) * 0x0000000001000000000000000000013B) % (1 << 128)
    return f"{number:032x}"


def measure(server, folder: pathlib.Path, requests: list[bytes], spans: int) -> Measured:
    with process(server.arguments, folder / f"{server.name}.log", stdout=subprocess.PIPE) as one:
        server.start(one)
        before_cpu, before = cpu_s(one.pid), time.monotonic()
        send(server.otlp_http, requests)
        wall = time.monotonic() - before
        if server.held() >= 0:
            wait_until(f"{spans} spans held", lambda: server.held() >= spans, 20)
        time.sleep(3)  # what is written behind counts too
        cpu = cpu_s(one.pid) - before_cpu
        rss, rss_peak = memory(one.pid)
        trace_id = fnv1a_128("llm-70b-0042/0/1")
        times = []
        for _ in range(5):
            began = time.monotonic()
            found = server.trace(trace_id)
            times.append((time.monotonic() - began) * 1e3)
    disk, log = server.disk()  # after the end: the head is sealed
    if found != STEP_SPANS:
        raise Failed(f"{server.name} gives {found} spans of a trace that has {STEP_SPANS}")
    return Measured(server.name, spans, wall, cpu, rss, rss_peak, disk, log, statistics.median(times), found)


def measure_client(server, folder: pathlib.Path, program: pathlib.Path, traces: int) -> tuple[float, int]:
    """telemetrygen over gRPC, one span in a request or few: CPU seconds per million spans, and how many were held."""
    with process(server.arguments, folder / f"{server.name}-telemetrygen.log", stdout=subprocess.PIPE) as one:
        server.start(one)
        before = cpu_s(one.pid)
        subprocess.run(
            [program, "traces", "--otlp-insecure", "--otlp-endpoint", f"127.0.0.1:{server.otlp_grpc}"]
            + ["--traces", str(traces), "--workers", "2", "--rate", "1000"],
            check=True,
            capture_output=True,
        )
        time.sleep(2)
        return (cpu_s(one.pid) - before) / (4 * traces) * 1e6, server.held()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--scale", action="store_true", help="the large stores too: minutes")
    parser.add_argument("--without-peers", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    bench, lockstepd = options.bin / "traces_bench", options.bin / "lockstepd"
    lines = []

    def say(line: str = ""):
        lines.append(line)
        print(line, flush=True)

    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    load = os.getloadavg()[0]
    digest = hashlib.sha256(lockstepd.read_bytes()).hexdigest()[:12]
    say("# What spans cost, and Jaeger 2 beside it")
    say()
    say(f"`./dev bench traces`. {model[1] if model else platform.machine()}, {os.cpu_count()} cores, Linux "
        f"{platform.release()} {platform.machine()}, {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC; "
        f"load of the machine at the start {load:.1f}. lockstepd {digest}; "
        f"Jaeger 2 from module {peers.JAEGER.version} as all-in-one with its default storage, telemetrygen "
        f"{peers.TELEMETRYGEN.version}.")
    say()
    say("## In one thread")
    say()
    say("Steps of 64 ranks as OTLP requests of 856 spans (bench/traces/load.h): decoded into columns, appended to the "
        "head (with the check for spans that are there already), sorted, encoded and written, with fsync. The cheapest "
        "of five runs.")
    say()
    micro = subprocess.run([bench, "micro", "--spans", str(options.spans)], check=True, capture_output=True, text=True)
    say("```\n" + micro.stdout.rstrip() + "\n```")
    if options.scale:
        say()
        say("## Large stores")
        say()
        scale = subprocess.run([bench, "scale"], check=True, capture_output=True, text=True)
        say("```\n" + scale.stdout.rstrip() + "\n```")
    say()
    say("## Through the OTLP/HTTP receiver")
    say()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = subprocess.run([bench, "generate", folder / "requests", "--spans", str(options.spans)], check=True,
                              capture_output=True, text=True)
        told = json.loads(made.stdout)
        requests = [path.read_bytes() for path in sorted((folder / "requests").iterdir())]
        servers = [Lockstep(lockstepd, folder / "ours")]
        jaeger = None if options.without_peers else peers.build(peers.JAEGER)
        if jaeger is not None:
            servers.append(Jaeger(jaeger))
        rows: list[Measured] = []
        for server in servers:
            try:
                rows.append(measure(server, folder, requests, told["spans"]))
            except Failed as error:
                say(f"{server.name}: {error}\n")
                failed = True
        say(f"{told['spans']:,} spans in {told['requests']:,} requests, {told['bytes'] / told['spans']:.0f} B a span, not "
            f"compressed, {CONNECTIONS} connections.")
        say()
        say("| | " + " | ".join(row.name for row in rows) + " |")
        say("|---" * (len(rows) + 1) + "|")

        def row(title: str, value):
            say(f"| {title} | " + " | ".join(value(one) for one in rows) + " |")

        row("CPU seconds per million spans", lambda one: f"{one.cpu_s / one.spans * 1e6:.2f}")
        row("spans per second, wall", lambda one: f"{one.spans / one.wall_s:,.0f}")
        row("memory (RSS) after, MiB", lambda one: f"{one.rss / 2**20:.0f}")
        row("memory at its peak, MiB", lambda one: f"{one.rss_peak / 2**20:.0f}")
        row("spans on disk, B a span", lambda one: "none" if one.disk is None else f"{one.disk / one.spans:.2f}")
        row("durable log besides, B a span", lambda one: "none" if one.log is None else f"{one.log / one.spans:.0f}")
        row("a trace of 6,848 spans by id, HTTP, ms", lambda one: f"{one.trace_ms:.0f}")
        if len(rows) == 2:
            say()
            say(f"Jaeger 2 takes {rows[1].cpu_s / rows[0].cpu_s:.1f} times the CPU and "
                f"{rows[1].rss_peak / rows[0].rss_peak:.1f} times the memory.")
        client = None if options.without_peers else peers.build(peers.TELEMETRYGEN)
        if client is not None and not failed:
            say()
            say("telemetrygen over gRPC: two workers with 5,000 traces of two spans each, 1,000 traces a second.")
            say()
            say("| | CPU seconds per million spans | spans held |")
            say("|---|---|---|")
            for server in [Lockstep(lockstepd, folder / "ours-client")] + servers[1:]:
                cost, held = measure_client(server, folder, client, 5_000)
                say(f"| {server.name} | {cost:.1f} | {'not told' if held < 0 else f'{held:,}'} |")
    say()
    say("## Not the same work")
    say()
    say("Jaeger's default storage is memory: it keeps nothing after its end, writes nothing, and drops the oldest traces "
        "beyond a number of them. lockstepd writes every request to its durable log and syncs it before it answers, "
        "then sorts, encodes and writes the spans. Jaeger with a database (Badger, Cassandra, Elasticsearch, "
        "ClickHouse) would cost it more, here and there. The answers by id are each server's own JSON: Jaeger's repeats "
        "the process of every span as a reference, ours the resource in full.")
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
