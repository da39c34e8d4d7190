"""The SLE ledger of a running server: minutes judged from what is sent, the same after a restart and a second delivery."""
import time

import pytest

import harness

WORLD = 4
MINUTE_NS = 60_000_000_000


def send(server, first_minute, minutes, step_ns, first_step):
    """Minutes full of steps of every rank, as an agent that was away sends them: all at once, with the times they had."""
    per_minute = MINUTE_NS // step_ns
    for rank in range(WORLD):
        records = []
        for i in range(minutes * per_minute):
            record = harness.step_event(first_step + i, step_ns)
            record["time_unix_nano"] = first_minute * MINUTE_NS + (i + 1) * step_ns
            records.append(record)
        answer = server.post("logs", harness.logs_request(harness.identity("train", rank, WORLD), records))
        assert answer.status == 200, answer.text
    return first_step + minutes * per_minute


def progress(server, **parameters):
    return server.get("/api/sle/progress", **parameters)


def status(server, path):
    return harness.request(server.http, "GET", path).status


def test_minutes_are_judged_and_stay_the_same_over_a_restart_and_a_second_delivery(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--gpu-hour-price", "H100=2,3"])
    begin = time.time_ns() // MINUTE_NS - 12
    after = send(server, begin, 6, 2_000_000_000, 0)
    send(server, begin + 6, 2, 3_000_000_000, after)

    def judged():
        minutes = progress(server)["minutes"]
        return minutes if minutes["degraded"] == 2 * WORLD and minutes["good"] >= 3 * WORLD else None

    minutes = harness.eventually(judged, 60, "the minutes are judged")
    # All ranks became slower: diagnosis says so a moment later, and is charged.
    harness.eventually(lambda: progress(server)["classifiers"][0]["name"] == "software", 60, "the verdict is charged")
    one = progress(server)
    assert sum(part["minutes"] for part in one["classifiers"]) == minutes["degraded"]
    assert one["classifiers"][0]["subs"][0]["name"] == "code-regression"
    assert one["chosen_money"] == pytest.approx(2 * WORLD / 60 * 3, abs=0.01)
    assert one["affected"]["jobs"]["list"][0]["name"] == "train"
    assert progress(server, job="train", ranks="0-1")["minutes"]["degraded"] == 4
    assert progress(server, job="other")["minutes"] == {"good": 0, "degraded": 0, "unknown": 0, "idle": 0}
    assert status(server, "/api/sle?group=dp") == 400
    assert status(server, "/api/sle/nonsense") == 404
    server.kill()
    server = start(harness.Server, tmp_path / "data")
    send(server, begin + 6, 2, 3_000_000_000, after)
    again = progress(server)["minutes"]
    assert (again["good"], again["degraded"]) == (minutes["good"], minutes["degraded"])
