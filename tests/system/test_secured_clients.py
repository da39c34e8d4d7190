"""Clients that are not ours, with tokens and over TLS: Prometheus, which writes here, federates and reads here, and what Grafana's
data sources ask. (The OpenTelemetry collector: ./dev test collector.)"""

import math
import shutil

import harness
import peers
import pytest
import test_grafana_metrics
from secured import SecuredServer

# Grafana's Jaeger and Tempo data sources: the same requests in the same order, to the server below.
from test_grafana_traces import sent, test_jaeger_data_source, test_tempo_data_source  # noqa: F401

PAGE = """# TYPE queue_depth gauge
queue_depth{queue="a"} %d
queue_depth{queue="b"} 7
# TYPE requests_total counter
requests_total %d
"""


@pytest.fixture
def server(start, tmp_path):
    return start(SecuredServer, tmp_path / "secured")


@pytest.fixture
def exporter():
    with harness.exporter(lambda look: PAGE % (look % 5, 10 * look)) as address:
        yield address


def prometheus(server, folder, exporter, writes_with="ingest"):
    """Debian's Prometheus: scrapes the exporter, our own metrics and series of ours, and writes all but the last to us."""
    if shutil.which("prometheus") is None:
        pytest.fail("prometheus is not installed; ./dev setup does it")
    access = "authorization: {credentials_file: %s}, tls_config: {ca_file: %s}"
    reads, writes = (access % (server.token_files[role], server.ca) for role in ("read", writes_with))
    address = harness.unused_address()
    folder.mkdir()
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        "scrape_configs:\n"
        f"- {{job_name: web, static_configs: [{{targets: ['{exporter}']}}]}}\n"
        f"- {{job_name: lockstep, scheme: https, {reads}, static_configs: [{{targets: ['{server.http}']}}]}}\n"
        f"- {{job_name: federation, scheme: https, {reads}, metrics_path: /prometheus/federate, honor_labels: true,\n"
        "   params: {'match[]': ['{__name__=~\"federated_.*\"}']},\n"
        f"   static_configs: [{{targets: ['{server.http}']}}]}}\n"
        "remote_write:\n"
        f"- {{url: '{server.url}/prometheus/api/v1/write', {writes}, queue_config: {{batch_send_deadline: 500ms}},\n"
        "   write_relabel_configs: [{source_labels: [__name__], regex: federated_.*, action: drop}]}\n"
    )
    arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb"]
    return peers.Child(
        ["prometheus", *arguments, f"--web.listen-address={address}"], address, folder.parent / "prometheus.log"
    )


def test_prometheus_writes_and_reads_here_and_both_answer_grafana_the_same(start, server, tmp_path, exporter):
    odd = 'two\nlines, "quotes" and \\'
    points = [({"queue": queue}, harness.now_ns(), value) for queue, value in (("a", 1.5), (odd, 2.5))]
    resource = {"service.name": "queues", "service.instance.id": "q1"}
    assert server.post("metrics", harness.gauge_request(resource, "federated_depth", points)).status == 200
    peer = start(prometheus, server, tmp_path / "prometheus", exporter)
    both = test_grafana_metrics.Seen(server, peer.address, exporter, exporter)

    def written():
        found = both.ours("query", query='count_over_time(queue_depth{queue="a"}[1m])')["result"]
        return found and float(found[0]["value"][1]) >= 5

    harness.eventually(written, 40, "five scrapes of the exporter have come by remote write")
    # Our own metrics, which Prometheus has read with its token and written back.
    assert both.theirs("query", query='up{job="lockstep"}')["result"][0]["value"][1] == "1"
    count = 'count({job="lockstep",__name__=~"lockstep_.*"})'
    harness.eventually(lambda: both.ours("query", query=count)["result"], 20, "our own metrics are back")

    # Series of ours, which it has federated: the same labels, times and values.
    depth = {"query": "federated_depth_ratio[5m]"}
    harness.eventually(lambda: both.theirs("query", **depth)["result"], 20, "series of ours are federated")
    federated = both.theirs("query", **depth)["result"]
    assert {one["metric"]["queue"] for one in federated} == {"a", odd}
    ordered = [sorted(one["result"], key=str) for one in (both.theirs("query", **depth), both.ours("query", **depth))]
    assert ordered[0] == ordered[1]

    both.at = math.floor(harness.now_ns() / 1e9) - 0.5
    newest = 'max(timestamp(queue_depth{queue="a"}))'
    harness.eventually(
        lambda: float(both.ours("query", query=newest)["result"][0]["value"][1]) > both.at, 20, "ours are as new"
    )
    test_grafana_metrics.test_save_and_test(both)
    span = {"match[]": "queue_depth", "start": both.at - 2, "end": both.at}
    for path in ("labels", "series", "label/queue/values"):
        assert both.ours(path, **span) == both.theirs(path, **span) != [], path
    for expression in ("queue_depth", "sum by (job) (queue_depth)", "max_over_time(requests_total[2s])"):
        assert test_grafana_metrics.compared(both, expression, "query", time=both.at) > 0
        assert test_grafana_metrics.compared(both, expression, "query_range", start=both.at - 1, end=both.at, step=1) > 0


def test_prometheus_with_a_token_that_may_only_read_writes_nothing(start, server, tmp_path, exporter):
    peer = start(prometheus, server, tmp_path / "prometheus", exporter, writes_with="read")

    def is_refused():
        page = harness.Counters(harness.request(peer.address, "GET", "/metrics").text)
        return page.total("prometheus_remote_storage_samples_failed_total") > 0

    harness.eventually(is_refused, 40, "what Prometheus sends is refused for good")
    assert server.get("/prometheus/api/v1/query", query="queue_depth")["data"]["result"] == []
    assert "403" in (tmp_path / "prometheus.log").read_text()
    for role in ("ingest", "read"):
        assert server.token(role) not in server.log() + (tmp_path / "prometheus.log").read_text()
