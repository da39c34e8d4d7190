"""What can go wrong on the node, as each fault shows itself in files, in the kernel's log and in the GPU driver.

A fault is begun, does its harm each second, and may end; what it has counted stays counted. `rail` is the pair of GPU
and NIC that it is about (0 to 7, the rank of the same number on this node)."""

import os

FAULTS = {}


def fault(kind):
    FAULTS[kind.name] = kind
    return kind


class Fault:
    name = ""

    def __init__(self, node, rail=0):
        self.node, self.at, self.rail = node, rail, node.rails[rail]
        self.shape, self.elapsed = node.shape, 0.0

    def begin(self):
        pass

    def each(self, seconds):
        pass

    def end(self):
        pass

    def tick(self, seconds):
        """True in the second in which it has lasted so long, told once: crossed(3)."""
        before, self.elapsed = self.elapsed, self.elapsed + seconds
        return lambda when: before < when <= self.elapsed

    def count(self, name, by):
        """A counter of the RDMA port."""
        self.node.value(self.node.nic(self.at, name)).add(self.node.whole(by))


@fault
class RailCongestion(Fault):
    """The path to one NIC is congested: marked packets arrive, and the switch pauses us."""

    name = "rail_congestion"

    def __init__(self, node, rail=2):
        super().__init__(node, rail)

    def begin(self):
        self.shape.rail_speed[self.at] = 0.6

    def each(self, seconds):
        self.count("hw_counters/np_ecn_marked_roce_packets", 20_000 * seconds)
        self.count("hw_counters/np_cnp_sent", 9_000 * seconds)
        self.count("hw_counters/rp_cnp_handled", 4_000 * seconds)
        text = self.node.ethtool(self.at)
        for name, rate in (("", 3_000), ("_duration", 180_000), ("_transition", 1_500)):
            text.add(f"rx_prio3_pause{name}", 1, self.node.whole(rate * seconds))

    def end(self):
        self.shape.rail_speed[self.at] = 1.0


@fault
class PeerFlap(Fault):
    """A link goes down, comes back after three seconds, and packets in flight are lost."""

    name = "peer_flap"
    DOWN_S = 3

    def __init__(self, node, rail=5):
        super().__init__(node, rail)

    def begin(self):
        self._link(False)
        self.count("counters/link_downed", 1)
        self.node.ethtool(self.at).add("link_down_events_phy", 1, 1)
        self.shape.rail_speed[self.at] = 0.0

    def each(self, seconds):
        self.count("hw_counters/packet_seq_err", 200 * seconds)
        self.count("hw_counters/local_ack_timeout_err", 12 * seconds)
        if self.tick(seconds)(self.DOWN_S):
            self.end()

    def end(self):
        if self.shape.rail_speed[self.at] == 0.0:
            self._link(True)
            self.shape.rail_speed[self.at] = 1.0

    def _link(self, up):
        node = self.node
        node.value(node.nic(self.at, "state")).set("4: ACTIVE" if up else "1: DOWN")
        node.value(node.nic(self.at, "phys_state")).set("5: LinkUp" if up else "3: Disabled")
        for name, value in (
            ("carrier", int(up)),
            ("operstate", "up" if up else "down"),
            ("speed", 400000 if up else -1),
        ):
            node.value(node.netdev(self.at, name)).set(value)
        node.value(node.netdev(self.at, "carrier_changes")).add(1)
        node.value(node.netdev(self.at, "carrier_up_count" if up else "carrier_down_count")).add(1)
        node.log(f"mlx5_core {self.rail['nic']} {self.rail['netdev']}: Link {'up' if up else 'down'}", 6 if up else 4)


@fault
class PcieWidth(Fault):
    """A GPU (or a NIC: what="nic") has trained to half of its lanes."""

    name = "pcie_width"

    def __init__(self, node, rail=4, what="gpu"):
        super().__init__(node, rail)
        self.what = what

    def begin(self):
        self._width(8)

    def end(self):
        self._width(16)

    def _width(self, lanes):
        self.node.value(self.node.pci(self.at, self.what, "current_link_width")).set(lanes)
        self.node.value(self.node.pci(self.at, self.what, "../current_link_width")).set(lanes)
        if self.what == "gpu":
            self.node.gpus.set(self.at, pcie_width=lanes)


@fault
class NfsSlow(Fault):
    """The file server answers fifty times later."""

    name = "nfs_slow"

    def begin(self):
        self.shape.storage_slow = 50.0

    def end(self):
        self.shape.storage_slow = 1.0


@fault
class ProxyStarved(Fault):
    """The thread that drives NCCL's network is ready to run and does not get a CPU for 60 % of the time."""

    name = "proxy_starved"
    WAIT = 0.6

    def __init__(self, node, rail=6):
        super().__init__(node, rail)

    def begin(self):
        self.shape.extra_wait[self.at, "NCCL Progress"] = self.WAIT

    def end(self):
        self.shape.extra_wait.pop((self.at, "NCCL Progress"))


@fault
class CpuThrottle(Fault):
    """Somebody gave the rank's cgroup a CPU quota of four CPUs: it is held back for 0.3 s of each second."""

    name = "cpu_throttle"

    def __init__(self, node, rail=3):
        super().__init__(node, rail)

    def begin(self):
        self.node.value(self.node.cgroup(self.at, "cpu.max")).set("400000 100000")
        self.shape.pressure[("cpu", self.at), "some"] = 0.3

    def each(self, seconds):
        text = self.node.text(self.node.cgroup(self.at, "cpu.stat"))
        for name, rate in (("nr_periods", 10), ("nr_throttled", 6), ("throttled_usec", 300_000)):
            text.add(name, 1, self.node.whole(rate * seconds))

    def end(self):
        self.node.value(self.node.cgroup(self.at, "cpu.max")).set("max 100000")
        self.shape.pressure.pop((("cpu", self.at), "some"))


@fault
class OomKill(Fault):
    """A data loader's worker of one rank is killed at its cgroup's memory limit."""

    name = "oom_kill"

    def __init__(self, node, rail=7):
        super().__init__(node, rail)

    def begin(self):
        node, cgroup = self.node, self.node.archive.constants["cgroup"]
        victim = self.rail["pid"] + node.archive.tables["worker"][0]["at"]
        task = f"{cgroup}/user/task_{self.at}"
        node.text("/proc/vmstat").add("oom_kill", 1, 1)
        for folder in (task, f"{cgroup}/user", cgroup, os.path.dirname(cgroup)):
            for name in ("oom", "oom_kill"):
                node.text(f"/sys/fs/cgroup{folder}/memory.events").add(name, 1, 1)
        node.log("python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", 4)
        node.log(
            f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=task_{self.at},mems_allowed=0-1,"
            f"oom_memcg={task},task_memcg={task},task=pt_data_worker,pid={victim},uid=20117"
        )
        node.log(
            f"Memory cgroup out of memory: Killed process {victim} (pt_data_worker) total-vm:91220331kB, "
            "anon-rss:81203311kB, file-rss:2033kB, shmem-rss:120331kB, UID:20117 pgtables:181203kB oom_score_adj:0",
            3,
        )
        self.shape.worker_gone.add(victim)
        node.remove(f"/proc/{victim}")


@fault
class MemoryPressure(Fault):
    """The host is short of memory: tasks stall for 35 % of the time and reclaim pages themselves."""

    name = "memory_pressure"

    def begin(self):
        self.shape.pressure["memory", "some"] = 0.35
        self.shape.pressure["memory", "full"] = 0.2

    def each(self, seconds):
        vm = self.node.text("/proc/vmstat")
        for name, rate in (
            ("pgscan_direct", 40_000),
            ("allocstall_movable", 200),
            ("pgmajfault", 500),
            ("compact_stall", 20),
        ):
            vm.add(name, 1, self.node.whole(rate * seconds))
        self.node.text("/proc/meminfo").set("MemAvailable", 1, 20_331_190)

    def end(self):
        self.shape.pressure.pop(("memory", "some"))
        self.shape.pressure.pop(("memory", "full"))


@fault
class Xid94Then154(Fault):
    """A contained memory error ends the rank's context; two seconds later the driver asks for a reset."""

    name = "xid_94_154"

    def __init__(self, node, rail=1):
        super().__init__(node, rail)

    def begin(self):
        pid = self.rail["pid"]
        self._say(f"94, pid={pid}, name=python3, Contained: SM (0x1). RST: No, D-RST: No", 94)
        self._say(f"45, pid={pid}, name=python3, Ch 00000008", 45)

    def each(self, seconds):
        if self.tick(seconds)(2):
            self._say("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", 154)
            self.node.gpus.set(self.at, recovery_action=1)

    def _say(self, text, number):
        self.node.log(f"NVRM: Xid (PCI:{self.rail['gpu'][:-2]}): {text}", 3)
        self.node.gpus.xid(self.at, number)


@fault
class GpuOffBus(Fault):
    """A GPU falls off the bus: its registers read as all ones, and the driver says that it is lost."""

    name = "gpu_off_bus"

    def __init__(self, node, rail=0):
        super().__init__(node, rail)

    def begin(self):
        node, bdf = self.node, self.rail["gpu"]
        node.log(f"NVRM: Xid (PCI:{bdf[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", 3)
        node.log(f"NVRM: GPU {bdf}: GPU has fallen off the bus.", 3)
        node.value(node.pci(self.at, "gpu", "current_link_width")).set(63)
        node.value(node.pci(self.at, "gpu", "current_link_speed")).set("Unknown")
        node.gpus.xid(self.at, 79)
        node.gpus.lose(self.at)


@fault
class KmsgFlood(Fault):
    """One GPU fills the kernel's log: 800,000 lines with 29 distinct texts within ten seconds."""

    name = "kmsg_flood"

    def __init__(self, node, rail=3, lines=800_000, distinct=29, seconds=10):
        super().__init__(node, rail)
        self.left, self.distinct, self.rate = lines, distinct, lines / seconds

    def each(self, seconds):
        now = min(self.left, int(self.rate * seconds) + 1)
        pid = self.rail["pid"]
        self.node.log_many(
            (
                f"NVRM: Xid (PCI:{self.rail['gpu'][:-2]}): 95, pid={pid}, name=python3, "
                f"Uncontained: LTC TAG (0x{(self.left - i) % self.distinct:x},0x0). RST: Yes, D-RST: No"
                for i in range(now)
            ),
            3,
        )
        self.left -= now


@fault
class CounterWrap(Fault):
    """A 32-bit counter of a NIC is about to run over."""

    name = "counter_wrap"

    def __init__(self, node, rail=2, left=60_000):
        super().__init__(node, rail)
        self.left = left  # about 34,000 a second

    def begin(self):
        self.node.value(self.node.nic(self.at, "hw_counters/rx_write_requests")).set(2**32 - self.left)


@fault
class CounterReset(Fault):
    """The NIC's driver is loaded again: everything that it counted begins at nothing."""

    name = "counter_reset"

    def __init__(self, node, rail=3):
        super().__init__(node, rail)

    def begin(self):
        node = self.node
        for folder in ("counters", "hw_counters"):
            base = node.nic(self.at, folder)
            for path in [path for path in node.archive.files if path.startswith(base + "/")]:
                if not path.endswith("/lifespan"):
                    node.value(path).set(0)
        text = node.ethtool(self.at)
        for name in text.rows():
            if name != "NIC":
                text.set(name, 1, 0)
        netdev = node.text("/proc/net/dev")
        for column in range(1, 17):
            netdev.set(self.rail["netdev"], column, 0)
        base = node.netdev(self.at, "statistics/")
        for path in [path for path in node.archive.files if path.startswith(base)]:
            node.value(path).set(0)
        node.log(f"mlx5_core {self.rail['nic']}: firmware version: 28.43.2026")
        node.log(f"mlx5_core {self.rail['nic']} {self.rail['netdev']}: Link up")


@fault
class OddPort(Fault):
    """A port whose firmware does not count everything: a text in place of a number, and a read that fails (EINVAL)."""

    name = "odd_port"
    TEXT, BROKEN = "counters/port_xmit_wait", "hw_counters/rx_icrc_encapsulated"

    def __init__(self, node, rail=7):
        super().__init__(node, rail)

    def begin(self):
        self.node.value(self.node.nic(self.at, self.TEXT)).set("N/A (no PMA)")
        # Loopback has no speed: its file is there, and reading it is EINVAL.
        self.node.replace(self.node.nic(self.at, self.BROKEN), lambda path: os.symlink("/sys/class/net/lo/speed", path))

    def end(self):
        self.node.value(self.node.nic(self.at, self.TEXT)).set(0)
        self.node.restore(self.node.nic(self.at, self.BROKEN))


@fault
class ClockStep(Fault):
    """The clock jumps by an hour and has lost its server; what the kernel calls the time of boot jumps with it."""

    name = "clock_step"

    def __init__(self, node, by=3600):
        super().__init__(node)
        self.by = by

    def begin(self):
        self.node.clock_step += self.by
        self._clock(0, 16_000_000, 16_000_000, 8193 | 0x40)

    def end(self):
        self._clock(900, 2033, 203, 8193)

    def _clock(self, offset, most, estimated, status):
        text = self.node.text("/run/lockstep-recorded/adjtimex")
        for name, value in (
            ("offset_ns", offset),
            ("maxerror_us", most),
            ("esterror_us", estimated),
            ("status", status),
        ):
            text.set(name, 1, value)


@fault
class EccDrip(Fault):
    """Memory goes bad slowly: two corrected errors a second in one DIMM, and two in one GPU."""

    name = "ecc_drip"

    def __init__(self, node, rail=5, controller=1):
        super().__init__(node, rail)
        self.controller = f"/sys/devices/system/edac/mc/mc{controller}"
        self.number = controller

    def each(self, seconds):
        more = self.node.whole(2 * seconds)
        for name in ("ce_count", "dimm0/dimm_ce_count", "csrow0/ce_count"):
            self.node.value(f"{self.controller}/{name}").add(more)
        self.node.gpus.add_corrected_errors(self.at, more)
        self.node.log(
            f"EDAC MC{self.number}: {more} CE memory read error on CPU_SrcID#0_MC#{self.number}_Chan#0_DIMM#0 "
            "(channel:0 slot:0 page:0x3f2a18 offset:0x840 grain:32 syndrome:0x0)",
            4,
        )


@fault
class AerStorm(Fault):
    """A NIC's PCIe link corrects 200 errors a second."""

    name = "aer_storm"

    def __init__(self, node, rail=4):
        super().__init__(node, rail)

    def each(self, seconds):
        node, bdf = self.node, self.rail["nic"]
        errors = node.whole(200 * seconds)
        text = node.text(node.pci(self.at, "nic", "aer_dev_correctable"))
        for name in ("BadTLP", "TOTAL_ERR_COR"):
            text.add(name, 1, errors)
        node.log(f"pcieport {self.rail['nic_port']}: AER: Multiple Correctable error message received from {bdf}")
        node.log(f"mlx5_core {bdf}: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)", 4)
        node.log(f"mlx5_core {bdf}:   device [15b3:1021] error status/mask=00000040/00000000", 4)
        node.log(f"mlx5_core {bdf}:    [ 6] BadTLP", 4)


@fault
class PowerBrake(Fault):
    """A GPU's clocks are held back by the machine's power supply."""

    name = "power_brake"

    def __init__(self, node, rail=2):
        super().__init__(node, rail)

    def begin(self):
        self.node.gpus.brake(self.at, True)

    def each(self, seconds):
        self.node.gpus.brake(self.at, True, seconds)

    def end(self):
        self.node.gpus.brake(self.at, False)


@fault
class HungTask(Fault):
    """A rank has been waiting in the kernel for two minutes."""

    name = "hung_task"

    def __init__(self, node, rail=3):
        super().__init__(node, rail)

    def begin(self):
        node, pid = self.node, self.rail["pid"]
        node.value("/proc/sys/kernel/hung_task_detect_count").add(1)
        for path in (f"/proc/{pid}/stat", f"/proc/{pid}/task/{pid}/stat"):
            node.text(path).set(0, -50, "D")
        node.log(f"INFO: task python3:{pid} blocked for more than 122 seconds.", 3)
        node.log(f"      Tainted: G           OE      {node.archive.constants['kernel']} #7-Ubuntu", 3)
        node.log('"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.', 3)

    def end(self):
        pid = self.rail["pid"]
        for path in (f"/proc/{pid}/stat", f"/proc/{pid}/task/{pid}/stat"):
            self.node.text(path).set(0, -50, "S")
