"""The agent as a daemon among others: a real Prometheus reads its page, a wedged driver does not hold it up, it lets go of GPUs when
asked, gives up what it need not have, and says how it is configured."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import urllib.parse

import pytest

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "node"))

from node import Node  # noqa: E402

STANDIN = harness.BIN.parent / "lib" / "libnvidia-ml-standin.so"
AGENT = harness.BIN / "lockstep-agent"
GPUS = 8


class NodeAgent(harness.Daemon):
    """On a recorded node that stands still; its GPUs are the stand-in's."""

    def __init__(self, folder, *options, environment=None, library=STANDIN):
        folder.mkdir(parents=True, exist_ok=True)
        os.chmod(folder, 0o755)
        self.folder, self.script = folder, folder / "gpus.txt"
        Node(seed=1, live=True, gpu_script=self.script).write(folder / "root")
        # What is spooled waits for a server that is not there.
        super().__init__(
            "lockstep-agent",
            ["--data", folder / "agent", "--recorders", folder / "recorders", "--metrics", "127.0.0.1:0", "--export",
             f"file:{folder}/export", "--root", folder / "root", "--gpus", "nvidia", "--nvml-library", library,
             "--cpu-budget", "100", *options],
            folder / "agent.log",
            {"LOCKSTEP_NVML_STANDIN": str(self.script), **(environment or {})},
        )  # fmt: skip

    @property
    def address(self):
        return self.ready["metrics"]

    def page(self):
        return harness.Counters(harness.request(self.address, "GET", "/metrics").text)

    def shows(self, wanted, seconds, why):
        """The first page for which wanted(page) is true; not asked too often, because one costs more than all that the agent reads for it."""

        def look():
            page = self.page()
            return page if wanted(page) else None

        return harness.eventually(look, seconds, why, every_s=0.2)

    def reads_all_gpus(self):
        return self.shows(
            lambda page: page.total("lockstep_gpu_up") == GPUS and page.total("lockstep_job_gpu_info") >= GPUS, 20, "all GPUs are read"
        )

    def say(self, command, *more):
        return subprocess.run(
            [AGENT, command, "--data", self.folder / "agent", *more], capture_output=True, text=True, timeout=30
        )

    def events(self, name):
        return [path for path in (self.folder / "export").glob("*logs*") if name.encode() in path.read_bytes()]


@pytest.fixture
def node_agent(tmp_path):
    started = []

    def start(*options, **more):
        started.append(NodeAgent(tmp_path / f"agent{len(started)}", *options, **more))
        return started[-1]

    yield start
    for agent in started:
        agent.kill()


class Prometheus:
    """Debian's; scrapes one target, with time enough for an agent that gives way to everybody."""

    def __init__(self, folder, target):
        folder.mkdir()
        self.address = harness.unused_address()
        (folder / "prometheus.yml").write_text(
            "global: {scrape_interval: 4s, scrape_timeout: 4s}\n"
            f"scrape_configs: [{{job_name: gpus, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.address}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

    def ask(self, path, **parameters):
        try:
            answer = harness.request(self.address, "GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        except OSError:
            return []  # not up yet
        return json.loads(answer.text)["data"] if answer.status == 200 else []

    def query(self, text):
        found = self.ask("query", query=text)
        return found["result"] if found else []

    def stop(self):
        self.process.kill()
        self.process.wait()


def test_prometheus_shows_the_dcgm_dashboard_and_joins_gpus_with_jobs(node_agent, tmp_path):
    agent = node_agent("--names", "dcgm")
    prometheus = Prometheus(tmp_path / "prometheus", agent.address)
    try:
        agent.reads_all_gpus()
        harness.eventually(
            lambda: len(prometheus.query("DCGM_FI_DEV_GPU_TEMP")) == GPUS, 30, "Prometheus has every GPU's temperature"
        )
        assert prometheus.query("up")[0]["value"][1] == "1"
        # The variables of dashboard 12239, then its panels.
        assert prometheus.ask("label/instance/values", **{"match[]": "DCGM_FI_DEV_GPU_TEMP"}) == [agent.address]
        assert prometheus.ask("label/gpu/values", **{"match[]": "DCGM_FI_DEV_GPU_TEMP"}) == [str(i) for i in range(GPUS)]
        chosen = f'{{instance=~"{agent.address}", gpu=~"(0|1|2|3|4|5|6|7)"}}'
        low_high = {
            f"DCGM_FI_DEV_GPU_TEMP{chosen}": (20, 95),
            f"avg(DCGM_FI_DEV_GPU_TEMP{chosen})": (20, 95),
            f"DCGM_FI_DEV_POWER_USAGE{chosen}": (50, 800),
            f"sum(DCGM_FI_DEV_POWER_USAGE{chosen})": (400, 6400),
            f"DCGM_FI_DEV_SM_CLOCK{chosen} * 1000000": (3e8, 2.5e9),
            f"DCGM_FI_DEV_GPU_UTIL{chosen}": (0, 100),
            f"DCGM_FI_DEV_FB_USED{chosen}": (1000, 200_000),
            f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{chosen}": (0, 1),
        }
        for query, (low, high) in low_high.items():
            lines = 1 if query.startswith(("avg", "sum")) else GPUS
            # What is the difference of two readings comes with the second one.
            found = harness.eventually(lambda: len(f := prometheus.query(query)) == lines and f, 30, query)
            values = [float(one["value"][1]) for one in found]
            assert all(low <= value <= high for value in values), (query, values)
        series = prometheus.query("DCGM_FI_DEV_GPU_TEMP")[0]["metric"]
        assert {"gpu", "UUID", "device", "modelName", "Hostname", "instance"} <= set(series)

        joined = prometheus.query(
            'hw_power_watts * on (gpu_uuid) group_left (job_id, rank) lockstep_job_gpu_info{further=""}'
        )
        assert sorted(int(one["metric"]["rank"]) for one in joined) == list(range(24, 24 + GPUS))
        assert {one["metric"]["job_id"] for one in joined} == {"4242"}
    finally:
        prometheus.stop()


def test_both_formats_of_the_page_are_well_formed(node_agent):
    agent = node_agent("--names", "dcgm")
    agent.reads_all_gpus()
    text = harness.request(agent.address, "GET", "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text.text, capture_output=True, text=True)
    wrong = [line for line in checked.stderr.splitlines() if "error" in line]
    assert not wrong, wrong[:5]  # its advice on names is not for names that others chose
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
    answer = harness.request(agent.address, "GET", "/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
    families = [line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
    small = harness.request(agent.address, "GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip" and len(small.body) < len(text.body) / 8


def test_a_call_into_the_driver_that_never_returns_holds_up_nobody(node_agent):
    agent = node_agent()
    agent.reads_all_gpus()
    healthy = agent.script.read_text()
    agent.script.write_text(healthy + "\nblock nvmlDeviceGetUtilizationRates\n")
    agent.shows(lambda page: page.total("lockstep_gpu_reader_hung_seconds") > 0, 15, "the hang is on the page")
    harness.eventually(lambda: agent.events("gpu.hung"), 10, "and told to the server")
    before = agent.page().total("lockstep_agent_readings_total")
    page = agent.shows(lambda page: page.total("lockstep_agent_readings_total") > before, 15, "the rest of the node is read on")
    assert page.total("lockstep_gpu_reader_up") == 0
    assert "hung" in agent.say("status").stdout
    agent.script.write_text(healthy)
    agent.shows(lambda page: page.total("lockstep_gpu_reader_up") == 1, 40, "it is read again by itself")
    harness.eventually(lambda: agent.events("gpu.answers_again"), 10, "which is told, too")


def test_a_thread_that_does_not_come_back_is_named_by_healthz_and_the_agent_ends_all_the_same(node_agent):
    agent = node_agent()
    agent.reads_all_gpus()
    health = lambda: harness.request(agent.address, "GET", "/healthz")
    assert (health().status, health().text) == (200, "ok\n")
    for stat in (agent.folder / "root" / "proc").glob("[0-9]*/stat"):
        stat.unlink()
        os.mkfifo(stat)  # a file of the kernel that does not answer
    harness.eventually(lambda: health().status == 503, 25, "the node thread hangs")
    assert health().text.startswith("node thread has not moved for 1") and health().text.count("\n") == 1
    assert agent.page().total("lockstep_agent_recorders") == 0, "the rest goes on"
    assert agent.stop() == 0
    assert "a thread has not come back" in agent.log()


def test_drain_lets_go_of_every_gpu_and_resume_takes_them_back(node_agent):
    agent = node_agent()
    agent.reads_all_gpus()

    def readers():
        children = pathlib.Path(f"/proc/{agent.pid}/task")
        return [int(pid) for task in children.iterdir() for pid in (task / "children").read_text().split()]

    assert len(readers()) == 1
    drained = agent.say("drain")
    assert (drained.returncode, drained.stdout) == (0, "drained: no GPU is held; lockstep-agent resume reads them again\n")
    assert readers() == []
    assert agent.say("status").stdout == "gpus: drained\n"
    agent.shows(lambda page: page.total("lockstep_gpu_reader_up") == 0, 5, "the page knows it at the next tick")
    assert agent.say("resume").returncode == 0
    agent.shows(lambda page: page.total("lockstep_gpu_reader_up") == 1, 15, "they are read again")
    assert agent.say("drain", "--for", "3").returncode == 0
    agent.shows(lambda page: page.total("lockstep_gpu_reader_up") == 1, 15, "a drain may end by itself")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
def test_a_root_agent_goes_on_as_its_user_with_few_capabilities(node_agent, tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder != pathlib.Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o055)
    # Where everybody may read: the tree may be in a folder of root's own.
    library = pathlib.Path(shutil.copy(STANDIN, tmp_path))
    agent = node_agent("--user", "nobody", "--export", "", library=library)
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{agent.pid}/status").read_text().splitlines() if ":\t" in line)
    assert set(status["Uid"].split()) == {"65534"}
    kept = int(status["CapEff"], 16)
    assert kept & ~sum(1 << bit for bit in (1, 2, 5, 13, 19, 34)) == 0, status["CapEff"]
    assert status["NoNewPrivs"].strip() == "1"
    agent.shows(lambda page: page.total("lockstep_gpu_up") == GPUS, 20, "it still reads its GPUs")
    assert (agent.folder / "agent" / "spool").stat().st_uid == 65534


def test_systemd_is_told_when_it_is_ready_and_that_it_lives(node_agent, tmp_path):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "notify"))
    listener.settimeout(10)
    agent = node_agent(environment={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"})
    words = {listener.recv(256).decode() for _ in range(3)}
    assert words == {"READY=1", "WATCHDOG=1"}
    agent.process.send_signal(signal.SIGTERM)
    assert any(listener.recv(256) == b"STOPPING=1" for _ in range(10))


def test_the_configuration_is_checked_and_said(tmp_path):
    config = tmp_path / "agent.conf"
    config.write_text("data = /var/lib/lockstep-agent\nserver = https://gpu-server\nspool-mb = 64\nheader = x-team=secret\n")

    def check(*options, **environment):
        return subprocess.run([AGENT, "--config", config, "--check-config", *options], capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], **environment})  # fmt: skip

    said = check("--interval-ms", "2000", LOCKSTEP_AGENT_SPOOL_MB="128")
    assert said.returncode == 0, said.stderr
    assert "spool-mb = 128   # LOCKSTEP_AGENT_SPOOL_MB\n" in said.stdout
    assert "interval-ms = 2000   # command line\n" in said.stdout
    assert "# logs go to https://gpu-server:4318/v1/logs\n" in said.stdout
    assert "secret" not in said.stdout
    config.write_text("data = /var/lib/lockstep-agent\nintervall-ms = 5\n")
    wrong = check()
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == (
        f"lockstep-agent: {config} line 2: no option intervall-ms. Did you mean interval-ms? (lockstep-agent --help lists them)\n"
    )


def test_a_clock_that_is_stepped_by_an_hour_is_told_and_stops_nothing(tmp_path, server):
    """The agent's wall clock is moved (libfaketime), its monotonic clock and the server's are not."""
    libraries = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    offset = tmp_path / "offset"
    offset.write_text("+0s")
    agent = harness.Daemon(
        "lockstep-agent",
        ["--data", tmp_path / "agent", "--recorders", tmp_path / "recorders", "--metrics", "127.0.0.1:0", "--server",
         "http://" + server.otlp_http, "--gpus", "off", "--host", "gpu-017"],
        tmp_path / "agent.log",
        {"LD_PRELOAD": str(libraries[0]), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1",
         "FAKETIME_DONT_FAKE_MONOTONIC": "1"},
    )  # fmt: skip

    def page():
        return harness.Counters(harness.request(agent.ready["metrics"], "GET", "/metrics").text)

    try:
        harness.eventually(lambda: page().total("lockstep_agent_records_passed_total") > 0, 20, "the server has something")
        assert page().total("lockstep_host_clock_steps_total") == 0
        offset.write_text("+3600s")
        harness.eventually(lambda: page().total("lockstep_host_clock_steps_total") == 1, 15, "the step is counted")
        before = page().total("lockstep_agent_readings_total")
        # An hour ahead of the server: what is sent now is refused, and both sides count it.
        harness.eventually(lambda: page().total("lockstep_agent_records_refused_total") > 0, 20, "the server refuses the future")
        harness.eventually(lambda: page().total("lockstep_agent_readings_total") > before, 10, "the node is read on")
        offset.write_text("+0s")
        harness.eventually(lambda: page().total("lockstep_host_clock_steps_total") == 2, 15, "back again is a step, too")
        passed = page().total("lockstep_agent_records_passed_total")
        harness.eventually(lambda: page().total("lockstep_agent_records_passed_total") > passed, 20, "and everything passes again")
        counts = page()
        total = counts.total("lockstep_agent_records_total")
        parts = [counts.total(f"lockstep_agent_records_{part}") for part in ("passed_total", "refused_total", "dropped_total", "queued")]
        assert total == sum(parts)
    finally:
        agent.kill()


def test_doctor_says_what_works_here_and_how_to_have_the_rest(node_agent):
    agent = node_agent()
    agent.reads_all_gpus()
    harness.eventually(lambda: "8 GPUs are read" in harness.request(agent.address, "GET", "/checks").text, 10, "the checks know the GPUs")
    found = harness.lockstep("doctor", "--agent", f"http://{agent.address}", "--json")
    checks = {one["name"]: one for one in json.loads(found.stdout)["checks"]}
    assert checks["GPUs"]["state"] == "ok" and checks["RDMA ports"]["found"] == "8 ports"
    without = [one for name, one in checks.items() if one["state"] != "ok" and not one["todo"] and name != "recorders"]
    assert not without, without  # a folder of recorders comes by itself, with the first job
    agent.say("drain")
    harness.eventually(lambda: "drained" in harness.request(agent.address, "GET", "/checks").text, 10, "the checks follow")


def test_a_node_without_any_gpu_says_so_once_and_goes_on(tmp_path):
    shutil.rmtree(tmp_path / "agent", ignore_errors=True)
    agent = harness.Daemon(
        "lockstep-agent",
        ["--data", tmp_path / "agent", "--recorders", tmp_path / "recorders", "--metrics", "127.0.0.1:0", "--export",
         f"file:{tmp_path}/export", "--nvml-library", tmp_path / "none.so", "--amdsmi-library", tmp_path / "none.so"],
        tmp_path / "agent.log",
    )  # fmt: skip
    page = lambda: harness.Counters(harness.request(agent.ready["metrics"], "GET", "/metrics").text)
    try:
        harness.eventually(lambda: page().total("system_cpu_time_seconds_total") > 0, 15, "the host is read")
        harness.eventually(lambda: "gpu reader: " in agent.log(), 15, "it says so")
        before = page().total("lockstep_agent_readings_total")
        harness.eventually(lambda: page().total("lockstep_agent_readings_total") > before, 15, "and goes on")
        assert "lockstep_gpu_up" not in page().names()
        assert agent.stop() == 0
        assert agent.log().count("gpu reader: ") == 1, agent.log()
    finally:
        agent.kill()
