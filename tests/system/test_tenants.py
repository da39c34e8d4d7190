"""Two tenants on one server: whatever one asks, by any route, of the other it finds no name, no count and no trace in a
cache or an error. Three tenants: INDIGO and SAFFRON have data, VIOLET has none. Whoever asks for something of INDIGO's
gets, word for word, what it gets for a name that nobody has."""

import dataclasses
import json
import os
import re
import secrets
import threading

import grpc
import harness
import hostile
import pytest
import step_spans
import test_uploads

INDIGO, SAFFRON, VIOLET = "indigo", "saffron", "violet"
ABSENT = "cobalt"  # as long as INDIGO, so that texts that are cut are cut at the same place
JSON = {"Content-Type": "application/json"}
WORLD, SLOW, STEPS, STEP_NS = 8, 5, 40, 500_000_000


@dataclasses.dataclass
class Names:
    """What a tenant's things are called."""

    word: str
    trace: str = "0123456789abcdef0123456789abcdef"
    verdict: str = ""
    token: str = "0123456789"
    incident: str = "i-0123456789ab"

    def fill_in(self, text):
        for key in ("word", "trace", "verdict", "token", "incident"):
            text = text.replace(f"<{key}>", getattr(self, key))
        return text


class Tenant:
    """One who has a token for a tenant: everything but making it go through the real listeners."""

    def __init__(self, server, word, secret):
        self.server, self.word, self.secret = server, word, secret
        self.headers = {"Authorization": f"Bearer {secret}"} if secret else {}

    def ask(self, method, path, body=None, headers=None, address=None, timeout=30):
        body = b"{}" if method == "POST" and body is None else body
        more = {**(JSON if method == "POST" else {}), **self.headers, **(headers or {})}
        return harness.request(address or self.server.http, method, path, body, more, timeout)

    def get(self, path):
        answer = self.ask("GET", path)
        assert answer.status == 200, f"{path}: {answer.status} {answer.text}"
        return answer.json()

    def post(self, signal_name, message, content_type=harness.PROTOBUF, headers=None):
        return self.server.post(signal_name, message, content_type, {**self.headers, **(headers or {})})

    def poll(self, host, timeout=30):
        return self.ask(
            "GET", f"/v1/lockstep/commands?host={host}", headers=harness.OURS, address=self.server.otlp_http, timeout=timeout
        )


def identity(word, rank):
    return {**harness.identity(f"{word}-job", rank, WORLD), "host.name": f"{word}-node-{rank}", "lockstep.gpu_uuid": f"GPU-{word}-{rank}"}


def fill(tenant):
    """Something of every kind, all of it with the tenant's word in its name."""
    word = tenant.word
    begin = harness.now_ns() - STEPS * STEP_NS
    for step in range(STEPS):
        message = harness.ExportLogsServiceRequest()
        for rank in range(WORLD):
            own = STEP_NS * (8 if rank == SLOW else 5) // 10
            event = harness.step_event(
                step, STEP_NS, self_ns=own, comm_ns=STEP_NS - own, start_unix_ns=begin + step * STEP_NS
            )
            message.MergeFrom(harness.logs_request(identity(word, rank), [event]))
        taken(tenant.post("logs", message))
    said = {"event_name": f"{word}.event", "body": f"{word} said", "attributes": {f"{word}.attribute": word}}
    taken(tenant.post("logs", harness.logs_request({"service.name": f"{word}-service"}, [said])))

    points = [({f"{word}_label": f"{word}-value"}, harness.now_ns(), 1.5)]
    gauge = harness.gauge_request({"service.name": f"{word}-service", "host.name": f"{word}-node-0"}, f"{word}.metric", points)
    metric = gauge.resource_metrics[0].scope_metrics[0].metrics[0]
    metric.description = f"{word} help"
    exemplar = metric.gauge.data_points[0].exemplars.add()
    exemplar.time_unix_nano, exemplar.as_double = harness.now_ns(), 1.5
    harness.add_attributes(exemplar.filtered_attributes, {f"{word}_exemplar": word})
    taken(tenant.post("metrics", gauge))
    labels = {"__name__": f"{word}_written", "job": f"{word}-exporter", "instance": f"{word}-instance"}
    address, method, path, headers, body = hostile.remote_write(
        hostile.snappy(hostile.series_1(labels, 1, harness.now_ns() // 1_000_000))
    )
    written = tenant.ask(method, path, body, headers)
    assert written.status == 204, written.text

    order = {"job": f"{word}-job", "capture": CAPTURE, "file": "rank-0.json.gz", "bytes": 10}
    upload = test_uploads.store(tenant.server.otlp_http, order, f"{word} profile".encode(), tenant.headers)
    assert upload.status == 200 and upload.json()["key"] == f"{word}/{word}-job/{CAPTURE}/rank-0.json.gz", upload.text

    now = harness.now_ns()
    spans = harness.spans_request({"service.name": f"{word}-service"}, [(f"{word}-span", now - 10**9, now)])
    span = spans.resource_spans[0].scope_spans[0].spans[0]
    harness.add_attributes(span.attributes, {f"{word}.tag": f"{word}-value"})
    with grpc.insecure_channel(tenant.server.otlp_grpc) as channel:  # by gRPC, so that each receiver has been used
        export = channel.unary_unary(
            harness.GRPC_METHODS["spans"],
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=lambda data: data,
        )
        export(spans, timeout=20, metadata=[(k.lower(), v) for k, v in tenant.headers.items()])

    def verdict():
        found = tenant.get(f"/api/jobs/{word}-job/why")["verdicts"]
        return found and found[0]["state"] == "confirmed" and found[0]["id"]

    def incident():
        found = tenant.get(f"/api/incidents?job={word}-job")["incidents"]
        return found and found[0]["id"]

    return Names(
        word,
        span.trace_id.hex(),
        harness.eventually(verdict, 30, "a confirmed verdict"),
        incident=harness.eventually(incident, 30, "an incident"),
    )


def taken(answer):
    assert answer.status == 200, answer.text


# Every route, and how it is asked for a thing by name. "own" routes are asked about what the caller has; the others by
# INDIGO's names. None: a path besides the pattern's own is not needed.
JOB = "/api/jobs/<word>-job"
CAPTURE = "p-0123456789ab"
PROM = "/prometheus/api/v1"
LOKI = "/loki/api/v1"
SELECT = "%7B__name__%3D~%22<word>.*%22%7D"
CALLS = {
    "GET /api/jobs": ["/api/jobs", "/api/jobs?limit=1"],
    "GET /api/jobs/{job}/why": [JOB + "/why"],
    "GET /api/jobs/{job}/cost": [JOB + "/cost"],
    "GET /api/jobs/{job}/mfu": [JOB + "/mfu"],
    "GET /api/jobs/{job}/steps/{step}/perfetto": [JOB + "/steps/5/perfetto", JOB + "/steps/5/perfetto?format=pftrace"],
    "POST /api/jobs/{job}/steps/{step}/detail": [JOB + "/steps/5/detail"],
    "GET /api/jobs/{job}/steps/{step}/timeline": [JOB + "/steps/5/timeline"],
    "GET /api/jobs/{job}/steps/{step}": [JOB + "/steps/5"],
    "GET /api/jobs/{job}/traced": [JOB + "/traced"],
    "GET /api/jobs/{job}/comms": [JOB + "/comms"],
    "GET /api/jobs/{job}/clocks": [JOB + "/clocks"],
    "GET /api/jobs/{job}/slowest": [JOB + "/slowest"],
    "GET /api/jobs/{job}/stacks": [JOB + "/stacks"],
    "POST /api/jobs/{job}/stacks": [JOB + "/stacks?ranks=0"],
    "GET /api/jobs/{job}/profiles": [JOB + "/profiles"],
    "GET /api/jobs/{job}/profiles/{name}": [JOB + "/profiles/p-0123456789ab"],
    "POST /api/jobs/{job}/profiles": [JOB + "/profiles?ranks=0&steps=1"],
    "POST /api/jobs/{job}/auto-profile": [JOB + "/auto-profile?on=0"],
    "GET /api/jobs/{job}/samples": [JOB + "/samples"],
    "POST /api/jobs/{job}/samples": [JOB + "/samples?ranks=0"],
    "GET /api/jobs/{job}/steps": [JOB + "/steps"],
    "GET /api/jobs/{job}/ranks": [JOB + "/ranks"],
    "GET /api/jobs/{job}/ranks/{rank}": [JOB + "/ranks/0"],
    "GET /api/jobs/{job}": [JOB],
    "GET /api/verdicts": ["/api/verdicts", "/api/verdicts?state=confirmed"],
    "POST /api/verdicts/{name}/feedback": [("/api/verdicts/<verdict>/feedback", '{"right": true}')],
    "GET /api/verdicts/{name}": ["/api/verdicts/<verdict>"],
    "GET /api/warnings": ["/api/warnings", "/api/warnings?job=<word>-job"],
    "GET /api/services/{name}": ["/api/services/<word>-service"],
    "GET /api/services": ["/api/services"],
    "GET /api/agents": ["/api/agents"],
    "GET /api/fleet": ["/api/fleet"],
    "GET /api/overhead": ["/api/overhead"],
    "GET /api/nodes": ["/api/nodes", "/api/nodes?host=<word>"],
    "GET /api/nodes/{name}": ["/api/nodes/<word>-node-0"],
    "GET /api/nodes/{name}/series": ["/api/nodes/<word>-node-0/series"],
    "GET /api/gpus/{name}": ["/api/gpus/GPU-<word>-0"],
    "GET /api/gpus/{name}/series": ["/api/gpus/GPU-<word>-0/series"],
    "GET /api/cardinality": ["/api/cardinality"],
    "GET /api/metrics": ["/api/metrics", "/api/metrics?name=<word>.metric", "/api/metrics?name=<word>_metric"],
    "GET /api/fabric/flows": ["/api/fabric/flows"],
    "GET /api/fabric": ["/api/fabric"],
    "GET /api/fabric/path": ["/api/fabric/path?job=<word>-job&a=0&b=1", "/api/fabric/path?a=<word>-host:gpu0&b=<word>-host:gpu1"],
    "GET /api/fabric/affected": ["/api/fabric/affected?component=host:<word>-host"],
    "GET /api/fabric/changes": ["/api/fabric/changes?component=job:<word>-job", "/api/fabric/changes?component=host:<word>-host&what=driver"],
    "GET /api/graph": ["/api/graph?focus=job:<word>-job&depth=2", "/api/graph?focus=host:<word>-host"],
    "GET /api/actions": ["/api/actions"],
    "GET /api/sle": ["/api/sle", "/api/sle?job=<word>-job", "/api/sle?host=<word>-host"],
    "GET /api/sle/{name}": ["/api/sle/progress?job=<word>-job", "/api/sle/gpu?gpu=<word>-gpu"],
    "GET /api/alerts": ["/api/alerts", "/api/alerts?state=all"],
    "GET /api/alerts/builtin": ["/api/alerts/builtin"],
    "GET /api/incidents": ["/api/incidents", "/api/incidents?state=all&job=<word>-job", "/api/incidents?component=host:<word>-host"],
    "GET /api/incidents/{name}": ["/api/incidents/<incident>"],
    "GET /api/incidents/{name}/markdown": ["/api/incidents/<incident>/markdown"],
    "POST /api/incidents/{name}/acknowledge": ["/api/incidents/<incident>/acknowledge"],
    "POST /api/incidents/{name}/resolve": ["/api/incidents/<incident>/resolve"],
    "POST /api/incidents/{name}/reopen": ["/api/incidents/<incident>/reopen"],
    "POST /api/incidents/{name}/feedback": [("/api/incidents/<incident>/feedback", '{"right": true}')],
    "GET /api/silences": ["/api/silences"],
    "POST /api/silences": [("/api/silences", '{"matchers": {"job": "<word>-job"}, "minutes": 1, "comment": "x"}')],
    "POST /api/silences/{name}/end": ["/api/silences/<word>-silence/end"],
    "GET /api/logs": ["/api/logs", "/api/logs?service=<word>-service", "/api/logs?event=<word>.event"],
    "GET /api/spans": ["/api/spans", "/api/spans?service=<word>-service", "/api/spans?trace_id=<trace>"],
    "GET /jaeger/api/services": ["/jaeger/api/services"],
    "GET /jaeger/api/services/{name}/operations": ["/jaeger/api/services/<word>-service/operations"],
    "GET /jaeger/api/operations": ["/jaeger/api/operations?service=<word>-service"],
    "GET /jaeger/api/traces": [
        "/jaeger/api/traces?service=<word>-service",
        "/jaeger/api/traces?service=<word>-service&operation=<word>-span&tags=%7B%22<word>.tag%22%3A%22<word>-value%22%7D",
    ],
    "GET /api/jobs/{job}/profiles/{capture}/files/{file}": [JOB + f"/profiles/{CAPTURE}/files/rank-0.json.gz"],
    "GET /api/jobs/{job}/profiles/{capture}/files": [JOB + f"/profiles/{CAPTURE}/files"],
    "GET /api/jobs/{job}/profiles/{capture}/summary": [JOB + f"/profiles/{CAPTURE}/summary"],
    "GET /api/jobs/{job}/profiles/{capture}/timeline": [JOB + f"/profiles/{CAPTURE}/timeline"],
    "GET /api/jobs/{job}/profiles/{capture}/perfetto": [JOB + f"/profiles/{CAPTURE}/perfetto"],
    "POST /api/jobs/{job}/profiles/{capture}/remove": [JOB + f"/profiles/{CAPTURE}/remove"],
    "GET /api/jobs/{job}/coverage": ["/api/jobs/<word>-job/coverage"],
    "GET /api/jobs/{job}/evidence": [
        "/api/jobs/<word>-job/evidence?of=step_ms&steps=0-9",
        "/api/jobs/<word>-job/evidence?of=quiet_s",
    ],
    "GET /api/signals": [
        "/api/signals",
        "/api/signals?signal=sm_clock&host=<word>-host&gpu=<word>-gpu",
        "/api/signals?signal=cpu_pressure&host=<word>-host",
    ],
    "GET /jaeger/api/traces/{name}": ["/jaeger/api/traces/<trace>"],
    "GET /jaeger/api/dependencies": ["/jaeger/api/dependencies?endTs=1&lookback=1"],
    "GET /jaeger/api/v3/services": ["/jaeger/api/v3/services"],
    "GET /jaeger/api/v3/operations": ["/jaeger/api/v3/operations?service=<word>-service"],
    "GET /jaeger/api/v3/traces": [
        "/jaeger/api/v3/traces?query.service_name=<word>-service"
        "&query.start_time_min=2020-01-01T00:00:00Z&query.start_time_max=2099-01-01T00:00:00Z"
    ],
    "GET /jaeger/api/v3/traces/{name}": ["/jaeger/api/v3/traces/<trace>"],
    "GET /tempo/api/echo": ["/tempo/api/echo"],
    "GET /tempo/ready": ["/tempo/ready"],
    "GET /tempo/api/status/buildinfo": ["/tempo/api/status/buildinfo"],
    "GET /tempo/api/traces/{name}": ["/tempo/api/traces/<trace>"],
    "GET /tempo/api/v2/traces/{name}": ["/tempo/api/v2/traces/<trace>"],
    "GET /tempo/api/search": [
        "/tempo/api/search",
        "/tempo/api/search?q=%7Bresource.service.name%3D%22<word>-service%22%7D",
        "/tempo/api/search?q=%7Bname%3D~%22<word>.*%22%7D",
        "/tempo/api/search?tags=<word>.tag%3D<word>-value",
    ],
    "GET /tempo/api/search/tags": ["/tempo/api/search/tags"],
    "GET /tempo/api/v2/search/tags": ["/tempo/api/v2/search/tags", "/tempo/api/v2/search/tags?scope=span"],
    "GET /tempo/api/search/tag/{name}/values": [
        "/tempo/api/search/tag/<word>.tag/values",
        "/tempo/api/search/tag/service.name/values",
    ],
    "GET /tempo/api/v2/search/tag/{name}/values": [
        "/tempo/api/v2/search/tag/span.<word>.tag/values",
        "/tempo/api/v2/search/tag/resource.service.name/values",
        "/tempo/api/v2/search/tag/name/values",
    ],
    "GET /tempo/api/metrics/query_range": ["/tempo/api/metrics/query_range?q=%7B%7D%7Crate()"],
    "GET /tempo/api/metrics/query": ["/tempo/api/metrics/query?q=%7B%7D%7Crate()"],
    "GET /prometheus/api/v1/query": [
        PROM + "/query?query=<word>_metric",
        PROM + f"/query?query={SELECT}",
        PROM + f"/query?query=count({SELECT})",
        PROM + "/query?query=count(%7B__name__%3D~%22.%2B%22%7D)",
        PROM + "/query?query=<word>_metric%20%2B%20on(<word>_label)",
    ],
    "POST /prometheus/api/v1/query": [(PROM + "/query", f"query={SELECT}")],
    "GET /prometheus/api/v1/query_range": [PROM + f"/query_range?query={SELECT}&start=<from>&end=<to>&step=60"],
    "POST /prometheus/api/v1/query_range": [(PROM + "/query_range", f"query={SELECT}&start=<from>&end=<to>&step=60")],
    "GET /prometheus/api/v1/query_exemplars": [PROM + f"/query_exemplars?query={SELECT}&start=<from>&end=<to>"],
    "POST /prometheus/api/v1/query_exemplars": [(PROM + "/query_exemplars", f"query={SELECT}&start=<from>&end=<to>")],
    "GET /prometheus/api/v1/format_query": [PROM + "/format_query?query=<word>_metric"],
    "POST /prometheus/api/v1/format_query": [(PROM + "/format_query", "query=<word>_metric")],
    "GET /prometheus/api/v1/parse_query": [PROM + "/parse_query?query=<word>_metric"],
    "POST /prometheus/api/v1/parse_query": [(PROM + "/parse_query", "query=<word>_metric")],
    "GET /prometheus/api/v1/series": [PROM + f"/series?match[]={SELECT}"],
    "POST /prometheus/api/v1/series": [(PROM + "/series", f"match[]={SELECT}")],
    "GET /prometheus/api/v1/labels": [PROM + "/labels", PROM + f"/labels?match[]={SELECT}"],
    "POST /prometheus/api/v1/labels": [(PROM + "/labels", f"match[]={SELECT}")],
    "GET /prometheus/api/v1/label/{name}/values": [
        PROM + "/label/__name__/values",
        PROM + "/label/<word>_label/values",
        PROM + "/label/job/values",
    ],
    "GET /prometheus/api/v1/metadata": [PROM + "/metadata", PROM + "/metadata?metric=<word>_metric"],
    "GET /prometheus/api/v1/rules": [PROM + "/rules"],
    "GET /prometheus/api/v1/alerts": [PROM + "/alerts"],
    "GET /prometheus/api/v1/targets": [PROM + "/targets"],
    "GET /prometheus/api/v1/scrape_pools": [PROM + "/scrape_pools"],
    "GET /prometheus/api/v1/alertmanagers": [PROM + "/alertmanagers"],
    "POST /prometheus/api/v1/admin/tsdb/delete_series": [(PROM + f"/admin/tsdb/delete_series?match[]={SELECT}", "")],
    "POST /prometheus/api/v1/admin/tsdb/clean_tombstones": [PROM + "/admin/tsdb/clean_tombstones"],
    "POST /prometheus/api/v1/admin/tsdb/snapshot": [PROM + "/admin/tsdb/snapshot"],
    "GET /prometheus/api/v1/status/buildinfo": [PROM + "/status/buildinfo"],
    "GET /prometheus/api/v1/status/runtimeinfo": [PROM + "/status/runtimeinfo"],
    "GET /prometheus/api/v1/status/flags": [PROM + "/status/flags"],
    "GET /prometheus/api/v1/status/config": [PROM + "/status/config"],
    "GET /prometheus/api/v1/status/tsdb": [PROM + "/status/tsdb"],
    "GET /loki/api/v1/query_range": [
        LOKI + "/query_range?query=%7Bjob_id%3D~%22<word>.*%22%7D&start=1",
        LOKI + "/query_range?query=%7B%7D&start=1",
    ],
    "POST /loki/api/v1/query_range": [(LOKI + "/query_range", "query=%7B%7D&start=1")],
    "GET /loki/api/v1/query": [LOKI + "/query?query=sum%20by%20(host)%20(count_over_time(%7B%7D%5B1d%5D))"],
    "POST /loki/api/v1/query": [(LOKI + "/query", "query=sum%20by%20(job_id)%20(count_over_time(%7B%7D%5B1d%5D))")],
    "GET /loki/api/v1/labels": [LOKI + "/labels"],
    "POST /loki/api/v1/labels": [(LOKI + "/labels", "")],
    "GET /loki/api/v1/label/{name}/values": [LOKI + "/label/job_id/values", LOKI + "/label/service_name/values?start=1"],
    "POST /loki/api/v1/label/{name}/values": [(LOKI + "/label/host/values", "")],
    "GET /loki/api/v1/series": [LOKI + "/series?start=1", LOKI + "/series?match[]=%7Bjob_id%3D%22<word>-job%22%7D"],
    "POST /loki/api/v1/series": [(LOKI + "/series", "match[]=%7B%7D")],
    "GET /loki/api/v1/index/stats": [LOKI + "/index/stats?query=%7Bjob_id%3D%22<word>-job%22%7D"],
    "POST /loki/api/v1/index/stats": [(LOKI + "/index/stats", "query=%7B%7D")],
    "GET /loki/api/v1/index/volume": [LOKI + "/index/volume?query=%7B%7D"],
    "POST /loki/api/v1/index/volume": [(LOKI + "/index/volume", "query=%7B%7D&targetLabels=job_id")],
    "GET /loki/api/v1/format_query": [LOKI + "/format_query?query=%7B%7D"],
    "POST /loki/api/v1/format_query": [(LOKI + "/format_query", "query=%7B%7D")],
    "GET /loki/api/v1/status/buildinfo": [LOKI + "/status/buildinfo"],
    "GET /api/tokens": ["/api/tokens"],
    "POST /api/tokens": [("/api/tokens", '{"roles": ["read"], "tenants": ["<word>"], "name": "mine"}')],
    "POST /api/tokens/{name}/revoke": ["/api/tokens/<token>/revoke"],
    "GET /api/session": ["/api/session"],
    "POST /api/session": [("/api/session", '{"token": "lst_<word>"}')],
    "GET /api/session/oidc": ["/api/session/oidc?return=/jobs/<word>"],
    "GET /api/session/oidc/callback": ["/api/session/oidc/callback?code=<word>&state=<word>"],
    "POST /api/session/end": ["/api/session/end"],
    "GET /api/audit": ["/api/audit", "/api/audit?who=<word>"],
    "POST /mcp": [
        ("/mcp", '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "%s", "arguments": %s}}' % call)
        for call in (
            ("jobs", "{}"), ("why", '{"job": "<word>-job"}'), ("step", '{"job": "<word>-job"}'), ("node", '{"host": "<word>-node-0"}'),
            ("query", '{"query": "{__name__=~\\".+\\"}"}'), ("profile", '{"job": "<word>-job"}'), ("incidents", "{}"),
            ("evidence", '{"query": "/api/logs"}'), ("order_profile", '{"job": "<word>-job"}'),
        )
    ],
    "GET /api/owners": ["/api/owners"],
    "POST /api/owners/takeover": [
        ("/api/owners/takeover", '{"kind": "host", "name": "<word>-node-0", "owner": "somebody"}'),
        ("/api/owners/takeover", '{"kind": "job", "name": "<word>-job", "owner": "somebody"}'),
    ],
    "POST /api/backup": ["/api/backup"],
    "GET /api/backup/file": ["/api/backup/file?id=<token>&name=tenants/<word>/state.sqlite"],
    "POST /api/backup/release": ["/api/backup/release?id=<token>"],
    "GET /prometheus/federate": [f"/prometheus/federate?match[]={SELECT}", "/prometheus/federate"],
    "GET /federate": ["/federate?match[]=%7B__name__%3D~%22.%2B%22%7D"],
    "GET /metrics": ["/metrics"],
    "GET /healthz": ["/healthz"],
    "GET /readyz": ["/readyz", "/readyz?format=json"],
}
# What changes by itself between two calls: looked at for names alone.
OF_THE_MOMENT = ("GET /metrics", "/profiles", "/admin/tsdb/snapshot", "/api/audit", "/api/tokens", "/api/backup")
# What takes something away from whoever has it.
HARMFUL = ("/revoke", "delete_series", "clean_tombstones", "POST /api/session", "takeover", "POST /api/tokens", "/api/backup", "/remove")
PAGES = ("/", "/index.html", "/jobs/<word>-job", "/no-such-page", "/api/no-such-path/<word>")


def routes():
    """Every row of api/routes.cc, as "METHOD pattern"."""
    text = (harness.ROOT / "src/api/routes.cc").read_text()
    table = text[text.index("kRoutes[] = {") : text.index("\n};") + 1]
    rows = re.findall(r'\n    \{"(/[^"]*)"(.*?)\}(?=,\n)', table, re.S)
    assert len(rows) == len(re.findall(r'^    \{"/', table, re.M))
    return {("POST " if '"POST"' in rest else "GET ") + pattern for pattern, rest in rows}


def calls():
    for route in sorted(routes()):
        for call in CALLS[route]:
            path, body = call if isinstance(call, tuple) else (call, None)
            yield route.split()[0], path, body
    for page in PAGES:
        yield "GET", page, None


def settled(text):
    """Without the time of day."""
    text = re.sub(r'"execTime":[\d.e-]+', "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?", "TIME", text)
    return re.sub(r"\d{9,}(\.\d+)?", "TIME", text)


def answers(tenant, names, harmful=True):
    """What the tenant is told when it asks every route for these names."""
    now = harness.now_ns() // 10**9
    told = {}
    for method, path, body in calls():
        if not harmful and any(part in f"{method} {path}" for part in HARMFUL):
            continue
        real = names.fill_in(path).replace("<from>", str(now - 600)).replace("<to>", str(now))
        data = None if body is None else names.fill_in(body).replace("<from>", str(now - 600)).replace("<to>", str(now))
        headers = harness.OURS if method == "POST" else {}
        if real == "/mcp":
            headers = {**headers, "Content-Type": "application/json"}
        if method == "POST" and real.startswith(("/prometheus/api/v1", LOKI)) and "/admin/" not in real:
            headers = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
        answer = tenant.ask(method, real, data.encode() if data is not None else None, headers)
        told[f"{method} {path} {body or ''}"] = (answer.status, answer.body.decode("latin-1"), str(answer.headers))
    return told


class World:
    def __init__(self, folder):
        secret = secrets.token_urlsafe(32)
        admin_file = folder / "admin"
        admin_file.touch(mode=0o600)
        admin_file.write_text(secret + "\n")
        self.server = harness.Server(folder / "data", more=["--admin-api", "--admin-token-file", admin_file])
        self.operator = Tenant(self.server, "default", secret)
        self.violet = self.tenant(VIOLET)
        self.before = answers(self.violet, Names(ABSENT, verdict=f"{ABSENT}.0"))
        self.metrics_before = self.quiet_metrics(self.violet)
        self.indigo, self.saffron = self.tenant(INDIGO), self.tenant(SAFFRON)
        self.indigo_names = fill(self.indigo)
        fill(self.saffron)
        self.metrics_after = self.quiet_metrics(self.violet)
        step_spans.send_step(self.indigo, f"{INDIGO}-traced", 2, 1, harness.now_ns() - 10**9)
        tokens = self.operator.get("/api/tokens")["tokens"]
        self.indigo_names.token = next(one["id"] for one in tokens if INDIGO in json.dumps(one))
        self.absent_names = Names(
            ABSENT,
            trace=os.urandom(16).hex(),
            verdict=self.indigo_names.verdict.replace(INDIGO, ABSENT),
            token=secrets.token_hex(len(self.indigo_names.token))[: len(self.indigo_names.token)],
        )

    def tenant(self, word):
        wanted = {"roles": ["admin", "ingest"], "tenants": [word], "name": f"{word} people"}
        made = self.operator.ask("POST", "/api/tokens", json.dumps(wanted).encode())
        assert made.status == 200, made.text
        one = Tenant(self.server, word, made.json()["token"])
        harness.eventually(lambda: one.ask("GET", "/api/jobs").status == 200, 20, f"{word} is opened")
        return one

    @staticmethod
    def quiet_metrics(tenant):
        """Its own page, once it stands still."""

        def read():
            return [line for line in tenant.ask("GET", "/metrics").text.splitlines() if not line.startswith(("#", "lockstep_metric_log_bytes_total"))]  # its log begins by itself

        def same():
            seen = read()
            threading.Event().wait(0.6)
            return seen == read() and seen

        return harness.eventually(same, 15, "a page of metrics that stands still")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    one = World(tmp_path_factory.mktemp("tenants"))
    yield one
    assert one.server.running(), one.server.log()
    one.server.stop()


def test_the_walk_knows_every_route():
    unknown = routes() - set(CALLS)
    assert not unknown, f"say in CALLS how these are asked for another tenant's things: {sorted(unknown)}"


@pytest.mark.limit(240)
def test_whoever_has_the_data_sees_it(world):
    told = answers(world.indigo, world.indigo_names, harmful=False)
    for part in (
        "GET /api/jobs ", "GET /api/jobs/<word>-job ", "GET /api/verdicts ", "GET /api/verdicts/<verdict> ",
        "GET /api/incidents ", "GET /api/incidents/<incident> ", "GET /api/agents ", "GET /api/nodes ", "GET /api/nodes/<word>-node-0 ", "GET /api/gpus/GPU-<word>-0 ", "GET /api/logs ", "GET /api/spans?trace_id=<trace> ", "GET /api/services ",
        "GET /jaeger/api/traces/<trace> ", "GET /tempo/api/search/tags ", f"GET {PROM}/query?query={SELECT} ",
        f"GET {PROM}/label/__name__/values ", f"GET {PROM}/metadata ", "GET /api/cardinality ", f"GET {PROM}/alerts ",
        f"GET /prometheus/federate?match[]={SELECT} ", f"GET {JOB}/profiles/{CAPTURE}/files/rank-0.json.gz ",
        f"GET {LOKI}/query_range?query=%7B%7D&start=1 ", f"GET {LOKI}/label/service_name/values?start=1 ", f"GET {LOKI}/series?start=1 ",
    ):  # fmt: skip
        status, body, _ = told[part]
        assert status == 200 and INDIGO in body, f"{part}: {status} {body[:500]}"
        assert SAFFRON not in body and VIOLET not in body, f"{part}: {body[:2000]}"


@pytest.mark.limit(240)
def test_no_answer_has_a_word_of_another(world):
    # Before anybody has asked for another's names: what a tenant asked for is in its own audit log.
    answers(world.indigo, world.indigo_names, harmful=False)
    # A token of the default tenant is not the operator's.
    for tenant in (world.saffron, world.violet, world.tenant("default")):
        for call, (status, body, headers) in answers(tenant, world.absent_names).items():
            assert INDIGO not in body and INDIGO not in headers, f"{tenant.word} {call}: {status} {body[:2000]}"
    for call, (status, body, headers) in answers(world.operator, world.absent_names).items():
        if "GET /metrics" in call or "/tokens" in call or "/audit" in call or "/owners" in call or "/backup" in call:
            continue  # the operator's: totals of tenants, and who may do what
        assert INDIGO not in body and INDIGO not in headers, f"the operator {call}: {status} {body[:2000]}"


@pytest.mark.limit(240)
def test_anothers_name_is_answered_like_one_that_nobody_has(world):
    for tenant in (world.saffron, world.violet):
        of_indigo = answers(tenant, world.indigo_names)  # which INDIGO has asked before: no cache has its answer
        of_nobody = answers(tenant, world.absent_names)
        for call, (status, body, headers) in of_indigo.items():
            for mine, theirs in zip(dataclasses.astuple(world.indigo_names), dataclasses.astuple(world.absent_names)):
                body, headers = body.replace(mine, theirs), headers.replace(mine, theirs)
            if any(part in call for part in OF_THE_MOMENT):
                assert status == of_nobody[call][0], call
                continue
            assert status == of_nobody[call][0], f"{tenant.word} {call}: {status} {body[:500]}"
            # Saffron's own counts move while it asks; what it is told of another's things does not.
            if tenant is world.violet or "<" in call:
                assert settled(body) == settled(of_nobody[call][1]), f"{tenant.word} {call}"
    assert len(world.indigo.get(f"{PROM}/series?match[]={SELECT.replace('<word>', INDIGO)}")["data"]) >= 2, "deleted by others"


@pytest.mark.limit(240)
def test_who_has_nothing_sees_the_same_whether_others_have_something_or_not(world):
    assert world.metrics_after == world.metrics_before
    after = answers(world.violet, Names(ABSENT, verdict=f"{ABSENT}.0"))
    for call, (status, body, _) in world.before.items():
        if any(part in call for part in OF_THE_MOMENT):
            continue
        assert (status, settled(body)) == (after[call][0], settled(after[call][1])), call
    names = {"lockstep_metric_series", "lockstep_log_bytes", "lockstep_store_rows", "lockstep_commands"}
    page = harness.Counters(world.violet.ask("GET", "/metrics").text)
    assert all(value == 0 for name, _, value in page.samples if name in names)
    assert not [name for name, labels, _ in page.samples if "tenant" in labels]
    assert page.total("lockstep_memory_resident_bytes") == 0 and page.total("lockstep_http_connections") == 0


def test_commands_reach_the_agents_of_their_tenant_alone(world):
    heard = {}

    def wait(tenant):
        try:
            heard[tenant.word] = tenant.poll(f"{INDIGO}-node-0", timeout=6)
        except TimeoutError:
            heard[tenant.word] = None  # nothing came

    waiting = [threading.Thread(target=wait, args=[tenant]) for tenant in (world.saffron, world.violet)]
    for thread in waiting:
        thread.start()
    asked = world.indigo.ask("POST", f"/api/jobs/{INDIGO}-job/steps/7/detail", headers=harness.OURS)
    assert asked.status in (200, 202), asked.text
    for thread in waiting:
        thread.join()
    assert heard == {SAFFRON: None, VIOLET: None}
    assert f"detail {INDIGO}-job" in world.indigo.poll(f"{INDIGO}-node-0").text


def test_a_token_opens_no_other_tenant(world):
    for path in ("/api/jobs", f"/api/jobs/{INDIGO}-job"):
        told = [world.saffron.ask("GET", path, headers={"X-Scope-OrgID": name}) for name in (INDIGO, ABSENT)]
        assert [one.status for one in told] == [403, 403]
        assert told[0].text == told[1].text
    sent = world.saffron.post("logs", harness.logs_request({"service.name": "x"}, [{}]), headers={"X-Scope-OrgID": INDIGO})
    assert sent.status == 403, sent.text


def test_the_audit_log_does_not_say_how_much_others_do(world):
    rows = world.saffron.get("/api/audit")["audit"]
    assert rows and all(row["tenant"] == SAFFRON and "number" not in row for row in rows)
    assert all("number" in row for row in world.operator.get("/api/audit")["audit"])


def test_the_operator_sees_how_much_each_tenant_has(world):
    page = harness.Counters(world.operator.ask("GET", "/metrics").text)
    assert page.total("lockstep_tenants", state="open") == 3
    assert page.total("lockstep_tenant_series", tenant=INDIGO) > 0
    assert page.total("lockstep_tenant_log_bytes", tenant=INDIGO) > page.total("lockstep_tenant_log_bytes", tenant=VIOLET)


@pytest.mark.limit(120)
def test_all_tenants_are_there_after_a_crash(world, tmp_path_factory):
    world.server.kill()
    folder = world.server.log_path.parent
    world.server = harness.Server(folder / "data", more=["--admin-api", "--admin-token-file", folder / "admin"])
    for tenant in (world.indigo, world.saffron, world.violet, world.operator):
        tenant.server = world.server
        harness.eventually(lambda one=tenant: one.ask("GET", "/api/jobs").status == 200, 20, f"{tenant.word} is open")
    assert INDIGO in world.indigo.ask("GET", "/api/jobs").text
    assert INDIGO not in world.saffron.ask("GET", "/api/jobs").text
    assert world.indigo.get(f"/api/verdicts/{world.indigo_names.verdict}")["id"] == world.indigo_names.verdict
