"""`lockstep why`: the cause stands in the first line, what is over is one line in the past, and without a job it is the worst."""

import json

import harness
from test_feedback import SLOW, STEP_NS, WORLD, confirmed


def play(server, job, steps, slow):
    """Steps of a job; in those of `slow` rank SLOW makes all others wait."""
    begin = harness.now_ns() - steps * STEP_NS
    for step in range(steps):
        for rank in range(WORLD):
            length = STEP_NS if step in slow else STEP_NS * 5 // 8
            own = length if rank == SLOW and step in slow else STEP_NS // 2
            event = harness.step_event(
                step, length, self_ns=own, comm_ns=length - own, start_unix_ns=begin + step * STEP_NS
            )
            assert server.post("logs", harness.logs_request(harness.identity(job, rank, WORLD), [event])).status == 200


def why(server, *arguments):
    return harness.lockstep("why", *arguments, "--server", server.url)


def cleared(server, job):
    return [one for one in server.get(f"/api/jobs/{job}/why")["verdicts"] if one["state"] == "cleared"] or None


def test_the_worst_job_its_cause_first_and_what_is_over_in_one_line(server):
    assert why(server).returncode == 4, "no job is known yet"
    play(server, "fine", 40, slow=())
    play(server, "bad", 40, slow=range(20, 40))
    verdict = harness.eventually(lambda: confirmed(server, "bad"), 15, "a confirmed verdict")
    assert verdict["culprit"]["cause"] == "cpu-contention"
    headline = f"Too little CPU (host): Rank {SLOW} (node-{SLOW}) makes all {WORLD} ranks wait "
    assert verdict["sentence"].startswith(headline), verdict["sentence"]
    said = why(server)
    assert said.returncode == 1 and said.stdout.startswith("bad · "), said
    assert headline in " ".join(said.stdout.split()), said.stdout
    jobs = harness.lockstep("jobs", "--server", server.url).stdout
    assert headline in jobs, jobs

    play(server, "bad", 90, slow=range(20, 40))
    (over,) = harness.eventually(lambda: cleared(server, "bad"), 15, "a verdict that is over")
    assert over["id"] == verdict["id"] and " made all " in over["sentence"], over["sentence"]
    assert " in steps 20 to 39: " in over["sentence"], over["sentence"]
    said = why(server, "bad")
    assert said.returncode == 0, said
    text = " ".join(said.stdout.split())
    assert over["sentence"] in text and "Over, by when it began" in text and "because" not in text, said.stdout
    in_full = why(server, "bad", "--history").stdout
    assert over["sentence"] in " ".join(in_full.split()) and "because" in in_full, in_full
    assert json.loads(why(server, "bad", "--json").stdout)["verdicts"][0]["id"] == verdict["id"]
