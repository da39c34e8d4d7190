"""How the numbers of a healthy node move while it trains: about the shapes of a 64-GPU job with a step of 2.5 s."""

STEP_S = 2.5
TICKS = 100  # USER_HZ

# Of one rank, in CPUs: its threads by the beginning of their names.
LOAD = {
    "python3": 0.90,
    "NCCL Progress": 0.85,
    "pt_autograd": 0.45,
    "pt_data_pin": 0.08,
    "pt_nccl_watchdg": 0.004,
    "NCCL Service": 0.0002,
}
WORKER_LOAD = 0.6
WAIT_SHARE = 0.002  # of its running time that a thread waits for a CPU where there are enough of them
RANK_CPUS = 12
PAGES = 4096


class Shape:
    def __init__(self, node):
        self.node = node
        self.extra_wait = {}  # (rail, beginning of a thread's name): share of a second, set by faults
        self.pressure = {}  # (resource, scope): share of time, set by faults over the healthy one
        self.rail_speed = [1.0] * len(node.rails)  # set by faults
        self.storage_slow = 1.0  # set by faults
        self.worker_gone = set()

    def start(self):
        """No two CPUs or ports begin alike."""
        node = self.node
        stat = node.text("/proc/stat")
        for cpu in range(node.cpus):
            for column in (1, 3, 4, 5, 7):
                old = stat.get(f"cpu{cpu}", column)
                stat.set(f"cpu{cpu}", column, int(old * node.random.uniform(0.9, 1.1)))
        for column in range(1, 11):
            stat.set("cpu", column, sum(stat.get(f"cpu{cpu}", column) for cpu in range(node.cpus)))
        for rail in range(len(node.rails)):
            for name in ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets"):
                counter = node.value(node.nic(rail, f"counters/{name}"))
                counter.set(int(counter.get() * node.random.uniform(0.97, 1.03)))
            writes = node.value(node.nic(rail, "hw_counters/rx_write_requests"))
            writes.set(int(writes.get() * node.random.uniform(0.2, 0.9)))

    def advance(self, seconds):
        for part in (self.cpus, self.memory, self.stalls, self.disk, self.storage, self.network, self.rdma):
            part(seconds)
        self.threads(seconds)
        self.interrupts(seconds)
        self.sensors(seconds)

    def noise(self, share=0.02):
        return self.node.random.uniform(1 - share, 1 + share)

    def cpus(self, seconds):
        node, stat = self.node, self.node.text("/proc/stat")
        per_node = node.cpus // 2  # hyper-threads: cpu and cpu + 48 are one core
        totals = [0] * 11
        for cpu in range(node.cpus):
            place = cpu % per_node % 6 + (6 if cpu >= per_node else 0)  # of the twelve that a rank may use
            user = (0.9, 0.85, 0.45, 0.6, 0.6, 0.1)[place] if place < 6 else 0.06
            ticks = TICKS * seconds
            spent = {
                1: node.whole(ticks * user * self.noise(0.05)),
                3: node.whole(ticks * 0.03),
                5: node.whole(ticks * 0.001),
                7: node.whole(ticks * 0.004),
            }
            spent[4] = max(0, round(ticks) - sum(spent.values()))
            for column, amount in spent.items():
                stat.add(f"cpu{cpu}", column, amount)
                totals[column] += amount
        for column, amount in enumerate(totals):
            if amount:
                stat.add("cpu", column, amount)
        stat.add("ctxt", 1, node.whole(412_000 * seconds * self.noise()))
        stat.add("intr", 1, node.whole(203_000 * seconds * self.noise()))
        stat.add("softirq", 1, node.whole(92_000 * seconds * self.noise()))
        stat.add("processes", 1, node.whole(3 * seconds))
        stat.set("procs_running", 1, 14 + node.random.randrange(4))
        load = node.text("/proc/loadavg")
        for column in range(3):
            load.set(0, column, 14.2 + node.random.uniform(-0.4, 0.4))

    def memory(self, seconds):
        node = self.node
        info, vm = node.text("/proc/meminfo"), node.text("/proc/vmstat")
        info.set("MemAvailable", 1, int(1_712_203_312 * self.noise(0.001)))
        info.set("Dirty", 1, int(42_032 * self.noise(0.3)))
        for name, rate in (
            ("pgfault", 82_000),
            ("pgfree", 110_000),
            ("pgalloc_normal", 110_000),
            ("numa_hit", 108_000),
        ):
            vm.add(name, 1, node.whole(rate * seconds * self.noise(0.1)))
        vm.add("pgpgin", 1, node.whole(42_000 * seconds))
        vm.add("pgpgout", 1, node.whole(8_000 * seconds))
        vm.add("pgmajfault", 1, node.whole(0.1 * seconds))
        for numa in range(2):
            node.text(f"/sys/devices/system/node/node{numa}/numastat").add("numa_hit", 1, node.whole(54_000 * seconds))
            node.text(f"/sys/devices/system/node/node{numa}/numastat").add(
                "local_node", 1, node.whole(54_000 * seconds)
            )

    def stalls(self, seconds):
        usual = {("cpu", "some"): 0.004, ("io", "some"): 0.001, ("io", "full"): 0.0008, ("irq", "full"): 0.0005}
        for resource in ("cpu", "memory", "io", "irq"):
            self._stall(f"/proc/pressure/{resource}", resource, usual, seconds)
        for rail in range(len(self.node.rails)):
            for resource in ("cpu", "memory", "io"):
                self._stall(self.node.cgroup(rail, f"{resource}.pressure"), (resource, rail), {}, seconds)

    def _stall(self, path, resource, usual, seconds):
        text = self.node.text(path)
        for scope in text.rows():
            share = usual.get((resource, scope), 0) * self.noise(0.2) + self.pressure.get((resource, scope), 0)
            share = min(share, 1.0)
            if share:
                text.add(scope, "total", self.node.whole(share * seconds * 1e6))
            for name, window in (("avg10", 10), ("avg60", 60), ("avg300", 300)):
                part = min(1.0, seconds / window)
                text.set(scope, name, text.get(scope, name) * (1 - part) + 100 * share * part)

    def disk(self, seconds):
        node, text = self.node, self.node.text("/proc/diskstats", key_column=2)
        reads, writes = node.whole(40 * seconds * self.noise(0.3)), node.whole(90 * seconds * self.noise(0.3))
        for disk in ("nvme0n1", "nvme0n1p2"):
            for column, amount in ((3, reads), (5, reads * 128), (6, reads * 0.12), (7, writes), (9, writes * 64)):
                text.add(disk, column, int(amount))
            text.add(disk, 10, int(writes * 0.05))
            text.add(disk, 12, node.whole(12 * seconds))
            text.add(disk, 13, int(reads * 0.12 + writes * 0.05))

    def storage(self, seconds):
        """Of one NFS mount: columns are ops, transmissions, timeouts, bytes out, bytes in, and ms in queue, on the wire
        and in all."""
        node, text = self.node, self.node.text(f"/proc/{self.node.archive.constants['agent']}/mountstats")
        for op, rate, sent, got, rtt in (
            ("READ", 400, 216, 1_048_700, 4.0),
            ("WRITE", 8, 1_048_700, 160, 4.0),
            ("GETATTR", 90, 224, 248, 0.2),
            ("OPEN", 2, 360, 400, 0.5),
        ):
            # A client with a bounded window asks less often of a server that answers late.
            ops = node.whole(rate * seconds * self.noise(0.1) / max(1.0, self.storage_slow / 8))
            wire = ops * rtt * self.storage_slow * self.noise(0.1)
            queue = ops * 0.05 * max(1.0, self.storage_slow / 4)
            for column, amount in ((1, ops), (2, ops), (4, ops * sent), (5, ops * got), (6, queue), (7, wire)):
                text.add(op, column, int(amount))
            text.add(op, 8, int(queue + wire + ops * 0.1))
            if op in ("READ", "WRITE"):
                text.add("bytes", 5 if op == "READ" else 6, ops * 1_048_576)
        text.set("age", 1, int(node.uptime()) - 100 if node.uptime() > 200 else 100)

    def network(self, seconds):
        node, text = self.node, self.node.text("/proc/net/dev")
        for name, rate in [("eth0", 500_000_000), *((rail["netdev"], 2000) for rail in node.rails)]:
            got, sent = node.whole(rate * seconds * self.noise(0.2)), node.whole(rate * 0.1 * seconds * self.noise(0.2))
            self._netdev(text, name, got, sent)
        snmp = node.text("/proc/net/snmp")
        for name, rate in (("InSegs", 92_000), ("OutSegs", 60_000), ("RetransSegs", 0.05)):
            snmp.add("Tcp", name, node.whole(rate * seconds))
        softnet = node.text("/proc/net/softnet_stat", key_column=12, base=16)
        for cpu in (3, 4):
            softnet.add(f"{cpu:08x}", 0, node.whole(40_000 * seconds))
        clock = node.text("/run/lockstep-recorded/adjtimex")
        if "clock_step" not in node.active():
            clock.set("offset_ns", 1, node.random.randrange(-2000, 2000))

    def _netdev(self, text, name, got, sent):
        node = self.node
        rails = [rail["i"] for rail in node.rails if rail["netdev"] == name]
        base = node.netdev(rails[0]) if rails else f"{node.archive.alias('eth0')}/net/eth0/"
        for column, counter, amount in (
            (1, "rx_bytes", got),
            (2, "rx_packets", -(-got // 1400)),
            (9, "tx_bytes", sent),
            (10, "tx_packets", -(-sent // 1400)),
        ):
            text.add(name, column, amount)
            node.value(f"{base}statistics/{counter}").add(amount)

    def rdma(self, seconds):
        node = self.node
        for rail in range(len(node.rails)):
            speed = self.rail_speed[rail]
            sent = node.whole(18e9 * speed * seconds * self.noise(0.1))
            got = node.whole(18e9 * speed * seconds * self.noise(0.1))
            for name, amount in (("xmit", sent), ("rcv", got)):
                node.value(node.nic(rail, f"counters/port_{name}_data")).add(amount // 4)
                node.value(node.nic(rail, f"counters/port_{name}_packets")).add(amount // 4200)
                node.value(node.nic(rail, f"counters/unicast_{name}_packets")).add(amount // 4200)
            self.hardware(rail, "rx_write_requests", got / 524_288)
            self.hardware(rail, "rx_read_requests", 0.2 * seconds)
            self.hardware(rail, "np_ecn_marked_roce_packets", 12 * seconds * speed)
            self.hardware(rail, "np_cnp_sent", 6 * seconds * speed)
            self.hardware(rail, "rp_cnp_handled", 5 * seconds * speed)
            text = node.ethtool(rail)
            for name, amount in (
                ("rx_vport_rdma_unicast_bytes", got),
                ("tx_vport_rdma_unicast_bytes", sent),
                ("rx_vport_rdma_unicast_packets", got // 4200),
                ("tx_vport_rdma_unicast_packets", sent // 4200),
                ("rx_bytes_phy", got),
                ("tx_bytes_phy", sent),
                ("rx_packets_phy", got // 4200),
                ("tx_packets_phy", sent // 4200),
                ("rx_bits_phy", got * 8),
                ("rx_prio3_bytes", got),
                ("tx_prio3_bytes", sent),
                ("rx_prio3_packets", got // 4200),
                ("tx_prio3_packets", sent // 4200),
                ("rx_corrected_bits_phy", node.whole(80 * seconds)),
                ("rx_prio3_pause", node.whole(0.5 * seconds * speed)),
            ):
                text.add(name, 1, amount)

    def hardware(self, rail, name, amount):
        self.node.value(self.node.nic(rail, f"hw_counters/{name}")).add(self.node.whole(amount))

    def threads(self, seconds):
        node = self.node
        for at, rail in enumerate(node.rails):
            used = 0.0
            for thread in node.archive.tables["thread"]:
                share = next((share for name, share in LOAD.items() if thread["comm"].startswith(name)), 0.0)
                wait = share * WAIT_SHARE * self.noise(0.5) + next(
                    (
                        more
                        for (of, name), more in self.extra_wait.items()
                        if of == at and thread["comm"].startswith(name)
                    ),
                    0,
                )
                share = min(share, max(0.0, 1 - wait)) * self.noise(0.02)
                if share or wait:
                    self._thread(f"/proc/{rail['pid']}/task/{rail['pid'] + thread['at']}", share, wait, seconds)
                    if thread["at"] == 0:
                        self._thread(f"/proc/{rail['pid']}", share, wait, seconds)
                used += share
            for worker in node.archive.tables["worker"]:
                pid = rail["pid"] + worker["at"]
                if pid not in self.worker_gone:
                    self._thread(f"/proc/{pid}/task/{pid}", WORKER_LOAD, WORKER_LOAD * WAIT_SHARE, seconds)
                    self._thread(f"/proc/{pid}", WORKER_LOAD, WORKER_LOAD * WAIT_SHARE, seconds)
                    used += WORKER_LOAD
            stat = node.text(node.cgroup(at, "cpu.stat"))
            for name, part in (("usage_usec", 1), ("user_usec", 0.9), ("system_usec", 0.1)):
                stat.add(name, 1, int(used * part * seconds * 1e6))
            memory = node.value(node.cgroup(at, "memory.current"))
            memory.set(int(92_203_311_104 * self.noise(0.01)) // PAGES * PAGES)

    def _thread(self, folder, share, wait, seconds):
        node = self.node
        text = node.text(f"{folder}/schedstat")
        text.add(0, 0, int(share * seconds * 1e9))
        text.add(0, 1, int(wait * seconds * 1e9))
        slices = node.whole(200 * share * seconds)
        text.add(0, 2, slices)
        # utime; counted from the end, for a name may have blanks
        node.text(f"{folder}/stat").add(0, -39, node.whole(share * seconds * TICKS))
        status = node.text(f"{folder}/status")
        status.add("voluntary_ctxt_switches", 1, slices)
        status.add("nonvoluntary_ctxt_switches", 1, node.whole((0.2 + 400 * max(0.0, wait - 0.01)) * seconds))

    def interrupts(self, seconds):
        node, text = self.node, self.node.text("/proc/interrupts")
        for rail in node.rails:
            for vector in range(4):
                text.add(
                    str(100 + rail["i"] * 4 + vector),
                    1 + rail["cpu"] + vector,
                    node.whole(1200 * seconds * self.noise(0.2)),
                )
            text.add(str(200 + rail["i"]), 1 + rail["cpu"], node.whole(40 * seconds))
        for cpu in range(node.cpus):
            text.add("LOC", 1 + cpu, node.whole(260 * seconds))
            text.add("RES", 1 + cpu, node.whole(12 * seconds))

    def sensors(self, seconds):
        node = self.node
        for numa in range(2):
            energy = node.value(f"/sys/devices/virtual/powercap/intel-rapl/intel-rapl:{numa}/energy_uj")
            energy.set(int(energy.get() + 240e6 * seconds * self.noise(0.05)) % 262_143_328_850)
            node.value(f"/sys/devices/platform/coretemp.{numa}/hwmon/hwmon{numa}/temp1_input").set(
                61_000 + 1000 * node.random.randrange(3)
            )
        for cpu in node.random.sample(range(node.cpus), 12):
            node.value(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq").set(
                2_900_000 + 1000 * node.random.randrange(200)
            )
