"""Scenarios of the harder board's shapes through a real server in real time: what is named is what was wrong."""

import json

import pytest

import harness

SMOKE = harness.ROOT / "tests" / "scenarios" / "smoke"


@pytest.mark.limit(90)
def test_a_sharded_and_a_noisy_job_are_judged_rightly_through_the_receivers():
    # 80 steps of 0.2 s each, both at once.
    files = [str(SMOKE / f"{name}.yaml") for name in ("sharded-slow-gpu", "noisy-slow-input")]
    done = harness.lockstep("score", *files, "--receivers", "--json", "-", timeout=80)
    assert done.returncode == 0, done.stdout + done.stderr
    scenarios = json.loads(done.stdout)["subjects"][0]["scenarios"]
    assert [scenario["name"] for scenario in scenarios] == ["sharded-slow-gpu", "noisy-slow-input"]
    for scenario, layer in zip(scenarios, ("gpu", "input")):
        assert "problem" not in scenario, scenario
        (fault,) = scenario["faults"]
        assert fault["began"] and fault["rank"] and fault["said_layer"] == layer, fault
        assert scenario["wrong"] == [], scenario["wrong"]
