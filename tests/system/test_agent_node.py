"""The agent on a whole node that lives and breaks (tests/node): what reaches its /metrics page, and what a real server.

One agent, one server and one node for all tests but the last: first the node is healthy, then everything goes wrong at
once. Each time the node is stopped, so that every number can be held against the file that it came from."""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time
import types

import pytest

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "node"))

from node import Node  # noqa: E402

STANDIN = harness.BIN.parent / "lib" / "libnvidia-ml-standin.so"
JOB, FIRST_RANK = "4242", 24
MOUNT = "10.20.0.5:/export/data"
HEALTHY_S, BROKEN_S = 6, 14
PAGE_EVERY_S = 0.3  # a page costs more than all that the agent reads for it
SETTLED_S = 25  # what is read every tenth second is there, and sent
TELLING = ("app", "warn", "critical")

# All at once, each on a rail of its own where it can be (tests/data/node8/README.md).
FAULTS = (
    "rail_congestion peer_flap pcie_width nfs_slow proxy_starved cpu_throttle oom_kill memory_pressure xid_94_154 "
    "gpu_off_bus counter_reset odd_port clock_step ecc_drip aer_storm power_brake hung_task"
).split()
LOST, XID, CONGESTED, BRAKED, THROTTLED, RESET, NARROW, AER, DRIP, FLAP, STARVED, ODD, KILLED = (
    0,
    1,
    2,
    2,
    3,
    3,
    4,
    4,
    5,
    5,
    6,
    7,
    7,
)
HUNG = 3
WRAPPED = 6  # runs over 2^32 in the healthy part, where nothing else may look odd


class NodeAgent(harness.Daemon):
    def __init__(self, folder, tree, gpu_script, server):
        super().__init__(
            "lockstep-agent",
            ["--data", folder / "agent", "--recorders", folder / "recorders", "--metrics", "127.0.0.1:0",
             "--server", "http://" + server, "--root", tree, "--gpus", "nvidia", "--nvml-library", STANDIN,
             "--cpu-budget", "100"],  # it must not slow down because a busy machine makes it look expensive
            folder / "agent.log",
            {"LOCKSTEP_NVML_STANDIN": str(gpu_script)},
        )  # fmt: skip

    def page(self):
        return harness.Counters(harness.request(self.ready["metrics"], "GET", "/metrics").text)


class Player:
    """Lets a node live in a thread, one second after the other, while it is not stopped."""

    def __init__(self, node):
        self.node, self._stopped, self._end = node, threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        due = time.monotonic() + 1
        while not self._end.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1, time.monotonic())
            with self._lock:
                if not self._stopped.is_set():
                    self.node.advance(1)

    def live(self, seconds):
        self._stopped.clear()
        played = self.node.played + seconds
        harness.eventually(lambda: self.node.played >= played, 4 * seconds + 10, "the node is played")

    def stop(self):
        with self._lock:
            self._stopped.set()

    @contextlib.contextmanager
    def held(self):
        """The node, which is not played while the caller changes it."""
        with self._lock:
            yield self.node

    def fault(self, name, **options):
        with self.held() as node:
            node.fault(name, **options)

    def end(self):
        self._end.set()
        self._thread.join()


@contextlib.contextmanager
def living_node():
    """A folder in memory where there is such a place, a node in it, its player."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-node-", dir=where))
    node = Node(gpu_script=folder / "gpus.txt")
    node.write(folder / "tree")
    player = Player(node)
    player.stop()
    try:
        yield types.SimpleNamespace(folder=folder, node=node, player=player)
    finally:
        player.end()
        shutil.rmtree(folder)


def events_of(server):
    """What the agent told of its node, oldest first."""
    logs = server.get("/api/logs", service="lockstep-agent", limit=10_000)["logs"]
    return [
        types.SimpleNamespace(name=log["event"], severity=log["severity_text"], time_ns=log["time_unix_ns"],
                              text=log["body"], **{"secondary": False, "device": "", "gpu_uuid": "", "code": -1,
                              "count": 1, "pid": -1, "process": "", "job_id": "", "rank": -1, **log["attributes"]})
        for log in reversed(logs) if log["severity_text"]
    ]  # fmt: skip


# What the page must show, from the files


def uuid(node, rail):
    return node.rails[rail]["uuid"]


def truth(node):
    """(metric, labels): its value, for everything that the page must show as the files have it."""
    wanted = {}

    def want(metric, value, **labels):
        wanted[metric, tuple(sorted(labels.items()))] = value

    for at, rail in enumerate(node.rails):
        port = {"device": f"mlx5_{at}", "port": "1"}
        for direction, name in (("transmit", "xmit"), ("receive", "rcv")):
            want(
                "hw_network_io_bytes_total",
                4 * node.number(node.nic(at, f"counters/port_{name}_data")),
                **port,
                direction=direction,
            )
            want(
                "hw_network_packets_total",
                node.number(node.nic(at, f"counters/port_{name}_packets")),
                **port,
                direction=direction,
            )
        for name in (
            "np_ecn_marked_roce_packets",
            "np_cnp_sent",
            "rp_cnp_handled",
            "packet_seq_err",
            "local_ack_timeout_err",
        ):
            want(f"lockstep_nic_{name}_total", node.number(node.nic(at, f"hw_counters/{name}")), **port)
        want("lockstep_nic_link_downed_total", node.number(node.nic(at, "counters/link_downed")), **port)
        ethtool, pause = node.ethtool(at), {"device": rail["netdev"], "priority": "3", "direction": "receive"}
        want("lockstep_nic_pause_frames_total", ethtool.get("rx_prio3_pause"), **pause)
        want("lockstep_nic_pause_seconds_total", ethtool.get("rx_prio3_pause_duration") / 1e6, **pause)
        want("lockstep_nic_fec_corrected_bits_total", ethtool.get("rx_corrected_bits_phy"), device=rail["netdev"])
        want(
            "lockstep_nic_carrier_changes_total", node.number(node.netdev(at, "carrier_changes")), device=rail["netdev"]
        )
        want("lockstep_nic_carrier", node.number(node.netdev(at, "carrier")), device=rail["netdev"])
        want(
            "system_network_io_bytes_total",
            node.number(node.netdev(at, "statistics/rx_bytes")),
            device=rail["netdev"],
            direction="receive",
        )
        aer = node.text(node.pci(at, "nic", "aer_dev_correctable")).get("TOTAL_ERR_COR")
        want("lockstep_pcie_aer_total", aer, pci=rail["nic"], severity="correctable")
        want("lockstep_pcie_link_width", node.number(node.pci(at, "nic", "current_link_width")), pci=rail["nic"])
        lost = "gpu_off_bus" in node.active() and at == LOST
        want("lockstep_gpu_up", 0 if lost else 1, gpu_uuid=rail["uuid"])
        if not lost:
            want("lockstep_pcie_link_width", node.number(node.pci(at, "gpu", "current_link_width")), pci=rail["gpu"])
            want(
                "lockstep_gpu_pcie_width", node.number(node.pci(at, "gpu", "current_link_width")), gpu_uuid=rail["uuid"]
            )
            want("hw_gpu_memory_limit_bytes", 81559 << 20, gpu_uuid=rail["uuid"])
    stat = node.text("/proc/stat")
    for mode, column in (("user", 1), ("system", 3), ("idle", 4)):
        want("system_cpu_time_seconds_total", stat.get("cpu", column) / 100, cpu_mode=mode)
    want("lockstep_host_context_switches_total", stat.get("ctxt"))
    for resource in ("cpu", "memory", "io"):
        total = node.number(f"/proc/pressure/{resource}", "some", "total")
        want("lockstep_host_pressure_seconds_total", total / 1e6, resource=resource, scope="some")
    for event in ("pgscan_direct", "oom_kill", "compact_stall"):
        want("lockstep_host_vm_events_total", node.number("/proc/vmstat", event), event=event)
    want("system_memory_limit_bytes", node.number("/proc/meminfo", "MemTotal") * 1024)
    want("system_memory_linux_available_bytes", node.number("/proc/meminfo", "MemAvailable") * 1024)
    disk = node.text("/proc/diskstats", key_column=2)
    for direction, column in (("read", 5), ("write", 9)):
        want(
            "system_disk_io_bytes_total",
            disk.get("nvme0n1", column) * 512,
            system_device="nvme0n1",
            disk_io_direction=direction,
        )
    mount = node.text(f"/proc/{node.archive.constants['agent']}/mountstats")
    for op in ("read", "write"):
        want("lockstep_storage_operations_total", mount.get(op.upper(), 1), mount=MOUNT, op=op)
        want("lockstep_storage_rtt_seconds_total", mount.get(op.upper(), 7) / 1000, mount=MOUNT, op=op)
    errors = sum(node.number(f"/sys/devices/system/edac/mc/mc{mc}/ce_count") for mc in range(4))
    want("lockstep_host_memory_errors_total", errors, kind="corrected")
    want("lockstep_host_tcp_total", node.text("/proc/net/snmp").get("Tcp", "RetransSegs"), event="retransmits")
    want("lockstep_host_hung_tasks_total", node.number("/proc/sys/kernel/hung_task_detect_count"))
    want("lockstep_host_clock_synchronized", 0 if "clock_step" in node.active() else 1)
    return wanted


def differences(page, wanted):
    """Lines that say what the page has instead; none: it is right."""
    has = {name: page.named(name) for name in {name for name, _ in wanted}}
    wrong = []
    for (name, labels), value in wanted.items():
        found = [one for given, one in has[name] if all(given.get(key) == text for key, text in labels)]
        if len(found) != 1 or abs(found[0] - value) > 1e-9 * abs(value) + 1e-9:
            wrong.append(f"{name}{dict(labels)}: {found or 'not there'}, not {value}")
    return wrong


def settled(agent, node):
    """The page once it agrees with the files of a node that stands still."""

    def look():
        page = agent.page()
        wrong = differences(page, truth(node))
        assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
        return page

    return harness.eventually(look, SETTLED_S, "the page shows what the files have", PAGE_EVERY_S)


@pytest.fixture(scope="module")
def story():
    with living_node() as living:
        node, player, folder = living.node, living.player, living.folder
        node.fault("counter_wrap", rail=WRAPPED, left=150_000)  # runs over after four seconds
        server = harness.Server(folder / "data")
        agent = None
        try:
            agent = NodeAgent(folder, folder / "tree", folder / "gpus.txt", server.otlp_http)
            player.live(1)
            player.stop()
            first = settled(agent, node)
            before_s = node.played
            player.live(HEALTHY_S)
            player.stop()
            healthy = settled(agent, node)
            healthy_s = node.played - before_s
            healthy_events = events_of(server)
            broken_ns = time.time_ns()
            for name in FAULTS:
                player.fault(name)
            before_s = node.played
            player.live(BROKEN_S)
            player.stop()
            broken = settled(agent, node)
            broken_s = node.played - before_s
            events = harness.eventually(
                lambda: [one for one in events_of(server) if one.time_ns >= broken_ns - 2_000_000_000]
                if any(one.code == 154 for one in events_of(server)) else None,
                10,
                "the events of the faults are at the server",
            )  # fmt: skip
            yield types.SimpleNamespace(
                node=node, server=server, agent=agent, first=first, healthy=healthy, healthy_s=healthy_s,
                healthy_events=healthy_events, broken=broken, broken_s=broken_s, broken_ns=broken_ns, events=events,
            )  # fmt: skip
        finally:
            if agent:
                agent.kill()
            server.kill()


def grown(story, name, **labels):
    """By how much a sum has grown in the broken part."""
    return story.broken.total(name, **labels) - story.healthy.total(name, **labels)


def named(story, name, **attributes):
    return [
        event for event in story.events
        if event.name == name and all(getattr(event, key) == value for key, value in attributes.items())
    ]  # fmt: skip


def one_of(page, name, **labels):
    found = [given for given_name, given, _ in page.samples if given_name == name and labels.items() <= given.items()]
    assert len(found) == 1, f"{name}{labels}: {found}"
    return found[0]


# A healthy node


def test_every_device_is_there_and_well(story):
    page = story.healthy
    for rail in range(8):
        assert page.total("lockstep_gpu_up", gpu_uuid=uuid(story.node, rail)) == 1
        assert page.total("hw_network_up_ratio", device=f"mlx5_{rail}", port="1") == 1
        assert page.total("hw_network_bandwidth_limit_bytes_per_second", device=f"mlx5_{rail}") == 50e9
        assert page.total("lockstep_nic_speed", device=story.node.rails[rail]["netdev"]) == 50e9


def test_a_port_is_joined_with_its_gpu_and_its_leaf(story):
    for rail in story.node.rails:
        info = one_of(story.healthy, "lockstep_nic_info", device=f"mlx5_{rail['i']}")
        for label, value in (("port", "1"), ("netdev", rail["netdev"]), ("pci", rail["nic"]), ("gpu_uuid", rail["uuid"]),
                             ("leaf", rail["leaf"]), ("leaf_port", rail["leaf_port"]), ("link_layer", "Ethernet"), ("address", rail["ip"])):  # fmt: skip
            assert info.get(label) == value, (label, info)
        near = story.healthy.total("lockstep_gpu_nic_distance", gpu_uuid=rail["uuid"], device=f"mlx5_{rail['i']}")
        assert near == 4, "PIX"


def test_every_gpu_has_its_job_and_rank(story):
    for rail in story.node.rails:
        info = one_of(story.healthy, "lockstep_job_gpu_info", gpu_uuid=rail["uuid"])
        assert (info["job_id"], info["rank"], info["user"]) == (JOB, str(FIRST_RANK + rail["i"]), "mira"), info


def test_rates_are_in_base_units(story):
    seconds, page = story.healthy_s, story.healthy
    for rail in range(8):
        sent = page.total("hw_network_io_bytes_total", device=f"mlx5_{rail}", direction="transmit")
        sent -= story.first.total("hw_network_io_bytes_total", device=f"mlx5_{rail}", direction="transmit")
        assert sent / seconds == pytest.approx(18e9, rel=0.15), "bytes, not words of four"
        gpu = {"gpu_uuid": uuid(story.node, rail)}
        assert 200 < page.total("hw_power_watts", **gpu) < 800
        assert 0 < page.total("lockstep_gpu_sm_active", **gpu) <= 1
        assert page.total("lockstep_gpu_clock_hertz", clock="sm", **gpu) == 1980e6
        assert 20 < page.total("hw_temperature_celsius", hw_sensor_location="gpu", **gpu) < 95
    cpu = page.total("system_cpu_time_seconds_total") - story.first.total("system_cpu_time_seconds_total")
    assert cpu / seconds == pytest.approx(96, rel=0.05), "96 CPUs spend 96 seconds a second"
    rtt = page.total("lockstep_storage_rtt_seconds", mount=MOUNT, op="read")
    assert rtt == pytest.approx(0.004, rel=0.3)


def test_a_counter_that_ran_over_goes_on(story):
    name, port = "lockstep_nic_rx_write_requests_total", {"device": f"mlx5_{WRAPPED}", "port": "1"}
    raw = story.node.number(story.node.nic(WRAPPED, "hw_counters/rx_write_requests"))
    assert raw < 2**31, "it has run over"
    first, healthy, broken = (page.total(name, **port) for page in (story.first, story.healthy, story.broken))
    assert 2**32 - 150_000 <= first < 2**32 <= healthy < broken < 2**32 + 2_000_000


def test_nothing_false_is_told_of_a_healthy_node(story):
    told = [
        event for event in story.healthy_events if event.severity in TELLING and not event.name.startswith("agent.")
    ]
    assert not told, told
    for kind in ("gpu.xid", "host.oom_kill", "host.mce", "pcie.aer", "link.down"):
        assert all(
            labels.get("kind") != kind
            for name, labels, value in story.healthy.samples
            if name == "lockstep_kernel_events_total" and value
        )
    assert story.healthy.total("lockstep_agent_source_failures_total") == 0, story.agent.log()
    for rail in range(8):
        for name in ("cpu_throttled_seconds_total", "oom_kills_total"):
            assert story.healthy.total(f"lockstep_cgroup_{name}", gpu_uuid=uuid(story.node, rail)) == 0


def resident_bytes(pid):
    """At its peak, with its GPU reader."""
    children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    family = [pid, *(int(child) for file in children for child in file.read_text().split())]
    return sum(
        1024 * int(pathlib.Path(f"/proc/{one}/status").read_text().split("VmHWM:")[1].split()[0]) for one in family
    )


def test_the_agent_is_small(story):
    assert resident_bytes(story.agent.pid) < 40 << 20
    assert story.agent.running()
    if "lockstep_agent_records_dropped_total" in story.broken.names():
        assert story.broken.total("lockstep_agent_records_dropped_total") == 0


# Faults


def test_congestion_shows_on_its_rail_alone(story):
    for rail in range(8):
        marked = grown(story, "lockstep_nic_np_ecn_marked_roce_packets_total", device=f"mlx5_{rail}") / story.broken_s
        paused = grown(
            story,
            "lockstep_nic_pause_seconds_total",
            device=story.node.rails[rail]["netdev"],
            priority="3",
            direction="receive",
        )
        if rail == CONGESTED:
            assert marked == pytest.approx(20_000, rel=0.15)
            assert paused / story.broken_s == pytest.approx(0.18, rel=0.15), "the share of time that we were stopped"
        else:
            assert marked < 100 and paused < 0.01 * story.broken_s, rail


def test_a_flap_is_told_with_its_link(story):
    rail = story.node.rails[FLAP]
    names = {rail["netdev"], f"mlx5_{FLAP}/1", rail["nic"]}
    downs, ups = named(story, "link.down"), named(story, "link.up")
    assert {event.device for event in downs} <= names and rail["netdev"] in {event.device for event in downs}, downs
    assert all(event.severity in TELLING for event in downs)
    assert rail["netdev"] in {event.device for event in ups}
    assert grown(story, "lockstep_nic_carrier_changes_total", device=rail["netdev"]) == 2
    assert grown(story, "lockstep_nic_packet_seq_err_total", device=f"mlx5_{FLAP}") / story.broken_s == pytest.approx(
        200, rel=0.15
    )
    assert story.broken.total("hw_network_up_ratio", device=f"mlx5_{FLAP}") == 1, "it is back"


def test_lost_lanes_are_told(story):
    rail = story.node.rails[NARROW]
    assert story.broken.total("lockstep_pcie_link_width", pci=rail["gpu"]) == 8
    assert story.broken.total("lockstep_pcie_link_width_max", pci=rail["gpu"]) == 16
    assert [event.gpu_uuid for event in named(story, "link.degraded", device=rail["gpu"])] == [rail["uuid"]]


def test_slow_storage_is_seen_as_such(story):
    assert story.broken.total("lockstep_storage_rtt_seconds", mount=MOUNT, op="read") == pytest.approx(0.2, rel=0.3)
    waited = grown(story, "lockstep_storage_rtt_seconds_total", mount=MOUNT, op="read")
    assert waited / grown(story, "lockstep_storage_operations_total", mount=MOUNT, op="read") == pytest.approx(
        0.2, rel=0.3
    )


def test_a_starved_proxy_thread_is_found_by_its_gpu(story):
    for rail in range(8):
        gpu = {"gpu_uuid": uuid(story.node, rail)}
        waited = (
            grown(story, "lockstep_thread_runqueue_wait_seconds_total", thread_class="nccl", **gpu) / story.broken_s
        )
        if rail == STARVED:
            assert waited == pytest.approx(0.6, rel=0.15)
        else:
            assert waited < 0.02, rail
        trainer = grown(story, "lockstep_thread_runqueue_wait_seconds_total", thread_class="trainer", **gpu)
        assert trainer / story.broken_s < 0.02, rail


def test_a_cpu_quota_shows_on_the_rank_that_has_it(story):
    for rail in range(8):
        held = (
            grown(story, "lockstep_cgroup_cpu_throttled_seconds_total", gpu_uuid=uuid(story.node, rail))
            / story.broken_s
        )
        assert held == (pytest.approx(0.3, rel=0.15) if rail == THROTTLED else 0), rail


def test_an_oom_kill_names_its_victim_and_job(story):
    (event,) = named(story, "host.oom_kill")
    victim = story.node.rails[KILLED]["pid"] + 40
    assert (event.pid, event.process, event.job_id) == (victim, "pt_data_worker", JOB), vars(event)
    assert event.rank in (FIRST_RANK + KILLED, -1), "its own, or not known: the worker itself holds no GPU"
    assert event.severity in TELLING
    assert grown(story, "lockstep_cgroup_oom_kills_total", gpu_uuid=uuid(story.node, KILLED)) == 1
    assert grown(story, "lockstep_host_vm_events_total", event="oom_kill") == 1


def test_memory_pressure_is_a_share_of_time(story):
    stalled = grown(story, "lockstep_host_pressure_seconds_total", resource="memory", scope="full") / story.broken_s
    assert stalled == pytest.approx(0.2, rel=0.15)
    assert 0.1 < story.broken.total("lockstep_host_pressure", resource="memory", scope="some") <= 0.36
    assert story.healthy.total("lockstep_host_pressure", resource="memory", scope="some") == 0


def test_an_xid_is_told_once_with_its_process_and_job(story):
    gpu = uuid(story.node, XID)
    (error,) = named(story, "gpu.xid", code=94)
    assert (error.gpu_uuid, error.pid, error.process) == (gpu, story.node.rails[XID]["pid"], "python3"), vars(error)
    assert (error.job_id, error.rank, error.secondary) == (JOB, FIRST_RANK + XID, False)
    assert "kmsg" in error.source and error.meaning and error.action
    (torn,) = named(story, "gpu.xid", code=45)
    assert torn.secondary, "45 follows another"
    (asked,) = named(story, "gpu.xid", code=154)
    assert asked.gpu_uuid == gpu and asked.severity in TELLING
    assert story.broken.total("lockstep_gpu_recovery_action", gpu_uuid=gpu) == 1
    for code in ("94", "45", "154"):  # by the log and by the driver, and yet one each
        assert story.broken.total("lockstep_gpu_xid_total", gpu_uuid=gpu, xid=code) == 1


def test_a_gpu_off_the_bus_is_lost_and_the_others_are_not(story):
    gpu = uuid(story.node, LOST)
    (event,) = named(story, "gpu.xid", code=79)
    assert (event.gpu_uuid, event.severity) == (gpu, "critical"), vars(event)
    assert event.job_id == JOB and event.rank == FIRST_RANK + LOST, "who held it"
    assert {event.gpu_uuid for event in named(story, "gpu.lost")} <= {gpu}
    assert [story.broken.total("lockstep_gpu_up", gpu_uuid=uuid(story.node, rail)) for rail in range(8)] == [0] + [
        1
    ] * 7
    widths = [value for name, _, value in story.broken.samples if name == "lockstep_pcie_link_width"]
    assert max(widths) <= 32, "registers of all ones are no width"


def test_reset_counters_are_no_traffic(story):
    """What a query makes of a sum that has fallen: it began anew."""
    for direction in ("transmit", "receive"):
        port = {"device": f"mlx5_{RESET}", "direction": direction}
        before, after = (page.total("hw_network_io_bytes_total", **port) for page in (story.healthy, story.broken))
        moved = after - before if after >= before else after
        assert 0 < moved / story.broken_s < 50e9, "more than the link can carry"
    writes = {"device": f"mlx5_{RESET}", "port": "1"}
    before, after = (
        page.total("lockstep_nic_rx_write_requests_total", **writes) for page in (story.healthy, story.broken)
    )
    assert (after - before if after >= before else after) / story.broken_s < 100_000, "a reset is no overflow"


def test_one_odd_counter_costs_that_counter_alone(story):
    port = {"device": f"mlx5_{ODD}", "port": "1"}
    assert grown(story, "hw_network_io_bytes_total", direction="transmit", **port) > 0
    assert grown(story, "lockstep_nic_rx_write_requests_total", **port) > 0
    assert story.broken.total("lockstep_agent_source_failures_total", source="nic") > 0, "it is counted"
    assert sum("rx_icrc_encapsulated" in line for line in story.agent.log().splitlines()) <= 1, "and said once"


def test_a_clock_that_was_stepped_is_not_trusted(story):
    assert story.broken.total("lockstep_host_clock_synchronized") == 0
    assert story.broken.total("lockstep_host_clock_error_seconds", of="most") == pytest.approx(16)
    now = time.time_ns()
    assert all(abs(event.time_ns - now) < 300e9 for event in story.events), "times are the agent's own clock's"


def test_corrected_memory_errors_are_counted_and_told_once(story):
    assert grown(story, "hw_errors_total", error_type="corrected", gpu_uuid=uuid(story.node, DRIP)) >= story.broken_s
    assert (
        sum(grown(story, "hw_errors_total", gpu_uuid=uuid(story.node, rail)) for rail in range(1, 8) if rail != DRIP)
        == 0
    )
    assert grown(story, "lockstep_host_memory_errors_total", kind="uncorrected") == 0
    told = named(story, "host.mce")
    assert 1 <= len(told) <= 3 and all(event.severity != "critical" for event in told), told


def test_a_storm_of_pcie_errors_is_few_events(story):
    rail = story.node.rails[AER]
    told = named(story, "pcie.aer")
    assert 1 <= len(told) <= 4 and {event.device for event in told} <= {rail["nic"], rail["nic_port"]}, told
    assert grown(
        story, "lockstep_pcie_aer_total", pci=rail["nic"], severity="correctable"
    ) / story.broken_s == pytest.approx(200, rel=0.15)
    assert grown(story, "lockstep_pcie_aer_total", severity="fatal") == 0


def test_a_power_brake_is_time_and_a_lower_clock(story):
    gpu = uuid(story.node, BRAKED)
    assert story.broken.total("lockstep_gpu_clock_hertz", gpu_uuid=gpu, clock="sm") == 990e6
    held = grown(story, "lockstep_gpu_throttle_seconds_total", gpu_uuid=gpu, reason="hw_power_brake")
    # From reading to reading, and what lies between two that are far apart is not counted: on a busy machine some are.
    assert 0.3 * story.broken_s <= held <= 1.15 * story.broken_s


def test_a_hung_task_is_named(story):
    (event,) = named(story, "host.hung_task")
    assert (event.pid, event.job_id, event.rank) == (story.node.rails[HUNG]["pid"], JOB, FIRST_RANK + HUNG), vars(event)
    assert story.broken.total("lockstep_host_tasks_uninterruptible", kind="training") == 1


def test_nobody_else_is_blamed(story):
    """Every warning is about a rail that has a fault of that kind."""
    node = story.node
    allowed = {
        "gpu.xid": {uuid(node, LOST), uuid(node, XID)},
        "gpu.lost": {uuid(node, LOST)},
        "gpu.recovery_action": {uuid(node, XID), uuid(node, LOST)},
        "link.down": {node.rails[FLAP]["netdev"], f"mlx5_{FLAP}/1", node.rails[FLAP]["nic"]},
        "link.degraded": {node.rails[NARROW]["gpu"], uuid(node, NARROW)},
        "pcie.aer": {node.rails[AER]["nic"], node.rails[AER]["nic_port"]},
        "host.oom_kill": {""},
        "host.hung_task": {""},
        "host.mce": {"MC1", ""},
        "clock.step": {""},
    }
    for event in story.events:
        if event.severity in TELLING and not event.name.startswith("agent."):
            where = {event.gpu_uuid, event.device} - {""} or {""}
            assert event.name in allowed and (where & allowed[event.name] or event.name.startswith("host.")), vars(
                event
            )


# The server


def last_point(server, name, **labels):
    series = [one for one in server.get("/api/metrics", name=name)["series"] if labels.items() <= one["labels"].items()]
    assert len(series) == 1, f"{name}{labels}: {[one['labels'] for one in series]}"
    return series[0]["points"][-1][1]


def test_the_server_has_what_the_page_has(story):
    """As it was sent: sums as they are, gauges as means, rounded."""
    node = story.node

    def look():
        for name, labels, value, within in (
            ("hw.network.io", {"device": f"mlx5_{CONGESTED}", "direction": "receive"},
             4 * node.number(node.nic(CONGESTED, "counters/port_rcv_data")), 0),
            ("lockstep_nic_np_ecn_marked_roce_packets_total", {"device": f"mlx5_{CONGESTED}"},
             node.number(node.nic(CONGESTED, "hw_counters/np_ecn_marked_roce_packets")), 0),
            ("lockstep_nic_pause_seconds_total", {"device": node.rails[CONGESTED]["netdev"], "priority": "3", "direction": "receive"},
             node.ethtool(CONGESTED).get("rx_prio3_pause_duration") / 1e6, 0),
            ("lockstep_gpu_up", {"gpu_uuid": uuid(node, LOST)}, 0, 0),
            ("lockstep_gpu_up", {"gpu_uuid": uuid(node, XID)}, 1, 0),
            ("lockstep_pcie_link_width", {"pci": node.rails[NARROW]["gpu"]}, 8, 0),
            ("lockstep_gpu_clock_hertz", {"gpu_uuid": uuid(node, BRAKED), "clock": "sm"}, 990e6, 0),
            ("lockstep_host_pressure_seconds_total", {"resource": "memory", "scope": "full"},
             node.number("/proc/pressure/memory", "full", "total") / 1e6, 0),
            ("lockstep_storage_operations_total", {"mount": MOUNT, "op": "read"},
             node.number(f"/proc/{node.archive.constants['agent']}/mountstats", "READ", 1), 0),
            ("system.memory.linux.available", {}, node.number("/proc/meminfo", "MemAvailable") * 1024, 1 << 21),
        ):  # fmt: skip
            has = last_point(story.server, name, **labels)
            assert abs(has - value) <= within + 1e-9 * abs(value), f"{name}{labels}: {has}, not {value}"
        return True

    harness.eventually(look, 20, "what the page has is at the server")
    assert story.server.counters().total("lockstep_ingest_refused_records_total") == 0


def test_the_server_says_what_its_agent_costs(story):
    def known():
        found = story.server.get("/api/overhead")
        return found if found["agents"]["sent_bytes_per_s_per_gpu"] and found["server"]["cpu_cores"] is not None else None

    found = harness.eventually(known, 40, "the cost of agent and server")
    agents = found["agents"]
    assert agents["hosts"] == 1 and agents["gpus"] == 8, found
    assert 0 < agents["cpu_cores"] < 1 and agents["memory_bytes"] < 80 << 20 and found["server"]["disk_bytes"] > 0, found


def test_hardware_series_carry_no_job(story):
    """A job's end must not end the series of its GPUs: the job is joined by lockstep_job_gpu_info."""
    for name in ("hw.power", "lockstep_gpu_sm_active", "hw.network.io"):
        for series in story.server.get("/api/metrics", name=name)["series"]:
            assert not {"job_id", "rank", "pid"} & set(series["labels"]), series[
                "labels"
            ]


def test_units_reach_the_server(story):
    names = set(story.server.get("/api/metrics")["names"])
    assert {
        "hw_power_watts",
        "hw_energy_joules_total",
        "hw_temperature_celsius",
        "hw_gpu_memory_usage_bytes",
        "system_cpu_time_seconds_total",
        "system_disk_io_bytes_total",
    } <= names


# A kernel log that is flooded

FLOOD = 40_000  # of the 800,000 that were reported: the time to read them grows with their number, nothing else


@pytest.mark.limit(100)
def test_a_flooded_kernel_log_is_counted_exactly_and_told_in_few_words():
    with living_node() as living:
        node, folder = living.node, living.folder
        server = harness.Server(folder / "data")
        agent = NodeAgent(folder, folder / "tree", folder / "gpus.txt", server.otlp_http)
        try:
            harness.eventually(lambda: agent.page().total("lockstep_gpu_up") == 8, 20, "the GPUs are known", PAGE_EVERY_S)
            living.player.live(1)
            living.player.fault("kmsg_flood", lines=FLOOD, seconds=4)
            gpu = {"gpu_uuid": uuid(node, 3), "xid": "95"}

            def all_counted():
                counted = agent.page().total("lockstep_gpu_xid_total", **gpu)
                assert counted == FLOOD, counted
                return True

            harness.eventually(all_counted, 45, "every line is counted", PAGE_EVERY_S)
            told = [event for event in events_of(server) if event.name == "gpu.xid"]
            assert 1 <= len(told) <= 40, f"{len(told)} events of 29 distinct lines"
            assert {(event.gpu_uuid, event.code, event.job_id) for event in told} == {(uuid(node, 3), 95, JOB)}
            assert {event.severity for event in told} == {"critical"}
            assert resident_bytes(agent.pid) < 40 << 20

            # What the next agent makes of a log that has been read.
            assert agent.stop() == 0
            agent = NodeAgent(folder, folder / "tree", folder / "gpus.txt", server.otlp_http)
            harness.eventually(lambda: agent.page().total("lockstep_gpu_up") == 8, 20, "it reads", PAGE_EVERY_S)
            rail = node.rails[2]
            with living.player.held():
                node.log(f"NVRM: Xid (PCI:{rail['gpu'][:-2]}): 31, pid={rail['pid']}, name=python3, MMU Fault", 3)
                node.flush()
            harness.eventually(lambda: any(event.code == 31 for event in events_of(server)), 15, "what is new is told")
            again = [event for event in events_of(server) if event.name == "gpu.xid" and event.code == 95]
            assert len(again) == len(told), "what was told before is not told again"
        finally:
            agent.kill()
            server.kill()
