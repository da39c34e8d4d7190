"""What one sender may do to a job of others is bounded, and over when it stops."""

import harness
import pytest

RANKS = 4
MOST = 10**13  # an attempt that the server takes for possible


def send(server, rank, step, job="job", attempt=0, world=RANKS):
    resource = {**harness.identity(job, rank, world), "lockstep.attempt": attempt}
    return server.post("logs", harness.logs_request(resource, [harness.step_event(step)]))


def play(server, steps, **more):
    for step in steps:
        for rank in range(RANKS):
            assert send(server, rank, step, **more).status == 200


def seen(server):
    job = server.get("/api/jobs/job")
    return job["attempt"], job["world_size"], job["last_step"]


@pytest.mark.parametrize(
    "hostile",
    [
        {"rank": 1, "step": 0, "attempt": 2**63 - 1},
        {"rank": 1, "step": 0, "attempt": MOST},
        {"rank": 1, "step": 2**63 - 1},
        {"rank": 1, "step": 10**15},
        {"rank": 1, "step": 9, "world": 10_000_000},
        {"rank": 9_999_999, "step": 9, "world": 10_000_000},
        {"rank": 2**31 - 1, "step": 9, "world": 2**31 - 1},
    ],
)
def test_one_event_changes_nothing_for_the_others(start, tmp_path, hostile):
    server = start(harness.Server, tmp_path / "data")
    play(server, range(10))
    assert seen(server) == (0, RANKS, 9)
    assert send(server, **hostile).status == 200
    assert seen(server) == (0, RANKS, 9)
    play(server, range(10, 12))
    assert seen(server) == (0, RANKS, 11)
    assert server.stop() == 0

    server = start(harness.Server, tmp_path / "data")
    assert seen(server) == (0, RANKS, 11)
    play(server, [12])
    assert seen(server) == (0, RANKS, 12)
    steps = server.get("/api/jobs/job/steps", **{"from": 0, "to": 12})
    assert steps["steps"] == list(range(13)), "none of the true ones is missing"


def test_a_job_that_was_taken_over_comes_back_by_itself(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    play(server, range(3))
    play(server, range(2), attempt=MOST)  # every rank of it, twice: a restart, as far as anybody can tell
    assert seen(server)[0] == MOST
    assert server.stop() == 0
    server = start(harness.Server, tmp_path / "data")
    play(server, range(3, 6))
    assert seen(server) == (0, RANKS, 5)
