"""Metrics through the real server: scraped, by OTLP, asked for as Grafana does, and still there after a kill."""

import concurrent.futures
import contextlib
import os
import shutil
import signal
import time

import harness
import peers
import pytest

PAGE = """# TYPE requests_total counter
requests_total{code="200"} %d
# TYPE queue_depth gauge
queue_depth 3
"""


@pytest.fixture
def exporter():
    """An exporter whose counter rises with every look."""
    with harness.exporter(lambda look: PAGE % (100 * look)) as address:
        yield address


def ask(server, path, **parameters):
    answer = server.get("/prometheus/api/v1/" + path, **parameters)
    assert answer["status"] == "success"
    return answer["data"]


def value_of(server, query):
    result = ask(server, "query", query=query)["result"]
    return float(result[0]["value"][1]) if result else None


def test_scraped_series_answer_as_grafana_asks_and_survive_a_kill(start, tmp_path, exporter):
    scrape = tmp_path / "scrape.yaml"
    scrape.write_text(
        "scrape_configs:\n"
        "- job_name: web\n"
        "  scrape_interval: 1s\n"
        "  scrape_timeout: 1s\n"
        f'  static_configs: [{{targets: ["{exporter}"], labels: {{cluster: a}}}}]\n'
    )
    server = start(harness.Server, tmp_path / "data", more=["--scrape", scrape])
    harness.eventually(lambda: (value_of(server, 'requests_total{cluster="a"}') or 0) >= 300, 20, "three scrapes")
    assert value_of(server, 'up{job="web"}') == 1
    assert ask(server, "status/buildinfo")["version"]
    assert "queue_depth" in ask(server, "label/__name__/values")
    assert {"code", "instance", "job", "cluster"} <= set(ask(server, "labels", **{"match[]": "requests_total"}))
    assert ask(server, "metadata", metric="requests_total")["requests_total"][0]["type"] == "counter"
    now = harness.now_ns() / 1e9
    (line,) = ask(server, "query_range", query="sum by (job) (rate(requests_total[5s]))", start=now - 2, end=now, step=1)[
        "result"
    ]
    assert line["metric"] == {"job": "web"} and float(line["values"][-1][1]) > 0

    form = harness.request(
        server.http,
        "POST",
        "/prometheus/api/v1/query",
        b"query=queue_depth%20*%202",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert form.status == 200 and form.json()["data"]["result"][0]["value"][1] == "6"
    wrong = harness.request(server.http, "GET", "/prometheus/api/v1/query?query=sum(")
    assert wrong.status == 400 and wrong.json()["errorType"] == "bad_data"

    before = value_of(server, "requests_total")
    server.kill()
    again = start(harness.Server, tmp_path / "data")
    assert value_of(again, "requests_total") >= before, "what was answered once is there after a kill"
    assert ask(again, "metadata", metric="requests_total")["requests_total"][0]["type"] == "counter"


def test_what_was_heard_of_a_node_is_there_after_a_kill_though_the_log_has_no_metrics(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    now = harness.now_ns()
    agent = {"service.name": "lockstep-agent", "host.name": "node-1", "lockstep.gpu_uuid": "GPU-1"}
    for ago in range(60, 0, -5):
        at = now - ago * 1_000_000_000
        hertz = 1.9e9 if ago > 30 else 1.2e9
        driver = {"driver": "570.1" if ago > 30 else "575.2", "vendor": "nvidia"}
        for name, labels, value in (("clock_hertz", {"clock": "sm"}, hertz), ("info", driver, 1.0)):
            sent = server.post("metrics", harness.gauge_request(agent, f"lockstep_gpu_{name}", [(labels, at, value)]))
            assert sent.status == 200
    clock = {"signal": "sm_clock", "host": "node-1", "gpu": "GPU-1", "from": now - 25 * 10**9, "to": now}
    before, changes = server.get("/api/signals", **clock), server.get("/api/fabric/changes")["changes"]
    assert before["value"] == pytest.approx(1.2, rel=0.01)
    assert [(one["before"], one["after"]) for one in changes] == [("570.1", "575.2")]
    server.kill()
    assert sum(file.stat().st_size for file in (tmp_path / "data" / "log").glob("*.log")) == 0
    again = start(harness.Server, tmp_path / "data")
    assert again.get("/api/signals", **clock) == before
    told = again.get("/api/fabric/changes")["changes"]
    assert [(one["before"], one["after"]) for one in told] == [(one["before"], one["after"]) for one in changes]
    assert again.get("/api/agents")["total"] == 1


def test_labels_that_would_make_a_series_of_every_step_are_refused_by_name(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    now = harness.now_ns()
    answer = server.post(
        "metrics",
        harness.gauge_request(
            {"service.name": "trainer"}, "loss", [({"rank": "0"}, now, 1.0), ({"rank": "0", "step": "7"}, now, 2.0)]
        ),
    )
    assert answer.status == 200 and b"step" in answer.body
    assert [one["metric"].get("step") for one in ask(server, "query", query="loss_ratio")["result"]] == [None]
    report = server.get("/api/cardinality")
    assert {"name": "loss_ratio", "series": 1} in report["metrics"], "not one for each step"
    assert report["refused_samples"]["label_forbidden"] == 1


def test_series_are_deleted_and_copied_where_the_server_allows_it(start, tmp_path):
    closed = start(harness.Server, tmp_path / "closed")
    path = "/prometheus/api/v1/admin/tsdb/"
    assert harness.request(closed.http, "POST", path + "snapshot", headers=harness.OURS).status == 503

    server = start(harness.Server, tmp_path / "data", more=["--admin-api"])
    now = harness.now_ns()
    for name in ("kept", "wrong"):
        points = [({"rank": "0"}, now, 1.0)]
        assert server.post("metrics", harness.gauge_request({"service.name": "trainer"}, name, points)).status == 200
    form = {"Content-Type": "application/x-www-form-urlencoded", **harness.OURS}
    gone = harness.request(server.http, "POST", path + "delete_series", b"match[]=wrong_ratio", form)
    assert gone.status == 204, gone.text
    assert ask(server, "query", query="wrong_ratio")["result"] == []
    assert harness.request(server.http, "POST", path + "clean_tombstones", headers=harness.OURS).status == 204
    made = harness.request(server.http, "POST", path + "snapshot", headers=harness.OURS)
    assert made.status == 200, made.text
    snapshot = tmp_path / "data" / "metrics" / "snapshots" / made.json()["data"]["name"]
    (tmp_path / "restored").mkdir()
    shutil.copytree(snapshot, tmp_path / "restored" / "metrics")
    restored = start(harness.Server, tmp_path / "restored")
    assert len(ask(restored, "query", query="kept_ratio", time=now / 1e9 + 1)["result"]) == 1
    assert ask(restored, "query", query="wrong_ratio", time=now / 1e9 + 1)["result"] == []


def test_a_scrape_file_that_is_wrong_is_said_with_its_line(tmp_path):
    scrape = tmp_path / "scrape.yaml"
    scrape.write_text("scrape_configs:\n- job_name: web\n  kubernetes_sd_configs: []\n")
    with pytest.raises(RuntimeError) as failed:
        harness.Server(tmp_path / "data", more=["--scrape", scrape])
    assert "kubernetes_sd_configs" in str(failed.value) and "line 3" in str(failed.value)


def test_a_scrape_file_is_read_again_at_sighup(start, tmp_path, exporter):
    scrape = tmp_path / "scrape.yaml"
    one = f"{{job_name: web, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{{targets: ['{exporter}']}}]}}"
    scrape.write_text("scrape_configs: []\n")
    server = start(harness.Server, tmp_path / "data", more=["--scrape", scrape])
    scrape.write_text(f"scrape_configs: [{one}]\n")
    server.process.send_signal(signal.SIGHUP)
    harness.eventually(lambda: value_of(server, "queue_depth") == 3, 20, "a scrape")
    scrape.write_text("scrape_configs: 7\n")
    server.process.send_signal(signal.SIGHUP)
    harness.eventually(lambda: "line 1: scrape_configs must be a list; what was scraped before still is" in server.log(), 20, "a line")
    # A scrape is told as done once its samples are stored, so a moment after they can be read.
    harness.eventually(lambda: [target["health"] for target in ask(server, "targets")["activeTargets"]] == ["up"], 20, "up")
    scrape.write_text("scrape_configs: []\n")
    server.process.send_signal(signal.SIGHUP)
    harness.eventually(lambda: value_of(server, "queue_depth") is None, 20, "it is stale")
    assert ask(server, "targets")["activeTargets"] == []
    assert server.stop() == 0


def test_the_api_answers_while_what_is_stored_is_opened(tmp_path):
    # A pipe in place of a log file: it is opened when somebody else opens it too.
    pipe = tmp_path / "data" / "metrics" / "log" / "shard-00-gen-00000001-seg-000001.wal"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    address = harness.unused_address()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        starting = pool.submit(harness.Server, tmp_path / "data", http=address)
        try:
            harness.eventually(lambda: peers.listens(address), 20, "it listens")
            assert harness.request(address, "GET", "/healthz").status == 200
            for path in ("/readyz", "/api/jobs", "/prometheus/api/v1/query?query=up"):
                answer = harness.request(address, "GET", path)
                assert (answer.status, answer.headers.get("retry-after")) == (503, "1"), path
                assert "starting" in answer.text
            assert not starting.done()
        finally:
            # Each time that the server opens it somebody else does too; it may do so more than once.
            while not starting.done():
                with contextlib.suppress(OSError):  # nobody reads just now
                    os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
                time.sleep(0.02)  # the interval of the poll
        server = starting.result(timeout=30)
    try:
        assert harness.request(address, "GET", "/readyz").status == 200
        assert value_of(server, "vector(1)") == 1
        assert server.stop() == 0
    finally:
        server.kill()
