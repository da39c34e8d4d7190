#!/usr/bin/env python3
"""What a GPU costs the network in steady state, all in all: a recorded job (8 ranks) at one step a second, on the recorded node with its 8
GPUs, sent by one agent to a real server. Budget: 0.5 kB/s per GPU.

    wire.py [--bin build/bin] [--nvml-library build/lib/libnvidia-ml-standin.so] [--seconds 60] [RECORDING=STEP_MS ...]"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "node"))
from node import Node  # noqa: E402

GPUS = 8  # of the node, all of them read; the ddp job has a rank on four
JOBS = ["hyb_healthy=254", "ddp_healthy=123"]


def start(command, log, **environment):
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **environment})
    return process, dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])


def sent(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        page = answer.read().decode()
    value = lambda name: sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if re.match(rf"{name}[{{ ]", line))
    return value("lockstep_agent_export_bytes_total"), value("lockstep_agent_export_requests_total"), value("lockstep_agent_records_total")


def measure(options, job):
    name, step_ms = job.split("=")
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log:
        folder = pathlib.Path(folder)
        (folder / "recorders").mkdir()
        node = Node(seed=1, live=True, gpu_script=folder / "gpus.txt")
        node.write(folder / "root")
        ended = threading.Event()

        def live():
            while not ended.wait(1):
                node.advance(1)

        player = threading.Thread(target=live)
        player.start()
        server, receivers = start([options.bin / "lockstepd", "--data", folder / "server", "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0",
                               "--otlp-grpc", "127.0.0.1:0"], log)
        agent, own = start([options.bin / "lockstep-agent", "--data", folder / "agent", "--server", "http://" + receivers["otlp_http"], "--recorders",
                            folder / "recorders", "--metrics", "127.0.0.1:0", "--root", folder / "root", "--gpus", "nvidia", "--nvml-library",
                            options.nvml_library, "--cpu-budget", "100"], log, LOCKSTEP_NVML_STANDIN=str(folder / "gpus.txt"))
        # The replay goes round until enough was seen: its speed makes a step take a second.
        speed = float(step_ms) / 1000
        try:
            time.sleep(15)  # past the first report of every series
            replay = subprocess.Popen([options.bin / "lockstep", "replay", ROOT / "tests/data/recordings" / name, "--speed", str(speed)],
                                      stdout=log, stderr=log, env={**os.environ, "LOCKSTEP_RECORDER_DIR": str(folder / "recorders")})
            time.sleep(10)  # past its start
            before, began = sent(own["metrics"]), time.monotonic()
            while time.monotonic() - began < options.seconds and replay.poll() is None:
                time.sleep(0.5)
            after, took = sent(own["metrics"]), time.monotonic() - began
            replay.kill()
            replay.wait()
        finally:
            ended.set()
            player.join()
            agent.terminate()
            server.terminate()
            agent.wait()
            server.wait()
        each = (after[0] - before[0]) / took / GPUS
        print(f"| {name}, a step a second | {took:.0f} | {(after[0] - before[0]) / took / 1000:.2f} | {each / 1000:.2f} | "
              f"{(after[1] - before[1]) / took:.1f} | {(after[2] - before[2]) / took:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", default=JOBS)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--nvml-library", type=pathlib.Path, default=ROOT / "build" / "lib" / "libnvidia-ml-standin.so")
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    print("| job | seconds | kB/s in all | kB/s per GPU of the node | requests a second | records a second |\n|---|---|---|---|---|---|", flush=True)
    for job in options.jobs:
        measure(options, job)


if __name__ == "__main__":
    main()
