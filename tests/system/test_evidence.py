"""Every claim of every verdict can be looked at again: its query, asked for, returns its number."""

import re
import urllib.parse

import harness
import pytest

FLEET = """
name: evidence
seed: 7
steps: 40
jobs:
  - {job: train, tp: 8, pp: 4, dp: 32, micro_batches: 16, step_ms: 500}
  - {job: paused, tp: 4, dp: 8, step_ms: 250}
  - {job: nvlink, tp: 8, dp: 8, step_ms: 500}
  - {job: experts, tp: 2, dp: 16, ep: 8, step_ms: 500}
  - {job: stuck, tp: 4, dp: 4, step_ms: 250}
  - {job: slower, dp: 8, step_ms: 250}
faults:
  - {cause: throttle-thermal, rank: 13, from_step: 14, severity: 0.3}
  - {cause: nic-degraded, rank: 700, from_step: 15, severity: 3}
  - {cause: data-loader, rank: 300, from_step: 16, severity: 0.3}
  - {cause: cpu-contention, host: 50, from_step: 17, severity: 0.2}
  - {cause: process-paused, job: paused, rank: 9, from_step: 20, shape: intermittent, period_steps: 4}
  - {cause: nvlink-degraded, job: nvlink, rank: 21, from_step: 14, severity: 2}
  - {cause: expert-imbalance, job: experts, expert: 3, from_step: 12}
  - {cause: rank-missing, job: stuck, rank: 5, from_step: 40}
  - {cause: code-regression, job: slower, from_step: 36, severity: 0.4}
telemetry: {all_series: false}
"""
# What a person reads is three digits; a signal below 0.005 of its unit reads as 0.
NEAR = 0.01
NOTHING = 0.005


def number_of(server, query):
    """What the query returns: one number."""
    answer = server.get(query)
    path = urllib.parse.urlsplit(query).path
    if path.endswith("/evidence") or path == "/api/signals":
        return answer["value"]
    if path == "/api/logs":
        return sum(int(log["attributes"].get("count", 1)) for log in answer["logs"])
    if path == "/api/fabric/changes":
        assert answer["total"] == 1, f"{query}: one change was asked for"
        return answer["changes"][0]["before_s"]
    if path == "/api/agents":
        assert answer["total"] == 1, f"{query}: one host was asked for"
        return answer["agents"][0]["silent_s"]
    raise AssertionError(f"{query} returns no number that this test knows")


def is_right(claim, number):
    if number is None:
        return False
    # A counterfactual is computed: what was measured is one of its two numbers.
    said = [claim["value"]] + ([claim["baseline"]] if claim["kind"] == "counterfactual" else [])
    nothing = NOTHING if "/api/signals" in claim["query"] else 1e-6
    return any(abs(number - one) <= NEAR * abs(one) + nothing for one in said)


def commands_of(verdict):
    for action in verdict["next"]:
        yield from re.findall(r"\blockstep ([^;|]+)", action["command"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """A server that has heard of 1,024 ranks with four faults, and of a few small jobs."""
    folder = tmp_path_factory.mktemp("evidence")
    scenario = folder / "evidence.yaml"
    scenario.write_text(FLEET)
    server = harness.Server(folder / "data")
    played = harness.lockstep("sim", scenario, "--server", f"http://{server.otlp_http}", timeout=150)
    assert played.returncode == 0, played.stdout + played.stderr
    yield server
    assert server.running(), server.log()
    server.stop()


def verdicts(server):
    told = server.get("/api/verdicts", limit=1000)["verdicts"]
    assert {one["job_id"] for one in told} == {"train", "paused", "nvlink", "experts", "stuck", "slower"}
    return told


@pytest.mark.limit(200)
def test_every_query_of_every_verdict_returns_the_number_of_its_claim(fleet):
    told = verdicts(fleet)
    layers = {one["culprit"]["layer"] for one in told if one["job_id"] == "train"}
    assert layers >= {"gpu", "input", "host"} and layers & {"nic", "link"}, layers
    wrong, checked = [], 0
    for verdict in told:
        for claim in verdict["chain"]:
            if claim["value"] == 0 and claim["unit"] == "":
                fleet.get(claim["query"])  # a claim without a number: the page is there
                continue
            number = number_of(fleet, claim["query"])
            checked += 1
            if not is_right(claim, number):
                wrong.append(f"{verdict['id']}: {claim['claim']} {claim['value']} {claim['unit']}: {claim['query']} gives {number}")
    assert not wrong, "\n".join(wrong)
    assert checked > 40


def test_the_code_that_changed_before_a_job_became_slower_is_in_its_verdict(fleet):
    told = [one for one in verdicts(fleet) if one["job_id"] == "slower"]
    claims = [claim for verdict in told for claim in verdict["chain"] if "/api/fabric/changes" in claim["query"]]
    assert [claim["subject"] for claim in claims] == ["job:slower"] * len(told), told
    assert all(re.match(r"The code of job slower changed \d+ s (before|after) it began: v\d, before that v\d\.", claim["claim"]) for claim in claims), claims
    graph = fleet.get("/api/graph", focus="job:slower", depth=1)
    assert [edge["to"] for edge in graph["edges"] if edge["kind"] == "changed-at"] == ["version:code v2"], graph["edges"]


def test_the_graph_says_that_a_late_rank_was_waited_for(fleet):
    late = fleet.get("/api/graph", focus="rank:train/13", depth=1)
    waits = [edge for edge in late["edges"] if edge["kind"] == "waits-for" and edge["to"] == "rank:train/13"]
    its_group = {f"rank:train/{rank}" for rank in range(8, 16)} - {"rank:train/13"}
    assert {edge["from"] for edge in waits} & its_group and all(edge["weight"] > 0 for edge in waits), late["edges"]


def test_a_metric_claim_names_the_host_and_what_is_on_it(fleet):
    claims = [claim for verdict in verdicts(fleet) for claim in verdict["chain"] if "/api/signals" in claim["query"]]
    assert claims
    for claim in claims:
        asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(claim["query"]).query))
        assert asked["host"].startswith("node-"), claim
        signal = fleet.get(claim["query"])
        assert signal["host"] == asked["host"] and signal["unit"] == claim["unit"]


def test_commands_that_verdicts_recommend_exist(fleet):
    helps = {}
    commands = {command.strip() for verdict in verdicts(fleet) for command in commands_of(verdict)}
    for command in sorted(commands):
        words = command.split()
        if words[0] not in helps:
            done = harness.lockstep(words[0], "--help")
            assert done.returncode == 0, f"lockstep {command}: {done.stderr}"
            helps[words[0]] = done.stdout
        for option in (word for word in words if word.startswith("--")):
            assert option in helps[words[0]], f"lockstep {command}: no {option}"


def test_every_lockstep_command_in_the_sources_of_diagnosis_exists():
    """Also those that no verdict of this fleet recommends."""
    helps = {}
    for path in sorted((harness.ROOT / "src" / "diagnosis").rglob("*.cc")):
        if path.name.endswith(("_test.cc", "_bench.cc", "_fuzz.cc")):
            continue
        for command in re.findall(r'"lockstep ([a-z]+[^"]*)"', path.read_text()):
            words = command.split()
            if words[0] not in helps:
                helps[words[0]] = harness.lockstep(words[0], "--help")
            assert helps[words[0]].returncode == 0, f"{path}: lockstep {command}"
            for option in re.findall(r"--[a-z-]+", command):
                assert option in helps[words[0]].stdout, f"{path}: lockstep {command}"


@pytest.mark.parametrize(
    "query, why",
    [
        ("of=nonsense&steps=1", "is no measure"),
        ("of=own_ms&ranks=3", "which steps"),
        ("of=own_ms&ranks=x&steps=1", "not numbers in order"),
        ("of=own_ms&ranks=3&steps=5-2", "not numbers in order"),
        ("of=own_ms&ranks=3&steps=0-99999", "more than 1024"),
        ("of=waited_ms&ranks=3&steps=1&comm=zz", "communicator"),
        ("of=stage_ms&stage=-1&steps=1", "whole number"),
    ],
)
def test_a_wrong_question_is_refused_with_one_line(fleet, query, why):
    answer = harness.request(fleet.http, "GET", f"/api/jobs/train/evidence?{query}")
    assert answer.status == 400 and why in answer.text and answer.text.count("\n") <= 1, answer.text
