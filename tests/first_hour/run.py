#!/usr/bin/env python3
"""The first hour of somebody who has never compiled anything: in a bare Debian, do what the quickstart says.

    run.py --files DIR [--out FILE] [--only wheel|packages|tarball] [--keep]

DIR has the wheel, the Debian packages and the tarball (./dev release). The bare Debian is made once by debootstrap (variant minbase) from the
machine's mirror and kept in the cache; each run has a copy on top of which it works, in namespaces of its own. In each way of
installing: install, see a verdict of the demo, then a job of four ranks whose rank 2 has a slow loader, one of which a rank is
stopped, and one of which a rank is killed; the right sentence must come each time within a minute. Then remove; nothing may be left.
From the tarball the demo alone: it has to work where nothing else is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep"
MIRROR = "http://deb.debian.org/debian"
WITHIN_S = 60
# What apt, dpkg and Debian's Python write themselves, and what the test brings.
NOT_COUNTED = re.compile(
    r"/(var/(lib/(apt|dpkg|systemd|ucf)|cache|log)|etc/(ld\.so\.cache|(passwd|group|shadow|gshadow|subuid|subgid)-)|proc|sys|dev|tmp|run|test)(/|$)"
    r"|/usr/lib/python3\.\d+/(.*/)?__pycache__/"
)


class Wrong(Exception):
    """One line that says what is not as it must be."""


def mirror() -> str:
    for path in [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*.sources")]:
        found = re.search(r"^(?:URIs:|deb)\s+(?:\[.*\]\s+)?(\S+/debian/?)(?:\s|$)", path.read_text(), re.M) if path.is_file() else None
        if found:
            return found[1]
    return MIRROR


def base_root() -> pathlib.Path:
    """The bare Debian, made once."""
    root = CACHE / "debian-12-root"
    if not (root / ".made").is_file():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        print("making a bare Debian 12 (once)", flush=True)
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, mirror()], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["chroot", root, "apt-get", "clean"], check=True)
        (root / ".made").touch()
    return root


class Root:
    """A bare Debian of its own, thrown away at the end."""

    def __init__(self, files: pathlib.Path, keep: bool):
        self.keep = keep
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-first-hour-"))
        self.path = self.folder / "root"
        # cp: devices stay devices. No overlay, which cannot be had everywhere.
        subprocess.run(["cp", "-a", "--reflink=auto", base_root(), self.path], check=True)
        (self.path / ".made").unlink()
        shutil.copy("/etc/resolv.conf", self.path / "etc" / "resolv.conf")
        test = self.path / "test"
        test.mkdir()
        for file in files.iterdir():
            shutil.copy(file, test)
        shutil.copy(HERE / "train.py", test)
        self.daemons: dict[str, subprocess.Popen] = {}
        # One set of namespaces for everything that runs in here: a shell that waits holds it open.
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c",
             'mount --make-rprivate / && mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" && mount -t tmpfs tmpfs "$0/dev"'
             ' && for d in null zero full random urandom tty; do touch "$0/dev/$d" && mount --bind "/dev/$d" "$0/dev/$d"; done'
             ' && mkdir "$0/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm" && ln -s /proc/self/fd "$0/dev/fd"'
             ' && mount -t tmpfs -o mode=1777 tmpfs "$0/tmp" && hostname bare && echo ready && exec sleep infinity', self.path],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self.holder.stdout.readline().strip() != "ready":
            raise Wrong("the namespaces could not be made")
        children = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()
        self.inside = ["nsenter", "--target", children[0], "--mount", "--pid", "--uts", "--ipc", "chroot", str(self.path), "/usr/bin/env", "-i",
                       "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]

    def run(self, command: str, timeout: float = 600, check: bool = True) -> str:
        done = subprocess.run([*self.inside, "sh", "-c", command], capture_output=True, text=True, timeout=timeout)
        if check and done.returncode != 0:
            raise Wrong(f"{command}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def start(self, name: str, command: str, out: int = subprocess.DEVNULL) -> subprocess.Popen:
        process = subprocess.Popen([*self.inside, "sh", "-c", f"echo $$ >/tmp/{name}.pid; exec {command}"], stdout=out, stderr=out, text=True)
        self.daemons[name] = process
        return process

    def stop(self, name: str) -> None:
        self.run(f"kill -TERM $(cat /tmp/{name}.pid)", check=False)
        self.daemons.pop(name).wait(timeout=60)

    def files(self) -> set[str]:
        found = set()
        for folder, _, names in os.walk(self.path):
            inner = "/" + os.path.relpath(folder, self.path)
            for name in names:
                path = os.path.normpath(os.path.join(inner, name))
                if not NOT_COUNTED.match(path):
                    found.add(path)
        return found

    def close(self) -> None:
        self.holder.kill()  # its child goes with it, and with that every process in here
        self.holder.wait()
        for process in self.daemons.values():
            process.wait()
        if not self.keep:
            shutil.rmtree(self.folder)


class Rows(list):
    """What was done, what was said and how long it took, told as it happens."""

    def append(self, row: tuple[str, str, float]) -> None:
        super().append(row)
        print(f"{row[2]:6.1f} s  {row[0]}  {row[1]}", flush=True)


def wait_for(what: str, question, seconds: float = WITHIN_S):
    """The first answer that is not None, and how long it took."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        answer = question()
        if answer is not None:
            return answer, time.monotonic() - began
        time.sleep(0.5)  # the interval of the poll
    raise Wrong(f"{what}: not within {seconds:.0f} s")


def demo(root: Root) -> tuple[str, float]:
    """The first confirmed verdict that `lockstep demo` prints."""
    began = time.monotonic()
    process = root.start("demo", "timeout 90 lockstep demo 2>&1", subprocess.PIPE)
    seen = []
    for line in process.stdout:
        seen.append(line.strip())
        if len(seen) > 2 and re.search(r" confirmed ", seen[-3]):  # the sentence takes two lines
            took = time.monotonic() - began
            root.stop("demo")
            return " ".join(seen[-2:]), took
    raise Wrong("the demo showed no verdict: " + " | ".join(seen[-5:]))


def verdict(root: Root, job: str, causes: set[str]):
    def ask():
        text = root.run(f"lockstep why {job} --json", check=False)
        try:
            verdicts = json.loads(text)["verdicts"]
        except (json.JSONDecodeError, KeyError):
            return None
        for one in verdicts:
            if one["state"] == "confirmed" and one["culprit"]["cause"] in causes:
                if one["culprit"]["rank"] != [2]:
                    raise Wrong(f"{job}: {one['sentence']}")
                return one["sentence"]
        return None

    return ask


def last_step(root: Root, job: str) -> int:
    known = json.loads(root.run("lockstep jobs --json"))["jobs"]
    return next((one["last_step"] for one in known if one["job_id"] == job), -1)


def jobs(root: Root, python: str, rows: Rows) -> None:
    root.start("slow-loader", f"lockstep run --job slow-loader -- {python} /test/train.py --slow 2 --steps 600")
    sentence, took = wait_for("slow loader", verdict(root, "slow-loader", {"data-loader"}))
    rows.append(("rank 2 has a slow loader (from its step 30 on)", sentence, took))
    for job, name, causes, what in (("stopped", "STOP", {"process-paused"}, "rank 2 is stopped"), ("killed", "KILL", {"rank-dead"}, "rank 2 is killed")):
        pids = f"/tmp/{job}.pids"
        root.start(job, f"lockstep run --job {job} -- {python} /test/train.py --pids {pids}")
        wait_for("the job's ranks", lambda: root.run(f"cat {pids} 2>/dev/null", check=False).split() or None)
        wait_for("some steps", lambda: last_step(root, job) > 40 or None)
        root.run(f"kill -{name} $(sed -n 3p {pids})")
        sentence, took = wait_for(what, verdict(root, job, causes))
        rows.append((what, sentence, took))
        root.run(f"kill -KILL $(cat {pids}) 2>/dev/null || true")


def from_wheel(root: Root) -> Rows:
    rows = Rows()
    began = time.monotonic()
    root.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv")
    rows.append(("Debian's Python (`apt-get install python3-venv`)", "", time.monotonic() - began))
    before = root.files()
    began = time.monotonic()
    root.run("python3 -m venv /opt/lockstep && /opt/lockstep/bin/pip install -q --no-index /test/lockstep-*x86_64.whl")
    root.run("ln -s /opt/lockstep/bin/lockstep /opt/lockstep/bin/lockstepd /usr/local/bin/")
    installed = time.monotonic() - began
    rows.append(("`pip install lockstep-*.whl`", "", installed))
    sentence, took = demo(root)
    rows.append(("`lockstep demo`: first verdict", sentence, took))
    if installed + took > WITHIN_S:
        raise Wrong(f"install and first verdict took {installed + took:.0f} s")
    root.start("server", "lockstepd --data /tmp/lockstep-data")
    wait_for("the server", lambda: root.run("lockstep jobs --json", check=False) or None)
    jobs(root, "/opt/lockstep/bin/python", rows)
    root.run("/opt/lockstep/bin/pip uninstall -q -y lockstep && rm -r /opt/lockstep && rm /usr/local/bin/lockstep /usr/local/bin/lockstepd")
    check_nothing_left(root, before)
    return rows


def from_packages(root: Root) -> Rows:
    rows = Rows()
    began = time.monotonic()
    root.run("apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-minimal libpython3-stdlib")
    rows.append(("Debian's Python, for the job", "", time.monotonic() - began))
    users = root.run("getent passwd")
    before = root.files()
    began = time.monotonic()
    root.run("apt-get install -y -qq --no-install-recommends /test/*.deb")
    rows.append(("`apt-get install ./lockstep*.deb`", "", time.monotonic() - began))
    sentence, took = demo(root)
    rows.append(("`lockstep demo`: first verdict", sentence, took))
    # As the services start them; there is no systemd in here.
    root.run("install -d -m 700 -o lockstep-server -g lockstep-server /var/lib/lockstep && install -d -m 700 /var/lib/lockstep-agent")
    root.start("server", "runuser -u lockstep-server -- lockstepd --config /etc/lockstep/lockstepd.yaml")
    wait_for("the server", lambda: root.run("lockstep jobs --json", check=False) or None)
    root.start("agent", "env LOCKSTEP_AGENT_USER=lockstep lockstep-agent --config /etc/lockstep/agent.conf")
    jobs(root, "/usr/bin/python3", rows)
    root.stop("agent")
    root.stop("server")
    root.run("apt-get remove -y -qq 'lockstep*'")
    if not root.run("ls /var/lib/lockstep"):
        raise Wrong("removing took the data along")
    root.run("apt-get purge -y -qq 'lockstep*' && apt-get autoremove -y -qq --purge")
    check_nothing_left(root, before)
    if root.run("getent passwd") != users:
        raise Wrong("users are left: " + root.run("getent passwd | grep lockstep", check=False))
    return rows


def from_tarball(root: Root) -> Rows:
    rows = Rows()
    before = root.files()
    began = time.monotonic()
    root.run("mkdir /opt/lockstep && tar xf /test/lockstep-*-linux-x86_64.tar.gz -C /opt/lockstep --strip-components 1")
    root.run("ln -s /opt/lockstep/bin/lockstep /usr/local/bin/")
    rows.append(("`tar xf lockstep-*.tar.gz`, nothing else installed", "", time.monotonic() - began))
    sentence, took = demo(root)
    rows.append(("`lockstep demo`: first verdict", sentence, took))
    root.run("rm -r /opt/lockstep /usr/local/bin/lockstep")
    check_nothing_left(root, before)
    return rows


def check_nothing_left(root: Root, before: set[str]) -> None:
    left = sorted(root.files() - before)
    if left:
        raise Wrong("left behind: " + ", ".join(left[:10]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", choices=["wheel", "packages", "tarball"])
    parser.add_argument("--keep", action="store_true", help="leave the root for a look")
    options = parser.parse_args()
    text = ["# The first hour", "",
            "Made by `./dev test first-hour`: a bare Debian 12 (debootstrap, variant minbase) on the machine that also builds, with other work beside it;",
            "programs as `./dev release` makes them. Jobs are four processes on CPU that meet after every step; a verdict counts once it is confirmed and",
            "names rank 2 and the right cause. Seconds are of this run.", ""]  # fmt: skip
    for name, way in (("wheel", from_wheel), ("packages", from_packages), ("tarball", from_tarball)):
        if options.only and options.only != name:
            continue
        print(f"from the {name}", flush=True)
        root = Root(options.files, options.keep)
        try:
            rows = way(root)
        except Wrong as problem:
            print(f"first hour, from {name}: {problem}", file=sys.stderr)
            return 1
        finally:
            root.close()
        text += [f"## From the {name}", "", "| what | s | says |", "|---|---|---|"]
        for what, sentence, took in rows:
            text.append(f"| {what} | {took:.1f} | {sentence} |")
        text += ["| removed | | nothing left |", ""]
    if options.out and not options.only:
        options.out.write_text("\n".join(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
