"""Kernel profiles through torch.profiler: ranks whose Kineto asks nobody (no KINETO_USE_DAEMON, or a PyTorch without it)
and whose Python package takes the order. `./dev test profiles` runs it with Debian's PyTorch and with PyPI's."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import harness

PYTHONS = [path for path in ("/usr/bin/python3", os.environ.get("TORCH_PYTHON")) if path]
SCRIPT = harness.ROOT / "tests" / "python" / "train_ddp.py"
LIBRARY = harness.BIN.resolve().parent / "lib" / "liblockstep.so"
JOB = "hooked"
RANKS = 2
STEPS = 5
STARTS_S = 120

pytestmark = pytest.mark.limit(300)


def launch(python, recorders):
    port = harness.unused_port()
    common = {
        **os.environ,
        "WORLD_SIZE": str(RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "LOCKSTEP_JOB_ID": JOB,
        "LOCKSTEP_RECORDER_DIR": str(recorders),
        "LOCKSTEP_LIBRARY": str(LIBRARY),
        "LOCKSTEP_AUTO": "1",
        "PYTHONPATH": str(harness.ROOT / "python" / "lockstep" / "_hook"),
    }
    common.pop("KINETO_USE_DAEMON", None)
    return [
        subprocess.Popen(
            [python, str(SCRIPT), "--steps=1000000"],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]


def last_step(server):
    answer = harness.request(server.http, "GET", f"/api/jobs/{JOB}")
    return answer.json()["last_step"] if answer.status == 200 else -1


def named(events, start):
    return [event for event in events if event.get("name", "").startswith(start)]


@pytest.mark.parametrize("python", PYTHONS)
def test_ranks_without_kinetos_daemon_are_profiled_by_the_package(python, server, start, tmp_path):
    if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode != 0:
        pytest.skip(f"{python} has no torch (Debian: python3-torch)")
    recorders = harness.short_folder()
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    running = launch(python, recorders)
    try:
        harness.eventually(lambda: last_step(server) > 20, STARTS_S, "the ranks at the server")
        done = harness.lockstep(
            *("profile", JOB, "--ranks", "all", "--steps", STEPS, "--shapes", "--wait", "--server", server.url),
            timeout=120,
        )
        print(done.stdout)
        assert done.returncode == 0 and f"{RANKS} of {RANKS} ranks profiled" in done.stdout, done.stdout + done.stderr
        capture = server.get(f"/api/jobs/{JOB}/profiles")["profiles"][0]
        for rank in capture["ranks"]:
            assert rank["state"] == "done" and rank["reason"] == "by torch.profiler", rank
            assert rank["first_step"] == capture["start_step"]
            path = f"/api/jobs/{JOB}/profiles/{capture['capture']}/files/{rank['file']}"
            trace = json.loads(gzip.decompress(harness.request(server.http, "GET", path).body))
            steps = [event["name"] for event in named(trace["traceEvents"], "ProfilerStep#")]
            first = capture["start_step"]
            assert sorted(set(steps)) == [f"ProfilerStep#{n}" for n in range(first, first + STEPS)], steps
            assert len(named(trace["traceEvents"], "aten::addmm")) >= STEPS
        assert not list(recorders.glob("lockstep-p-*"))
        analysed = harness.lockstep("analyze", f"{JOB}/{capture['capture']}", "--json", "--server", server.url)
        assert analysed.returncode == 0, analysed.stderr
        assert [rank["rank"] for rank in json.loads(analysed.stdout)["ranks"]] == list(range(RANKS))

        # An agent that is gone holds up no step.
        agent.process.send_signal(signal.SIGKILL)
        time.sleep(2)  # time for many steps, which none of them may wait in
        assert all(process.poll() is None for process in running)
    finally:
        said = []
        for process in running:
            process.kill()
            said.append(process.communicate()[1])
        shutil.rmtree(recorders, ignore_errors=True)
    assert not any("lockstep:" in text for text in said), said
