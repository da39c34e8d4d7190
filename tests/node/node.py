"""A node of eight GPUs and eight NICs as files: written, advanced second by second, and broken on request."""

import os
import pathlib
import random
import shutil
import time

import faults
import gpus
import healthy
from archive import Archive
from text import Text, Value, rewrite

# Q counters of mlx5 are 32 bits wide in hardware.
NARROW = frozenset(
    "duplicate_request implied_nak_seq_err local_ack_timeout_err out_of_buffer out_of_sequence packet_seq_err "
    "req_cqe_error req_cqe_flush_error req_remote_access_errors req_remote_invalid_request req_rnr_retries_exceeded "
    "req_transport_retries_exceeded resp_cqe_error resp_cqe_flush_error resp_local_length_error "
    "resp_remote_access_errors rnr_nak_retry_err roce_adp_retrans roce_adp_retrans_to roce_slow_restart "
    "roce_slow_restart_cnps roce_slow_restart_trans rx_atomic_requests rx_dct_connect rx_read_requests "
    "rx_write_requests".split()
)


class Node:
    """node = Node(); node.write(folder); node.fault("pcie_width"); node.advance(1)

    The same seed and the same calls make the same numbers. Only the time of boot, the uptime and the times in the
    kernel log are this machine's (live=True), because a reader may hold them against its own clock.
    gpu_script: where to write what the GPUs do (gpus.py); None: nowhere."""

    def __init__(self, seed=1, live=True, gpu_script=None):
        self.archive = Archive()
        self.rails = self.archive.tables["rail"]
        self.cpus = len(self.archive.tables["cpu"])
        self.random = random.Random(seed)
        self.live, self.played = live, 0.0
        self.folder = None
        self.gpus = gpus.Gpus(gpu_script, self.rails)
        self._parsed, self._written, self._touched = {}, {}, set()
        self._active, self._later = {}, []
        self._sequence, self._log = 1000, []
        self.clock_step = 0  # seconds
        self.shape = healthy.Shape(self)

    # Files

    def write(self, folder):
        """Lays out the whole tree. The folder may exist, and must not hold another one."""
        self.folder = pathlib.Path(folder)
        made = set()
        for path in [*self.archive.folders, *map(os.path.dirname, [*self.archive.files, *self.archive.links])]:
            if path not in made:
                made.add(path)
                os.makedirs(self._real(path), exist_ok=True)
        self.shape.start()
        self._time_of_boot()
        for path, content in self.archive.files.items():
            content = self._parsed[path].render() if path in self._parsed else content
            with open(self._real(path), "wb") as file:
                file.write(content)
            self._written[path] = len(content)
        for path, target in self.archive.links.items():
            os.symlink(target, self._real(path))
        self._touched.clear()
        self.gpus.flush()

    def text(self, path, **options):
        """A file of rows, to be changed; written by the next advance() or flush()."""
        return self._open(path, lambda content: Text(content, **options))

    def value(self, path):
        """A file of one value, to be changed."""
        bits = 32 if "/hw_counters/" in path and os.path.basename(path) in NARROW else 0
        return self._open(path, lambda content: Value(content, bits))

    def number(self, path, *place):
        """What the file says now: number("/proc/vmstat", "oom_kill"), number(".../port_xmit_data")."""
        return self.text(path).get(*place) if place else self.value(path).get()

    def gpu_index(self, uuid):
        return next(rail["i"] for rail in self.rails if rail["uuid"] == uuid)

    def nic(self, rail, name=""):
        """A file of the RDMA port of a rail: nic(3, "hw_counters/out_of_sequence")."""
        return f"{self.archive.alias('ib', rail=self.rails[rail])}/ports/1/{name}"

    def netdev(self, rail, name=""):
        return f"{self.archive.alias('nic', rail=self.rails[rail])}/net/{self.rails[rail]['netdev']}/{name}"

    def pci(self, rail, what, name=""):
        """A file of a PCIe device of a rail: what is "gpu" or "nic"."""
        return f"{self.archive.alias(what, rail=self.rails[rail])}/{name}"

    def ethtool(self, rail):
        return self.text(f"/run/lockstep-recorded/ethtool/{self.rails[rail]['netdev']}")

    def cgroup(self, rail, name):
        return f"/sys/fs/cgroup{self.archive.constants['cgroup']}/user/task_{self.rails[rail]['i']}/{name}"

    def task(self, rail, comm):
        """The folder of the first thread of a rank whose name begins so."""
        pid = self.rails[rail]["pid"]
        for thread in self.archive.tables["thread"]:
            if thread["comm"].startswith(comm):
                return f"/proc/{pid}/task/{pid + thread['at']}"
        raise KeyError(comm)

    def replace(self, path, make):
        """Puts something else in the place of a file: make(real path). restore() brings the file back."""
        real = self._real(path)
        os.unlink(real)
        make(real)
        self._written.pop(path, None)

    def restore(self, path):
        real = self._real(path)
        if os.path.islink(real) or os.path.exists(real):
            os.unlink(real)
        content = self._parsed[path].render() if path in self._parsed else self.archive.files[path]
        with open(real, "wb") as file:
            file.write(content)
        self._written[path] = len(content)

    def remove(self, folder):
        """A folder is gone with all that is in it, e.g. the files of a process."""
        shutil.rmtree(self._real(folder))
        for path in [path for path in self._written if path.startswith(folder + "/")]:
            del self._written[path]

    def _open(self, path, make):
        path = os.path.normpath(path)
        if path.startswith("/proc/net/"):
            path = f"/proc/{self.archive.constants['agent']}{path[5:]}"
        if path not in self._parsed:
            self._parsed[path] = make(self.archive.files[path].decode())
        self._touched.add(path)
        return self._parsed[path]

    def _real(self, path):
        return f"{self.folder}{path}"

    # Time

    def advance(self, seconds=1.0):
        """Lets the node live for so long: counters grow as in training, faults do their harm, files are rewritten."""
        self.played += seconds
        while self._later and self._later[0][0] <= self.played:
            _, name, options = self._later.pop(0)
            self.fault(name, **options)
        self.shape.advance(seconds)
        self.gpus.activity(self.played)
        for fault in list(self._active.values()):
            fault.each(seconds)
        self._time_of_boot()
        self.flush()

    def fault(self, name, **options):
        """From now on; what a fault can be told (rail, ...) is in faults.py."""
        if name not in faults.FAULTS:
            raise KeyError(f"no fault {name!r}; there are {', '.join(sorted(faults.FAULTS))}")
        self._active[name] = faults.FAULTS[name](self, **options)
        self._active[name].begin()
        self.flush()

    def clear(self, name):
        """The fault is over; what it has counted stays counted."""
        self._active.pop(name).end()
        self.flush()

    def later(self, name, seconds, **options):
        """fault(name) once so many seconds have been played."""
        self._later = sorted([*self._later, (seconds, name, options)], key=lambda one: one[0])

    def active(self):
        return set(self._active)

    def uptime(self):
        return time.clock_gettime(time.CLOCK_MONOTONIC) if self.live else 1209600.0 + self.played

    def log(self, text, level=6, more=()):
        """A record of the kernel log; more: its lines of KEY=value."""
        self.log_many([text], level, more)

    def log_many(self, texts, level=6, more=()):
        stamp = int(self.uptime() * 1e6)
        for text in texts:
            self._log.append(f"{level},{self._sequence},{stamp},-;{text}\n" + "".join(f" {line}\n" for line in more))
            self._sequence += 1

    def whole(self, amount):
        """A whole number that is `amount` on average."""
        return int(amount + self.random.random())

    def flush(self):
        """Writes what has changed. Nothing happens before write()."""
        if self.folder is None:
            return
        for path in self._touched:
            if path not in self._written:  # something else stands in its place
                continue
            content = self._parsed[path].render()
            rewrite(self._real(path), content, self._written[path])
            self._written[path] = len(content)
        self._touched.clear()
        if self._log:
            with open(self._real("/dev/kmsg"), "ab", buffering=0) as log:
                log.write("".join(self._log).encode())
            self._log.clear()
        self.gpus.flush()

    def _time_of_boot(self):
        up = self.uptime()
        uptime = self.text("/proc/uptime")
        uptime.set(0, 0, up)
        uptime.set(0, 1, up * self.cpus * 0.8)
        now = time.time() if self.live else 1800000000.0 + self.played
        self.text("/proc/stat").set("btime", 1, int(now - up) + self.clock_step)
