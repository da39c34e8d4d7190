"""Kernel profiles on demand, from the command line to the file: server, agent and ranks that ask as PyTorch's profiler
does. With real PyTorch: profiles_real.py."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

import pytest

import harness

PACKAGE = harness.ROOT / "python"
LIBRARY = harness.BIN.resolve().parent / "lib" / "liblockstep.so"
JOB = "profiled"
RANKS = 3
ARRIVES_S = 30

# Kineto's count is 1000 behind the job's steps, as after a resume.
RANK = """
import os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from kineto_client import KinetoClient
import lockstep
from lockstep import _evidence, _kineto
lockstep.init()

def ask():
    client = KinetoClient(os.environ["LOCKSTEP_RECORDER_DIR"])
    while True:
        client.trace(client.order())

if os.environ["RANK"] != "2":  # which has no profiler
    threading.Thread(target=ask, daemon=True).start()
for step in range(1000, 100_000):
    lockstep.step_begin(step)
    time.sleep(0.05)  # the pace of the job
    lockstep.step_end(step)
    if step in (1001, 1003) and _kineto.mapping.saw(step, step - 1000):
        _evidence.tell()
"""


@pytest.fixture
def job(tmp_path, server, start):
    recorders = harness.short_folder()
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, os.path.dirname(__file__)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "LOCKSTEP_JOB_ID": JOB,
                "LOCKSTEP_RECORDER_DIR": str(recorders),
                "LOCKSTEP_LIBRARY": str(LIBRARY),
                "KINETO_ONDEMAND_TRACE_DIR": str(recorders),
                "PYTHONPATH": str(PACKAGE),
            },
        )
        for rank in range(RANKS)
    ]

    def all_known():
        ranks = server.get(f"/api/jobs/{JOB}/ranks")["ranks"]
        assert len(ranks) == RANKS and server.get(f"/api/jobs/{JOB}")["last_step"] > 1010, ranks
        return True

    harness.eventually(all_known, ARRIVES_S, "every rank at the server")
    yield agent, recorders
    for process in ranks:
        process.kill()
        process.wait()
    shutil.rmtree(recorders, ignore_errors=True)


def check_refusals(server):
    for query, line in (
        ("ranks=7", "nobody has heard of rank 7"),
        ("ranks=fastest", "numbers, worst, median or all"),
        ("ranks=0&steps=101", "steps"),
        ("ranks=0&what=1", "what"),
    ):
        answer = harness.request(server.http, "POST", f"/api/jobs/{JOB}/profiles?{query}", headers={"X-Lockstep": "1"})
        assert answer.status in (400, 409) and line in answer.text, answer.text
    assert harness.request(server.http, "GET", "/api/jobs/nobody/profiles").status == 404


def test_a_profile_is_ordered_followed_uploaded_and_analysed_and_says_why_a_rank_has_none(job, server):
    check_refusals(server)
    asked = harness.lockstep(
        "profile", JOB, "--ranks", "0-2", "--steps", 5, "--shapes", "--wait", "--server", "http://" + server.http
    )
    assert asked.returncode == 0, asked.stderr
    assert "2 of 3 ranks profiled" in asked.stdout, asked.stdout
    for word in ("armed", "done", "failed    no Kineto"):
        assert word in asked.stdout, asked.stdout
    listed = server.get(f"/api/jobs/{JOB}/profiles")["profiles"]
    assert len(listed) == 1 and listed[0]["ended"]
    capture = listed[0]
    assert server.get(f"/api/jobs/{JOB}/profiles/{capture['capture']}") == capture
    for rank in capture["ranks"][:2]:
        assert rank["state"] == "done" and rank["first_step"] == capture["start_step"] and rank["steps"] == 5
        path = f"/api/jobs/{JOB}/profiles/{capture['capture']}/files/{rank['file']}"
        with urllib.request.urlopen("http://" + server.http + path, timeout=10) as answer:
            order = json.loads(gzip.decompress(answer.read()))["order"]
        assert int(order["PROFILE_START_ITERATION"]) == capture["start_step"] - 1000, "in Kineto's own count"
        assert order["ACTIVITIES_ITERATIONS"] == "5" and order["PROFILE_REPORT_INPUT_SHAPES"] == "true"
    agent, recorders = job
    assert not list(recorders.glob("lockstep-p-*")), "nothing is left on the node"
    assert agent.counters().total("lockstep_agent_profiles_total", result="done") == 2
    # What the files say, read from the server; and one that is not there.
    name = f"{JOB}/{capture['capture']}"
    assert f"lockstep analyze {name}" in asked.stdout
    said = harness.lockstep("analyze", name, "--json", "--server", "http://" + server.http)
    assert said.returncode == 0, said.stderr
    assert [rank["rank"] for rank in json.loads(said.stdout)["ranks"]] == [0, 1], said.stdout
    nothing = harness.lockstep("analyze", JOB + "/p-000000000000", "--server", "http://" + server.http)
    assert nothing.returncode == 4 and "nothing of this profile is stored" in nothing.stderr, nothing.stderr
    # By the command line alone, too, and who asked is written down where there is anybody to be known.
    again = harness.lockstep("profile", JOB, "--server", "http://" + server.http)
    assert again.returncode == 0 and capture["capture"] in again.stdout, again.stderr
    check_finding(server, capture)


def check_finding(server, capture):
    """What the traces say of a rank, put down as any record, is found again by the query of the claim that tells it."""
    of = {"lockstep.job_id": JOB, "lockstep.attempt": 0, "lockstep.rank": 1, "lockstep.world_size": RANKS}
    finding = {
        "capture": capture["capture"], "first_step": capture["start_step"], "steps": 5, "reason": "extra_copies",
        "sentence": "Rank 1 copies.", "cost_us": 1250.5, "share": 0.25, "kernel": "Memcpy DtoD",
    }  # fmt: skip
    kinds = {int: "intValue", float: "doubleValue", str: "stringValue"}
    attributes, who = (
        [{"key": key, "value": {kinds[type(value)]: value}} for key, value in values.items()] for values in (finding, of)
    )
    record = {"timeUnixNano": str(time.time_ns()), "eventName": "profile.finding", "attributes": attributes}
    message = {"resourceLogs": [{"resource": {"attributes": who}, "scopeLogs": [{"logRecords": [record]}]}]}
    assert server.post("logs", json.dumps(message).encode(), content_type="application/json").status == 200
    said = server.get(f"/api/jobs/{JOB}/evidence", of="profile", ranks=1, name=capture["capture"])
    assert said["value"] == pytest.approx(1.2505) and said["sentence"] == "Rank 1 copies.", said
