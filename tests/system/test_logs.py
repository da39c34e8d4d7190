"""What jobs and nodes log is on disk, found by whom, when, how bad and what, over a kill of the server too; `lockstep logs` shows it."""

import json
import subprocess

import harness

SECOND = 10**9


def say(server, body, rank=0, severity=9, event="", ago_s=0, **attributes):
    resource = {**harness.identity("train", rank, 16), "host.name": f"node-{rank // 8}", "service.name": "trainer"}
    record = {"time_unix_nano": harness.now_ns() - ago_s * SECOND, "severity_number": severity, "attributes": attributes}
    record |= {"event_name": event} if event else {}
    record |= {} if body is None else {"body": body}
    answer = server.post("logs", harness.logs_request(resource, [record]))
    assert answer.status == 200, answer.text


def bodies(server, **asked):
    return [one["body"] for one in server.get("/api/logs", **asked)["logs"]]


def test_logs_are_found_over_a_kill_and_shown_by_the_command_line(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    say(server, "old and calm", rank=1, ago_s=3600)
    say(server, "CUDA out of memory", rank=9, severity=17, code=2)
    say(server, "\x1b[2Jclears your screen\x07", rank=2, severity=13)
    say(server, None, rank=3, event="lr.changed", value=0.5)
    server.kill()
    server = start(harness.Server, tmp_path / "data")
    assert len(bodies(server)) == 4
    assert bodies(server, severity="error") == ["CUDA out of memory"]
    assert bodies(server, host="node-1") == bodies(server, rank=9) == bodies(server, grep='"code":2') == ["CUDA out of memory"]
    assert bodies(server, match="out of (memory|luck)") == ["CUDA out of memory"]
    assert bodies(server, job="train", order="oldest")[0] == "old and calm"
    assert bodies(server, job="another") == []
    for wrong in ({"severity": "bad"}, {"match": "("}, {"order": "both"}, {"event": "train.step", "grep": "x"}):
        query = "&".join(f"{key}={value}" for key, value in wrong.items())
        assert harness.request(server.http, "GET", f"/api/logs?{query}").status == 400, wrong

    shown = harness.lockstep("logs", "train", "--server", server.url)
    lines = shown.stdout.splitlines()
    assert shown.returncode == 0 and len(lines) == 4, shown.stderr
    assert lines[0].endswith("node-0 rank 1       old and calm")
    assert "\x1b" not in shown.stdout and "\x07" not in shown.stdout
    assert any("lr.changed: {\"value\":0.5}" in line for line in lines)
    recent = harness.lockstep("logs", "--since", "10m", "--severity", "warn", "--json", "--server", server.url)
    assert {one["severity"] for one in json.loads(recent.stdout)["logs"]} == {13, 17}
    assert harness.lockstep("logs", "--since", "soon", "--server", server.url).returncode == 2


def test_following_shows_what_comes(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    say(server, "first")
    following = subprocess.Popen(
        [str(harness.BIN / "lockstep"), "logs", "--follow", "--server", server.url],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert following.stdout.readline().endswith("first\n")
        say(server, "second")
        assert following.stdout.readline().endswith("second\n")
    finally:
        following.kill()
        following.wait()
