"""From recorded NCCL callbacks through the real plugin and agent to the server, with every part failing in turn."""

import collections
import http.server
import json
import os
import pathlib
import signal
import struct
import subprocess
import threading

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

import harness

RECORDING = harness.RECORDINGS / "ddp_healthy"
JOB = "healthy"
RANKS = 4
DELIVERED_S = 40  # an agent that has met nobody for a while looks again after 10 s at most
# Room for the whole recording: an agent gives way on a busy machine, and these tests are about what is lost elsewhere.
LANE_RECORDS = "262144"


def recorded_durations_ms():
    """(rank, step): its length by the training script's own log."""
    return {
        (rank, step["step"]): step["total"] / 1e6
        for rank in range(RANKS)
        for step in json.loads((RECORDING / f"steps_rank{rank}.json").read_text())
    }


WANTED = recorded_durations_ms()


@pytest.fixture
def recorders(tmp_path):
    folder = tmp_path / "recorders"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def replay(recorders):
    """replay(speed): plays the recording into the recorder folder, in the background; more: variables of its environment."""
    running = []

    def start(speed, **more):
        running.append(
            subprocess.Popen(
                [str(harness.BIN / "lockstep"), "replay", str(RECORDING), "--job", JOB, "--speed", str(speed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "LOCKSTEP_RECORDER_DIR": str(recorders), "LOCKSTEP_RECORDER_LANE_RECORDS": LANE_RECORDS, **more},
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stderr.close()


def finish(process):
    assert process.wait(timeout=40) == 0, process.stderr.read()


def files(folder):
    return sorted(path.name for path in folder.glob("*.lsfr"))


def steps_begun(recorder):
    """How many steps a rank has marked, as its recorder says (src/recorder/layout.h)."""
    with open(recorder, "rb") as file:
        return struct.unpack_from("<Q", file.read(272), 264)[0]


def balance(agent):
    """records = passed + refused + dropped + queued, all five. Asked again: the page is not one moment of the agent."""

    def look():
        counters = agent.counters()
        made = counters.total("lockstep_agent_records_total")
        parts = [
            counters.total(f"lockstep_agent_records_{part}")
            for part in ("passed_total", "refused_total", "dropped_total", "queued")
        ]
        assert made == sum(parts), (made, parts)
        return made, *parts

    return harness.eventually(look, 5, "records = passed + refused + dropped + queued")


def check_all_steps(server):
    """Every step of every rank is there, as long as the training script said it was."""
    window = server.get(f"/api/jobs/{JOB}/steps", last=500)
    found = {
        (rank, step): row[at]
        for rank, row in zip(window["ranks"], window["duration_ms"])
        for at, step in enumerate(window["steps"])
        if row[at] is not None
    }
    assert set(found) == set(
        WANTED
    ), f"missing {sorted(set(WANTED) - set(found))[:5]}, unasked {sorted(set(found) - set(WANTED))[:5]}"
    wrong = {key: (found[key], WANTED[key]) for key in WANTED if abs(found[key] - WANTED[key]) > 1}
    assert not wrong, wrong
    ranks = server.get(f"/api/jobs/{JOB}/ranks")["ranks"]
    assert sorted(rank["rank"] for rank in ranks) == list(range(RANKS))
    assert all(rank["records_lost"] == 0 for rank in ranks), ranks
    return True


def delivered(agent):
    """Nothing waits any more, and nothing was lost on the way."""
    made, passed, refused, dropped, queued = balance(agent)
    assert (refused, dropped) == (0, 0), (refused, dropped)
    return queued == 0 and made == passed > 0


def test_steps_flow_from_callbacks_to_the_api(start, server, recorders, replay, tmp_path):
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    finish(replay(speed=4))
    harness.eventually(lambda: check_all_steps(server), DELIVERED_S, "every step")
    harness.eventually(lambda: not files(recorders), 10, "recorders of ended processes are removed")
    harness.eventually(lambda: server.get(f"/api/jobs/{JOB}")["state"] == "ended", 10, "the job has ended")
    harness.eventually(lambda: delivered(agent), 10, "everything is delivered")
    lost = {has.get("reason", ""): value for name, has, value in agent.counters().samples if name == "lockstep_agent_recorder_lost_total"}
    assert lost and not any(lost.values()), lost
    hosts = [one["status"] for one in server.get("/api/agents")["agents"]]
    assert hosts == ["ok"] * (RANKS + 1)  # each recorded rank is a "host", and the agent's own node is one
    names = server.get("/api/metrics")["names"]
    assert {
        "lockstep_collective_operations_total",
        "lockstep_collective_bytes_total",
        "lockstep_collective_gpu_seconds_total",
    } <= set(names)

    def took_part():
        operations = server.get("/api/metrics", name="lockstep_collective_operations_total")["series"]
        by_rank = collections.Counter()
        for one in operations:
            by_rank[one["labels"]["rank"]] += one["points"][-1][1]
        assert len(by_rank) == RANKS and len(set(by_rank.values())) == 1, by_rank
        return True

    harness.eventually(took_part, DELIVERED_S, "every rank took part in every collective")
    assert agent.stop() == 0


def test_a_server_that_is_away_costs_nothing(start, recorders, replay, tmp_path):
    address = harness.unused_address()
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=address)
    finish(replay(speed=4))
    harness.eventually(lambda: not files(recorders), 20, "recorders are let go once their content is safe on disk")
    made, passed, refused, dropped, queued = balance(agent)
    assert made == queued > len(WANTED) and (passed, refused, dropped) == (0, 0, 0)
    assert agent.counters().total("lockstep_agent_spool_bytes") > 0

    server = start(harness.Server, tmp_path / "data", otlp_http=address)
    harness.eventually(lambda: delivered(agent), DELIVERED_S, "the spool is delivered")
    check_all_steps(server)
    assert server.counters().total("lockstep_ingest_refused_records_total") == 0
    assert not list((tmp_path / "agent").rglob("*.otlp")), "what is delivered is no longer on disk"
    assert agent.stop() == 0


def test_a_server_that_is_killed_meanwhile_costs_nothing(start, recorders, replay, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    address = server.otlp_http
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=address)
    playing = replay(speed=2)
    harness.eventually(lambda: balance(agent)[1] > 0, 20, "something was acknowledged")
    server.kill()
    finish(playing)
    server = start(harness.Server, tmp_path / "data", otlp_http=address)
    harness.eventually(lambda: delivered(agent) and not files(recorders), DELIVERED_S, "everything is delivered")
    check_all_steps(server)


def test_the_spool_of_a_killed_agent_is_delivered_by_the_next(start, recorders, replay, tmp_path):
    address = harness.unused_address()
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=address)
    finish(replay(speed=4))
    harness.eventually(lambda: not files(recorders), 20, "everything is in the spool")
    agent.kill()
    server = start(harness.Server, tmp_path / "data", otlp_http=address)
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=address)
    harness.eventually(lambda: delivered(agent), DELIVERED_S, "the spool is delivered")
    check_all_steps(server)


def test_an_agent_killed_while_the_job_runs_is_replaced_without_loss(start, server, recorders, replay, tmp_path):
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    # Recorders that hold all of it: however long a new agent takes to start on a busy machine, nothing is overwritten.
    playing = replay(speed=1)
    harness.eventually(
        lambda: server.get("/api/jobs")["total"] == 1 and server.get(f"/api/jobs/{JOB}")["last_step"] >= 5,
        20,
        "some steps",
    )
    agent.kill()
    assert len(files(recorders)) == RANKS
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    finish(playing)
    harness.eventually(lambda: not files(recorders) and delivered(agent), DELIVERED_S, "everything is delivered")
    check_all_steps(server)


class FakeServer:
    """An OTLP/HTTP server that answers as told, one answer after the other, then 200, and keeps what it took."""

    def __init__(self, answers):
        self.answers, self.taken, fake = collections.deque(answers), [], self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, content = fake.answers.popleft() if fake.answers else (200, b"")
                fake.taken.append((self.path, dict(self.headers), body, status))
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if status in (429, 503):
                    self.send_header("Retry-After", "1")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_an_overloaded_server_is_asked_again_until_it_takes_everything(start, recorders, replay, tmp_path):
    with FakeServer([(503, b""), (429, b""), (200, b""), (502, b""), (503, b"")]) as fake:
        agent = start(harness.Agent, tmp_path / "agent", recorders, server=fake.address)
        finish(replay(speed=8))
        harness.eventually(
            lambda: not fake.answers and not files(recorders) and delivered(agent),
            DELIVERED_S,
            "everything is delivered",
        )
        assert {path for path, *_ in fake.taken} == {"/v1/logs", "/v1/metrics", "/v1/traces"}
        assert all(
            headers["Content-Type"] == harness.PROTOBUF and headers["Content-Encoding"] in ("zstd", "gzip")
            for _, headers, *_ in fake.taken
        )
        refused = {body for _, _, body, status in fake.taken if status != 200}
        assert refused and refused <= {
            body for _, _, body, status in fake.taken if status == 200
        }, "what was put off is sent again, unchanged"


def test_what_a_server_refuses_is_counted_and_the_rest_goes_on(start, recorders, replay, tmp_path):
    # One record: the first request may hold no more than that, and no more than it holds can be refused.
    told = ExportLogsServiceResponse(
        partial_success={"rejected_log_records": 1, "error_message": "too odd"}
    ).SerializeToString()
    with FakeServer([(200, told), (400, b"malformed")]) as fake:
        agent = start(harness.Agent, tmp_path / "agent", recorders, server=fake.address)
        finish(replay(speed=8))
        harness.eventually(
            lambda: not fake.answers and not files(recorders) and balance(agent)[4] == 0, DELIVERED_S, "nothing waits"
        )
        made, passed, refused, dropped, _ = balance(agent)
        assert refused > 1 and passed > len(WANTED) / 2 and dropped == 0 and made == passed + refused
        counted = agent.counters()
        assert counted.total("lockstep_agent_records_refused_total", reason="partial_success") == 1
        assert counted.total("lockstep_agent_records_refused_total", reason="http_400") == refused - 1
        assert "too odd" in agent.log()


def exported(folder):
    """(rank, step): duration in ms, from every log file of the export, and how many records there were in all."""
    steps, records = {}, 0
    for path in sorted(folder.glob("*-logs.otlp")):
        for group in ExportLogsServiceRequest.FromString(path.read_bytes()).resource_logs:
            rank = next(pair.value.int_value for pair in group.resource.attributes if pair.key == "lockstep.rank")
            for record in (record for scope in group.scope_logs for record in scope.log_records):
                records += 1
                if record.event_name == "train.step":
                    values = {pair.key: pair.value for pair in record.attributes}
                    steps[rank, values["step"].int_value] = values["duration_ns"].int_value / 1e6
    return steps, records


def test_an_export_to_files_holds_the_same(start, server, recorders, replay, tmp_path):
    agent = start(harness.Agent, tmp_path / "agent", recorders, export=tmp_path / "export")
    finish(replay(speed=4))
    harness.eventually(lambda: not files(recorders) and delivered(agent), DELIVERED_S, "everything is written")
    assert agent.stop() == 0
    steps, _ = exported(tmp_path / "export")
    assert set(steps) == set(WANTED) and all(abs(steps[key] - WANTED[key]) < 1 for key in WANTED)

    for path in sorted((tmp_path / "export").iterdir()):
        answer = server.post(path.stem.split("-")[1], path.read_bytes())
        assert (answer.status, answer.body) == (200, b""), path.name
    check_all_steps(server)


def test_a_second_agent_adds_to_an_export_folder_and_overwrites_nothing(start, recorders, replay, tmp_path):
    records = 0
    for _ in range(2):
        agent = start(harness.Agent, tmp_path / "agent", recorders, export=tmp_path / "export")
        finish(replay(speed=8))
        harness.eventually(lambda: not files(recorders) and delivered(agent), DELIVERED_S, "everything is written")
        assert agent.stop() == 0
        before, (_, records) = records, exported(tmp_path / "export")
        assert records >= before + len(WANTED), "what the first agent wrote is gone"


def children(pid):
    return [
        int(child)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


def test_the_recorder_of_a_killed_rank_is_kept_until_it_is_drained(start, server, recorders, replay, tmp_path):
    playing = replay(speed=0.5)  # nobody is through before the last is on its way
    harness.eventually(lambda: len(files(recorders)) == RANKS, 20, "every rank has a recorder")
    first = harness.eventually(lambda: children(playing.pid), 5, "rank processes")
    harness.eventually(lambda: all(steps_begun(recorders / name) >= 5 for name in files(recorders)), 40, "some steps are behind them")
    assert playing.poll() is None, f"the replay ended too soon: {playing.stderr.read()}"
    os.kill(first[0], signal.SIGKILL)
    assert playing.wait(timeout=10) == 5
    assert "was killed by signal 9" in playing.stderr.read()
    assert len(files(recorders)) == RANKS, "nobody has read them yet"

    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    harness.eventually(lambda: not files(recorders) and delivered(agent), DELIVERED_S, "drained, delivered, removed")
    job = server.get(f"/api/jobs/{JOB}")
    assert job["ranks_seen"] == RANKS and job["last_step"] >= 3
    window = server.get(f"/api/jobs/{JOB}/steps", last=500)
    found = {
        (rank, step): row[at]
        for rank, row in zip(window["ranks"], window["duration_ms"])
        for at, step in enumerate(window["steps"])
        if row[at] is not None
    }
    last_whole = min(max(step for rank, step in found if rank == one) for one in range(RANKS)) - 1
    for key in ((rank, step) for rank in range(RANKS) for step in range(last_whole + 1)):
        assert abs(found[key] - WANTED[key]) < 1, key
    ends = server.get("/api/logs", event="job.end")["logs"]
    assert len(ends) == RANKS and not any(end["attributes"]["clean"] for end in ends), "nobody ended by itself"


def test_a_file_that_is_no_recorder_is_refused_once_and_the_others_are_read(start, server, recorders, replay, tmp_path):
    (recorders / "1-1.lsfr").write_bytes(b"\xff" * 4096)
    (recorders / "2-2.lsfr").write_bytes(b"")
    (recorders / "notes.txt").write_text("not ours")
    agent = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    finish(replay(speed=3))
    harness.eventually(lambda: check_all_steps(server), DELIVERED_S, "every step")
    assert agent.counters().total("lockstep_agent_recorder_refused_total") == 2
    for name in ("1-1.lsfr", "2-2.lsfr"):
        assert sum(name in line for line in agent.log().splitlines()) == 1, "one line each, however often it looks"
    assert (recorders / "notes.txt").exists()


def test_a_second_agent_on_the_same_folder_is_refused_with_one_line(start, server, recorders, tmp_path):
    first = start(harness.Agent, tmp_path / "agent", recorders, server=server.otlp_http)
    arguments = ["--data", tmp_path / "agent", "--recorders", recorders, "--server", "http://" + server.otlp_http]
    second = subprocess.run(
        [str(harness.BIN / "lockstep-agent"), *map(str, arguments), "--metrics", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert second.returncode == 1 and second.stdout == ""
    (line,) = second.stderr.splitlines()
    assert str(tmp_path / "agent") in line and f"pid {first.pid}" in line, line
