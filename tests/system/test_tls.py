"""TLS on every listener, seen by clients that are not ours: curl, Python's ssl, the OpenTelemetry SDK over HTTP and gRPC,
and clients that mean no good. Who may not listen where, and tokens that are read from files."""

import http.client
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import threading

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_spans
from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import harness
from certificates import Authority

PLAIN_LINE = "TLS is spoken here: ask by https://"


def curl(url, *arguments):
    """(exit code, what came)"""
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "20", *map(str, arguments), url], capture_output=True, text=True, timeout=30
    )
    return done.returncode, done.stdout


@pytest.fixture
def papers(tmp_path):
    return Authority(tmp_path / "authority")


class TlsServer(harness.Server):
    """A server whose API is asked over TLS."""

    def __init__(self, data, papers, client_ca=None):
        self.papers = papers
        self.certificate, self.key = papers.sign("server")
        more = ["--tls-certificate", self.certificate, "--tls-key", self.key]
        super().__init__(data, more=[*more, "--tls-client-ca", client_ca] if client_ca else more)

    def counters(self, *arguments):
        code, text = curl(f"https://{self.http}/metrics", "--cacert", self.papers.certificate, *arguments)
        assert code == 0
        return harness.Counters(text)

    def ports(self):
        return [self.http, self.otlp_http, self.otlp_grpc]


def test_curl_asks_over_tls_and_in_no_other_way(start, papers, tmp_path):
    server = start(TlsServer, tmp_path / "data", papers)
    url = f"https://{server.http}/readyz"
    assert curl(url, "--cacert", papers.certificate)[0] == 0
    assert curl(url)[0] == 60, "curl does not know the CA"
    assert curl(url, "--cacert", papers.certificate, "--tls-max", "1.1")[0] == 35
    assert curl(url, "--cacert", papers.certificate, "--tls-max", "1.2", "--ciphers", "AES128-SHA")[0] == 35
    for port in server.ports():
        assert curl(f"http://{port}/")[1].strip() == PLAIN_LINE
    expires = server.counters().total("lockstep_tls_certificate_expires_unix_seconds")
    assert expires > 0


def test_a_client_certificate_is_asked_for_and_verified(start, papers, tmp_path):
    server = start(TlsServer, tmp_path / "data", papers, client_ca=papers.certificate)
    url = f"https://{server.http}/readyz"
    known, foreign = papers.sign("client"), Authority(tmp_path / "other").sign("client")
    trust = ("--cacert", papers.certificate)
    assert curl(url, *trust, "--cert", known[0], "--key", known[1])[0] == 0
    assert curl(url, *trust)[0] != 0
    assert curl(url, *trust, "--cert", foreign[0], "--key", foreign[1])[0] != 0
    counters = server.counters("--cert", known[0], "--key", known[1])
    assert counters.total("lockstep_tls_handshake_failures_total") >= 2
    assert "Traceback" not in server.log()


def test_a_certificate_is_exchanged_while_connections_live(start, papers, tmp_path):
    server = start(TlsServer, tmp_path / "data", papers)
    living = http.client.HTTPSConnection(
        server.http, timeout=20, context=ssl.create_default_context(cafile=papers.certificate)
    )

    def ask():
        living.request("GET", "/readyz")
        answer = living.getresponse()
        answer.read()
        return answer.status

    assert ask() == 200
    there = living.sock.getsockname()
    next_papers = Authority(tmp_path / "next")
    certificate, key = next_papers.sign("server")
    shutil.copy(key, server.key)
    shutil.copy(certificate, server.certificate)
    for port in (server.http, server.otlp_http):
        harness.eventually(
            lambda port=port: curl(f"https://{port}/readyz", "--cacert", next_papers.certificate)[0] == 0,
            20,
            "new certificate",
        )
    assert ask() == 200 and living.sock.getsockname() == there, "the connection from before goes on"

    server.certificate.write_text("half a certif")
    server.papers = next_papers

    def told():
        return server.counters().total("lockstep_tls_reload_failures_total") > 0

    harness.eventually(told, 20, "the broken file is counted")
    assert "the certificate from before serves on" in server.log()


class Counted(SpanExporter):
    def __init__(self, exporter):
        self.exporter, self.results = exporter, []

    def export(self, spans):
        self.results.append(self.exporter.export(spans))
        return self.results[-1]

    def shutdown(self):
        self.exporter.shutdown()


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_the_opentelemetry_sdk_sends_with_a_client_certificate(start, papers, tmp_path, way):
    server = start(TlsServer, tmp_path / "data", papers, client_ca=papers.certificate)
    certificate, key = papers.sign("client")
    if way == "http":
        exporter = http_spans.OTLPSpanExporter(
            endpoint=f"https://{server.otlp_http}/v1/traces",
            certificate_file=str(papers.certificate),
            client_certificate_file=str(certificate),
            client_key_file=str(key),
        )
    else:
        credentials = grpc.ssl_channel_credentials(
            papers.certificate.read_bytes(), key.read_bytes(), certificate.read_bytes()
        )
        exporter = grpc_spans.OTLPSpanExporter(endpoint=f"https://{server.otlp_grpc}", credentials=credentials)
    counted = Counted(exporter)
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(counted))
    for _ in range(3):
        with provider.get_tracer("test").start_as_current_span("step"):
            pass
    provider.shutdown()
    assert counted.results == [SpanExportResult.SUCCESS] * 3
    counters = server.counters("--cert", certificate, "--key", key)
    passed = counters.total("lockstep_ingest_passed_records_total", signal="spans")
    assert passed == 3


def test_garbage_and_silence_harm_nobody(start, papers, tmp_path):
    server = start(TlsServer, tmp_path / "data", papers)
    silent = []
    for port in server.ports():
        host, number = port.split(":")
        for content in (b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x03\x40\x00" + os.urandom(1000)):
            silent.append(socket.create_connection((host, int(number)), timeout=20))
            silent[-1].sendall(content)
        for content in (os.urandom(100_000), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x80\x2e\x01\x00\x02", b"\x15" * 50):
            with socket.create_connection((host, int(number)), timeout=20) as one:
                try:
                    one.sendall(content)
                    one.shutdown(socket.SHUT_WR)
                    while one.recv(4096):
                        pass
                except OSError:
                    pass  # reset: as good an end as any
    assert curl(f"https://{server.http}/readyz", "--cacert", papers.certificate)[0] == 0
    counters = server.counters()
    assert counters.total("lockstep_tls_handshake_failures_total") >= 6
    # Who never finishes a handshake is gone after 10 s.
    for one in silent:
        one.settimeout(20)
        try:
            while one.recv(4096):
                pass
        except ConnectionError:
            pass
    assert server.counters().total("lockstep_tls_handshake_failures_total", receiver="http", reason="timeout") >= 2
    assert server.stop() == 0


# Who may listen where


def refused(program, *arguments):
    done = subprocess.run(
        [str(harness.BIN / program), *map(str, arguments)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode != 0
    return done.stderr.strip()


def test_an_address_that_others_reach_needs_a_reason(start, papers, tmp_path):
    own = ["--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"]
    for option in ("--http", "--otlp-http", "--otlp-grpc"):
        arguments = list(own)
        arguments[arguments.index(option) + 1] = "0.0.0.0:0"
        line = refused("lockstepd", "--data", tmp_path / "data", *arguments)
        assert f"{option} 0.0.0.0:0: others reach this address" in line and "--insecure" in line, line
        assert "\n" not in line
    start(harness.Server, tmp_path / "open", http="0.0.0.0:0", more=["--insecure"])
    line = refused("lockstep-agent", "--data", tmp_path / "agent", "--metrics", ":0")
    assert "--metrics :0: others reach this address" in line and "--metrics-insecure" in line, line
    assert "\n" not in line


# The agent's page


class TlsAgent(harness.Daemon):
    def __init__(self, data, *arguments):
        recorders = data.parent / "recorders"
        recorders.mkdir(mode=0o700, exist_ok=True)
        super().__init__(
            "lockstep-agent",
            ["--data", data, "--metrics", "127.0.0.1:0", "--recorders", recorders, *arguments],
            data.parent / (data.name + ".log"),
        )


def test_the_agents_page_speaks_tls_and_asks_for_its_token(start, papers, tmp_path):
    certificate, key = papers.sign("agent")
    token = tmp_path / "token"
    token.write_text("lst_page\n")
    token.chmod(0o600)
    agent = start(
        TlsAgent, tmp_path / "agent", "--node", "off", "--export", f"file:{tmp_path / 'out'}",
        "--metrics-tls-certificate", certificate, "--metrics-tls-key", key, "--metrics-token-file", token,
    )  # fmt: skip
    url, trust = f"https://{agent.ready['metrics']}", ("--cacert", papers.certificate)
    assert curl(f"{url}/healthz", *trust) == (0, "ok\n")
    assert "token" in curl(f"{url}/metrics", *trust)[1]
    assert "lst_page" not in curl(f"{url}/metrics", *trust, "-H", "Authorization: Bearer lst_wrong")[1]
    shown = curl(f"{url}/metrics", *trust, "-H", "Authorization: Bearer lst_page")[1]
    assert "lockstep_tls_certificate_expires_unix_seconds{" in shown
    token.write_text("lst_next\n")
    assert "lockstep_agent_" in curl(f"{url}/metrics", *trust, "-H", "Authorization: Bearer lst_next")[1]
    assert curl(f"http://{agent.ready['metrics']}/")[1].strip() == PLAIN_LINE
    found = harness.lockstep(
        "doctor", "--agent", url, "--ca", papers.certificate, "--agent-token-file", token, "--json"
    )
    assert f"{url} is running" in found.stdout, found
    assert "lst_" not in agent.log()
    token.chmod(0o644)
    line = refused("lockstep-agent", "--data", tmp_path / "second", "--metrics-token-file", token)
    assert "is open to every user" in line and "lst_" not in line


# Our own clients


def test_the_agent_sends_to_a_server_that_asks_for_its_certificate(start, papers, tmp_path):
    server = start(TlsServer, tmp_path / "data", papers, client_ca=papers.certificate)
    certificate, key = papers.sign("node7")
    start(
        TlsAgent, tmp_path / "agent", "--server", f"https://{server.http}", "--ca", papers.certificate,
        "--cert", certificate, "--key", key,
    )  # fmt: skip
    shown = ("--cert", certificate, "--key", key)
    harness.eventually(
        lambda: server.counters(*shown).total("lockstep_ingest_passed_records_total", receiver="otlp_http") > 0,
        30,
        "its records arrive",
    )
    # And waits there for commands.
    harness.eventually(
        lambda: server.counters(*shown).total("lockstep_http_deferred", receiver="otlp_http") == 1, 30, "a long poll"
    )
    for address in server.ports():  # any of its addresses will do
        jobs = harness.lockstep(
            "jobs", "--server", f"https://{address}", "--ca", papers.certificate, "--cert", certificate, "--key", key
        )
        assert jobs.returncode == 0, jobs
    assert harness.lockstep("jobs", "--server", f"https://{server.http}", "--ca", papers.certificate).returncode == 3


def test_the_command_line_sends_the_token_of_a_private_file(tmp_path):
    seen, asked_for_ports = [], []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            ports = self.path == "/.well-known/lockstep"  # whether it is another port of ours
            (asked_for_ports if ports else seen).append(self.headers.get("Authorization"))
            self.send_response(401)
            self.end_headers()
            self.wfile.write(b"no such token\n")

        def log_message(self, *_):
            pass

    peer = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=peer.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{peer.server_address[1]}"
    token = tmp_path / "token"
    token.write_text("lst_mine\n")
    token.chmod(0o600)
    by_option = harness.lockstep("jobs", "--server", url, "--token-file", token)
    by_variable = harness.lockstep("jobs", "--server", url, environment={"LOCKSTEP_TOKEN_FILE": str(token)})
    without = harness.lockstep("jobs", "--server", url)
    assert seen == ["Bearer lst_mine", "Bearer lst_mine", None]
    assert asked_for_ports == [None] * 3, "who is asked where the server is gets no token"
    assert by_option.stderr == "lockstep jobs: the server answered 401: no such token\n"
    assert by_variable.returncode == by_option.returncode == without.returncode
    assert "LOCKSTEP_TOKEN_FILE" in without.stderr
    token.chmod(0o604)
    refused_file = harness.lockstep("jobs", "--server", url, "--token-file", token)
    assert "is open to every user" in refused_file.stderr and "lst_" not in refused_file.stderr
    assert len(seen) == 3
    assert harness.lockstep("jobs", "--server", url, "--token", "lst_x").returncode == 2, "there is no such option"
    peer.shutdown()
