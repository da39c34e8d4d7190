"""The real OpenTelemetry SDK sends metrics, spans and logs, and finds them again through our API."""

import base64
import json

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc import _log_exporter as grpc_logs
from opentelemetry.exporter.otlp.proto.grpc import metric_exporter as grpc_metrics
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http import _log_exporter as http_logs
from opentelemetry.exporter.otlp.proto.http import metric_exporter as http_metrics
from opentelemetry.exporter.otlp.proto.http import trace_exporter as http_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

import harness

SERVICE = "trainer-å"
RESOURCE = Resource({"service.name": SERVICE, "host.name": "gpu-017", "custom.note": "not a label"})
IDS = {"traceId", "spanId", "parentSpanId"}


# OTLP/JSON: the SDK's own protobuf request in protobuf's JSON form, but with ids in hex, as OTLP asks.


def to_otlp_json(message):
    def with_hex_ids(node):
        if isinstance(node, list):
            return [with_hex_ids(item) for item in node]
        if not isinstance(node, dict):
            return node
        return {
            key: base64.b64decode(value).hex() if key in IDS else with_hex_ids(value) for key, value in node.items()
        }

    return json.dumps(with_hex_ids(MessageToDict(message, use_integers_for_enums=True)))


class JsonReceiver:
    """Posts one request and says if it went well; the server must keep all of it."""

    def __init__(self, address, signal):
        self.address, self.signal = address, signal

    def post(self, message):
        answer = harness.request(
            self.address,
            "POST",
            harness.PATHS[self.signal],
            to_otlp_json(message).encode(),
            {"Content-Type": "application/json"},
        )
        return answer.status == 200 and "partialSuccess" not in answer.json()


class JsonSpanExporter(SpanExporter):
    def __init__(self, address):
        self.receiver = JsonReceiver(address, "spans")

    def export(self, spans):
        return SpanExportResult.SUCCESS if self.receiver.post(encode_spans(spans)) else SpanExportResult.FAILURE

    def shutdown(self):
        pass


class JsonLogExporter(LogRecordExporter):
    def __init__(self, address):
        self.receiver = JsonReceiver(address, "logs")

    def export(self, batch):
        return LogRecordExportResult.SUCCESS if self.receiver.post(encode_logs(batch)) else LogRecordExportResult.FAILURE

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self):
        pass


class JsonMetricExporter(MetricExporter):
    def __init__(self, address):
        super().__init__()
        self.receiver = JsonReceiver(address, "metrics")

    def export(self, metrics_data, timeout_millis=10_000, **_):
        return (
            MetricExportResult.SUCCESS if self.receiver.post(encode_metrics(metrics_data)) else MetricExportResult.FAILURE
        )

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **_):
        pass


def exporters(transport, server):
    if transport == "grpc":
        how = {"endpoint": server.otlp_grpc, "insecure": True, "timeout": 10}
        return (
            grpc_metrics.OTLPMetricExporter(**how),
            grpc_spans.OTLPSpanExporter(**how),
            grpc_logs.OTLPLogExporter(**how),
        )
    if transport == "json":
        return tuple(kind(server.otlp_http) for kind in (JsonMetricExporter, JsonSpanExporter, JsonLogExporter))
    compression = Compression.Gzip if transport == "http-gzip" else Compression.NoCompression

    def how(path):
        return {"endpoint": f"http://{server.otlp_http}{path}", "compression": compression, "timeout": 10}

    return (
        http_metrics.OTLPMetricExporter(**how("/v1/metrics")),
        http_spans.OTLPSpanExporter(**how("/v1/traces")),
        http_logs.OTLPLogExporter(**how("/v1/logs")),
    )


class Checked:
    """An exporter that remembers what each export gave: the SDK itself only logs a failure."""

    def __init__(self, exporter):
        self._exporter, self.results = exporter, []

    def export(self, *arguments, **options):
        self.results.append(self._exporter.export(*arguments, **options))
        return self.results[-1]

    def __getattr__(self, name):
        return getattr(self._exporter, name)

    def check(self):
        assert self.results and all(result.name == "SUCCESS" for result in self.results), self.results


@pytest.fixture(params=["grpc", "http-gzip", "http-plain", "json"])
def receivers(request, server):
    metrics, spans, logs = map(Checked, exporters(request.param, server))
    yield metrics, spans, logs
    for one in (metrics, spans, logs):
        one.shutdown()


def series(server, name):
    return server.get("/api/metrics", name=name)["series"]


def newest(one):
    return one["points"][-1][1]


def test_metrics_come_back_with_their_values_labels_kinds_and_units(receivers, server):
    exporter = receivers[0]
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    bounds = View(instrument_name="sdk.latency", aggregation=ExplicitBucketHistogramAggregation([1.0, 10.0, 100.0]))
    provider = MeterProvider([reader], resource=RESOURCE, views=[bounds])
    meter = provider.get_meter("system-test")
    before = harness.now_ns()

    requests = meter.create_counter("sdk.requests", unit="1")
    requests.add(3, {"route": "/a"})
    requests.add(4, {"route": "/a"})
    requests.add(2.5, {"route": "/b"})
    queue = meter.create_up_down_counter("sdk.queue", unit="{item}")
    queue.add(5)
    queue.add(-7)
    meter.create_gauge("sdk.power", unit="W").set(412.75, {"gpu": 3})
    latency = meter.create_histogram("sdk.latency", unit="ms")
    for value in (0.5, 7, 8, 300):
        latency.record(value)
    big = meter.create_counter("sdk.bytes", unit="By")
    big.add(2**53)
    assert provider.force_flush()
    exporter.check()

    by_route = {one["labels"]["route"]: one for one in series(server, "sdk.requests")}
    assert set(by_route) == {"/a", "/b"}
    assert newest(by_route["/a"]) == 7 and newest(by_route["/b"]) == 2.5
    a = by_route["/a"]
    assert a["kind"] == "counter" and a["unit"] == "1"
    assert a["labels"] == {"route": "/a", "service_name": SERVICE, "job": SERVICE, "host": "gpu-017"}
    assert a["name"] == "sdk_requests_total"
    assert before - 1_000_000 <= a["points"][-1][0] <= harness.now_ns()

    (queued,) = series(server, "sdk.queue")
    assert newest(queued) == -2 and queued["kind"] == "gauge" and queued["unit"] == "{item}"
    (power,) = series(server, "sdk.power")
    assert newest(power) == 412.75 and power["kind"] == "gauge" and power["labels"]["gpu"] == "3"
    (total,) = series(server, "sdk.bytes")
    assert newest(total) == 2**53

    (count,) = series(server, "sdk_latency_milliseconds_count")
    (together,) = series(server, "sdk_latency_milliseconds_sum")
    assert (newest(count), count["kind"]) == (4, "histogram")
    assert (newest(together), together["kind"], together["unit"]) == (315.5, "histogram", "ms")
    buckets = {float(one["labels"]["le"]): newest(one) for one in series(server, "sdk_latency_milliseconds_bucket")}
    assert buckets == {1: 1, 10: 3, 100: 3, float("inf"): 4}
    names = set(server.get("/api/metrics")["names"])
    assert {"sdk_requests_total", "sdk_queue", "sdk_power_watts", "sdk_latency_milliseconds_sum"} <= names

    requests.add(1, {"route": "/a"})
    assert provider.force_flush()
    (a,) = [one for one in series(server, "sdk.requests") if one["labels"]["route"] == "/a"]
    assert [point[1] for point in a["points"]] == [7, 8], "a second export is a second point of the same series"
    provider.shutdown()


def test_spans_come_back_whole(receivers, server):
    exporter = receivers[1]
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("system-test")
    with tracer.start_as_current_span("elsewhere") as elsewhere:
        pass
    attributes = {
        "text": 'naïve "quoted"\n',
        "whole": -(2**62),
        "real": 0.125,
        "yes": True,
        "list": ["a", "b"],
        "numbers": [1, 2, 3],
    }
    with tracer.start_as_current_span(
        "step",
        kind=SpanKind.CLIENT,
        attributes=attributes,
        links=[Link(elsewhere.get_span_context(), {"why": "follows"})],
    ) as parent:
        parent.add_event("loss", {"value": 2.5}, timestamp=parent.start_time + 1000)
        with tracer.start_as_current_span("backward") as child:
            child.set_status(Status(StatusCode.ERROR, "out of memory"))
    exporter.check()

    trace_id = f"{parent.get_span_context().trace_id:032x}"
    found = server.get("/api/spans", trace_id=trace_id)
    assert found["total"] == 2
    spans = {span["name"]: span for span in found["spans"]}
    step, backward = spans["step"], spans["backward"]
    assert step["trace_id"] == trace_id
    assert step["span_id"] == f"{parent.get_span_context().span_id:016x}"
    assert step["parent_span_id"] == "" and backward["parent_span_id"] == step["span_id"]
    assert step["service"] == SERVICE and step["resource"]["custom.note"] == "not a label"
    assert step["kind"] == 3 and backward["kind"] == 1, "OTLP numbers: client 3, internal 1"
    assert (step["start_unix_ns"], step["end_unix_ns"]) == (parent.start_time, parent.end_time)
    assert step["attributes"] == attributes
    assert step["status"] == 0 and (backward["status"], backward["status_message"]) == (2, "out of memory")
    (event,) = step["events"]
    assert (event["name"], event["time_unix_ns"], event["attributes"]) == (
        "loss",
        parent.start_time + 1000,
        {"value": 2.5},
    )
    (link,) = step["links"]
    assert link["trace_id"] == f"{elsewhere.get_span_context().trace_id:032x}"
    assert link["span_id"] == f"{elsewhere.get_span_context().span_id:016x}"
    assert link["attributes"] == {"why": "follows"}
    assert server.get("/api/spans", service=SERVICE)["total"] == 3
    assert server.get("/api/spans", service="somebody else")["total"] == 0
    provider.shutdown()


def test_logs_come_back_with_body_severity_attributes_and_their_span(receivers, server):
    exporter = receivers[2]
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("system-test")
    tracer = TracerProvider().get_tracer("system-test")
    when = harness.now_ns()
    with tracer.start_as_current_span("step") as span:
        context = trace.set_span_in_context(span)
        logger.emit(
            timestamp=when,
            context=context,
            severity_number=SeverityNumber.WARN,
            severity_text="WARNING",
            body="gradient norm 1e9",
            attributes={"step": 12, "tags": ["nan", "fp8"]},
            event_name="grad.norm",
        )
    logger.emit(timestamp=when + 1, severity_number=SeverityNumber.INFO, body={"a": 1, "b": [True, "x"]})
    exporter.check()

    found = server.get("/api/logs", service=SERVICE)
    assert found["total"] == 2
    structured, warning = found["logs"]  # newest received first
    assert warning["time_unix_ns"] == when and warning["event"] == "grad.norm"
    assert (warning["severity"], warning["severity_text"], warning["body"]) == (13, "WARNING", "gradient norm 1e9")
    assert warning["attributes"] == {"step": 12, "tags": ["nan", "fp8"]}
    assert warning["trace_id"] == f"{span.get_span_context().trace_id:032x}"
    assert warning["span_id"] == f"{span.get_span_context().span_id:016x}"
    assert warning["resource"]["host.name"] == "gpu-017"
    assert structured["body"] == {"a": 1, "b": [True, "x"]} and structured["severity"] == 9
    assert [log["body"] for log in server.get("/api/logs", event="grad.norm")["logs"]] == ["gradient norm 1e9"]
    provider.shutdown()


def test_a_job_that_reports_its_steps_through_the_sdk_is_a_job(receivers, server):
    exporter = receivers[2]
    provider = LoggerProvider(resource=Resource(harness.identity("sdk-job", 1, 4)))
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("system-test")
    for step in range(3):
        logger.emit(
            timestamp=harness.now_ns(),
            event_name="train.step",
            attributes={"step": step, "duration_ns": 250_000_000 + step, "self_ns": 200_000_000, "comm_ns": 50_000_000},
        )
    exporter.check()
    job = server.get("/api/jobs/sdk-job")
    assert (job["world_size"], job["ranks_seen"], job["last_step"]) == (4, 1, 2)
    window = server.get("/api/jobs/sdk-job/steps")
    assert window["ranks"] == [1] and window["steps"] == [0, 1, 2] and window["duration_ms"] == [[250.0, 250.0, 250.0]]
    provider.shutdown()
