"""The OpenTelemetry collector between an application and us: over gRPC and over HTTP, with TLS and a token. On request:
./dev test collector has its own builder put it together once, which takes minutes."""

import os

import harness
import peers
import pytest
from secured import SecuredServer

EXPORTERS = {
    "grpc": "otlp: {endpoint: '%(grpc)s', tls: {ca_file: %(ca)s}, headers: {authorization: 'Bearer ${env:TOKEN}'}}",
    "http": "otlphttp: {endpoint: 'https://%(http)s', tls: {ca_file: %(ca)s}, headers: {authorization: 'Bearer ${env:TOKEN}'}}",
}


def collector(server, folder, way, role="ingest"):
    address, metrics = harness.unused_address(), harness.unused_address()
    exporter = EXPORTERS[way] % {"grpc": server.otlp_grpc, "http": server.otlp_http, "ca": server.ca}
    name = exporter.split(":")[0]
    folder.mkdir()
    (folder / "collector.yaml").write_text(
        f"receivers: {{otlp: {{protocols: {{http: {{endpoint: '{address}'}}}}}}}}\n"
        "processors: {batch: {timeout: 200ms}}\n"
        f"exporters:\n  {exporter}\n"
        "service:\n"
        "  telemetry: {metrics: {level: none}}\n"
        "  pipelines:\n"
        + "".join(
            f"    {signal}: {{receivers: [otlp], processors: [batch], exporters: [{name}]}}\n"
            for signal in ("metrics", "traces", "logs")
        )
    )
    return peers.Child(
        [os.environ["COLLECTOR"], "--config", folder / "collector.yaml"],
        address,
        folder / "collector.log",
        {"TOKEN": server.token(role)},
    )


def send(address):
    """What an application sends: a gauge, a span and a log."""
    now = harness.now_ns()
    resource = {"service.name": "trainer"}
    for signal, message in (
        ("metrics", harness.gauge_request(resource, "loss", [({"rank": "3"}, now, 0.25)])),
        ("spans", harness.spans_request(resource, [("forward", now - 2_000_000, now - 1_000_000)])),
        ("logs", harness.logs_request(harness.identity("collected", 0, 1), [harness.step_event(1, 1_000_000)])),
    ):
        answer = harness.request(
            address, "POST", harness.PATHS[signal], message.SerializeToString(), {"Content-Type": harness.PROTOBUF}
        )
        assert answer.status == 200, answer.text


@pytest.mark.parametrize("way", EXPORTERS)
def test_metrics_spans_and_logs_come_through_the_collector(start, tmp_path, way):
    server = start(SecuredServer, tmp_path / "secured")
    send(start(collector, server, tmp_path / "collector", way).address)

    def arrived():
        found = server.get("/prometheus/api/v1/query", query='loss_ratio{rank="3"}')["data"]["result"]
        spans = server.get("/api/spans", service="trainer")["spans"]
        jobs = [job["job_id"] for job in server.get("/api/jobs")["jobs"]]
        return found and float(found[0]["value"][1]) == 0.25 and spans and "collected" in jobs

    harness.eventually(arrived, 30, "a metric, a span and a step")
    assert server.token("ingest") not in server.log() + (tmp_path / "collector" / "collector.log").read_text()


@pytest.mark.parametrize("way", EXPORTERS)
def test_a_token_that_may_only_read_sends_nothing(start, tmp_path, way):
    server = start(SecuredServer, tmp_path / "secured")
    send(start(collector, server, tmp_path / "collector", way, role="read").address)
    log = tmp_path / "collector" / "collector.log"
    line = "PermissionDenied" if way == "grpc" else "403"
    harness.eventually(lambda: line in log.read_text() and "Exporting failed" in log.read_text(), 30, "it is refused")
    assert server.get("/api/spans", service="trainer")["spans"] == []
    assert server.get("/api/jobs")["jobs"] == []
