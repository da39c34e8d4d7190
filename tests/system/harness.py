"""What every system test needs: the real programs as processes, plain HTTP, OTLP requests, Prometheus text.

Programs come from build/bin, or from the folder that LOCKSTEP_BIN names. Everything listens on 127.0.0.1, port 0.
"""

import contextlib
import dataclasses
import http.client
import http.server
import itertools
import json
import os
import pathlib
import random
import re
import select
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What changes something must not look like the form of any web page (docs/guide/browsers.md).
OURS = {"X-Lockstep": "1"}
BIN = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build" / "bin"))
RECORDINGS = ROOT / "tests" / "data" / "recordings"
READY_S = 30
STOP_S = 20

PROTOBUF = "application/x-protobuf"
PATHS = {"metrics": "/v1/metrics", "logs": "/v1/logs", "spans": "/v1/traces"}
GRPC_METHODS = {
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "spans": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}


# Processes


class Daemon:
    """One of our daemons: started, its ready line read, its log kept beside the test's data."""

    def __init__(self, program, arguments, log_path, environment=None):
        self.log_path = pathlib.Path(log_path)
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / program), *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        line = self._read_line(time.monotonic() + READY_S * patience())
        if not line.startswith("ready "):
            self.kill()
            raise RuntimeError(f"{program} said {line!r} instead of ready; its log:\n{self.log()}")
        self.ready = dict(word.split("=", 1) for word in line.split()[1:])

    def _read_line(self, deadline):
        # One byte at a time: what follows the first line stays in the pipe.
        line, pipe = b"", self.process.stdout.fileno()
        while not line.endswith(b"\n") and time.monotonic() < deadline:
            if select.select([pipe], [], [], 0.1)[0]:
                byte = os.read(pipe, 1)
                if not byte:
                    break
                line += byte
        return line.decode(errors="replace")

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def running(self):
        return self.process.poll() is None

    def kill(self):
        """SIGKILL, as a crash."""
        if self.running():
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        """SIGTERM; returns the exit code."""
        if self.running():
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=STOP_S)
        self.process.stdout.close()
        return code


class Server(Daemon):
    def __init__(self, data, http="127.0.0.1:0", otlp_http="127.0.0.1:0", otlp_grpc="127.0.0.1:0", more=()):
        data = pathlib.Path(data)
        super().__init__(
            "lockstepd",
            ["--data", data, "--http", http, "--otlp-http", otlp_http, "--otlp-grpc", otlp_grpc, *more],
            data.parent / (data.name + ".log"),
        )

    @property
    def http(self):
        return self.ready["http"]

    @property
    def otlp_http(self):
        return self.ready["otlp_http"]

    @property
    def otlp_grpc(self):
        return self.ready["otlp_grpc"]

    @property
    def url(self):
        return "http://" + self.http

    @property
    def otlp(self):
        """How the SDK's exporters reach it over HTTP: where, and what else they are told."""
        return f"http://{self.otlp_http}", {}

    def get(self, path, **parameters):
        """A GET of the API that must succeed."""
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        answer = request(self.http, "GET", path + query)
        assert answer.status == 200, f"GET {path}{query}: {answer.status} {answer.text}"
        return answer.json()

    def post(self, signal_name, message, content_type=PROTOBUF, headers=None):
        """An OTLP/HTTP request: a protobuf message, or bytes as they are."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        return request(
            self.otlp_http, "POST", PATHS[signal_name], body, {"Content-Type": content_type, **(headers or {})}
        )

    def counters(self):
        return Counters(request(self.http, "GET", "/metrics").text)


class Agent(Daemon):
    """On the machine as it is, but for the kernel's log: what happened to others would come as events of this node."""

    def __init__(self, data, recorders, server=None, export=None, more=()):
        data = pathlib.Path(data)
        kernel_log = data.parent / (data.name + ".kmsg")
        kernel_log.touch()
        where = ["--server", "http://" + server] if server else ["--export", f"file:{export}"]
        super().__init__(
            "lockstep-agent",
            ["--data", data, "--metrics", "127.0.0.1:0", "--recorders", recorders, "--kernel-log", kernel_log, *where, *more],
            data.parent / (data.name + ".log"),
        )

    def counters(self):
        return Counters(request(self.ready["metrics"], "GET", "/metrics").text)


def lockstep(*arguments, timeout=60, environment=None):
    """Runs the command line to its end."""
    return subprocess.run(
        [str(BIN / "lockstep"), *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **(environment or {})},
    )


def short_folder():
    """One whose path leaves room for a socket's name; whoever asks for it removes it."""
    return pathlib.Path(tempfile.mkdtemp(prefix="ls-", dir="/dev/shm"))


def unused_port():
    """A port nobody listens on, below those that the kernel gives to outgoing connections: so that none of the
    connections of tests beside this one gets it meanwhile, nor one that is made to it while nobody listens."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(max(1024, lowest - 16000), lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def unused_address():
    return f"127.0.0.1:{unused_port()}"


@contextlib.contextmanager
def forwarded(address):
    """Another port of this machine that leads there, as a proxy or a container's published port does."""
    host, port = address.rsplit(":", 1)

    def pump(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                there = socket.create_connection((host, int(port)))
                for ends in ((client, there), (there, client)):
                    threading.Thread(target=pump, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield "127.0.0.1:%d" % listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def patience():
    """How many times as long as on an idle machine things may take here: processes that want a core, for each core. (Agents
    give way to all others, so on a full machine they wait longest.)"""
    return min(8.0, max(1.0, os.getloadavg()[0] / os.cpu_count()))


def eventually(check, seconds, why, every_s=0.05):
    """Waits until check() is true (or stops raising AssertionError); returns what it gave. `seconds` are those of an idle machine.
    `every_s` is longer where the question costs whom it is put to."""
    began = time.monotonic()
    while True:
        try:
            value, problem = check(), None
            if value:
                return value
        except AssertionError as failure:
            problem = failure
        if time.monotonic() - began >= seconds * patience():
            raise AssertionError(f"not within {time.monotonic() - began:.0f} s: {why}") from problem
        time.sleep(every_s)  # the interval of the poll


# HTTP


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def text(self):
        return self.body.decode(errors="replace")

    def json(self):
        return json.loads(self.body)


class SecuredAddress(str):
    """An address that is asked over TLS, with a token."""

    def __new__(cls, address, ca, token):
        one = super().__new__(cls, address)
        one.context = ssl.create_default_context(cafile=ca)
        one.headers = {"Authorization": f"Bearer {token}"}
        return one


def request(address, method, path, body=None, headers=None, timeout=30):
    host, port = address.rsplit(":", 1)
    if isinstance(address, SecuredAddress):
        connection = http.client.HTTPSConnection(host, int(port), timeout=timeout, context=address.context)
        headers = {**address.headers, **(headers or {})}
    else:
        connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def raw_request(address, chunks, timeout=30):
    """Bytes as they are, e.g. a body that breaks a limit; the answer's status and body are read even where the server
    stops reading in the middle."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        try:
            for chunk in chunks:
                connection.sendall(chunk)
        except OSError:
            pass  # the server has heard enough; its answer counts
        response = http.client.HTTPResponse(connection)
        response.begin()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


# Prometheus text


class Counters:
    """A page of /metrics. It may have thousands of lines, of which a test asks for a few: only those are taken apart."""

    LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?[0-9.eE+-]+|NaN|[+-]Inf)")
    LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')

    def __init__(self, text):
        self._lines = {}  # (labels, value) as written, by name
        for line in text.splitlines():
            if not line or line.startswith("#"):
                continue
            match = self.LINE.fullmatch(line)
            assert match, f"not a line of Prometheus text: {line!r}"
            self._lines.setdefault(match[1], []).append(match.group(2, 3))

    def named(self, name):
        """(labels, value) of each line of that name."""
        return [(dict(self.LABEL.findall(labels or "")), float(value)) for labels, value in self._lines.get(name, ())]

    @property
    def samples(self):
        """(name, labels, value) of all lines."""
        return [(name, labels, value) for name in self._lines for labels, value in self.named(name)]

    def names(self):
        return set(self._lines)

    def total(self, name, **labels):
        """The sum over every label set that has these labels."""
        assert name in self._lines, f"/metrics has no {name}"
        return sum(value for has, value in self.named(name) if all(has.get(label) == wanted for label, wanted in labels.items()))


# OTLP


def now_ns():
    return time.time_ns()


def set_value(target, value):
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, (list, tuple)):
        target.array_value.SetInParent()
        for item in value:
            set_value(target.array_value.values.add(), item)
    elif isinstance(value, dict):
        target.kvlist_value.SetInParent()
        add_attributes(target.kvlist_value.values, value)
    else:
        target.string_value = value


def add_attributes(target, attributes):
    for key, value in attributes.items():
        pair = target.add()
        pair.key = key
        set_value(pair.value, value)


def identity(job, rank, world):
    return {
        "service.name": "lockstep-agent",
        "lockstep.job_id": job,
        "lockstep.rank": rank,
        "lockstep.world_size": world,
        "host.name": f"node-{rank}",
    }


def logs_request(resource, records):
    """records: dictionaries with event_name, attributes and optionally time_unix_nano, body."""
    message = ExportLogsServiceRequest()
    group = message.resource_logs.add()
    add_attributes(group.resource.attributes, resource)
    scope = group.scope_logs.add()
    scope.scope.name = "system-test"
    for given in records:
        record = scope.log_records.add()
        record.time_unix_nano = given.get("time_unix_nano", now_ns())
        record.severity_number = given.get("severity_number", 9)
        record.event_name = given.get("event_name", "")
        if "body" in given:
            set_value(record.body, given["body"])
        add_attributes(record.attributes, given.get("attributes", {}))
    return message


def step_event(step, duration_ns=500_000_000, **more):
    return {
        "event_name": "train.step",
        "attributes": {
            "step": step,
            "duration_ns": duration_ns,
            "self_ns": duration_ns * 3 // 4,
            "comm_ns": duration_ns // 4,
            **more,
        },
    }


def gauge_request(resource, name, points):
    """points: (attributes, time_unix_nano, value)."""
    message = ExportMetricsServiceRequest()
    group = message.resource_metrics.add()
    add_attributes(group.resource.attributes, resource)
    metric = group.scope_metrics.add().metrics.add()
    metric.name = name
    metric.unit = "1"
    for attributes, time_unix_nano, value in points:
        point = metric.gauge.data_points.add()
        point.time_unix_nano = time_unix_nano
        point.as_double = value
        add_attributes(point.attributes, attributes)
    return message


def spans_request(resource, spans):
    """spans: (name, start, end)."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    add_attributes(group.resource.attributes, resource)
    scope = group.scope_spans.add()
    for name, start, end in spans:
        span = scope.spans.add()
        span.trace_id = os.urandom(16)
        span.span_id = os.urandom(8)
        span.name = name
        span.start_time_unix_nano = start
        span.end_time_unix_nano = end
    return message


@contextlib.contextmanager
def exporter(page):
    """The address of an exporter whose page at the n-th look, from 1, is page(n)."""
    looks = itertools.count(1)

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = page(next(looks)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
