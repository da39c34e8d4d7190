"""The dashboards and rules of deploy/grafana: every query of every panel is asked of a server with a job that has a slow
GPU, and answers something; every metric that they name is one that we document."""

import json
import re
import subprocess

import harness
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

FOLDER = harness.ROOT / "deploy" / "grafana"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
S = 1_000_000_000
JOB = "night-run"
SLOW = 3
# What an agent sends of a node: name, unit, whether it is a counter, attributes of each series.
NODE = [
    ("lockstep_gpu_clock_hertz", "Hz", False, [{"clock": "sm"}], "gpu"),
    ("lockstep_gpu_up", "1", False, [{}], "gpu"),
    ("hw.temperature", "Cel", False, [{"hw.sensor_location": "gpu"}], "gpu"),
    ("hw.power", "W", False, [{}], "gpu"),
    ("lockstep_gpu_throttle_seconds_total", "s", True, [{"reason": "thermal"}], "gpu"),
    ("hw.network.io", "By", True, [{"device": "mlx5_0", "port": "1", "direction": "transmit"}], "host"),
    ("lockstep_host_pressure", "1", False, [{"resource": "cpu", "scope": "some"}], "host"),
    ("lockstep_agent_cpu_seconds_total", "s", True, [{}], "host"),
    ("lockstep_agent_memory_bytes", "By", False, [{}], "host"),
    ("lockstep_agent_series", "{series}", False, [{}], "host"),
    ("lockstep_agent_shed_level", "1", False, [{}], "host"),
    ("lockstep_agent_interval_seconds", "s", False, [{}], "host"),
    ("lockstep_agent_source_seconds", "s", False, [{"source": "gpu"}], "host"),
    ("lockstep_agent_source_failures_total", "{failure}", True, [{"source": "gpu"}], "host"),
]


def queries():
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.name}, {panel['title']}, {target['refId']}", target["expr"]


def rules():
    for name, expr in re.findall(r"- alert: (\w+)\n +expr: (.+)\n", (FOLDER / "rules.yaml").read_text()):
        yield f"rules.yaml, {name}", expr


def node_request(host, gpus, now_ns):
    message = ExportMetricsServiceRequest()
    group = message.resource_metrics.add()
    harness.add_attributes(group.resource.attributes, {"service.name": "lockstep-agent", "host.name": host})
    scope = group.scope_metrics.add()
    for name, unit, is_counter, series, of in NODE:
        metric = scope.metrics.add()
        metric.name, metric.unit = name, unit
        points = metric.sum if is_counter else metric.gauge
        if is_counter:
            points.is_monotonic = True
            points.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        for attributes in series:
            for gpu in gpus if of == "gpu" else [None]:
                for ago in range(60, -1, -10):
                    point = points.data_points.add()
                    point.time_unix_nano = now_ns - ago * S
                    point.as_double = 1000.0 - ago
                    harness.add_attributes(point.attributes, {**attributes, **({"gpu_uuid": gpu} if gpu else {})})
    return message


def play(server):
    """Most of a minute of a job in two seconds, with a slow GPU to the end, and what agents would send of its nodes."""
    done = subprocess.run(
        [str(harness.BIN / "lockstep"), "sim", "--server", f"http://{server.otlp_http}", "--job", JOB, "--ranks", "8"]
        + ["--steps", "200", "--step-ms", "200", "--speed", "20", "--fault", f"slow-gpu:{SLOW}:60:140"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = {}
    for rank in server.get(f"/api/jobs/{JOB}/ranks")["ranks"]:
        hosts.setdefault(rank["host"], []).append(rank["gpu_uuid"])
    for host, gpus in hosts.items():
        assert server.post("metrics", node_request(host, gpus, harness.now_ns())).status == 200


def ask(server, expr):
    for variable, value in {
        "$__rate_interval": "1m",
        "$job": JOB,
        "$rank": str(SLOW),
        "$host": ".+",
    }.items():
        expr = expr.replace(variable, value)
    end = harness.now_ns() / S
    answer = server.get("/prometheus/api/v1/query_range", query=expr, start=end - 90, end=end + 1, step=1)
    return answer["data"]["result"]


def test_every_query_of_every_panel_answers_something(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--rules", FOLDER / "rules.yaml"])
    play(server)
    assert len(DASHBOARDS) == 5
    waiting = dict(queries())
    assert len(waiting) > 30

    def unanswered():
        for name in [name for name, expr in waiting.items() if ask(server, expr)]:
            del waiting[name]
        return not waiting

    try:
        harness.eventually(unanswered, 15, "every panel has data")
    except AssertionError:
        raise AssertionError(f"no data: {waiting}") from None
    # Which rank is slow is a query.
    now = server.get("/prometheus/api/v1/query", query="topk(1, lockstep_rank_own_seconds)")["data"]["result"]
    assert [one["metric"]["rank"] for one in now] == [str(SLOW)]
    verdicts = {one["metric"]["rank"] for one in ask(server, "lockstep_verdict_open")}
    assert verdicts == {str(SLOW)}
    assert ask(server, 'min(lockstep_job_goodput_ratio{job_id="$job"}) > 0.3'), "a slow job, not a standing one"
    groups = server.get("/prometheus/api/v1/rules")["data"]["groups"]
    (ours,) = [group for group in groups if group["file"].endswith("rules.yaml")]
    assert len(ours["rules"]) == len(list(rules())) == 4


def test_every_metric_that_is_named_is_documented():
    pages = [harness.ROOT / "docs" / "guide" / name for name in ("node-metrics.md", "agent-metrics.md", "job-metrics.md")]
    known = set(re.findall(r"`([a-z_]+)[`{]", "".join(page.read_text() for page in pages))) | {"ALERTS"}
    for name, expr in [*queries(), *rules()]:
        for metric in re.findall(r"\b((?:lockstep|hw|system)_[a-z_]+|ALERTS)\b", expr):
            if metric not in {"hw_sensor_location"}:
                assert metric in known, f"{name}: {metric}"
