"""What every comparison of running servers needs: ports, waiting, and what the kernel counts of a process."""

import contextlib
import http.client
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request


class Failed(Exception):
    """Something could not be measured; the text says what."""


@contextlib.contextmanager
def process(arguments, log, **options):
    """A program that is ended with the block, by its own id."""
    with open(log, "wb") as out:
        one = subprocess.Popen(list(map(str, arguments)), stdin=subprocess.DEVNULL, stderr=out, **options)
    try:
        yield one
    finally:
        if one.poll() is None:
            one.send_signal(signal.SIGTERM)
            try:
                one.wait(timeout=60)
            except subprocess.TimeoutExpired:
                one.kill()
        one.wait()
        if one.stdout:
            one.stdout.close()


def pinned(cpus: str) -> list:
    """What comes before a server's arguments so that it has these cores alone ("0,1"). The caller, and all that it
    starts otherwise, leaves them to it. Empty: nothing is pinned."""
    if not cpus:
        return []
    os.sched_setaffinity(0, os.sched_getaffinity(0) - set(map(int, cpus.split(","))))
    return ["taskset", "-c", cpus]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def cpu_s(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> tuple[int, int]:
    """Bytes held now, and at most so far."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return tuple(int(re.search(rf"{key}:\s+(\d+)", status)[1]) * 1024 for key in ("VmRSS", "VmHWM"))


def size_of(folder: pathlib.Path) -> int:
    """Files may go while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def get(url: str, data: bytes | None = None, timeout: float = 300) -> bytes:
    request = urllib.request.Request(url, data=data, headers={"X-Lockstep": "1"})  # no form of a web page
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return answer.read()


def wait_until(what: str, ready, seconds: float):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, KeyError, IndexError):
            if ready():
                return
        time.sleep(0.1)
    raise Failed(f"{what} did not happen within {seconds} s")
