"""What a process and its children use, and what went over a connection, as the kernel counts it."""

import dataclasses
import os
import pathlib
import socket

TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Use:
    cpu_s: float  # of it, of children that live, and of those that it has waited for
    rss: int
    rss_peak: int


def family(pid):
    """A process and all that descend from it."""
    parents = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def use_of(pid):
    use = Use(0.0, 0, 0)
    for one in family(pid):
        try:
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            status = pathlib.Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        use.cpu_s += sum(map(int, fields[11:15])) / TICKS  # utime, stime, cutime, cstime
        use.rss += kilobytes(status, "VmRSS")
        use.rss_peak += kilobytes(status, "VmHWM")
    return use


def kilobytes(status, name):
    for line in status.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def tcp_bytes(connection):
    """Payload that a connection has carried in both directions: tcpi_bytes_acked and tcpi_bytes_received."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int.from_bytes(info[120:128], "little") + int.from_bytes(info[128:136], "little")
