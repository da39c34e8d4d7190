"""The sums of `lockstep plan` are made of what was measured."""

import json
import subprocess

import harness


def plan(*options):
    done = subprocess.run([harness.BIN / "lockstep", "plan", *options, "--json"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_figure_stands_where_it_says():
    for figure in plan("--gpus", "8")["figures"]:
        page = (harness.ROOT / "bench" / "results" / figure["page"]).read_text()
        assert figure["quote"] in page, figure


def test_the_largest_fleet_that_was_played_comes_out_as_measured():
    """bench/results/fleet-100k.md: 1.54 cores without other series; 7,088 MB with every series of every GPU."""
    fleet = plan("--gpus", "98304", "--step-seconds", "10")
    assert 1.2 < fleet["cores_used"] < 2.2
    assert 6e9 < fleet["memory_bytes_used"] < 9e9
    assert fleet["tried"]
    assert not plan("--gpus", "400000")["tried"]


def test_a_fleet_has_to_be_told():
    done = subprocess.run([harness.BIN / "lockstep", "plan"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2 and "--gpus" in done.stderr
