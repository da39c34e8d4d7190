"""What the server finds in kernel profiles by itself: the summary, the timeline, and that a trace which is damaged, or too much for the
process that reads it, costs one line. Ranks and their agent are played: steps, files and events as they would send them."""

import gzip
import hashlib
import json
import pathlib
import subprocess
import sys

import harness
import pytest
from test_uploads import store

MAKE = harness.ROOT / "bench" / "analyze" / "make_traces.py"
JOB = "team/llama"
ANALYSED_S = 30


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Of four ranks whose clocks differ; rank 2 computes in fp32."""
    folder = tmp_path_factory.mktemp("traces")
    subprocess.run(
        [sys.executable, MAKE, folder, "--ranks", "4", "--steps", "4", "--layers", "4", "--offset-us", "800", "--on-demand", "--fault", "2:precision"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return folder


def api(capture):
    return f"/api/jobs/{JOB}/profiles/{capture}"


def begin(server, ranks):
    for rank in range(ranks):
        sent = server.post("logs", harness.logs_request(harness.identity(JOB, rank, ranks), [harness.step_event(step) for step in range(5)]))
        assert sent.status == 200, sent.text

    def ordered():
        answer = harness.request(server.http, "POST", f"/api/jobs/{JOB}/profiles?ranks=0-{ranks - 1}", headers=harness.OURS)
        assert answer.status == 202, answer.text
        return answer.json()["capture"]

    return harness.eventually(ordered, 10, "the profile is ordered")


def profile(server, contents):
    """A capture whose ranks have sent these files; its id."""
    capture = begin(server, len(contents))
    for rank, content in enumerate(contents):
        file = f"rank-{rank}.json.gz"
        stored = store(server.otlp_http, {"job": JOB, "capture": capture, "file": file}, content)
        assert stored.status == 200, stored.text
        ready = {"capture": capture, "key": stored.json()["key"], "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "first_step": 1241, "steps": 4}
        sent = server.post("logs", harness.logs_request(harness.identity(JOB, rank, len(contents)), [{"event_name": "profile.ready", "attributes": ready}]))
        assert sent.status == 200, sent.text
    return capture


def summary(server, capture, state):
    def there():
        answer = server.get(api(capture) + "/summary")
        assert answer["state"] == state, answer
        return answer

    return harness.eventually(there, ANALYSED_S, f"the analysis is {state}")


def bytes_read(server):
    return int(pathlib.Path(f"/proc/{server.pid}/io").read_text().split("rchar: ")[1].split()[0])


def check_timeline(server, capture, traces_bytes):
    before = bytes_read(server)
    whole = server.get(api(capture) + "/timeline")
    read = bytes_read(server) - before
    assert read < traces_bytes, f"{read} bytes read, and the compressed traces are {traces_bytes}"
    assert whole["from_ns"] == 0 and whole["to_ns"] == whole["whole"]["to_ns"] > 10_000_000 and not whole["truncated"]
    assert [step["step"] for step in whole["steps"]] == [1241, 1242, 1243, 1244], "the job's own numbers"
    lanes = {(lane["rank"], lane["lane"]): lane for lane in whole["lanes"]}
    assert {rank for rank, _ in lanes} == {0, 1, 2, 3} and lanes[0, "stream 7"]["kind"] == "gpu"
    classes = {one[3] for lane in whole["lanes"] for one in lane["slices"]}
    assert {"compute", "communication", "cpu op", "runtime", "step"} <= classes, classes

    def sums(view):
        return {(lane["rank"], lane["lane"]): (sum(one[1] for one in lane["slices"]), sum(one[4] for one in lane["slices"])) for lane in view["lanes"]}

    coarse = server.get(api(capture) + "/timeline", width=50)
    assert sums(coarse) == sums(whole) and len(json.dumps(coarse)) < len(json.dumps(whole))
    # All leave an all-reduce together, although their clocks were 800 us apart.
    fine = server.get(api(capture) + "/timeline", from_ns=0, to_ns=whole["to_ns"] // 2, width=8000)
    nccl = [i for i, name in enumerate(fine["names"]) if name.startswith("ncclDevKernel")]
    ends = [[one[0] + one[1] for one in lane["slices"] if one[2] in nccl and one[4] == 1] for lane in fine["lanes"]]
    ends = [one for one in ends if one]
    assert len(ends) == 4 and all(max(firsts) - min(firsts) < 50_000 for firsts in zip(*ends)), ends
    some = server.get(api(capture) + "/timeline", from_ns=1_000_000, to_ns=2_000_000, ranks="1,3")
    assert {lane["rank"] for lane in some["lanes"]} == {1, 3} and some["from_ns"] == 1_000_000
    for wrong in ("width=3", "from_ns=x", "ranks=many", "from_ns=9&to_ns=3", "what=1"):
        assert harness.request(server.http, "GET", api(capture) + "/timeline?" + wrong).status == 400


def test_a_profile_is_analysed_by_the_server_once_its_ranks_have_ended(start, tmp_path, traces):
    contents = [(traces / f"rank-{rank}.json.gz").read_bytes() for rank in range(4)]
    server = start(harness.Server, tmp_path / "data", more=["--analysis-cpu-s", "0"])
    capture = profile(server, contents)
    assert summary(server, capture, "none")["error"] == "", "nobody analyses here"
    server.kill()

    server = start(harness.Server, tmp_path / "data")  # which finds it at its start
    found = summary(server, capture, "ready")["summary"]
    assert found["verdict"]["ranks"] == [2] and found["verdict"]["reason"] == "higher_precision", found["verdict"]
    # The same as whoever reads the files sees, and the command line prints its sentence.
    said = harness.lockstep("analyze", f"{JOB}/{capture}", "--json", "--server", server.url)
    assert json.loads(said.stdout) == found, said.stderr
    shown = harness.lockstep("profile", JOB, "--show", capture, "--server", server.url)
    assert shown.returncode == 0 and found["verdict"]["sentence"] in shown.stdout, shown.stderr
    check_timeline(server, capture, sum(map(len, contents)))
    perfetto = harness.request(server.http, "GET", api(capture) + "/perfetto")
    assert perfetto.status == 200 and len(gzip.decompress(perfetto.body)) > 10_000
    assert capture + ".pftrace.gz" in perfetto.headers["content-disposition"]
    # They are files of the capture; nobody else writes such.
    files = {file["file"] for file in server.get(api(capture) + "/files")["files"]}
    assert {"analysis-summary.json", "analysis-timeline.bin", "analysis-perfetto.pftrace.gz", "rank-0.json.gz"} <= files
    refused = store(server.otlp_http, {"job": JOB, "capture": capture, "file": "analysis-summary.json"}, b"{}")
    assert refused.status == 400 and "the server's own" in refused.text
    assert harness.request(server.http, "GET", f"/api/jobs/{JOB}/profiles/p-000000000000/summary").status == 404
    assert server.get(api(capture))["analysis"] == "ready"
    removed = harness.request(server.http, "POST", api(capture) + "/remove", b"{}", {"Content-Type": "application/json"})
    assert removed.status == 200 and server.get(api(capture) + "/summary")["state"] == "none"
    assert harness.request(server.http, "GET", api(capture) + "/timeline").status == 404


def test_a_trace_that_is_damaged_or_too_much_costs_one_line(start, tmp_path, traces):
    good = (traces / "rank-0.json.gz").read_bytes()
    server = start(harness.Server, tmp_path / "data", more=["--analysis-cpu-s", "1"])
    cut = profile(server, [good[: len(good) // 2], b"no trace"])
    found = summary(server, cut, "ready")["summary"]
    assert [rank["rank"] for rank in found["ranks"]] == [0] and any("breaks off" in note for note in found["notes"]), found["notes"]
    nothing = profile(server, [b"no trace", gzip.compress(b"{}")])
    line = summary(server, nothing, "failed")["error"]
    assert "rank-" in line and "\n" not in line, line
    # Some kilobytes that become gigabytes: a piece of events again and again.
    event = b'{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1.0, "dur": 1.0, "args": {}},\n'
    bomb = gzip.compress(b'{"traceEvents": [') + gzip.compress(event * 20_000) * 1_000
    slow = summary(server, profile(server, [bomb]), "failed")["error"]
    # By the clock on a busy machine: it is the last to get the CPU.
    assert "took more than 1 s of CPU time" in slow or "took longer than 10 s" in slow, slow
    counters = server.counters()
    assert counters.total("lockstep_captures_analysed_total", result="failed") == 2
    assert counters.total("lockstep_captures_analysed_total", result="ready") == 1
    shown = harness.lockstep("profile", JOB, "--show", nothing, "--server", server.url)
    assert shown.returncode != 0 and "not analysed: " + line in shown.stdout
    server.kill()

    server = start(harness.Server, tmp_path / "data", more=["--analysis-memory", 16 << 20])
    assert summary(server, nothing, "failed")["error"] == line, "it is not tried again"
    assert "more memory than --analysis-memory allows" in summary(server, profile(server, [good]), "failed")["error"]
    assert harness.request(server.http, "GET", "/readyz").status == 200, "the service goes on"
