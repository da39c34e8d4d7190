"""One incident, asked about in every way there is: page, command line, API, MCP, PromQL, alert and incident say the same of it."""

import json
import re
import subprocess

import harness
import pytest
from receivers import Receiver
from test_alerts import notify_file, webhook
from test_feedback import SLOW, WORLD, confirmed, play
from test_mcp import Assistant

JOB = "train"
URL = "https://lockstep.example"
STEPS = 40
OWN = f'last_over_time(lockstep_rank_own_seconds{{job_id="{JOB}"}}[1h])'


def as_one_line(text):
    return " ".join(text.split())


def page_text(url, pattern):
    """What a page says, once the pattern is in it."""
    program = harness.ROOT / "tests" / "web" / "page_text.mjs"
    done = subprocess.run(["node", program, url, pattern], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return as_one_line(done.stdout)


def series(server, query):
    return server.get("/prometheus/api/v1/query", query=query)["data"]["result"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server with one slow rank, which somebody is called for. What it says does not change any more: no step comes."""
    folder = tmp_path_factory.mktemp("incident")
    receiver = Receiver()
    more = ["--notify", notify_file(folder, webhook(receiver)), "--external-url", URL, "--gpu-hour-price", "200"]
    server = harness.Server(folder / "data", more=more)
    play(server, JOB, STEPS, lambda rank: {"lockstep.gpu_uuid": f"GPU-{rank}"})
    harness.eventually(lambda: confirmed(server, JOB), 15, "a confirmed verdict")
    harness.eventually(lambda: confirmed(server, JOB)["through_step"] == STEPS - 1, 15, "its last step is judged")
    harness.eventually(lambda: ("LockstepStraggler", "firing") in receiver.alerts() or None, 15, "a call for it")
    harness.eventually(lambda: series(server, "lockstep_verdict_open") or None, 30, "the series of open verdicts")
    harness.eventually(lambda: len(series(server, OWN)) == WORLD or None, 30, "the series of every rank")
    server.receiver = receiver
    yield server
    server.stop()
    receiver.close()


@pytest.fixture
def verdict(world):
    return confirmed(world, JOB)


def test_the_api_says_it_with_numbers_that_agree(world, verdict):
    wait_ms, share = map(float, re.search(r"wait (\d+) ms a step .*: (\d+) % of the job", verdict["sentence"]).groups())
    assert wait_ms == pytest.approx(150, abs=2), "0.8 of a step of 500 ms, its peers 0.5"
    assert share == pytest.approx(100 * verdict["lost_share"], abs=0.51) and share == pytest.approx(100 * wait_ms / 500, abs=1)
    steps = verdict["through_step"] - verdict["since_step"] + 1
    one_step = wait_ms / 1000 * WORLD  # since when it is so is corrected while it goes on, what is lost is not
    assert verdict["lost_gpu_seconds"] == pytest.approx(steps * one_step, abs=1.05 * one_step)
    assert verdict["lost_money"] == pytest.approx(verdict["lost_gpu_seconds"] / 3600 * 200, abs=0.005)
    assert verdict["culprit"]["rank"] == [SLOW] and verdict["culprit"]["host"] == f"node-{SLOW}"
    assert world.get(f"/api/verdicts/{verdict['id']}")["sentence"] == verdict["sentence"]
    (job,) = world.get("/api/jobs")["jobs"]
    assert (job["sentence"], job["cause"], job["layer"]) == (verdict["sentence"], verdict["culprit"]["cause"], verdict["culprit"]["layer"])


def test_the_command_line_says_the_same(world, verdict):
    why = as_one_line(harness.lockstep("why", JOB, "--server", world.url).stdout)
    assert verdict["sentence"] in why
    culprit = verdict["culprit"]
    assert f"(layer {culprit['layer']}, cause {culprit['cause']})" in why
    assert f"cost {100 * verdict['lost_share']:.0f} % of the job, " in why and verdict["money"] in why, why
    for claim in [one["claim"] for one in verdict["chain"] if one["kind"] != "exclusion"][:2]:
        assert claim in why, claim
    same = json.loads(harness.lockstep("why", JOB, "--json", "--server", world.url).stdout)["verdicts"][0]
    assert same == verdict
    assert verdict["sentence"] in as_one_line(harness.lockstep("jobs", "--server", world.url).stdout)
    assert verdict["sentence"] in as_one_line(harness.lockstep("why", "--server", world.url).stdout), "it is the worst"


def test_an_assistant_is_told_the_same(world, verdict):
    wrong, (sentence, text) = Assistant(world, "").call("why", job=JOB)
    assert not wrong and verdict["sentence"] in sentence
    told = json.loads(text)["verdicts"][0]
    for name in ("id", "sentence", "culprit", "lost_share", "lost_gpu_seconds", "since_step", "through_step", "money"):
        assert told[name] == verdict[name], name


def test_promql_says_the_same(world, verdict):
    culprit = verdict["culprit"]
    (open_one,) = series(world, f'lockstep_verdict_open{{job_id="{JOB}"}}')
    told = {name: value for name, value in open_one["metric"].items() if name != "__name__"}
    assert told == {
        "job_id": JOB, "kind": verdict["kind"], "layer": culprit["layer"], "cause": culprit["cause"], "rank": str(SLOW),
        "host": culprit["host"], "gpu_uuid": culprit["gpu_uuid"], "state": verdict["state"],
    }  # fmt: skip
    (alert,) = series(world, 'ALERTS{alertname="LockstepStraggler"}')
    assert (alert["metric"]["job"], alert["metric"]["cause"], alert["metric"]["host"]) == (JOB, culprit["cause"], culprit["host"])
    # Who is slow, and by how much, in PromQL alone.
    (slowest,) = series(world, f"topk(1, {OWN})")
    assert slowest["metric"]["rank"] == str(SLOW)
    (ahead,) = series(world, f"max({OWN}) - quantile(0.5, {OWN})")
    wait_ms = float(re.search(r"wait (\d+) ms", verdict["sentence"])[1])
    assert 1000 * float(ahead["value"][1]) == pytest.approx(wait_ms, abs=2)


def test_the_call_and_the_incident_say_the_same(world, verdict):
    called = next(one for post in world.receiver.posts for one in post["alerts"] if one["labels"]["alertname"] == "LockstepStraggler")
    culprit = verdict["culprit"]
    assert (called["labels"]["job"], called["labels"]["cause"], called["labels"]["layer"]) == (JOB, culprit["cause"], culprit["layer"])
    assert called["annotations"]["runbook_url"] == URL + verdict["runbook"] and called["annotations"]["ranks"] == str(SLOW)
    shown = next(one for one in world.get("/api/alerts")["alerts"] if one["verdict_id"] == verdict["id"])
    assert (shown["sentence"], shown["lost_gpu_seconds"]) == (verdict["sentence"], verdict["lost_gpu_seconds"])
    incident = world.get(f"/api/incidents/{verdict['incident']['id']}")
    assert called["annotations"]["incident"] == f"{URL}/incidents/{incident['id']}"
    assert incident["sentence"] == verdict["sentence"] and incident["lost_gpu_seconds"] == verdict["lost_gpu_seconds"]
    assert verdict["money"] in incident["cost"], incident["cost"]


@pytest.mark.limit(150)
def test_the_pages_say_the_same(world, verdict):
    culprit = verdict["culprit"]
    sentence = re.escape(verdict["sentence"].split(": ", 1)[1])
    job = page_text(f"{world.url}/jobs/{JOB}", sentence)
    assert verdict["sentence"] in job and verdict["money"] in job, job
    for claim in [one["claim"] for one in verdict["chain"] if one["kind"] != "exclusion"][:2]:
        assert claim in job, claim
    assert verdict["sentence"] in page_text(world.url, sentence)
    assert verdict["sentence"] in page_text(f"{world.url}/incidents/{verdict['incident']['id']}", sentence)
