"""What Grafana's Prometheus data source asks, from save & test to the alert list, against a server that scrapes a real
node exporter and a page like the DCGM exporter's. Every sample goes on to a real Prometheus by remote write, so that
both have the same samples at the same times and must answer the same."""

import datetime
import math
import shutil
import socket
import time
import urllib.parse

import harness
import peers
import pytest
import test_feedback

INTERVAL_S = 1
WINDOW_S = 14  # the longest range asked for, and what a panel draws of it
LOOKS = 22  # scrapes before anything is compared: no window begins before the first, where 2.x and 3.x extrapolate differently

# In the style of dashboard 1860 (node exporter full).
NODE = """
100 * (1 - avg by (instance) (rate(node_cpu_seconds_total{mode="idle",instance="$node"}[$rate])))
sum by (mode) (irate(node_cpu_seconds_total{instance="$node",job="$job"}[$rate])) / scalar(count(count by (cpu) (node_cpu_seconds_total{instance="$node"})))
sum(irate(node_cpu_seconds_total{instance="$node",mode="system"}[$rate])) / on (instance) group_left sum by (instance) (irate(node_cpu_seconds_total{instance="$node"}[$rate]))
sum by (instance) (rate(node_cpu_seconds_total{mode=~"i(dle|owait)",instance="$node"}[$rate]))
count(count by (cpu) (node_cpu_seconds_total{instance="$node",job="$job"}))
node_load1{instance="$node",job="$job"} * 100 / count without (cpu) (count without (mode) (node_cpu_seconds_total{instance="$node",job="$job"}))
avg_over_time(node_load5{instance="$node"}[$rate])
{__name__=~"node_load1|node_load5|node_load15",instance="$node"}
(1 - node_memory_MemAvailable_bytes{instance="$node"} / node_memory_MemTotal_bytes{instance="$node"}) * 100
node_memory_MemTotal_bytes{instance="$node"} - node_memory_MemFree_bytes{instance="$node"} - (node_memory_Cached_bytes{instance="$node"} + node_memory_Buffers_bytes{instance="$node"} + node_memory_SReclaimable_bytes{instance="$node"})
(node_memory_SwapTotal_bytes{instance="$node"} - node_memory_SwapFree_bytes{instance="$node"}) / (node_memory_SwapTotal_bytes{instance="$node"} > 0) * 100
node_memory_Slab_bytes{instance="$node"} + node_memory_PageTables_bytes{instance="$node"}
sum({__name__=~"node_memory_(Active|Inactive)_(anon|file)_bytes",instance="$node"}) by (__name__)
irate(node_vmstat_pgpgin{instance="$node",job="$job"}[$rate])
rate(node_vmstat_pgfault{instance="$node"}[$rate]) - rate(node_vmstat_pgmajfault{instance="$node"}[$rate])
increase(node_vmstat_oom_kill{instance="$node"}[$rate])
100 - node_filesystem_avail_bytes{instance="$node",mountpoint="/",fstype!="rootfs"} * 100 / node_filesystem_size_bytes{instance="$node",mountpoint="/",fstype!="rootfs"}
max by (device) (node_filesystem_size_bytes{instance="$node",device!~"rootfs"} - node_filesystem_avail_bytes{instance="$node"})
node_filesystem_files_free{instance="$node",device!~"rootfs"} / node_filesystem_files{instance="$node",device!~"rootfs"}
sum(node_filesystem_readonly{instance="$node"} == bool 1)
predict_linear(node_filesystem_avail_bytes{instance="$node",mountpoint="/"}[$rate], 3600) < bool 0
irate(node_network_receive_bytes_total{instance="$node",job="$job"}[$rate]) * 8
-irate(node_network_transmit_bytes_total{instance="$node",job="$job"}[$rate]) * 8
max(sum by (device) (rate(node_network_receive_packets_total{instance="$node"}[$rate]) + rate(node_network_transmit_packets_total{instance="$node"}[$rate])))
sum by (device) (increase(node_network_receive_errs_total{instance="$node"}[$rate]) + increase(node_network_transmit_drop_total{instance="$node"}[$rate]))
node_network_up{operstate="up",instance="$node"} or node_network_carrier{instance="$node"} * 0
node_network_mtu_bytes{instance="$node"} > 1000 unless on (device) node_network_up{device="none"}
rate(node_disk_reads_completed_total{instance="$node",device=~"[a-z]+|nvme[0-9]+n[0-9]+|vd[a-z]"}[$rate])
rate(node_disk_read_time_seconds_total{instance="$node"}[$rate]) / rate(node_disk_reads_completed_total{instance="$node"}[$rate])
irate(node_disk_io_time_seconds_total{instance="$node"}[$rate]) and on (device) node_disk_info{instance="$node"}
sum by (device) (delta(node_disk_io_now{instance="$node"}[$rate]))
time() - node_boot_time_seconds{instance="$node",job="$job"}
(node_time_seconds{instance="$node"} - on (instance) node_boot_time_seconds{instance="$node"}) / 86400
abs(deriv(node_time_seconds{instance="$node"}[$rate]) - 1) < bool 0.5
node_filefd_allocated{instance="$node"} / node_filefd_maximum{instance="$node"} * 100
node_entropy_available_bits{instance="$node"}
irate(node_context_switches_total{instance="$node"}[$rate])
irate(node_intr_total{instance="$node"}[$rate])
rate(node_forks_total{instance="$node"}[$rate])
node_procs_running{instance="$node"} + node_procs_blocked{instance="$node"}
node_sockstat_TCP_inuse{instance="$node"} / ignoring (job) node_sockstat_sockets_used{instance="$node"}
irate(node_netstat_Tcp_InSegs{instance="$node"}[$rate]) + irate(node_netstat_Tcp_OutSegs{instance="$node"}[$rate])
increase(node_netstat_TcpExt_ListenOverflows{instance="$node"}[$rate])
irate(node_pressure_cpu_waiting_seconds_total{instance="$node"}[$rate])
node_arp_entries{instance="$node"}
label_replace(node_uname_info{instance="$node",job="$job"}, "kernel", "$1", "release", "([0-9]+[.][0-9]+).*")
count by (version) (node_exporter_build_info{job="$job"})
node_scrape_collector_duration_seconds{instance="$node",collector=~"c.*"} >= 0
sum without (collector) (node_scrape_collector_success{instance="$node"})
rate(process_cpu_seconds_total{instance="$node",job="$job"}[$rate])
process_open_fds{instance="$node"} / process_max_fds{instance="$node"}
histogram_quantile(0.9, sum by (le) (rate(go_gc_duration_seconds_bucket{instance="$node"}[$rate])))
go_gc_duration_seconds{instance="$node",quantile="0.5"}
quantile_over_time(0.5, go_goroutines{instance="$node"}[$rate])
max_over_time(rate(node_context_switches_total{instance="$node"}[$rate])[5s:1s])
changes(process_start_time_seconds{job="$job"}[$rate]) + resets(node_forks_total[$rate])
absent(node_load1{job="nobody"})
up{job="$job"}
avg(scrape_duration_seconds{job="$job"}) < bool 10
""".strip().splitlines()

# In the style of dashboard 12239 (NVIDIA DCGM exporter).
GPU = """
DCGM_FI_DEV_GPU_TEMP{instance=~"$gpu",gpu=~"0|1"}
avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$gpu"})
DCGM_FI_DEV_POWER_USAGE{instance=~"$gpu"}
sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$gpu",gpu=~".*"})
DCGM_FI_DEV_SM_CLOCK{instance=~"$gpu"} / 1000
DCGM_FI_DEV_GPU_UTIL{instance=~"$gpu",gpu="1"}
avg by (Hostname) (avg_over_time(DCGM_FI_DEV_GPU_UTIL{instance=~"$gpu"}[$rate]))
DCGM_FI_DEV_FB_USED{instance=~"$gpu"} / (DCGM_FI_DEV_FB_USED{instance=~"$gpu"} + DCGM_FI_DEV_FB_FREE{instance=~"$gpu"})
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"$gpu"} > 0.4
increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{instance=~"$gpu"}[$rate]) / 1000
max without (gpu, UUID, device) (changes(DCGM_FI_DEV_XID_ERRORS{instance=~"$gpu"}[$rate]))
topk(1, DCGM_FI_DEV_GPU_UTIL{instance=~"$gpu"})
count by (modelName) (DCGM_FI_DEV_GPU_TEMP{instance=~"$gpu"})
""".strip().splitlines()


def gpu_page(look):
    lines = ["# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).", "# TYPE DCGM_FI_DEV_GPU_TEMP gauge"]
    for gpu in (0, 1):
        labels = f'gpu="{gpu}",UUID="GPU-{gpu}",device="nvidia{gpu}",modelName="H200",Hostname="node-1"'
        busy = 50 + (7 * look + 13 * gpu) % 40
        for name, value in (
            ("DEV_GPU_TEMP", 40 + busy / 4),
            ("DEV_POWER_USAGE", 3 * busy + 0.25),
            ("DEV_SM_CLOCK", 1980 - gpu),
            ("DEV_GPU_UTIL", busy),
            ("DEV_FB_USED", 1000 * busy),
            ("DEV_FB_FREE", 140_000 - 1000 * busy),
            ("PROF_PIPE_TENSOR_ACTIVE", busy / 100),
            ("DEV_TOTAL_ENERGY_CONSUMPTION", 400_000 * look),
            ("DEV_XID_ERRORS", 79 if look > 6 and gpu else 0),
        ):
            lines.append(f"DCGM_FI_{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def gpu_exporter():
    with harness.exporter(gpu_page) as address:
        yield address


class Seen:
    """The server, the Prometheus beside it, and a moment at which both know the same."""

    def __init__(self, server, prometheus, node, gpu):
        self.server, self.prometheus, self.node, self.gpu = server, prometheus, node, gpu
        self.at = 0.0

    def ours(self, path, method="GET", **parameters):
        return peers.asked(self.server.http, "/prometheus/api/v1/" + path, method, parameters)

    def theirs(self, path, method="GET", **parameters):
        return peers.asked(self.prometheus, "/api/v1/" + path, method, parameters)

    def filled(self, expression):
        for name, value in (("$node", self.node), ("$job", "node"), ("$gpu", self.gpu), ("$rate", "8s")):
            expression = expression.replace(name, value)
        return expression


@pytest.fixture(scope="module")
def seen(tmp_path_factory, gpu_exporter):
    for program in ("prometheus", "prometheus-node-exporter"):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed; ./dev setup does it")
    folder = tmp_path_factory.mktemp("grafana")
    node, peer = harness.unused_address(), harness.unused_address()
    children = []
    server = None
    try:
        children.append(
            peers.Child(["prometheus-node-exporter", f"--web.listen-address={node}"], node, folder / "node_exporter.log")
        )
        (folder / "prometheus.yml").write_text("global: {}\n")
        children.append(
            peers.Child(
                [
                    "prometheus",
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/tsdb",
                    f"--web.listen-address={peer}",
                    "--web.enable-remote-write-receiver",
                ],
                peer,
                folder / "prometheus.log",
            )
        )
        (folder / "scrape.yaml").write_text(
            f"global: {{scrape_interval: {INTERVAL_S}s, scrape_timeout: {INTERVAL_S}s}}\n"
            "scrape_configs:\n"
            f'- {{job_name: node, static_configs: [{{targets: ["{node}"]}}]}}\n'
            f'- {{job_name: dcgm, static_configs: [{{targets: ["{gpu_exporter}"]}}]}}\n'
            f'- {{job_name: away, static_configs: [{{targets: ["{harness.unused_address()}"]}}]}}\n'
        )
        server = harness.Server(
            folder / "data",
            more=["--scrape", folder / "scrape.yaml", "--remote-write", f"http://{peer}/api/v1/write"],
        )
        both = Seen(server, peer, node, gpu_exporter)
        harness.eventually(lambda: at_least_scraped(both, LOOKS), 60, f"{LOOKS} scrapes of both exporters")
        both.at = harness.eventually(lambda: between_scrapes(both), 60, "no scrape of both failed for a while")
        harness.eventually(lambda: newest(both) > both.at, 30, "Prometheus has the same samples")
        yield both
    finally:
        if server is not None:
            server.kill()
        for child in children:
            child.end()


# Between scrapes, as far from both targets' as can be, so that no range begins or ends at a sample: 3.x leaves the first
# one out, 2.x does not. None before it failed, as one of a busy machine may: then nothing is there. A moment later
# Prometheus has it too.
def between_scrapes(both):
    scraped = both.ours("query", query="timestamp({__name__=~'node_load1|DCGM_FI_DEV_GPU_TEMP'})")["result"]
    if not scraped:
        return None
    phases = [float(one["value"][1]) % INTERVAL_S for one in scraped]
    around = sorted(set(phases)) + [min(phases) + INTERVAL_S]
    gap, begin = max((after - before, before) for before, after in zip(around, around[1:]))
    newest_s = min(float(one["value"][1]) for one in scraped)
    at = round(newest_s // INTERVAL_S * INTERVAL_S - 2 * INTERVAL_S + begin + gap / 2, 3)
    up = both.ours("query", query=f"min_over_time(up{{job=~'node|dcgm'}}[{WINDOW_S}s])", time=at)["result"]
    return at if [one["value"][1] for one in up] == ["1", "1"] else None


def at_least_scraped(both, count):
    result = both.ours("query", query="min(count_over_time({__name__=~'node_load1|DCGM_FI_DEV_GPU_TEMP'}[5m]))")["result"]
    return result and float(result[0]["value"][1]) >= count


def newest(both):
    result = both.theirs("query", query="min(timestamp({__name__=~'node_load1|DCGM_FI_DEV_GPU_TEMP'}))")["result"]
    return float(result[0]["value"][1]) if result else 0


def same_value(ours, theirs):
    a, b = float(ours), float(theirs)
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9)


def lines_of(data):
    """{labels: [(time, value), ...]}"""
    if data["resultType"] == "scalar":
        return {(): [data["result"]]}
    return {
        tuple(sorted(one["metric"].items())): one["values"] if "values" in one else [one["value"]]
        for one in data["result"]
    }


def compared(both, expression, path, **parameters):
    ours = lines_of(both.ours(path, "POST", query=expression, **parameters))
    theirs = lines_of(both.theirs(path, "POST", query=expression, **parameters))
    assert ours.keys() == theirs.keys(), f"{expression}: {ours} instead of {theirs}"
    for labels, points in ours.items():
        other = theirs[labels]
        assert [one[0] for one in points] == [one[0] for one in other], f"{expression} {labels}"
        for point, peer in zip(points, other):
            assert same_value(point[1], peer[1]), f"{expression} {labels}: {point} instead of {peer}"
    return sum(len(points) for points in ours.values())


@pytest.mark.limit(120)
def test_save_and_test(seen):
    assert seen.ours("status/buildinfo")["version"].startswith("3.")
    assert seen.ours("query", "POST", query="1+1", time=seen.at)["result"][1] == "2"
    assert seen.ours("query", "POST", query="vector(1)", time=seen.at) == seen.theirs(
        "query", "POST", query="vector(1)", time=seen.at
    )


@pytest.mark.limit(120)
def test_explore_finds_the_same_names_labels_and_series_as_prometheus(seen):
    span = {"start": seen.at - 10, "end": seen.at}
    names = seen.ours("label/__name__/values", **span)
    assert names == seen.theirs("label/__name__/values", **span)
    assert "node_load1" in names and "DCGM_FI_DEV_GPU_UTIL" in names
    assert len(seen.ours("label/__name__/values", limit=3, **span)) == 3
    for selector in ('node_cpu_seconds_total{mode="idle"}', "DCGM_FI_DEV_GPU_UTIL", '{job="node",__name__=~"node_net.*"}'):
        asked_for = {"match[]": selector, **span}
        assert seen.ours("labels", "POST", **asked_for) == seen.theirs("labels", "POST", **asked_for)
        ours, theirs = seen.ours("series", "POST", **asked_for), seen.theirs("series", "POST", **asked_for)
        assert sorted(map(str, map(sorted, (one.items() for one in ours)))) == sorted(
            map(str, map(sorted, (one.items() for one in theirs)))
        )
        assert len(ours) > 0
        for label in ("instance", "job", "device", "gpu"):
            path = f"label/{label}/values"
            assert seen.ours(path, **asked_for) == seen.theirs(path, **asked_for), (selector, label)
    assert len(seen.ours("series", "POST", **{"match[]": '{job="node"}', "limit": 5, **span})) == 5


def test_explore_knows_types_and_help_of_metrics(seen):
    few = seen.ours("metadata", limit=5)
    assert len(few) == 5
    (cpu,) = seen.ours("metadata", metric="node_cpu_seconds_total")["node_cpu_seconds_total"]
    assert cpu["type"] == "counter" and "CPU" in cpu["help"]
    assert seen.ours("metadata", metric="DCGM_FI_DEV_GPU_TEMP")["DCGM_FI_DEV_GPU_TEMP"][0]["type"] == "gauge"
    assert seen.ours("metadata", metric="no_such_metric") == {}
    assert seen.ours("query_exemplars", query="node_load1", start=seen.at - 10, end=seen.at) == []


@pytest.mark.limit(120)
def test_explore_formats_and_parses_what_the_dashboards_ask(seen):
    for expression in map(seen.filled, NODE + GPU):
        tidy = seen.ours("format_query", "POST", query=expression)
        assert tidy == seen.theirs("format_query", "POST", query=expression)
        assert seen.ours("format_query", "POST", query=tidy) == tidy
        assert seen.ours("parse_query", "POST", query=expression)["type"], expression


@pytest.mark.limit(300)
def test_panels_show_what_prometheus_shows(seen):
    assert len(NODE) >= 40 and len(GPU) >= 10
    with_values = 0
    for expression in map(seen.filled, NODE + GPU):
        at_once = compared(seen, expression, "query", time=seen.at)
        drawn = compared(seen, expression, "query_range", start=seen.at - 4, end=seen.at, step=1)
        assert (at_once == 0) or drawn >= at_once
        with_values += at_once > 0
    # Not every machine has every collector; most have most.
    assert with_values >= len(GPU) + 40, f"{with_values} of {len(NODE) + len(GPU)} have a value"


def test_targets_say_who_answers_and_who_does_not(seen):
    targets = {one["scrapePool"]: one for one in seen.ours("targets", state="active")["activeTargets"]}
    assert targets.keys() == {"node", "dcgm", "away"}
    node = targets["node"]
    assert node["health"] == "up" and node["lastError"] == "" and node["lastScrapeDuration"] > 0
    assert node["labels"] == {"job": "node", "instance": seen.node}
    assert node["scrapeUrl"] == f"http://{seen.node}/metrics" and node["scrapeInterval"] == f"{INTERVAL_S}s"
    assert abs(time.time() - when(node["lastScrape"])) < 30
    assert targets["away"]["health"] == "down" and "refused" in targets["away"]["lastError"]
    assert [one["scrapePool"] for one in seen.ours("targets", scrapePool="dcgm")["activeTargets"]] == ["dcgm"]
    (away,) = seen.ours("query", query='up{job="away"}')["result"]
    assert away["value"][1] == "0"


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


# The verdict, the rule that fires and its alert, once all tell the same: while steps come in, cost and step change between
# two questions.
def settled_alert(seen):
    verdict = test_feedback.confirmed(seen.server, "train")
    (alert,) = [one for one in seen.ours("alerts")["alerts"] if one["state"] == "firing"] or [None]
    (group,) = seen.ours("rules", type="alert")["groups"]
    (rule,) = [one for one in group["rules"] if one["state"] == "firing"] or [None]
    assert alert and rule and rule["alerts"] == [alert]
    assert alert["annotations"]["summary"] == verdict["sentence"]
    return verdict, rule, alert


def test_the_alert_list_shows_a_verdict_while_it_is_open(seen):
    assert seen.ours("alerts")["alerts"] == []
    (group,) = seen.ours("rules", type="alert")["groups"]
    assert {rule["state"] for rule in group["rules"]} == {"inactive"}
    test_feedback.play(seen.server, "train", 40)
    verdict, rule, alert = harness.eventually(lambda: settled_alert(seen), 25, "the verdict in both lists")
    assert float(alert["value"]) > 0
    assert alert["labels"]["job"] == "train" and alert["annotations"]["ranks"] == str(test_feedback.SLOW)
    assert alert["labels"]["layer"] == verdict["culprit"]["layer"] and alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["link"].startswith(f"{seen.server.url}/jobs/train?step=")
    assert alert["annotations"]["link"].endswith(f"rank={test_feedback.SLOW}")
    assert seen.server.get(alert["annotations"]["evidence"])["id"] == verdict["id"]
    assert rule["labels"]["severity"] == alert["labels"]["severity"]
    assert seen.ours("rules", type="record")["groups"] == []


@pytest.mark.limit(120)
def test_a_query_whose_client_goes_away_is_cancelled(seen):
    before = seen.server.counters().total("lockstep_queries_total", result="cancelled")
    # 11,000 steps of 11 nested subqueries: far more than fits into a second.
    query = "max_over_time(sum({__name__=~'.+'})[1h:1s])"
    form = urllib.parse.urlencode({"query": query, "start": seen.at - 10_000, "end": seen.at, "step": 1})
    host, port = seen.server.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(f"GET /prometheus/api/v1/query_range?{form} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        harness.eventually(
            lambda: seen.server.counters().total("lockstep_queries", state="running") == 1, 10, "the query runs"
        )
    harness.eventually(
        lambda: seen.server.counters().total("lockstep_queries_total", result="cancelled") == before + 1,
        10,
        "the query ends soon after its client has gone",
    )
    harness.eventually(lambda: seen.server.counters().total("lockstep_queries", state="running") == 0, 10, "nothing runs")
