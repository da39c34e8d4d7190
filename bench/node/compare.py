#!/usr/bin/env python3
"""lockstep-agent beside Debian's prometheus-node-exporter, on the same recorded node that lives: what each costs in
CPU, memory and bytes, and which signals each has.

    compare.py [--seconds N] [--out FILE] [--bin DIR] [--exporter PATH] [--nvml-library PATH] [--only NAME ...]

Each program runs alone, one after the other, on a tree of its own (tests/node), played at the node's own pace by a
process of its own. Both are read from files in memory, so nobody waits for a disk or a kernel that gathers numbers.
Prints a report in Markdown; --out writes it to a file as well. Ends with 1 where something could not be measured."""

import argparse
import contextlib
import dataclasses
import datetime
import gzip
import http.client
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

from cost import tcp_bytes, use_of
from signals import SIGNALS, own_series
from sink import Sink

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from processes import Failed, free_port, process  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREE = ROOT / "tests" / "node" / "tree.py"
READY_S = 30
WARM_S = 5  # before the measuring begins: files are opened, connections made, the first points sent

# The collectors of node_exporter that read what lockstep-agent reads too. It has none for hw_counters (1.5), per-thread
# scheduling, cgroups, AER, PCIe links, kernel messages and GPUs; its ethtool collector asks the machine it runs on and
# cannot be pointed at a recording.
COLLECTORS = (
    "cpu cpufreq stat loadavg meminfo meminfo_numa vmstat pressure diskstats mountstats netdev netclass netstat "
    "softnet infiniband edac hwmon rapl timex processes"
).split()


@dataclasses.dataclass
class Measured:
    name: str
    about: str
    seconds: float
    cpu_s: float
    rss: int
    rss_peak: int
    wire: int  # bytes of TCP payload, both ways
    series: int
    page: str
    page_bytes: int
    page_gzip_bytes: int
    answer_ms: list
    version: str


@contextlib.contextmanager
def played_tree(folder, gpu_script):
    """A fresh tree, played until the block ends."""
    tree = folder / "tree"
    arguments = [sys.executable, TREE, "play", tree, "--gpu-script", gpu_script]
    with process(arguments, folder / "player.log", stdout=subprocess.DEVNULL) as player:
        deadline = time.monotonic() + READY_S
        # The player writes its links last.
        while not (tree / "sys/class/nvme/nvme0").is_symlink():
            if player.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the tree was not written: {(folder / 'player.log').read_text()}")
            time.sleep(0.1)
        yield tree
        if player.poll() is not None:
            raise Failed(f"the player has ended: {(folder / 'player.log').read_text()}")


class Scraper:
    """Asks for /metrics as Prometheus does: on one connection if the other side keeps it, gzip if offered."""

    def __init__(self, address):
        self.connection = http.client.HTTPConnection(*address.rsplit(":", 1), timeout=10)
        self.answer_ms, self.page, self.wire = [], b"", 0

    def scrape(self, encoding="gzip"):
        began = time.monotonic()
        if self.connection.sock is None:
            self.connection.connect()
        # A second handle, because the first is closed with the answer where the other side does not keep it.
        with self.connection.sock.dup() as watched:
            before = tcp_bytes(watched)
            self.connection.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
            response = self.connection.getresponse()
            body = response.read()
            self.wire += tcp_bytes(watched) - before
        self.answer_ms.append((time.monotonic() - began) * 1e3)
        if response.status != 200:
            raise Failed(f"/metrics answered {response.status}: {body[:200]}")
        self.page = gzip.decompress(body) if response.headers.get("Content-Encoding") == "gzip" else body
        return len(body)


def reachable(address, process_, log):
    deadline = time.monotonic() + READY_S
    while True:
        scraper = Scraper(address)
        try:
            scraper.scrape()
            return scraper
        except OSError:
            scraper.connection.close()
        if process_.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{process_.args[0]} does not answer; its log:\n{pathlib.Path(log).read_text()[-2000:]}")
        time.sleep(0.1)


def measure(name, about, version, process_, scraper, seconds, sink=None, scraped=True):
    """What it takes while it is asked once a second (or not at all) for so long."""

    def wire():
        return (scraper.wire if scraped else 0) + (sink.bytes() if sink else 0)

    def live(until):
        at = time.monotonic()
        while at < until:
            if process_.poll() is not None:
                raise Failed(f"{name} has ended with {process_.returncode}")
            if scraped:
                scraper.scrape()
            at += 1
            time.sleep(max(0.0, at - time.monotonic()))

    live(time.monotonic() + WARM_S)
    scraper.answer_ms.clear()
    before, wire_before, began = use_of(process_.pid), wire(), time.monotonic()
    live(began + seconds)
    after, wire_after, took = use_of(process_.pid), wire(), time.monotonic() - began
    answers = sorted(scraper.answer_ms)
    gzipped = scraper.scrape("gzip")
    plain = scraper.scrape("identity")
    page = scraper.page.decode(errors="replace")
    series = [line for line in page.splitlines() if line and not line.startswith("#") and not own_series(line)]
    return Measured(
        name, about, took, after.cpu_s - before.cpu_s, after.rss, after.rss_peak, wire_after - wire_before,
        len(series), page, plain, gzipped, answers, version,
    )  # fmt: skip


def run_exporter(options, folder, collectors, name, about):
    address = "127.0.0.1:" + str(free_port())
    with played_tree(folder, folder / "gpus.txt") as tree:
        arguments = [
            options.exporter, f"--path.procfs={tree}/proc", f"--path.sysfs={tree}/sys", f"--path.rootfs={tree}",
            f"--web.listen-address={address}", "--no-collector.netdev.netlink", "--web.disable-exporter-metrics",
        ]  # fmt: skip
        if collectors:
            arguments += ["--collector.disable-defaults", *(f"--collector.{one}" for one in collectors)]
        log = folder / "exporter.log"
        with process(arguments, log, stdout=subprocess.DEVNULL) as exporter:
            scraper = reachable(address, exporter, log)
            return measure(name, about, exporter_version(options.exporter), exporter, scraper, options.seconds)


def run_agent(options, folder, name, about, scraped, gpus):
    with Sink() as sink, played_tree(folder, folder / "gpus.txt") as tree:
        arguments = [
            options.bin / "lockstep-agent", "--data", folder / "data", "--recorders", folder / "recorders",
            "--root", tree, "--metrics", "127.0.0.1:0", "--server", f"http://{sink.address}",
            *(("--gpus", "nvidia", "--nvml-library", options.nvml_library) if gpus else ("--gpus", "off")),
            "--cpu-budget", "100",  # it does all of its work, whatever that costs
        ]  # fmt: skip
        log = folder / "agent.log"
        environment = {**os.environ, "LOCKSTEP_NVML_STANDIN": str(folder / "gpus.txt")}
        with process(arguments, log, stdout=subprocess.PIPE, env=environment) as agent:
            line = agent.stdout.readline().decode()
            if not line.startswith("ready "):
                raise Failed(f"lockstep-agent said {line!r}; its log:\n{log.read_text()[-2000:]}")
            address = dict(word.split("=", 1) for word in line.split()[1:])["metrics"]
            scraper = reachable(address, agent, log)
            return measure(name, about, agent_version(options.bin), agent, scraper, options.seconds, sink, scraped)


def exporter_version(path):
    told = subprocess.run([path, "--version"], capture_output=True, text=True)
    return " ".join((told.stdout or told.stderr).split("\n")[0].split()[:3])


def agent_version(folder):
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    size = (folder / "lockstep-agent").stat().st_size
    return f"lockstep-agent of {head.stdout.strip() or 'this tree'} ({size / 1e6:.1f} MB)"


def runs(options):
    """(name, a function that measures it in a folder of its own)."""

    def exporter(name, about, collectors):
        return lambda folder: run_exporter(options, folder, collectors, name, about)

    def agent(name, about, scraped, gpus):
        return lambda folder: run_agent(options, folder, name, about, scraped, gpus)

    all_runs = {
        "node_exporter": exporter("node_exporter", "the collectors below, scraped at 1 Hz", COLLECTORS),
        "node_exporter-default": exporter("node_exporter, defaults", "its default collectors, scraped at 1 Hz", None),
        "agent-host": agent("lockstep-agent, no GPUs", "reads at 1 Hz, pushes, scraped at 1 Hz", True, False),
        "agent": agent("lockstep-agent", "the same with 8 GPUs (NVML stand-in)", True, True),
        "agent-push": agent("lockstep-agent, push only", "8 GPUs, pushes, not scraped", False, True),
    }
    for name in options.only or all_runs:
        if name not in all_runs:
            raise Failed(f"--only takes {', '.join(all_runs)}, not {name!r}")
        yield name, all_runs[name]


# The report


def report(measured, options):
    cpu = next(
        (line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        "unknown CPU",
    )
    lines = [
        "# lockstep-agent and node_exporter on one node",
        "",
        "`./dev bench node`: the recorded node of tests/data/node8 (8 GPUs, 8 RoCE NICs, 96 CPUs, one Slurm job), "
        f"played at its own pace; each program alone, {options.seconds:.0f} s after {WARM_S} s of warming up.",
        "",
        f"{cpu}, {os.cpu_count()} cores, {platform.system()} {platform.release()} {platform.machine()}, "
        f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC. "
        + "; ".join(dict.fromkeys(one.version for one in measured))
        + ".",
        "",
        "| | " + " | ".join(one.name for one in measured) + " |",
        "|---|" + "---|" * len(measured),
    ]

    def row(title, of):
        lines.append(f"| {title} | " + " | ".join(of(one) for one in measured) + " |")

    row("what it does", lambda one: one.about)
    row("CPU, share of one core", lambda one: f"{100 * one.cpu_s / one.seconds:.2f} %")
    row("CPU, ms a second", lambda one: f"{1000 * one.cpu_s / one.seconds:.1f}")
    row("memory (RSS), MiB", lambda one: f"{one.rss / 2**20:.1f}")
    row("memory at its peak, MiB", lambda one: f"{one.rss_peak / 2**20:.1f}")
    row("on the wire, kB/s", lambda one: f"{one.wire / one.seconds / 1000:.2f}")
    row("series", lambda one: f"{one.series:,}")
    row("CPU per 1,000 series, ms a second", lambda one: f"{1e6 * one.cpu_s / one.seconds / max(1, one.series):.2f}")
    row("/metrics, kB plain", lambda one: f"{one.page_bytes / 1000:.0f}")
    row(
        "/metrics, kB gzip",
        lambda one: f"{one.page_gzip_bytes / 1000:.0f}" if one.page_gzip_bytes < one.page_bytes else "not offered",
    )
    row("answer to a scrape, ms, median", lambda one: f"{middle(one.answer_ms):.1f}" if one.answer_ms else "-")
    lines += [
        "",
        "CPU is utime + stime of the program and its children, from /proc; RSS is theirs added up, shared pages "
        "counted twice. Bytes on the wire are TCP payload in both directions: scraping (gzip where it is offered), and "
        "pushing where it pushes. Series are lines of /metrics without those about the program itself.",
        "",
        "Not the same work. node_exporter reads when it is asked; Prometheus usually asks every 15 s or more, which "
        "divides its CPU and bytes by as much, and sees as much less. The agent reads pressure, threads, NICs and GPUs "
        "every second and most of the host every tenth, whoever asks, and pushes what has changed every 5 s. It sums "
        "CPUs, IRQs and NFS operations up where node_exporter has a series for each. The files are plain ones in "
        "memory: a real kernel takes time to make /proc and /sys, the same for both; a real NVML takes longer than the "
        "stand-in; what ethtool and adjtimex say comes from files for the agent, node_exporter's timex asks the machine "
        "that it runs on.",
        "",
        "node_exporter's collectors: " + " ".join(COLLECTORS) + ". Its defaults include some that find nothing here.",
        "",
        "## Signals, and how many series of each",
        "",
        "Counted on the pages of this run; `-`: not there.",
        "",
    ]
    shown = [one for one in (find(measured, "node_exporter"), find(measured, "lockstep-agent")) if one]
    lines += ["| signal | " + " | ".join(one.name for one in shown) + " |", "|---|" + "---|" * len(shown)]
    for what, patterns in SIGNALS:
        counts = [len(re.findall(patterns[one.name == "lockstep-agent"], one.page, re.M)) for one in shown]
        lines.append(f"| {what} | " + " | ".join(f"{count:,}" if count else "-" for count in counts) + " |")
    for one in shown:
        rest = sorted(names_besides(one))
        lines += ["", f"{one.name} besides: {', '.join(rest[:40]) or 'nothing'}{', ...' if len(rest) > 40 else ''}."]
    return "\n".join(lines) + "\n"


def names_besides(one):
    """Names on its page that no signal of the table stands for."""
    patterns = [re.compile(both[one.name == "lockstep-agent"]) for _, both in SIGNALS]
    return {
        re.split(r"[{ ]", line)[0]
        for line in one.page.splitlines()
        if line and not line.startswith("#") and not own_series(line) and not any(p.match(line) for p in patterns)
    }


def find(measured, name):
    return next((one for one in measured if one.name == name), None)


def middle(values):
    return values[len(values) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--exporter", default=shutil.which("prometheus-node-exporter") or "prometheus-node-exporter")
    parser.add_argument("--nvml-library", type=pathlib.Path, default=ROOT / "build" / "lib" / "libnvidia-ml-standin.so")
    parser.add_argument("--only", action="append", metavar="NAME")
    options = parser.parse_args()
    # In memory where there is such a place: 6,000 small files are rewritten every second.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    measured = []
    try:
        for name, run in runs(options):
            with tempfile.TemporaryDirectory(prefix="lockstep-bench-", dir=where) as folder:
                print(f"compare: {name} for {options.seconds:.0f} s", file=sys.stderr)
                measured.append(run(pathlib.Path(folder)))
    except (Failed, OSError) as failure:
        print(f"compare: {failure}", file=sys.stderr)
        return 1
    text = report(measured, options)
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
