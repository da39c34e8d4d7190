"""One broker, gateways and analyzers for all tests of this folder, gone at the end; and bench/results/cluster.md, which they write."""

import json
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "system"), str(HERE)]

import harness  # noqa: E402
from kafka_world import VERSION, Broker  # noqa: E402
from receivers import Receiver  # noqa: E402

RULES = HERE.parent.parent / "deploy" / "grafana" / "cluster-rules.yaml"
RESULTS = []
PARTITIONS = 6


class Gateway(harness.Server):
    def __init__(self, data, broker, more=()):
        super().__init__(
            data, more=["--role", "gateway", "--kafka", broker.address, "--kafka-partitions", str(PARTITIONS), *more]
        )


class Analyzer(harness.Server):
    def __init__(self, data, broker, instance, more=()):
        self.instance = instance
        super().__init__(
            data,
            more=["--role", "analyzer", "--kafka", broker.address, "--instance", instance, "--bus-session-s", "10", *more],
        )

    def jobs(self):
        return {job["job_id"] for job in self.get("/api/jobs")["jobs"]}

    def verdicts(self, job):
        return self.get(f"/api/jobs/{job}/why")["verdicts"] if job in self.jobs() else []


class Cluster:
    """Two gateways, two analyzers that page one receiver, one broker."""

    def __init__(self, folder):
        self.folder = folder
        self.pager = Receiver()
        hook = {"name": "hook", "type": "webhook", "url": self.pager.url + "/hook", "severity": "info"}
        self.notify = folder / "notify.yml"
        self.notify.write_text(json.dumps({"receivers": [hook]}))
        self.broker = Broker(folder / "kafka")
        self.gateways = [Gateway(folder / f"gateway-{i}", self.broker) for i in range(2)]
        self.analyzers = [self.analyzer(f"analyzer-{i}") for i in range(2)]

    def analyzer(self, instance):
        return Analyzer(self.folder / instance, self.broker, instance, more=["--notify", str(self.notify), "--rules", str(RULES)])

    def pages(self, job):
        """What the receiver was told of a job: names and states of alerts."""
        alerts = [alert for post in self.pager.posts for alert in post["alerts"]]
        return [(one["labels"]["alertname"], one["status"]) for one in alerts if one["labels"].get("job_id", one["labels"].get("job")) == job]

    def running(self):
        return [one for one in self.analyzers if one.running()]

    def owners(self, job):
        return [one for one in self.running() if job in one.jobs()]

    def total(self, counter, **labels):
        return sum(one.counters().total(counter, **labels) for one in self.running())

    def partitions_read(self):
        return [one.counters().total("lockstep_bus_partitions") for one in self.running()]

    def restart(self, analyzer):
        self.analyzers[self.analyzers.index(analyzer)] = self.analyzer(analyzer.instance)

    def close(self):
        for daemon in self.gateways + self.analyzers:
            daemon.kill()
        self.broker.kill()
        self.pager.close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    one = None
    try:
        one = Cluster(folder)
        harness.eventually(lambda: sum(one.partitions_read()) == PARTITIONS, 60, "all partitions are read")
        yield one
    finally:
        if one:
            one.close()


@pytest.fixture(scope="session")
def result():
    """result(what, value): a row of the page."""
    return lambda what, value: RESULTS.append((what, value))


def pytest_sessionfinish(session, exitstatus):
    if exitstatus != 0 or not RESULTS or session.config.option.keyword:  # a part is no result
        return
    rows = "".join(f"| {what} | {value} |\n" for what, value in RESULTS)
    (harness.ROOT / "bench" / "results" / "cluster.md").write_text(
        "# Gateways, Kafka and analyzers\n\n"
        f"`./dev test cluster`: one broker of Kafka {VERSION}, two gateways and two analyzers on one machine, {PARTITIONS} partitions,\n"
        "sessions of 10 s, a simulated fleet. What is compared is in `tests/cluster/test_cluster.py`; times are by the clock, on a machine\n"
        "with other work.\n\n"
        f"| what | seen |\n|---|---|\n{rows}"
    )
