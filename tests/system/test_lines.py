"""Which line makes a rank slow: real Python processes are sampled from outside while they run, and the difference between
the slow rank and its peers names the line, by hand and in the verdict."""

import gzip
import json
import os
import signal
import subprocess
import sys

import pytest

import harness

PACKAGE = harness.ROOT / "python"
LIBRARY = harness.BIN.resolve().parent / "lib" / "liblockstep.so"
JOB = "slow-line"
SLOW = 2
ARRIVES_S = 40

# Three ranks that wait for each other in every step; one reads its data slowly, in a function of its own.
PROGRAM = """
import multiprocessing, os, sys, time

def decode(sample):
    time.sleep(0.03)  # LINE

def load_batch(number):
    for sample in range(2 if number == 2 else 0):
        decode(sample)

def rank(number, barrier):
    os.environ["RANK"] = str(number)
    import lockstep
    lockstep.init()
    for step in range(100_000):
        with lockstep.step(step):
            with lockstep.phase("input"):
                load_batch(number)
            sum(range(20_000))
            barrier.wait()  # the others' line

multiprocessing.set_start_method("fork")
barrier = multiprocessing.Barrier(3)
ranks = [multiprocessing.Process(target=rank, args=(number, barrier), daemon=True) for number in range(3)]
for one in ranks:
    one.start()
print("in", flush=True)
for one in ranks:
    one.join()
"""
LINE = PROGRAM.splitlines().index("    time.sleep(0.03)  # LINE") + 1


@pytest.fixture
def recorders(tmp_path):
    folder = tmp_path / "recorders"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def job(tmp_path, recorders):
    running = []

    def run(**environment):
        file = tmp_path / "train.py"
        file.write_text(PROGRAM)
        process = subprocess.Popen(
            [sys.executable, str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(PACKAGE),
                "WORLD_SIZE": "3",
                "LOCKSTEP_JOB_ID": JOB,
                "LOCKSTEP_RECORDER_DIR": str(recorders),
                "LOCKSTEP_LIBRARY": str(LIBRARY),
                **environment,
            },
        )
        running.append(process)
        assert process.stdout.readline() == "in\n"
        return process

    yield run
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def known(server):
    harness.eventually(
        lambda: len(server.get(f"/api/jobs/{JOB}/ranks")["ranks"]) == 3
        if JOB in [job["job_id"] for job in server.get("/api/jobs")["jobs"]]
        else False,
        ARRIVES_S,
        "the ranks are known",
    )


def look(server, path, seconds):
    ranks = f"{SLOW},0,1"
    said = harness.lockstep("lines", JOB, "--server", server.url, "--ranks", ranks, "--seconds", seconds, "-o", path)
    assert said.returncode == 0, said
    answer = server.get(f"/api/jobs/{JOB}/samples", ranks=ranks)
    return said, next(rank for rank in answer["ranks"] if rank["rank"] == SLOW)


def test_the_slow_line_is_named_by_hand_and_in_the_verdict(tmp_path, start, recorders, job):
    server = start(harness.Server, tmp_path / "server", more=("--sample-culprits",))
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    job()
    known(server)
    said, slow = look(server, tmp_path / "x.speedscope.json", 2)
    if slow["looks"] < 50:  # whoever looks has no processor to himself
        said, slow = look(server, tmp_path / "x.speedscope.json", 15)
    assert f"train.py:{LINE} in decode: " in said.stdout, said.stdout
    assert "Meanwhile the peers are in train.py" in said.stdout, said.stdout
    profile = json.loads((tmp_path / "x.speedscope.json").read_text())
    assert {"rank 2, main thread", "rank 0, main thread"} <= {one["name"] for one in profile["profiles"]}
    frames = [frame["name"] for frame in profile["shared"]["frames"]]
    assert f"decode (train.py:{LINE})" in frames

    answer = server.get(f"/api/jobs/{JOB}/samples", ranks=f"{SLOW},0,1")
    named = answer["difference"]["named"]
    assert named["line"] == LINE and named["share"] > 0.5 and named["peer_share"] < 0.05, named
    assert slow["looks"] >= 50 and slow["stacks_dropped"] <= slow["stacks_whole"] / 10, slow
    main = next(thread for thread in slow["threads"] if thread["thread"] == "main thread")
    assert main["tid"] == slow["pid"] and main["running"] < main["looks"], "it sleeps most of the time"
    pprof = harness.request(server.http, "GET", f"/api/jobs/{JOB}/samples?format=pprof")
    assert b"decode" in gzip.decompress(pprof.body)
    assert agent.counters().total("lockstep_agent_samples_total", result="told") == 3

    # Too soon again: nothing is taken.
    again = harness.request(
        server.http, "POST", f"/api/jobs/{JOB}/samples?ranks={SLOW},0&seconds=1", headers={"X-Lockstep": "1"}
    )
    assert again.status == 202, again.text
    harness.eventually(
        lambda: agent.counters().total("lockstep_agent_samples_total", result="again") >= 2, ARRIVES_S, "it is too soon"
    )

    def in_the_verdict():
        claims = [
            claim["claim"]
            for verdict in server.get(f"/api/jobs/{JOB}/why")["verdicts"]
            if verdict["culprit"]["rank"] == [SLOW]
            for claim in verdict["chain"]
        ]
        assert any(f"train.py:{LINE} in decode: " in claim for claim in claims), claims
        return True

    harness.eventually(in_the_verdict, ARRIVES_S, "the line is in the verdict")
    harness.eventually(
        lambda: server.counters().total("lockstep_sample_asks_total", reason="verdict") >= 3,
        ARRIVES_S,
        "once the verdict is confirmed the server asks by itself",
    )


def test_lockstep_stacks_0_forbids_samples(server, start, tmp_path, recorders, job):
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    job(LOCKSTEP_STACKS="0")
    known(server)
    asked = harness.request(
        server.http, "POST", f"/api/jobs/{JOB}/samples?ranks=2,0&seconds=1", headers={"X-Lockstep": "1"}
    )
    assert asked.status == 202 and asked.json()["ranks_asked"] == 2, asked.text
    harness.eventually(
        lambda: agent.counters().total("lockstep_agent_samples_total", result="off") == 2, ARRIVES_S, "it is refused"
    )
    assert server.get(f"/api/jobs/{JOB}/samples")["ranks"] == []
    for bad in ("ranks=0-8", "ranks=1&seconds=61", "ranks=1&hz=251", "ranks=x"):
        refused = harness.request(server.http, "POST", f"/api/jobs/{JOB}/samples?{bad}", headers={"X-Lockstep": "1"})
        assert refused.status == 400, (bad, refused.text)
    assert harness.request(server.http, "POST", f"/api/jobs/{JOB}/samples?ranks=2,0").status == 403
