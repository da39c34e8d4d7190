"""An inference engine tells of its requests as vLLM does, by the real OpenTelemetry SDK; Lockstep says where they wait."""

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import harness


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = harness.Server(tmp_path_factory.mktemp("inference") / "data")
    yield server
    server.kill()


def send_requests(server, service, requests):
    """One span for each, named and filled as vLLM's: (queue, prefill, decode in seconds, tokens)."""
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"http://{server.otlp_grpc}", insecure=True)))
    tracer = provider.get_tracer("vllm.llm_engine")
    now = harness.now_ns()
    for queue, prefill, decode, tokens in requests:
        end = now
        span = tracer.start_span(
            "llm_request", kind=trace.SpanKind.SERVER, start_time=end - int((queue + prefill + decode) * 1e9)
        )
        span.set_attributes({
            "gen_ai.request.id": "cmpl-1", "gen_ai.response.model": "llama-70b",
            "gen_ai.latency.time_in_queue": queue, "gen_ai.latency.time_in_model_prefill": prefill,
            "gen_ai.latency.time_in_model_decode": decode, "gen_ai.latency.time_to_first_token": queue + prefill,
            "gen_ai.latency.e2e": queue + prefill + decode, "gen_ai.usage.prompt_tokens": 512,
            "gen_ai.usage.completion_tokens": tokens,
        })  # fmt: skip
        span.end(end)
    provider.shutdown()


def test_requests_that_wait_in_the_queue_are_said_to(server):
    send_requests(server, "chat", [(0.01, 0.09, 2.0, 101)] * 199 + [(4.0, 0.1, 2.0, 101)])
    assert server.get("/api/services")["services"] == ["chat"]
    told = server.get("/api/services/chat")
    assert told["source"] == "spans" and told["requests"] == 200
    assert told["ttft_ms"]["p50"] == pytest.approx(100) and told["tpot_ms"]["p50"] == pytest.approx(20)
    assert told["queue_ms"]["p50"] == pytest.approx(10)
    assert "waiting in the queue" in told["sentence"]
    slowest = told["slowest"][0]
    assert slowest["queue_ms"] == pytest.approx(4000)
    spans = server.get("/api/spans", trace_id=slowest["trace_id"])["spans"]
    assert [span["name"] for span in spans] == ["llm_request"]


def test_the_command_line_says_the_same(server):
    shown = harness.lockstep("service", "chat", "--server", server.url)
    assert shown.returncode == 0, shown.stderr
    assert "waiting in the queue" in shown.stdout and "time to first token" in shown.stdout
    assert "chat" in harness.lockstep("service", "--server", server.url).stdout
    unknown = harness.lockstep("service", "chta", "--server", server.url)
    assert unknown.returncode == 4 and unknown.stderr.count("\n") == 1


def test_an_engine_that_tells_metrics_alone_is_read_from_its_histograms(server):
    exporter = OTLPMetricExporter(f"http://{server.otlp_http}/v1/metrics")
    name = "vllm:time_to_first_token_seconds"
    view = View(instrument_name="ttft", name=name, aggregation=ExplicitBucketHistogramAggregation([0.1, 1.0, 10.0]))
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], resource=Resource({"service.name": "batch"}), views=[view])
    ttft = provider.get_meter("vllm").create_histogram("ttft", unit="s")
    ttft.record(0.05)
    provider.force_flush()
    for _ in range(90):
        ttft.record(0.05)
    for _ in range(10):
        ttft.record(5.0)
    provider.force_flush()
    provider.shutdown()
    told = server.get("/api/services/batch")
    assert told["source"] == "metrics" and told["requests"] == 100
    assert told["ttft_ms"]["p50"] < 100 < 1000 < told["ttft_ms"]["p99"]
    assert told["queue_ms"] is None
    assert "from its histograms" in told["sentence"]
