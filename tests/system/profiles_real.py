"""Kernel profiles of real PyTorch: DDP processes on gloo that know nothing of Lockstep, under `lockstep run`, ordered by
`lockstep profile`. `./dev test profiles` installs PyTorch (gigabytes) and runs this; TORCH_PYTHON names another
Python that has it."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import harness

PYTHON = os.environ["TORCH_PYTHON"]
SCRIPT = harness.ROOT / "tests" / "python" / "train_ddp.py"
JOB = "real"
RANKS = int(os.environ.get("PROFILE_RANKS", "4"))
STARTS_S = 180
STEPS = 5

pytestmark = pytest.mark.limit(600)


def events_of(path):
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def optimizer_steps(events):
    return [event for event in events if event.get("name", "").startswith("Optimizer.step")]


@pytest.fixture
def recorders(tmp_path):
    folder = harness.short_folder()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def launch(tmp_path, recorders, server, script=SCRIPT, arguments=("--steps=1000000",), ranks=RANKS, **environment):
    port = harness.unused_port()
    return [
        subprocess.Popen(
            [
                harness.BIN / "lockstep",
                *("run", "--server", "http://" + server.otlp_http, "--job", JOB, "--"),
                *(PYTHON, str(script), *arguments),
            ],
            stdin=subprocess.DEVNULL,
            stderr=open(tmp_path / f"rank-{rank}.log", "w", encoding="utf-8"),
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "LOCKSTEP_RECORDER_DIR": str(recorders),
                **{name: str(value) for name, value in environment.items()},
            },
        )
        for rank in range(ranks)
    ]


@pytest.fixture
def job(tmp_path, server, start, recorders):
    agent = start(
        harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http, more=["--profiles-folder", tmp_path / "out"]
    )
    running = launch(tmp_path, recorders, server)

    def all_train():
        ranks = server.get(f"/api/jobs/{JOB}/ranks")["ranks"]
        assert len(ranks) == RANKS and last_step(server) > 40, ranks
        return True

    harness.eventually(all_train, STARTS_S, "every rank at the server")
    yield agent, running
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def profile(server, *arguments):
    done = harness.lockstep("profile", JOB, *arguments, "--wait", "--server", server.url, timeout=300)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return server.get(f"/api/jobs/{JOB}/profiles")["profiles"][0]


def last_step(server):
    answer = harness.request(server.http, "GET", f"/api/jobs/{JOB}")
    return answer.json()["last_step"] if answer.status == 200 else -1


def test_unmodified_ranks_are_profiled_from_the_same_step_on(job, server, tmp_path, recorders):
    agent, running = job
    capture = profile(server, "--ranks", "all", "--steps", STEPS, "--shapes")
    assert [rank["state"] for rank in capture["ranks"]] == ["done"] * RANKS, capture
    starts = []
    for rank in capture["ranks"]:
        assert rank["first_step"] == capture["start_step"], "by steps, not by time"
        events = events_of(tmp_path / "out" / JOB / capture["capture"] / rank["file"])
        assert len(optimizer_steps(events)) == STEPS
        assert sum(event.get("name") == "c10d::allreduce_" for event in events) >= STEPS
        starts.append(min(event["ts"] for event in optimizer_steps(events)))
    assert max(starts) - min(starts) < 1e6, "ranks of one job step together; a second is a dozen steps"
    assert not list(recorders.glob("lockstep-p-*"))

    # A part of them, again; and the job goes on.
    before = last_step(server)
    part = profile(server, "--ranks", "worst,0", "--steps", 2)
    assert all(rank["state"] == "done" for rank in part["ranks"])
    harness.eventually(lambda: last_step(server) > before, 60, "steps after the profile")

    # An agent that is gone, however it went, does not hold up a step.
    agent.process.send_signal(signal.SIGKILL)
    time.sleep(12)  # two looks for it
    assert all(process.poll() is None for process in running)
    for rank in range(RANKS):
        log = (tmp_path / f"rank-{rank}.log").read_text()
        assert "terminate called" not in log and "Traceback" not in log, log


def test_a_rank_whose_steps_are_not_counted_is_profiled_by_time(server, start, tmp_path, recorders):
    start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http, more=["--profiles-folder", tmp_path / "out"])
    # Empty: Kineto asks for orders all the same, and torch counts no steps.
    running = launch(tmp_path, recorders, server, ranks=1, KINETO_USE_DAEMON="", KINETO_IPC_SOCKET_DIR=recorders)
    try:
        harness.eventually(lambda: last_step(server) > 5, STARTS_S, "the rank at the server")
        capture = profile(server, "--ranks", "0", "--steps", STEPS)
        assert capture["ranks"][0]["state"] == "done" and capture["ranks"][0]["first_step"] == -1, capture
        assert optimizer_steps(events_of(tmp_path / "out" / JOB / capture["capture"] / "rank-0.json.gz"))
    finally:
        for process in running:
            process.kill()
            process.wait()
