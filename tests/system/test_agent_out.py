"""What leaves the agent, seen by peers that are not ours: Python's HTTPS server with mTLS and a bearer token, grpcio with
TLS and over a UNIX socket, and our own receivers. What is sent is laid into the agent's spool beforehand, as an agent before
it would have left it: so no job has to run."""

import concurrent.futures
import gzip
import http.server
import ssl
import subprocess
import threading

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb2
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc

import certificates
import harness

DELIVERED_S = 25  # an agent that has met nobody for a while looks again after 10 s at most
TOKEN = "s3cret-token"


# Papers


class Papers:
    def __init__(self, folder):
        self.ca = certificates.Authority(folder / "ours")
        self.other_ca = certificates.Authority(folder / "theirs")
        self.server = self.ca.sign("server")
        self.elsewhere = self.ca.sign("elsewhere", "DNS:elsewhere.example")
        self.client = self.ca.sign("agent")


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    return Papers(tmp_path_factory.mktemp("papers"))


# What is to be sent


def logs_message(first, count, filler=""):
    return harness.logs_request(
        {"service.name": "lockstep-agent", "host.name": "node-0"},
        [{"event_name": f"test.event.{first + i}", "attributes": {"filler": filler}} for i in range(count)],
    )


def metrics_message(name="test_gauge"):
    return harness.gauge_request({"host.name": "node-0"}, name, [({}, harness.now_ns(), 1.5)])


def spool(data, messages):
    """(signal, value, records, message): as an agent leaves them."""
    folder = data / "spool"
    folder.mkdir(parents=True, exist_ok=True)
    for sequence, (signal_name, value, records, message) in enumerate(messages, 1):
        body = message.SerializeToString()
        (folder / f"{sequence:020}-{signal_name}-{records}-{value}-{len(body)}.otlp").write_bytes(body)


def spooled(data):
    return sorted(path.name for path in (data / "spool").glob("*.otlp"))


class OutAgent(harness.Daemon):
    def __init__(self, data, *arguments, environment=None):
        recorders = data.parent / "recorders"
        recorders.mkdir(mode=0o700, exist_ok=True)
        super().__init__(
            "lockstep-agent",
            ["--data", data, "--metrics", "127.0.0.1:0", "--recorders", recorders, "--node", "off", *arguments],
            data.parent / (data.name + ".log"),
            environment,
        )

    def counters(self):
        return harness.Counters(harness.request(self.ready["metrics"], "GET", "/metrics").text)

    def passed(self):
        return self.counters().total("lockstep_agent_records_passed_total")

    def lost(self):
        counters = self.counters()
        names = ("lockstep_agent_records_refused_total", "lockstep_agent_records_dropped_total")
        return sum(counters.total(name) for name in names if name in counters.names())


def delivered(agent, records):
    harness.eventually(lambda: agent.passed() == records, DELIVERED_S, f"{records} records:\n{agent.log()}")
    assert agent.lost() == 0, agent.log()


# Peers


class HttpPeer:
    """Takes OTLP over HTTP. Refuses zstd, as many do, and whoever has not the token."""

    def __init__(self, context=None, token=None):
        peer = self
        self.requests = []  # (path, headers, message's bytes)
        self.statuses = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                encoding = self.headers.get("Content-Encoding", "")
                status = 200
                if token and self.headers.get("Authorization") != f"Bearer {token}":
                    status = 401
                elif encoding not in ("", "gzip"):
                    status = 415
                peer.statuses.append(status)
                if status == 200:
                    plain = gzip.decompress(body) if encoding == "gzip" else body
                    peer.requests.append((self.path, dict(self.headers), plain))
                self.send_response(status)
                self.send_header("Content-Type", harness.PROTOBUF)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *arguments: None  # a client that is refused in the handshake
        self.server.daemon_threads = True
        if context:
            # The handshake belongs into the connection's own thread.
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def tls_context(certificate, client_ca=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(*certificate)
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context


class GrpcPeer(logs_grpc.LogsServiceServicer):
    """Takes OTLP over gRPC; says what it is told to first."""

    def __init__(self, address="127.0.0.1:0", credentials=None, first=()):
        self.logs, self.metrics, self.metadata, self.peers = [], [], [], set()
        self.first = list(first)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        logs_grpc.add_LogsServiceServicer_to_server(self, self.server)
        peer = self

        class Metrics(metrics_grpc.MetricsServiceServicer):
            def Export(self, request, context):
                peer.answer(peer.metrics, request, context)
                return metrics_pb2.ExportMetricsServiceResponse()

        metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), self.server)
        if credentials:
            port = self.server.add_secure_port(address, credentials)
        else:
            port = self.server.add_insecure_port(address)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self.server.start()

    def answer(self, taken, request, context):
        if self.first:
            self.first.pop(0)(context)
        self.metadata.append(dict(context.invocation_metadata()))
        self.peers.add(context.peer())
        taken.append(request)

    def Export(self, request, context):
        self.answer(self.logs, request, context)
        return logs_pb2.ExportLogsServiceResponse()

    def names(self):
        return [
            record.event_name
            for request in self.logs
            for group in request.resource_logs
            for scope in group.scope_logs
            for record in scope.log_records
        ]

    def stop(self):
        self.server.stop(0).wait(5)


@pytest.fixture
def peers():
    running = []

    def start_one(kind, *arguments, **options):
        running.append(kind(*arguments, **options))
        return running[-1]

    yield start_one
    for peer in running:
        peer.stop()


def busy_for(seconds):
    """An answer UNAVAILABLE that says when to come back."""

    def answer(context):
        info = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds))
        detail = any_pb2.Any()
        detail.Pack(info)
        status = status_pb2.Status(code=14, message="disk full: 100 %", details=[detail])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.UNAVAILABLE, "disk full: 100 %")

    return answer


# OTLP over HTTPS


def test_https_with_client_certificate_and_token(start, peers, papers, tmp_path):
    peer = peers(HttpPeer, tls_context(papers.server, papers.ca.certificate), TOKEN)
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    messages = [("logs", "events", 3, logs_message(0, 3)), ("metrics", "metrics", 1, metrics_message())]
    spool(tmp_path / "agent", messages)
    agent = start(
        OutAgent, tmp_path / "agent", "--server", f"https://{peer.address}/base", "--ca", papers.ca.certificate,
        "--cert", papers.client[0], "--key", papers.client[1], "--token-file", token, "--header", "X-Team=a%20b",
    )  # fmt: skip
    delivered(agent, 4)
    assert [path for path, _, _ in peer.requests] == ["/base/v1/logs", "/base/v1/metrics"]
    assert [plain for _, _, plain in peer.requests] == [message.SerializeToString() for _, _, _, message in messages]
    assert all(headers["x-team"] == "a b" for _, headers, _ in peer.requests)
    # Either zstd is not built in, or it was refused once per signal and remembered.
    assert peer.statuses.count(401) == 0 and peer.statuses.count(415) <= 2
    assert spooled(tmp_path / "agent") == []
    assert TOKEN not in agent.log()
    assert agent.stop() == 0


@pytest.mark.parametrize(
    "mistake, line",
    [
        ("no certificate of ours", "client certificate"),
        ("unknown CA", "signed by an unknown CA"),
        ("wrong host", "certificate is not for 127.0.0.1"),
        ("no TLS there", "does not speak TLS"),
    ],
)
def test_nothing_is_lost_to_a_server_that_cannot_be_trusted(start, peers, papers, tmp_path, mistake, line):
    context = tls_context(
        papers.elsewhere if mistake == "wrong host" else papers.server,
        papers.ca.certificate if mistake == "no certificate of ours" else None,
    )
    peer = peers(HttpPeer, None if mistake == "no TLS there" else context)
    ca = papers.other_ca if mistake == "unknown CA" else papers.ca
    spool(tmp_path / "agent", [("logs", "events", 2, logs_message(0, 2))])
    agent = start(OutAgent, tmp_path / "agent", "--server", f"https://{peer.address}", "--ca", ca.certificate)
    harness.eventually(lambda: line in agent.log(), DELIVERED_S, f"{line}:\n{agent.log()}")
    assert agent.counters().total("lockstep_agent_records_queued") == 2
    assert agent.lost() == 0
    assert agent.stop() == 0
    assert len(spooled(tmp_path / "agent")) == 1
    assert peer.requests == []

    # What was kept goes out once the mistake is put right.
    good = peers(HttpPeer, tls_context(papers.server))
    agent = start(OutAgent, tmp_path / "agent", "--server", f"https://{good.address}", "--ca", papers.ca.certificate)
    delivered(agent, 2)
    assert len(good.requests) == 1


def test_insecure_believes_anybody_and_says_so(start, peers, papers, tmp_path):
    peer = peers(HttpPeer, tls_context(papers.elsewhere))
    spool(tmp_path / "agent", [("logs", "events", 1, logs_message(0, 1))])
    agent = start(OutAgent, tmp_path / "agent", "--server", f"https://{peer.address}", "--insecure")
    delivered(agent, 1)
    assert "--insecure: whoever answers" in agent.log()


def test_a_wrong_token_is_refused_and_counted(start, peers, tmp_path):
    peer = peers(HttpPeer, None, TOKEN)
    token = tmp_path / "token"
    token.write_text("wrong")
    token.chmod(0o600)
    spool(tmp_path / "agent", [("logs", "events", 2, logs_message(0, 2))])
    agent = start(OutAgent, tmp_path / "agent", "--server", f"http://{peer.address}", "--token-file", token)
    harness.eventually(lambda: 401 in peer.statuses, DELIVERED_S, "the refusal")
    harness.eventually(
        lambda: agent.counters().total("lockstep_agent_records_refused_total", reason="http_401") == 2, 5, agent.log()
    )


# OTLP over gRPC, by the environment alone


def test_grpc_with_mutual_tls_from_the_environment(start, peers, papers, tmp_path):
    key, certificate = papers.server[1].read_bytes(), papers.server[0].read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], papers.ca.certificate.read_bytes(), require_client_auth=True
    )
    peer = peers(GrpcPeer, credentials=credentials)
    large = logs_message(0, 300, "x" * 10_000)  # far over HTTP/2's windows
    spool(
        tmp_path / "agent",
        [("logs", "events", 300, large), ("metrics", "metrics", 1, metrics_message()), ("logs", "steps", 2, logs_message(300, 2))],
    )  # fmt: skip
    agent = start(
        OutAgent,
        tmp_path / "agent",
        environment={
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://{peer.address}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(papers.ca.certificate),
            "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(papers.client[0]),
            "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(papers.client[1]),
            "OTEL_EXPORTER_OTLP_HEADERS": "x-api-key=a%2Cb,X-Team=blue",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",  # so that the request is as large as it looks
            "OTEL_EXPORTER_OTLP_TIMEOUT": "8000",
        },
    )
    delivered(agent, 303)
    assert peer.names() == [f"test.event.{i}" for i in range(302)]
    assert peer.logs[0] == large
    assert len(peer.metrics) == 1
    assert all(one["x-api-key"] == "a,b" and one["x-team"] == "blue" for one in peer.metadata)
    assert len(peer.peers) == 1, "one connection serves every signal"
    assert agent.counters().total("lockstep_agent_export_requests_total", code="grpc_0") == 3
    assert agent.stop() == 0


def test_grpc_finds_a_compression_that_the_server_takes(start, peers, tmp_path):
    peer = peers(GrpcPeer)
    spool(tmp_path / "agent", [("logs", "events", 50, logs_message(i * 50, 50, "x" * 1000)) for i in range(3)])
    agent = start(OutAgent, tmp_path / "agent", "--server", f"http://{peer.address}", "--protocol", "grpc")
    delivered(agent, 150)
    assert peer.names() == [f"test.event.{i}" for i in range(150)]
    # grpcio knows gzip, not zstd: the bytes sent tell that it was compressed.
    assert agent.counters().total("lockstep_agent_export_bytes_total") < 50_000


def test_grpc_waits_as_long_as_it_is_asked_to(start, peers, tmp_path):
    peer = peers(GrpcPeer, first=[busy_for(2)])
    spool(tmp_path / "agent", [("logs", "events", 1, logs_message(0, 1))])
    agent = start(
        OutAgent, tmp_path / "agent", "--server", f"http://{peer.address}", "--protocol", "grpc", "--compression", "gzip"
    )
    harness.eventually(lambda: "server answered UNAVAILABLE: disk full: 100 %" in agent.log(), 10, "its words")
    assert peer.logs == []
    began = harness.now_ns()
    delivered(agent, 1)
    assert harness.now_ns() - began > 1_000_000_000
    assert agent.counters().total("lockstep_agent_export_requests_total", code="grpc_14") == 1


def test_grpc_refusals_are_for_good(start, peers, tmp_path):
    peer = peers(GrpcPeer, first=[lambda context: context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")])
    spool(
        tmp_path / "agent", [("logs", "events", 2, logs_message(0, 2)), ("logs", "events", 1, logs_message(2, 1))]
    )  # fmt: skip
    agent = start(OutAgent, tmp_path / "agent", "--server", f"http://{peer.address}", "--protocol", "grpc",
                  "--compression", "gzip")  # fmt: skip
    harness.eventually(lambda: agent.passed() == 1, DELIVERED_S, agent.log())
    assert agent.counters().total("lockstep_agent_records_refused_total", reason="grpc_3") == 2
    assert peer.names() == ["test.event.2"]


def test_grpc_over_a_unix_socket(start, peers, tmp_path):
    path = tmp_path / "otel.sock"
    peer = peers(GrpcPeer, f"unix:{path}")
    spool(tmp_path / "agent", [("logs", "events", 2, logs_message(0, 2))])
    agent = start(OutAgent, tmp_path / "agent", "--server", f"unix://{path}", "--protocol", "grpc")
    delivered(agent, 2)
    assert peer.names() == ["test.event.0", "test.event.1"]


def test_a_server_that_goes_and_comes_back_gets_everything_once(start, peers, tmp_path):
    address = harness.unused_address()
    spool(tmp_path / "agent", [("logs", "events", 1, logs_message(i, 1)) for i in range(5)])
    agent = start(OutAgent, tmp_path / "agent", "--server", f"http://{address}", "--protocol", "grpc")
    harness.eventually(lambda: "Connection refused" in agent.log(), 10, agent.log())
    agent.kill()  # the node's power, as far as a test can
    assert len(spooled(tmp_path / "agent")) == 5
    agent = start(OutAgent, tmp_path / "agent", "--server", f"http://{address}", "--protocol", "grpc")
    peer = peers(GrpcPeer, address)
    delivered(agent, 5)
    assert peer.names() == [f"test.event.{i}" for i in range(5)]


# Our own receivers, and several places at once


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_our_own_receivers_take_both_protocols(start, server, tmp_path, protocol):
    address = server.otlp_grpc if protocol == "grpc" else server.otlp_http
    spool(
        tmp_path / "agent",
        [("logs", "events", 200, logs_message(0, 200, "x" * 5_000)), ("metrics", "metrics", 1, metrics_message())],
    )  # fmt: skip
    agent = start(OutAgent, tmp_path / "agent", "--server", f"http://{address}", "--protocol", protocol)
    delivered(agent, 201)
    assert agent.counters().total("lockstep_agent_export_bytes_total") < 100_000, "zstd or gzip"


def test_a_place_that_is_away_does_not_hold_up_another(start, peers, tmp_path):
    metrics, away = peers(HttpPeer), harness.unused_address()
    spool(
        tmp_path / "agent", [("logs", "events", 1, logs_message(0, 1)), ("metrics", "metrics", 1, metrics_message())]
    )  # fmt: skip
    agent = start(
        OutAgent,
        tmp_path / "agent",
        environment={
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"http://{away}",
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://{metrics.address}/otlp/metrics?tenant=a",
        },
    )
    delivered(agent, 1)
    assert [path for path, _, _ in metrics.requests] == ["/otlp/metrics?tenant=a"]
    logs = peers(GrpcPeer, away)
    delivered(agent, 2)
    assert logs.names() == ["test.event.0"]


def test_a_torn_file_is_told_to_the_server(start, peers, tmp_path):
    peer = peers(GrpcPeer)
    data = tmp_path / "agent"
    spool(data, [("logs", "events", 7, logs_message(0, 7)), ("logs", "events", 1, logs_message(7, 1))])
    torn = data / "spool" / spooled(data)[0]
    torn.write_bytes(torn.read_bytes()[:10])
    agent = start(OutAgent, data, "--server", f"http://{peer.address}", "--protocol", "grpc")
    harness.eventually(lambda: peer.names() == ["test.event.7", "telemetry.gap"], DELIVERED_S, agent.log())
    dropped = agent.counters().total("lockstep_agent_records_dropped_total", reason="spool_torn", value="events")
    assert dropped == 7
    assert "not what was written" in agent.log()


# Mistakes


@pytest.mark.parametrize(
    "arguments, environment, line",
    [
        (["--protocol", "http/json"], {}, "--protocol: http/json is not spoken here"),
        ([], {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL: http/json is not spoken here"),
        ([], {"OTEL_EXPORTER_OTLP_LOGS_TIMEOUT": "soon"}, "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT: 'soon' is not a number"),
        (["--server", "https://x", "--ca", "/nowhere"], {}, "--ca: CA file /nowhere: No such file or directory"),
        (["--token-file", "/nowhere"], {}, "--token-file: cannot open /nowhere"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(tmp_path, arguments, environment, line):
    done = subprocess.run(
        [str(harness.BIN / "lockstep-agent"), "--data", str(tmp_path / "agent"), "--metrics", "127.0.0.1:0", "--node", "off",
         "--recorders", str(tmp_path / "recorders"), *arguments],
        env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2, done
    assert line in done.stderr and done.stderr.count("\n") == 1, done.stderr
