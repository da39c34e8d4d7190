"""The requests that Grafana's Jaeger and Tempo data sources make, in their order, each answer checked for what those
clients read of it. Spans come from the real OpenTelemetry SDK (a service) and as agents send them (a training step)."""

import base64
import json
import urllib.parse

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

import harness
import step_spans

FRONT, BACK = "front/end", "tokenizer"
JOB = "llama-70b"


class Sent:
    """What the SDK has sent: a request through two services, with an error in the second, and another, fine one."""

    def __init__(self, server):
        self.ids = []
        tracers = {}
        for service in (FRONT, BACK):
            resource = Resource({"service.name": service, "host.name": "gpu-017", "replicas": 3})
            provider = TracerProvider(resource=resource)
            url, more = server.otlp
            exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", **more)
            provider.add_span_processor(SimpleSpanProcessor(exporter))
            tracers[service] = provider.get_tracer("test")
        start = harness.now_ns() - 10_000_000_000
        for number in range(2):
            begin = start + number * 1_000_000_000
            root = tracers[FRONT].start_span("POST /generate", kind=SpanKind.SERVER, start_time=begin)
            context = trace.set_span_in_context(root)
            links = [Link(self.link)] if number else []
            child = tracers[BACK].start_span(
                "encode", context=context, kind=SpanKind.CLIENT, start_time=begin + 1_000_000, links=links
            )
            child.set_attribute("tokens", 512 + number)
            child.set_attribute("model", "llama")
            child.set_attribute("cached", number == 0)
            child.set_attribute("share", 0.25)
            child.add_event("evicted", {"pages": 3}, timestamp=begin + 2_000_000)
            if number == 0:
                child.set_status(Status(StatusCode.ERROR, "out of pages"))
            child.end(end_time=begin + 31_000_000)
            root.set_attribute("http.response.status_code", 200)
            root.end(end_time=begin + 80_000_000)
            self.link = root.get_span_context()
            self.ids.append(f"{root.get_span_context().trace_id:032x}")
            self.child = f"{child.get_span_context().span_id:016x}"
        self.start_ns = start


@pytest.fixture
def sent(server):
    one = Sent(server)
    step_spans.send_step(server, JOB, 4, 20, harness.now_ns() - 5_000_000_000)
    return one


def get(server, path, status=200, headers=None, **parameters):
    query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
    answer = harness.request(server.http, "GET", path + query, headers=headers)
    assert answer.status == status, f"GET {path}{query}: {answer.status} {answer.text}"
    return answer


# Jaeger


def jaeger(server, path, **parameters):
    answer = get(server, "/jaeger" + path, **parameters).json()
    assert set(answer) == {"data", "total", "limit", "offset", "errors"} and answer["errors"] is None
    return answer["data"]


def tags_of(item):
    for tag in item["tags"]:
        expected = {"string": str, "bool": bool, "int64": int, "float64": (int, float)}[tag["type"]]
        assert isinstance(tag["value"], expected), tag
    return {tag["key"]: tag["value"] for tag in item["tags"]}


def test_jaeger_data_source(server, sent):
    # "Save & test" and the list of services are the same request.
    assert jaeger(server, "/api/services") == sorted([FRONT, BACK, "lockstep-agent"])
    # A service's name is put into the path as it is, slash and all.
    assert jaeger(server, f"/api/services/{FRONT}/operations") == ["POST /generate"]
    assert jaeger(server, f"/api/services/{urllib.parse.quote(FRONT, safe='')}/operations") == ["POST /generate"]
    assert [one["name"] for one in jaeger(server, "/api/operations", service=BACK)] == ["encode"]
    operations = jaeger(server, "/api/services/lockstep-agent/operations")
    assert {"train.step", "AllReduce", "forward"} <= set(operations)

    us = sent.start_ns // 1000
    traces = jaeger(
        server, "/api/traces", service=BACK, operation="encode", limit=20, start=us - 1_000_000, end=us + 60_000_000
    )
    assert [one["traceID"] for one in traces] == [sent.ids[1], sent.ids[0]], "newest first"
    for tags, found in (
        ({"error": "true"}, [0]),
        ({"error": "false"}, [1]),  # the other span of trace 0 is fine, but not of this service
        ({"tokens": "513"}, [1]),
        ({"model": "llama", "cached": "true"}, [0]),
        ({"span.kind": "client"}, [1, 0]),
        ({"span.kind": "server"}, []),
        ({"model": "gpt"}, []),
    ):
        traces = jaeger(server, "/api/traces", service=BACK, tags=json.dumps(tags))
        assert [one["traceID"] for one in traces] == [sent.ids[number] for number in found], tags
    assert len(jaeger(server, "/api/traces", service=FRONT, minDuration="50ms", maxDuration="1s")) == 2
    assert jaeger(server, "/api/traces", service=BACK, minDuration="50ms") == []
    assert len(jaeger(server, "/api/traces", service=FRONT, limit=1)) == 1
    assert jaeger(server, "/api/traces", service=FRONT, start=us - 9_000_000, end=us - 1_000_000) == []
    assert len(jaeger(server, "/api/traces", service=FRONT, lookback="1h")) == 2
    assert jaeger(server, "/api/traces", service=FRONT, lookback="1s") == []

    (one,) = jaeger(server, f"/api/traces/{sent.ids[1]}")
    assert one["traceID"] == sent.ids[1] and one["warnings"] is None and len(one["spans"]) == 2
    spans = {span["operationName"]: span for span in one["spans"]}
    root, child = spans["POST /generate"], spans["encode"]
    assert root["references"] == [] and root["duration"] == 80_000
    assert root["startTime"] == (sent.start_ns + 1_000_000_000) // 1000
    assert child["references"][0] == {"refType": "CHILD_OF", "traceID": sent.ids[1], "spanID": root["spanID"]}
    assert child["references"][1]["refType"] == "FOLLOWS_FROM" and child["references"][1]["traceID"] == sent.ids[0]
    assert child["spanID"] == sent.child
    tags = tags_of(child)
    assert tags["tokens"] == 513 and tags["share"] == 0.25 and tags["cached"] is False and tags["span.kind"] == "client"
    assert child["logs"][0]["timestamp"] == child["startTime"] + 1000
    assert {field["key"]: field["value"] for field in child["logs"][0]["fields"]} == {"event": "evicted", "pages": 3}
    processes = one["processes"]
    assert processes[root["processID"]]["serviceName"] == FRONT
    assert processes[child["processID"]]["serviceName"] == BACK
    assert tags_of(processes[child["processID"]])["host.name"] == "gpu-017"
    (one,) = jaeger(server, f"/api/traces/{sent.ids[0]}", start=1, end=2)
    tags = tags_of(next(span for span in one["spans"] if span["operationName"] == "encode"))
    assert tags["error"] is True and tags["otel.status_code"] == "ERROR"
    assert tags["otel.status_description"] == "out of pages"

    now_ms = harness.now_ns() // 1_000_000
    assert jaeger(server, "/api/dependencies", endTs=now_ms, lookback=3_600_000) == [
        {"parent": FRONT, "child": BACK, "callCount": 2}
    ]
    assert jaeger(server, "/api/dependencies", endTs=now_ms - 3_600_000, lookback=1000) == []


def test_jaeger_opens_the_trace_of_a_training_step(server, sent):
    wanted = step_spans.trace_id(JOB, 0, 20).hex()
    traces = jaeger(server, "/api/traces", service="lockstep-agent", tags=json.dumps({"lockstep.step": "20"}))
    assert [one["traceID"] for one in traces] == [wanted]
    (one,) = jaeger(server, f"/api/traces/{wanted.lstrip('0')}")  # as some clients write it
    assert len(one["spans"]) == 4 * (1 + 3 + 20) + 2 and len(one["processes"]) == 4
    roots = [span for span in one["spans"] if not span["references"]]
    assert {span["operationName"] for span in roots} == {"train.step"} and len(roots) == 4


def test_jaeger_v3_answers_in_otlp(server, sent):
    assert get(server, "/jaeger/api/v3/services").json() == {"services": sorted([FRONT, BACK, "lockstep-agent"])}
    operations = get(server, "/jaeger/api/v3/operations", service=BACK).json()["operations"]
    assert operations == [{"name": "encode", "spanKind": ""}]
    groups = get(server, f"/jaeger/api/v3/traces/{sent.ids[0]}").json()["result"]["resourceSpans"]
    spans = [span for group in groups for scope in group["scopeSpans"] for span in scope["spans"]]
    child = next(span for span in spans if span["name"] == "encode")
    assert len(spans) == 2 and child["traceId"] == sent.ids[0] and child["kind"] == 3
    assert child["status"] == {"message": "out of pages", "code": 2}
    assert child["startTimeUnixNano"] == str(sent.start_ns + 1_000_000)
    values = {one["key"]: one["value"] for one in child["attributes"]}
    assert values["tokens"] == {"intValue": "512"} and values["share"] == {"doubleValue": 0.25}
    found = get(
        server,
        "/jaeger/api/v3/traces",
        **{
            "query.service_name": BACK,
            "query.operation_name": "encode",
            "query.attributes": '{"tokens":"513"}',
            "query.duration_min": "1ms",
            "query.start_time_min": "2020-01-01T00:00:00.123456789Z",
            "query.start_time_max": "2100-01-01T02:00:00+02:00",
            "query.num_traces": 5,
        },
    ).json()["result"]["resourceSpans"]
    ids = {span["traceId"] for group in found for scope in group["scopeSpans"] for span in scope["spans"]}
    assert ids == {sent.ids[1]}
    error = get(server, "/jaeger/api/v3/traces/abc", status=404).json()["error"]
    assert error == {"httpCode": 404, "message": "trace not found"}


# Tempo


def test_tempo_data_source(server, sent):
    assert get(server, "/tempo/api/echo").text == "echo"
    assert get(server, "/tempo/ready").text == "ready\n"
    assert get(server, "/tempo/api/status/buildinfo").json()["version"]

    scopes = get(server, "/tempo/api/v2/search/tags", limit=5000).json()["scopes"]
    tags = {scope["name"]: scope["tags"] for scope in scopes}
    assert {"service.name", "host.name", "lockstep.rank"} <= set(tags["resource"])
    assert {"tokens", "lockstep.bytes"} <= set(tags["span"])
    assert {"name", "status", "kind", "duration", "rootName", "rootServiceName"} <= set(tags["intrinsic"])
    assert [s["name"] for s in get(server, "/tempo/api/v2/search/tags", scope="span").json()["scopes"]] == ["span"]
    names = get(server, "/tempo/api/search/tags").json()["tagNames"]
    assert names == sorted(names) and {"tokens", "service.name"} <= set(names)

    def values(tag, version="/v2"):
        return get(server, f"/tempo/api{version}/search/tag/{tag}/values", limit=5000).json()["tagValues"]

    services = sorted([FRONT, BACK, "lockstep-agent"])
    assert values("resource.service.name") == [{"type": "string", "value": service} for service in services]
    assert values("span.tokens") == [{"type": "int", "value": "512"}, {"type": "int", "value": "513"}]
    assert values(".cached") == [{"type": "bool", "value": "false"}, {"type": "bool", "value": "true"}]
    assert {"type": "keyword", "value": "error"} in values("status")
    assert {"type": "keyword", "value": "server"} in values("kind")
    assert {"type": "string", "value": "encode"} in values("name")
    assert values("span.nothing") == []
    assert values("service.name", "") == services
    assert values("span%252Emodel") == [{"type": "string", "value": "llama"}], "encoded twice, as Grafana does"

    seconds = sent.start_ns // 1_000_000_000
    window = {"start": seconds - 60, "end": seconds + 60, "limit": 20, "spss": 3}
    query = '{resource.service.name="tokenizer" && status=error && duration>10ms}'
    found = get(server, "/tempo/api/search", q=query, **window).json()
    (one,) = found["traces"]
    assert one["traceID"] == sent.ids[0]
    assert one["rootServiceName"] == FRONT and one["rootTraceName"] == "POST /generate"
    assert one["startTimeUnixNano"] == str(sent.start_ns) and one["durationMs"] == 80
    (span_set,) = one["spanSets"]
    assert span_set == one["spanSet"] and span_set["matched"] == 1
    (span,) = span_set["spans"]
    assert span["name"] == "encode" and span["durationNanos"] == "30000000"
    assert span["startTimeUnixNano"] == str(sent.start_ns + 1_000_000) and len(span["spanID"]) == 16
    attributes = {each["key"]: each["value"] for each in span["attributes"]}
    assert attributes["status"] == {"stringValue": "error"}
    assert attributes["service.name"] == {"stringValue": BACK}
    assert found["metrics"]["totalJobs"] == found["metrics"]["completedJobs"] == 1

    wanted = found["traces"][0]["traceID"]
    accept = {"Accept": "application/protobuf"}
    # Grafana asks v2 first, and v1 where that is not found.
    body = get(server, f"/tempo/api/v2/traces/{wanted}", headers=accept, start=seconds - 9, end=seconds + 9)
    assert body.headers["content-type"] == "application/protobuf"
    assert body.body[0] == 0x0A, "field 1 of TraceByIDResponse is the trace"
    length, at = 0, 1
    for shift in range(0, 35, 7):
        length |= (body.body[at] & 0x7F) << shift
        at += 1
        if body.body[at - 1] < 0x80:
            break
    assert at + length == len(body.body), "complete: neither status nor message"
    v2 = TracesData.FromString(body.body[at : at + length])
    v1 = TracesData.FromString(get(server, f"/tempo/api/traces/{wanted}", headers=accept).body)
    assert v1 == v2
    spans = {span.name: span for group in v1.resource_spans for scope in group.scope_spans for span in scope.spans}
    assert set(spans) == {"POST /generate", "encode"} and len(v1.resource_spans) == 2
    assert spans["encode"].parent_span_id == spans["POST /generate"].span_id
    assert spans["encode"].events[0].name == "evicted" and spans["encode"].status.message == "out of pages"
    as_json = get(server, f"/tempo/api/traces/{wanted}").json()["batches"]
    ids = {span["traceId"] for group in as_json for scope in group["scopeSpans"] for span in scope["spans"]}
    assert ids == {base64.b64encode(bytes.fromhex(wanted)).decode()}
    assert len(get(server, f"/tempo/api/v2/traces/{wanted}").json()["trace"]["resourceSpans"]) == 2
    for version in ("", "/v2"):
        get(server, f"/tempo/api{version}/traces/{'9' * 32}", status=404, headers=accept)


@pytest.mark.parametrize(
    "query, expected",
    [
        ("{}", ["step", 1, 0]),
        ('{ name = "encode" }', [1, 0]),
        ('{ span.tokens > 512 && kind = client }', [1]),
        ('{ .model =~ "lla.*" && span.cached = true }', [0]),
        ('{ resource.service.name = "front/end" } && { status = error }', [0]),
        ('{ status = error } || { span.lockstep.step = 20 }', ["step", 0]),
        ('{ name = "AllReduce" } | count() > 79', ["step"]),
        ('{ name = "AllReduce" } | count() > 80', []),
        ('{ span.lockstep.kind = "collective" } | avg(duration) < 2.8ms | select(span.lockstep.bytes)', ["step"]),
        ('{ rootServiceName = "front/end" && name != "encode" && duration >= 80ms }', [1, 0]),
        ('{ resource.lockstep.rank = 2 && name = "forward" }', ["step"]),
        ('{ nestedSetParent < 0 && name = "train.step" }', ["step"]),
    ],
)
def test_traceql_over_http(server, sent, query, expected):
    step = step_spans.trace_id(JOB, 0, 20).hex()
    found = get(server, "/tempo/api/search", q=query, limit=20).json()["traces"]
    assert [one["traceID"] for one in found] == [step if which == "step" else sent.ids[which] for which in expected]


def test_tempo_searches_by_tags_as_older_versions_do(server, sent):
    def found(**parameters):
        traces = get(server, "/tempo/api/search", **parameters).json()["traces"]
        return [one["traceID"] for one in traces]

    assert found(tags="service.name=tokenizer tokens=513") == [sent.ids[1]]
    assert found(tags='name="POST /generate"', minDuration="50ms") == [sent.ids[1], sent.ids[0]]
    assert found(tags="service.name=tokenizer error=true") == [sent.ids[0]]
    assert found(tags="model=llama", maxDuration="1ms") == []


# Bad input


@pytest.mark.parametrize(
    "path, part",
    [
        ("/jaeger/api/traces/xyz", "not a trace id"),
        ("/jaeger/api/traces/" + "1" * 33, "not a trace id"),
        ("/jaeger/api/traces/0", "zeros"),
        ("/jaeger/api/traces", "service is missing"),
        ("/jaeger/api/traces?service=a&limit=999999999", "limit"),
        ("/jaeger/api/traces?service=a&limit=-1", "limit"),
        ("/jaeger/api/traces?service=a&start=-5", "start"),
        ("/jaeger/api/traces?service=a&start=99999999999999999999", "start"),
        ("/jaeger/api/traces?service=a&start=10&end=5", "end is before start"),
        ("/jaeger/api/traces?service=a&tags=nonsense", "JSON object"),
        ("/jaeger/api/traces?service=a&minDuration=fast", "not a duration"),
        ("/jaeger/api/traces?service=a&minDuration=-1s", "negative"),
        ("/jaeger/api/dependencies?endTs=-1", "endTs"),
        ("/jaeger/api/operations", "service is missing"),
    ],
)
def test_jaeger_refuses_in_its_envelope(server, path, part):
    answer = harness.request(server.http, "GET", path)
    assert answer.status == 400, answer.text
    (error,) = answer.json()["errors"]
    assert error["code"] == 400 and part in error["msg"] and "\n" not in error["msg"], error


def test_jaeger_says_not_found_in_its_envelope(server):
    answer = harness.request(server.http, "GET", "/jaeger/api/traces/" + "ab" * 16)
    assert answer.status == 404 and answer.json()["errors"] == [{"code": 404, "msg": "trace not found"}]
    assert harness.request(server.http, "GET", "/jaeger/api/nothing").status == 404


@pytest.mark.parametrize(
    "path, part",
    [
        ("/tempo/api/traces/xyz", "not a trace id"),
        ("/tempo/api/v2/traces/" + "g" * 32, "not a trace id"),
        ("/tempo/api/search?limit=100000000", "limit"),
        ("/tempo/api/search?start=-1", "start"),
        ("/tempo/api/search?start=20&end=10", "end is before start"),
        ("/tempo/api/search?spss=0", "spss"),
        ("/tempo/api/search?minDuration=x", "minDuration"),
        ("/tempo/api/search?tags=alone", "key=value"),
        ("/tempo/api/search?q=%7B", "TraceQL"),
        ("/tempo/api/search?q=%7B%20foo%20%3D%201%20%7D", "is not a field"),
        ("/tempo/api/search?q=%7B%7D%20%3E%3E%20%7B%7D", "operators between spans"),
        ("/tempo/api/search?q=%7B%7D%20%7C%20rate()", "metric"),
        ("/tempo/api/search?q=" + "%28" * 5000, "nested deeper"),
        ("/tempo/api/search?q=%7B" + "a" * 9000 + "%7D", "at most 8192"),
        ("/tempo/api/v2/search/tags?scope=event", "scope"),
        ("/tempo/api/v2/search/tag/span./values", "names no attribute"),
    ],
)
def test_tempo_refuses_in_plain_text(server, path, part):
    answer = harness.request(server.http, "GET", path)
    assert answer.status == 400, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert part in answer.text and answer.text.strip().count("\n") == 0, answer.text


def test_tempo_metrics_of_spans_are_not_served_and_say_so(server):
    answer = harness.request(server.http, "GET", "/tempo/api/metrics/query_range?q=%7B%7D%7Crate()")
    assert answer.status == 501 and "not served" in answer.text


def test_unknown_parameters_of_others_clients_are_let_through(server):
    assert harness.request(server.http, "GET", "/jaeger/api/services?whatever=1").status == 200
    assert harness.request(server.http, "GET", "/tempo/api/search?whatever=1&q=%7B%7D").status == 200
