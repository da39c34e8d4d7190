"""What a person says of a verdict is kept over a restart, shown, counted, and can be taken back."""

import json

import harness

WORLD = 8
SLOW = 5
STEP_NS = 500_000_000


def play(server, job, steps, more=lambda rank: {}):
    """Steps of a job whose rank SLOW works longer than its peers, so that they wait for it. more: of a rank's identity."""
    begin = harness.now_ns() - steps * STEP_NS
    for step in range(steps):
        for rank in range(WORLD):
            own = STEP_NS * (8 if rank == SLOW else 5) // 10
            event = harness.step_event(
                step, STEP_NS, self_ns=own, comm_ns=STEP_NS - own, start_unix_ns=begin + step * STEP_NS
            )
            answer = server.post("logs", harness.logs_request({**harness.identity(job, rank, WORLD), **more(rank)}, [event]))
            assert answer.status == 200, answer.text


def confirmed(server, job):
    verdicts = server.get(f"/api/jobs/{job}/why")["verdicts"]
    assert verdicts and verdicts[0]["state"] == "confirmed", verdicts
    return verdicts[0]


def say(server, verdict, body):
    return harness.request(
        server.http,
        "POST",
        f"/api/verdicts/{verdict}/feedback",
        body if isinstance(body, bytes) else json.dumps(body).encode(),
        harness.OURS,
    )


def test_feedback_is_kept_over_a_restart_and_can_be_taken_back(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    play(server, "train", 40)
    verdict = harness.eventually(lambda: confirmed(server, "train"), 15, "a confirmed verdict")
    assert verdict["culprit"]["rank"] == [SLOW]
    assert verdict["feedback"] is None

    done = harness.lockstep(
        "verdict", verdict["id"], "--wrong", "--cause", "ecc", "--note", "swapped it", "--server", server.url
    )
    assert done.returncode == 0, done.stderr
    assert "wrong: it was ecc (swapped it)" in done.stdout
    assert server.counters().total("lockstep_feedback_total", answer="wrong") == 1

    assert server.stop() == 0
    server = start(harness.Server, tmp_path / "data")
    kept = server.get(f"/api/verdicts/{verdict['id']}")["feedback"]
    assert kept["right"] is False and kept["cause"] == "ecc" and kept["note"] == "swapped it"
    assert kept["said"] == verdict["culprit"]["cause"]

    # The last word counts; a crash does not lose it.
    assert say(server, verdict["id"], {"right": True}).status == 200
    server.kill()
    server = start(harness.Server, tmp_path / "data")
    assert server.get(f"/api/verdicts/{verdict['id']}")["feedback"]["right"] is True
    done = harness.lockstep("verdict", verdict["id"], "--take-back", "--json", "--server", server.url)
    assert json.loads(done.stdout)["feedback"] is None


def test_feedback_that_makes_no_sense_is_one_clear_line_and_counted(server):
    for body, status, part in (
        (b"\xff\xfe", 400, "feedback"),
        ({"right": False, "cause": "gremlins"}, 400, "no cause"),
        ({"right": True}, 404, "no verdict"),
        (b"[" * 5000, 400, "feedback"),
        (b" " * 10_000, 413, "limit 8192"),
    ):
        answer = say(server, "nobody.0-slow-own-1.1", body)
        assert answer.status == status, answer.text
        line = answer.json()["error"]
        assert part in line and "\n" not in line
    assert server.counters().total("lockstep_feedback_refused_total") == 5
    for arguments, code, part in (
        (["nobody", "--right", "--wrong"], 2, "exclude each other"),
        (["nobody", "--right", "--cause", "ecc"], 2, "needs --wrong"),
        (["nobody", "--note", "x"], 2, "needs --right or --wrong"),
        (["nobody", "--right"], 4, "no verdict"),
        (["nobody"], 4, "no verdict"),
        ([], 2, "ID"),
    ):
        done = harness.lockstep("verdict", *arguments, "--server", server.url)
        assert done.returncode == code, done.stderr
        assert part in done.stderr and done.stderr.count("\n") == 1


def test_a_fleet_without_early_warnings_says_so(server):
    assert server.get("/api/warnings") == {"warnings": [], "total": 0, "shown": 0}
    done = harness.lockstep("warnings", "--server", server.url)
    assert done.returncode == 0 and done.stdout.startswith("No early warnings")
    done = harness.lockstep("warnings", "--job", "nobody", "--server", server.url)
    assert done.returncode == 4 and "no job" in done.stderr
