"""The recorded node itself: complete, alive, the same each time, and as broken as it was told to be.

python3 -m unittest discover -s tests/node"""

import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import faults  # noqa: E402
from archive import lldp_frame  # noqa: E402
from node import Node  # noqa: E402
from text import Text, Value, rewrite  # noqa: E402

IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
FLOOD_LINES = 2_000  # enough to be one; the real size is a matter of time only


def begin(node, name):
    node.fault(name, **({"lines": FLOOD_LINES, "seconds": 2} if name == "kmsg_flood" else {}))


class Played(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="node8-", dir=IN_MEMORY)
        self.addCleanup(self.folder.cleanup)
        self.node = Node(live=False)
        self.node.write(self.root)

    @property
    def root(self):
        return pathlib.Path(self.folder.name) / "tree"

    def read(self, path):
        return (self.root / path.lstrip("/")).read_text()

    def all_files(self):
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in self.root.rglob("*")
            if path.is_file() and not path.is_symlink()
        }


class TheTree(Played):
    def test_links_lead_to_files_of_the_tree(self):
        for path in self.root.rglob("*"):
            if path.is_symlink():
                self.assertTrue(path.resolve().is_relative_to(self.root), path)
                self.assertTrue(path.exists(), f"{path} leads nowhere")

    def test_gpu_and_nic_of_a_rail_are_under_one_switch(self):
        for rail in self.node.rails:
            gpu, nic = (os.path.realpath(self.root / "sys/bus/pci/devices" / rail[what]) for what in ("gpu", "nic"))
            self.assertEqual(os.path.dirname(os.path.dirname(gpu)), os.path.dirname(os.path.dirname(nic)))
        roots = {
            os.path.realpath(self.root / "sys/bus/pci/devices" / rail["gpu"]).split("/pci")[1][:7]
            for rail in self.node.rails
        }
        self.assertEqual(len(roots), 8, "each rail has a root port of its own")

    def test_nothing_is_left_unexpanded(self):
        for path, content in self.all_files().items():
            self.assertNotIn("${", path)
            self.assertNotIn(b"${", content, path)

    def test_processes_have_all_fields_of_stat(self):
        for path in self.root.glob("proc/[0-9]*/**/stat"):
            text = path.read_text()
            self.assertEqual(len(text.rpartition(")")[2].split()), 50, path)
            self.assertEqual(text.split()[0], path.parent.name)

    def test_a_rank_says_who_it_is(self):
        environ = (self.root / "proc/41300/environ").read_bytes().split(b"\0")
        self.assertIn(b"SLURM_PROCID=27", environ)
        self.assertIn("job_4242/step_0/user/task_3", self.read("/proc/41300/cgroup"))
        names = {(task / "comm").read_text().strip() for task in (self.root / "proc/41300/task").iterdir()}
        self.assertTrue({"python3", "NCCL Progress 3", "pt_autograd_3"} <= names, names)
        self.assertTrue(all(len(name) <= 15 for name in names), "the kernel cuts names at 15")

    def test_totals_of_cpu_time_are_the_sum_of_the_cpus(self):
        self.node.advance(3)
        rows = [line.split() for line in self.read("/proc/stat").splitlines() if line.startswith("cpu")]
        for column in range(1, 11):
            self.assertEqual(int(rows[0][column]), sum(int(row[column]) for row in rows[1:]))

    def test_lldp_frames_are_whole(self):
        frame = (self.root / "run/lockstep-recorded/lldp/enp24s0np0").read_bytes()
        self.assertEqual(frame[12:14], b"\x88\xcc")
        self.assertIn(b"leaf-a01", frame)
        self.assertTrue(frame.endswith(b"\0\0"))
        self.assertEqual(
            lldp_frame(
                "source 00:00:00:00:00:01\nchassis 00:00:00:00:00:02\nport p\ndescription d\nsystem s\nabout a\n"
            )[14:23],
            bytes.fromhex("0207040000000000 02".replace(" ", "")),
        )


class TheLife(Played):
    def test_the_same_seed_makes_the_same_node(self):
        other = Node(live=False)
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            other.write(folder)
            for node in (self.node, other):
                node.fault("rail_congestion")
                node.advance(1)
                node.advance(1)
            for path, content in self.all_files().items():
                self.assertEqual(content, (pathlib.Path(folder) / path).read_bytes(), path)

    def test_counters_only_grow(self):
        counters = [
            self.node.nic(rail, f"counters/{name}")
            for rail in range(8)
            for name in ("port_xmit_data", "port_rcv_packets")
        ]
        counters += [self.node.nic(rail, "hw_counters/rx_write_requests") for rail in range(8)]
        for _ in range(5):
            before = [int(self.read(path)) for path in counters]
            self.node.advance(1)
            after = [int(self.read(path)) for path in counters]
            self.assertTrue(all(a > b for a, b in zip(after, before)))

    def test_words_of_rdma_are_four_bytes(self):
        path = self.node.nic(0, "counters/port_xmit_data")
        before = int(self.read(path))
        self.node.advance(10)
        self.assertAlmostEqual((int(self.read(path)) - before) * 4 / 10, 18e9, delta=3e9)

    def test_files_keep_their_inode_and_their_readers(self):
        path = self.root / "proc/vmstat"
        with open(path) as kept:
            inode = os.stat(path).st_ino
            before = kept.read()
            self.node.advance(1)
            kept.seek(0)
            self.assertNotEqual(kept.read(), before)
        self.assertEqual(os.stat(path).st_ino, inode)

    def test_a_healthy_node_says_nothing(self):
        before = self.read("/dev/kmsg")
        for _ in range(20):
            self.node.advance(1)
        self.assertEqual(self.read("/dev/kmsg"), before)
        for name in ("oom_kill", "pswpout"):
            self.assertEqual(self.node.number("/proc/vmstat", name), 0)
        self.assertEqual(self.read("/proc/pressure/memory").splitlines()[0].split()[1], "avg10=0.00")

    def test_a_file_is_rewritten_in_one_write_at_its_place(self):
        """A reader that keeps it open and reads it in one call sees the old number or the new one."""
        path = self.root / self.node.nic(0, "hw_counters/rx_write_requests").lstrip("/")
        kept = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, kept)
        for text in (b"1000000\n", b"7\n", b"123456789\n"):
            with unittest.mock.patch("text.os.pwrite", wraps=os.pwrite) as pwrite:
                rewrite(path, text, os.stat(path).st_size)
            self.assertEqual(pwrite.call_count, 1)
            self.assertEqual(pwrite.call_args.args[2], 0)
            self.assertEqual(os.pread(kept, 4096, 0), text)


# What each fault must move within four seconds: a number of the node, and the least and most by which it grows.
MOVES = {
    "rail_congestion": (
        lambda node: node.number(node.nic(2, "hw_counters/np_ecn_marked_roce_packets")),
        60_000,
        90_000,
    ),
    "peer_flap": (lambda node: node.number(node.nic(5, "hw_counters/packet_seq_err")), 700, 900),
    "pcie_width": (lambda node: -node.number(node.pci(4, "gpu", "current_link_width")), 8, 8),
    "nfs_slow": (
        lambda node: node.number(f"/proc/{node.archive.constants['agent']}/mountstats", "WRITE", 7),
        500,
        5_000,
    ),
    "proxy_starved": (lambda node: node.number(node.task(6, "NCCL Progress") + "/schedstat", 0, 1), 2.3e9, 2.5e9),
    "cpu_throttle": (lambda node: node.number(node.cgroup(3, "cpu.stat"), "throttled_usec"), 1.1e6, 1.3e6),
    "oom_kill": (lambda node: node.number("/proc/vmstat", "oom_kill"), 1, 1),
    "memory_pressure": (lambda node: node.number("/proc/pressure/memory", "full", "total"), 0.7e6, 0.9e6),
    "gpu_off_bus": (lambda node: node.number(node.pci(0, "gpu", "current_link_width")), 47, 47),
    "counter_wrap": (lambda node: -node.number(node.nic(2, "hw_counters/rx_write_requests")), 1e6, 2**32),
    "counter_reset": (lambda node: -node.number(node.nic(3, "counters/port_xmit_data")), 1e15, 1e16),
    "clock_step": (lambda node: node.number("/proc/stat", "btime"), 3600, 3600),
    "ecc_drip": (lambda node: node.number("/sys/devices/system/edac/mc/mc1/ce_count"), 6, 10),
    "aer_storm": (lambda node: node.number(node.pci(4, "nic", "aer_dev_correctable"), "TOTAL_ERR_COR"), 700, 900),
    "hung_task": (lambda node: node.number("/proc/sys/kernel/hung_task_detect_count"), 1, 1),
}
# Tested on their own, or told to the GPU driver alone.
OTHERWISE = {"odd_port", "kmsg_flood", "xid_94_154", "power_brake"}


class TheFaults(Played):
    def test_every_fault_moves_what_it_should(self):
        self.assertEqual(set(MOVES) | OTHERWISE, set(faults.FAULTS))
        for name, (number, least, most) in MOVES.items():
            with self.subTest(name):
                before = number(self.node)
                begin(self.node, name)
                for _ in range(4):
                    self.node.advance(1)
                moved = number(self.node) - before
                self.assertTrue(least <= moved <= most, f"by {moved}, not {least} to {most}")
                self.node.clear(name)
                self.assertNotIn(name, self.node.active())

    def test_the_driver_asks_for_a_reset_after_the_error(self):
        self.node.fault("xid_94_154")
        for _ in range(3):
            self.node.advance(1)
        said = [line.split("): ")[1].split(",")[0] for line in self.read("/dev/kmsg").splitlines() if " Xid " in line]
        self.assertEqual(said, ["94", "45", "154"])

    def test_congestion_is_on_one_rail(self):
        self.node.fault("rail_congestion")
        self.node.advance(4)
        pause = self.node.ethtool(2)
        self.assertGreater(pause.get("rx_prio3_pause_duration"), 4 * 150_000)
        self.assertLess(self.node.ethtool(1).get("rx_prio3_pause_duration"), 2_000)

    def test_a_flap_ends_by_itself(self):
        self.node.fault("peer_flap")
        self.assertEqual(self.read(self.node.nic(5, "state")), "1: DOWN\n")
        self.assertEqual(self.read(self.node.netdev(5, "carrier")), "0\n")
        for _ in range(4):
            self.node.advance(1)
        self.assertEqual(self.read(self.node.nic(5, "state")), "4: ACTIVE\n")
        self.assertEqual(self.read(self.node.netdev(5, "carrier_changes")), "4\n")
        self.assertEqual([line.split(";")[1] for line in self.read("/dev/kmsg").splitlines()[-2:]],
                         ["mlx5_core 0000:68:00.0 enp104s0np0: Link down", "mlx5_core 0000:68:00.0 enp104s0np0: Link up"])  # fmt: skip

    def test_a_counter_of_32_bits_runs_over(self):
        self.node.fault("counter_wrap")
        for _ in range(4):
            self.node.advance(1)
        self.assertLess(self.node.number(self.node.nic(2, "hw_counters/rx_write_requests")), 2**20)

    def test_an_odd_port_fails_as_real_ones_do(self):
        self.node.fault("odd_port")
        self.assertEqual(self.read(self.node.nic(7, faults.OddPort.TEXT)), "N/A (no PMA)\n")
        with self.assertRaises(OSError):
            self.read(self.node.nic(7, faults.OddPort.BROKEN))
        self.node.advance(1)
        self.node.clear("odd_port")
        self.assertEqual(self.read(self.node.nic(7, faults.OddPort.BROKEN)), "0\n")

    def test_the_killed_worker_is_gone(self):
        self.node.fault("oom_kill")
        self.node.advance(1)
        self.assertFalse((self.root / "proc/41740").exists())
        self.assertEqual(self.node.number("/proc/vmstat", "oom_kill"), 1)
        self.assertEqual(self.node.number(self.node.cgroup(7, "memory.events"), "oom_kill"), 1)

    def test_the_flood_has_as_many_texts_as_told(self):
        begin(self.node, "kmsg_flood")
        for _ in range(4):
            self.node.advance(1)
        lines = [line for line in self.read("/dev/kmsg").splitlines() if " 95, " in line]
        self.assertEqual(len(lines), FLOOD_LINES)
        self.assertEqual(len({line.split(";", 1)[1] for line in lines}), 29)
        numbers = [int(line.split(",")[1]) for line in lines]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + FLOOD_LINES)))

    def test_slow_storage_is_slow_on_the_wire(self):
        def rtt():
            row = next(line for line in self.read("/proc/self/mountstats").splitlines() if "READ:" in line).split()
            return int(row[1]), int(row[7])

        def mean(seconds):
            ops, ms = rtt()
            self.node.advance(seconds)
            return (rtt()[1] - ms) / (rtt()[0] - ops)

        healthy = mean(10)
        self.node.fault("nfs_slow")
        self.assertAlmostEqual(mean(10) / healthy, 50, delta=10)

    def test_an_unknown_fault_is_refused(self):
        with self.assertRaisesRegex(KeyError, "no fault 'gremlins'"):
            self.node.fault("gremlins")


class TheTexts(unittest.TestCase):
    def test_rows_columns_and_alignment(self):
        text = Text("MemTotal:       1024 kB\nDirty:             9 kB\n")
        text.add("Dirty", 1, 1)
        self.assertEqual(text.render(), b"MemTotal:       1024 kB\nDirty:            10 kB\n")
        text = Text("some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")
        text.add("some", "total", 3)
        text.set("some", "avg10", 12.345)
        self.assertEqual(text.render(), b"some avg10=12.35 avg60=0.00 avg300=0.00 total=12\n")
        text = Text("Tcp: A B\nTcp: 1 2\n")
        text.add("Tcp", "B", 40)
        self.assertEqual(text.render(), b"Tcp: A B\nTcp: 1 42\n")
        text = Text("0000000a 00000000 00000001\n", key_column=2, base=16)
        text.add("00000001", 0, 6)
        self.assertEqual(text.render(), b"00000010 00000000 00000001\n")
        text = Text("7 (NCCL Progress 3) S 1 2\n")
        text.set(0, -3, "D")
        self.assertEqual(text.render(), b"7 (NCCL Progress 3) D 1 2\n")

    def test_narrow_counters_wrap(self):
        value = Value("4294967295\n", 32)
        value.add(3)
        self.assertEqual(value.render(), b"2\n")


if __name__ == "__main__":
    unittest.main()
