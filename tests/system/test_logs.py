"""What jobs and nodes log is on disk, found by whom, when, how bad and what, over a kill of the server too; `lockstep logs` shows it, and
Grafana's Explore by its Loki data source."""

import json
import subprocess
import urllib.parse

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


def explore(server, path, **asked):
    """As Grafana's backend asks: parameters in the order of their names, and labels apart from the line."""
    path = f"/loki/api/v1/{path}?{urllib.parse.urlencode(sorted(asked.items()))}"
    answer = harness.request(server.http, "GET", path, headers={"X-Loki-Response-Encoding-Flags": "categorize-labels"})
    assert answer.status == 200, f"{path}: {answer.text}"
    return answer.json()


def explore_sees_them(server):
    """What Explore sends, in its order: save & test, the label browser, a query with its statistics, its histogram, a line's context."""
    healthy = explore(server, "query", direction="backward", query="vector(1)+vector(1)", time="4000000000")
    assert healthy["data"]["resultType"] == "vector" and healthy["data"]["result"][0]["value"][1] == "2"
    end = harness.now_ns() + SECOND
    range_ns = {"start": end - 7200 * SECOND, "end": end}
    labels = ["event", "host", "job_id", "level", "rank", "service_name"]
    assert explore(server, "labels", **range_ns)["data"] == labels
    assert explore(server, "label/level/values", query='{job_id="train"}', **range_ns)["data"] == ["error", "info", "warn"]
    assert len(explore(server, "series", **{"match[]": '{host="node-0"}'}, **range_ns)["data"]) == 3
    query = '{job_id="train"} |= ``'
    assert explore(server, "index/stats", query='{job_id="train"}', **range_ns)["entries"] == 4
    shown = explore(server, "query_range", direction="backward", limit=1000, query=query, step="5000ms", **range_ns)["data"]
    assert shown["resultType"] == "streams" and shown["encodingFlags"] == ["categorize-labels"]
    lines = {stream["stream"]["rank"]: stream["values"] for stream in shown["result"]}
    assert [len(values) for values in lines.values()] == [1] * 4
    assert lines["9"][0][1:] == ["CUDA out of memory", {"structuredMetadata": {"code": "2"}}]
    assert lines["3"][0][1] == '{"value":0.5}' and range_ns["start"] < int(lines["3"][0][0]) < end
    volume = f"sum by (level, detected_level) (count_over_time({query} | drop __error__[1m]))"
    counted = explore(server, "query_range", direction="backward", query=volume, step="60000ms", **range_ns)["data"]
    assert counted["resultType"] == "matrix"
    assert {one["metric"]["level"]: sum(int(value) for _, value in one["values"]) for one in counted["result"]} == {
        "error": 1, "info": 2, "warn": 1,
    }  # fmt: skip
    out_of_memory = int(lines["9"][0][0])
    around = {"direction": "forward", "limit": 10, "query": '{job_id="train"}', "start": out_of_memory, "end": end}
    after = [line for stream in explore(server, "query_range", **around)["data"]["result"] for line in stream["values"]]
    assert len(after) == 3 and min(int(line[0]) for line in after) == out_of_memory
    wrong = harness.request(server.http, "GET", "/loki/api/v1/query_range?query=%7B%7D%20%7C%20line_format%20%22x%22")
    assert wrong.status == 400 and "| line_format is not served here" in wrong.text and wrong.text.count("\n") == 1


def logcli_sees_them(server):
    """What logcli 3.5 sends, recorded: times in nanoseconds, match without brackets, directions in capitals. It reads batches until one
    brings nothing new, each from the last line of the one before on."""

    def ask(path, **asked):
        return harness.request(server.http, "GET", f"/loki/api/v1/{path}?{urllib.parse.urlencode(asked)}", headers={"User-Agent": "loki-logcli/"})

    end = harness.now_ns() + SECOND
    span = {"end": end, "start": end - 7200 * SECOND}
    assert ask("label/job_id/values", **span).json() == {"status": "success", "data": ["train"]}
    assert ask("label/nothing/values", **span).json() == {"status": "success", "data": []}
    lines, job = [], '{job_id="train"}'
    until = end
    while True:
        answer = ask("query_range", direction="BACKWARD", limit=2, query=job, start=span["start"], end=until).json()["data"]
        assert answer["resultType"] == "streams" and answer["stats"]["summary"]["totalLinesProcessed"] >= 1
        batch = sorted((int(time), line) for stream in answer["result"] for time, line in stream["values"])[::-1]
        new = [one for one in batch if one not in lines]
        if not new:
            break
        lines += new
        until = lines[-1][0] + 1  # the end is not of the range
    assert len(lines) == 4 and lines == sorted(lines)[::-1] and lines[-1][1] == "old and calm"
    assert ask("query_range", direction="FORWARD", limit=1, query=job, **span).json()["data"]["result"][0]["values"][0][1] == "old and calm"
    assert len(ask("series", match=job, **span).json()["data"]) == 4
    counted = ask("query", direction="BACKWARD", limit=30, query="sum(count_over_time({}[2h]))", time=end).json()["data"]
    assert counted["resultType"] == "vector" and counted["result"][0]["metric"] == {} and counted["result"][0]["value"][1] == "4"
    stats = ask("index/stats", query=job, **span).json()
    assert stats["streams"] == stats["entries"] == 4 and stats["bytes"] > 0 and stats["chunks"] >= 1
    volume = ask("index/volume", query=job, limit=30, targetLabels="host,job_id", **span).json()["data"]
    assert [one["metric"] for one in volume["result"] if one["metric"]["host"] == "node-1"] == [{"host": "node-1", "job_id": "train"}]
    for path, asked, status, said in (
        ("query_range", {"query": '{job_id="train"'}, 400, 'LogQL, character 16: "}" is expected, not the end'),
        ("query", {"query": job, "time": end}, 400, "log queries are not supported as an instant query type"),
        ("query_range", {"query": job, "limit": 20_000}, 400, "max entries limit per query exceeded"),
        ("tail", {"query": job, "limit": 30, "start": span["start"]}, 404, "live tail is not served here"),
        ("index/volume_range", {"query": job, **span, "step": 60}, 404, "is not served here"),
        ("detected_fields", {"query": job, **span, "line_limit": 1000}, 404, "is not served here"),
        ("drilldown-limits", {}, 404, "is not served here"),  # of Grafana, which goes on without
        ("patterns", {"query": job, **span}, 404, "is not served here"),
    ):
        refused = ask(path, **asked)
        assert refused.status == status and said in refused.text, f"{path}: {refused.status} {refused.text}"
        assert refused.text.count("\n") == 1 and refused.headers["content-type"].startswith("text/plain"), "one line, which logcli prints"


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

    explore_sees_them(server)
    logcli_sees_them(server)

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
