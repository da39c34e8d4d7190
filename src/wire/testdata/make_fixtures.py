"""Writes the *.bin fixtures beside this file: export requests as a real OpenTelemetry SDK serializes them.

    python3 -m venv venv && venv/bin/pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
    venv/bin/python make_fixtures.py

Times and ids are fixed, so that running it again gives the same bytes (otlp_fixtures_test.cc knows them). Summaries are
not made by any SDK, only passed on; that point is put together from the published protocol classes.
"""

import pathlib

from opentelemetry import trace
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality, Buckets, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, MetricsData, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, _Span
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

HERE = pathlib.Path(__file__).parent
T0 = 1_700_000_000_000_000_000
TRACE = 0x0102030405060708090A0B0C0D0E0F10
SPAN = 0x1112131415161718
RESOURCE = Resource({"service.name": "trainer", "host.name": "node-17", "lockstep.rank": 5, "gpu.present": True,
                     "load": 0.25, "devices": ["gpu0", "gpu1"]})
SCOPE = InstrumentationScope("fixtures", "1.2.3", attributes={"ignored": "yes"})


def write(name, request):
    (HERE / name).write_bytes(request.SerializeToString(deterministic=True))


def context(span_id=SPAN):
    return SpanContext(TRACE, span_id, is_remote=False, trace_flags=TraceFlags(1),
                       trace_state=TraceState([("vendor", "x1")]))


def logs():
    def record(**fields):
        return ReadableLogRecord(log_record=LogRecord(**fields), resource=RESOURCE, instrumentation_scope=SCOPE)

    active = trace.set_span_in_context(trace.NonRecordingSpan(context()))
    return encode_logs([
        record(timestamp=T0, observed_timestamp=T0 + 5, context=active, severity_number=SeverityNumber.WARN,
               severity_text="WARN", body="loss is NaN",
               attributes={"step": 12, "loss": float("nan"), "ok": False, "tags": ["a", "b"],
                           "counts": [1, -1, 9223372036854775807]}),
        record(timestamp=T0 + 1, observed_timestamp=T0 + 6, severity_number=SeverityNumber.INFO,
               event_name="train.step", body={"nested": {"list": [1, 2.5, "three", True]}, "raw": b"\x00\xff"}, attributes={}),
    ])


def spans():
    span = _Span(name="step 12", context=context(), parent=context(0x2122232425262728), resource=RESOURCE,
                 instrumentation_scope=SCOPE, kind=SpanKind.CLIENT, attributes={"step": 12},
                 events=[Event("checkpoint", {"bytes": 4096}, T0 + 2)],
                 links=[Link(context(0x3132333435363738), {"why": "follows"})])
    span.start(start_time=T0)
    span.set_status(Status(StatusCode.ERROR, "NCCL timeout"))
    span.end(end_time=T0 + 7)
    return encode_spans([span])


def metrics():
    number = lambda value: NumberDataPoint(attributes={"gpu": "0"}, start_time_unix_nano=T0,
                                           time_unix_nano=T0 + 10, value=value)
    cumulative, delta = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA
    metric = lambda name, unit, data: Metric(name=name, description="not kept", unit=unit, data=data)
    histogram = HistogramDataPoint(attributes={"phase": "forward"}, start_time_unix_nano=T0, time_unix_nano=T0 + 10,
                                   count=6, sum=42.5, bucket_counts=[1, 2, 3], explicit_bounds=[5.0, 10.0],
                                   min=1.0, max=20.0)
    exponential = ExponentialHistogramDataPoint(
        attributes={"phase": "backward"}, start_time_unix_nano=T0, time_unix_nano=T0 + 10, count=10, sum=-3.5, scale=-2,
        zero_count=1, positive=Buckets(offset=-7, bucket_counts=[1, 0, 300]),
        negative=Buckets(offset=4, bucket_counts=[5]), flags=0, min=-9.0, max=8.0)
    request = encode_metrics(MetricsData(resource_metrics=[ResourceMetrics(
        resource=RESOURCE, schema_url="https://example.org/schema", scope_metrics=[ScopeMetrics(
            scope=SCOPE, schema_url="", metrics=[
                metric("gpu.power", "W", Gauge([number(412.5), number(-7)])),
                metric("tokens", "{token}", Sum([number(1 << 40)], aggregation_temporality=cumulative,
                                                is_monotonic=True)),
                metric("step.duration", "s", Histogram([histogram], aggregation_temporality=delta)),
                metric("gradient", "1", ExponentialHistogram([exponential], aggregation_temporality=cumulative)),
            ])])]))
    summary = request.resource_metrics[0].scope_metrics[0].metrics.add(name="rpc.latency", unit="ms")
    point = summary.summary.data_points.add(start_time_unix_nano=T0, time_unix_nano=T0 + 10, count=100, sum=250.0)
    point.quantile_values.add(quantile=0.5, value=2.0)
    point.quantile_values.add(quantile=0.99, value=9.5)
    stale = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points.add(time_unix_nano=T0 + 20)
    stale.flags = 1
    return request


if __name__ == "__main__":
    write("sdk_logs.bin", logs())
    write("sdk_spans.bin", spans())
    write("sdk_metrics.bin", metrics())
