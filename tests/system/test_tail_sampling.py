"""Steps in detail: a little of everything is sent unasked, and what turns out interesting is asked for after the fact."""

import http.server
import os
import re
import socket
import subprocess
import threading

import pytest

import harness

PULSES = harness.RECORDINGS / "ddp_pulse_r0"
HEALTHY = harness.RECORDINGS / "ddp_healthy"
JOB = "traced"
RANKS = 4
DELIVERED_S = 40


def trace_id(job, attempt, step):
    """As docs/formats/spans.md says it."""
    value = 0x6C62272E07BB014262B821756295C58D
    for byte in f"{job}/{attempt}/{step}".encode():
        value = (value ^ byte) * 0x0000000001000000000000000000013B % 2**128
    return f"{value:032x}"


class TracingAgent(harness.Daemon):
    """An agent that reads recorders alone, with further options."""

    def __init__(self, data, recorders, server, *options):
        super().__init__(
            "lockstep-agent",
            ["--data", data, "--recorders", recorders, "--server", "http://" + server]
            + ["--metrics", "127.0.0.1:0", "--node", "off", *options],
            data.parent / (data.name + ".log"),
        )

    def counters(self):
        return harness.Counters(harness.request(self.ready["metrics"], "GET", "/metrics").text)

    def balance(self):
        """steps = sent + left out + held; returns these."""

        def look():
            counters = self.counters()
            steps = counters.total("lockstep_agent_detail_steps_total")
            parts = [counters.total(f"lockstep_agent_detail_{part}") for part in ("sent_total", "left_out_total", "held")]
            assert steps == sum(parts), (steps, parts)
            return steps, *parts

        return harness.eventually(look, 5, "steps = sent + left out + held")


@pytest.fixture
def recorders(tmp_path):
    folder = tmp_path / "recorders"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def replay(recorders):
    running = []

    def start(recording, speed):
        running.append(
            subprocess.Popen(
                [str(harness.BIN / "lockstep"), "replay", str(recording), "--job", JOB, "--speed", str(speed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "LOCKSTEP_RECORDER_DIR": str(recorders)},
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


def step_spans(server, step):
    """Of every rank that has sent this step: rank -> (the step's own span, spans of operations)."""
    spans = server.get("/api/spans", trace_id=trace_id(JOB, 0, step), limit=10000)["spans"]
    ranks = {}
    for span in spans:
        whole, ops = ranks.setdefault(span["resource"]["lockstep.rank"], ([], []))
        kind = span["attributes"]["lockstep.kind"]
        (whole if kind == "step" else ops if kind in ("collective", "p2p") else []).append(span)
    return ranks


def sampled(server, step):
    return {whole[0]["attributes"]["lockstep.sampled"] for whole, _ in step_spans(server, step).values() if whole}


def last_step(server):
    jobs = {job["job_id"]: job for job in server.get("/api/jobs")["jobs"]}
    return jobs[JOB]["last_step"] if JOB in jobs else -1


def test_a_step_that_turned_out_interesting_is_there_in_detail_though_it_was_not_sampled(
    start, server, recorders, replay, tmp_path
):
    agent = start(TracingAgent, tmp_path / "agent", recorders, server.otlp_http, "--trace-budget", "0")
    finish(replay(PULSES, speed=2))

    def asked_steps():
        found = server.counters()
        assert found.total("lockstep_detail_asks_total", reason="verdict") > 0
        steps = [step for step in range(last_step(server) + 1) if sampled(server, step) == {"asked"}]
        assert len(steps) == found.total("lockstep_detail_asks_total"), "every step that was asked for has arrived"
        return steps

    steps = harness.eventually(asked_steps, DELIVERED_S, "steps in detail that nobody had sampled")
    assert len(steps) < 30, "and the rest was left alone"
    (verdict, *_) = server.get(f"/api/jobs/{JOB}/why")["verdicts"]
    assert verdict["since_step"] in steps

    def arrived(step):
        ranks = step_spans(server, step)
        assert sorted(ranks) == list(range(RANKS)), "a small job is asked for whole"
        operations = {len(ops) for _, ops in ranks.values()}
        assert len(operations) == 1 and operations.pop() > 0, "every rank took part in every collective"
        return ranks

    for step in steps:  # a step may be sent in two pieces
        ranks = harness.eventually(lambda: arrived(step), DELIVERED_S, f"all of step {step}")
        for whole, ops in ranks.values():
            assert len(whole) == 1 and whole[0]["name"] == "train.step"
            assert all(op["parent_span_id"] == whole[0]["span_id"] for op in ops)
    made, sent, left_out, held = agent.balance()
    assert sent == RANKS * len(steps) and left_out == 0 and held == made - sent
    counters = agent.counters()
    assert counters.total("lockstep_agent_detail_asked_total", result="sent") == sent
    assert counters.total("lockstep_agent_detail_asked_total") == sent
    commands = server.counters()
    assert commands.total("lockstep_commands_total") == commands.total("lockstep_commands_acknowledged_total")
    assert agent.stop() == 0, "a poll that waits does not hold up the end"


def test_a_person_can_ask_for_a_step_and_gets_it_once(start, server, recorders, replay, tmp_path):
    agent = start(TracingAgent, tmp_path / "agent", recorders, server.otlp_http, "--trace-budget", "0")
    finish(replay(HEALTHY, speed=4))
    harness.eventually(lambda: last_step(server) == 23, DELIVERED_S, "every step")
    step = next(step for step in range(3, 24) if not step_spans(server, step))
    path = f"/api/jobs/{JOB}/steps/{step}/detail?ranks=1-2"
    answer = harness.request(server.http, "POST", path, headers=harness.OURS)
    assert answer.status == 202 and answer.json()["trace_id"] == trace_id(JOB, 0, step)
    assert answer.json()["ranks_asked"] == 2
    harness.eventually(lambda: sorted(step_spans(server, step)) == [1, 2], 10, "ranks 1 and 2 of that step")
    harness.request(server.http, "POST", path, headers=harness.OURS)
    harness.eventually(
        lambda: agent.counters().total("lockstep_agent_detail_asked_total", result="sent_before") == 2,
        10,
        "asked again, it says that it has sent them",
    )
    # On a busy machine a step may look slow, and the server asks for that by itself: this one came once all the same.
    assert sorted(step_spans(server, step)) == [1, 2]
    assert agent.counters().total("lockstep_agent_detail_asked_total", result="sent_before") == 2
    agent.balance()


def test_without_being_asked_it_sends_the_same_steps_of_every_rank(start, server, recorders, replay, tmp_path):
    agent = start(
        TracingAgent, tmp_path / "agent", recorders, server.otlp_http, "--trace-budget", "1000", "--commands", "off"
    )
    finish(replay(HEALTHY, speed=4))
    harness.eventually(lambda: last_step(server) == 23, DELIVERED_S, "every step")

    def chosen_steps():
        made, sent, _, _ = agent.balance()
        chosen = [step for step in range(24) if sampled(server, step)]
        assert made == 24 * RANKS and 1 <= len(chosen) < 24 and sent == RANKS * len(chosen)
        assert all(len(step_spans(server, step)) == RANKS for step in chosen)
        return chosen

    chosen = harness.eventually(chosen_steps, 20, "some steps are there, of every rank")
    assert all(sampled(server, step) == {"periodic"} for step in chosen)
    counters = agent.counters()
    assert counters.total("lockstep_agent_detail_sent_total", reason="periodic") == RANKS * len(chosen)
    assert agent.counters().total("lockstep_agent_commands_polls_total") == 0


def test_what_memory_has_no_room_for_is_counted(start, server, recorders, replay, tmp_path):
    agent = start(
        TracingAgent, tmp_path / "agent", recorders, server.otlp_http, "--detail-mb", "0.01", "--trace-budget", "0"
    )
    finish(replay(HEALTHY, speed=8))
    harness.eventually(lambda: last_step(server) == 23, DELIVERED_S, "every step")
    harness.eventually(lambda: agent.balance()[0] == 24 * RANKS, 10, "every step of every rank")
    _, _, left_out, held = agent.balance()
    assert left_out > 0 and held > 0
    counters = agent.counters()
    assert counters.total("lockstep_agent_detail_left_out_total", reason="bytes") == left_out
    assert counters.total("lockstep_agent_detail_bytes") <= 0.01 * 2**20

    def gone():
        return agent.counters().total("lockstep_agent_detail_asked_total", result="gone")

    before = gone()
    asked = harness.request(server.http, "POST", f"/api/jobs/{JOB}/steps/0/detail", headers=harness.OURS).json()
    # A rank of which nothing at all is left is not asked for any more; of the last ones there is something.
    assert 0 < asked["ranks_asked"] <= min(held, RANKS)
    harness.eventually(lambda: gone() > before, 10, "it says that it no longer has them")
    assert not step_spans(server, 0)


def test_a_server_that_was_away_is_asked_again_and_asks_for_nothing_old(start, recorders, replay, tmp_path):
    first = start(harness.Server, tmp_path / "data")
    address = first.otlp_http
    agent = start(TracingAgent, tmp_path / "agent", recorders, address, "--trace-budget", "0")
    finish(replay(PULSES, speed=2))
    asks = harness.eventually(
        lambda: first.counters().total("lockstep_detail_asks_total", reason="verdict"), DELIVERED_S, "a verdict"
    )
    harness.eventually(lambda: agent.counters().total("lockstep_agent_detail_sent_total") >= asks * RANKS, 10, "sent")
    sent = agent.counters().total("lockstep_agent_detail_sent_total")
    first.kill()
    harness.eventually(
        lambda: agent.counters().total("lockstep_agent_commands_polls_total", result="failed") > 0, 20, "it is away"
    )
    second = start(harness.Server, tmp_path / "data", otlp_http=address)
    harness.eventually(
        lambda: second.counters().total("lockstep_http_deferred", receiver="otlp_http") == 1, 60, "the agent asks again"
    )
    assert second.counters().total("lockstep_detail_asks_total") == 0, "what the log brought back is not asked for"
    assert agent.counters().total("lockstep_agent_detail_sent_total") == sent
    step = next(step for step in range(last_step(second)) if not step_spans(second, step))
    harness.request(second.http, "POST", f"/api/jobs/{JOB}/steps/{step}/detail", headers=harness.OURS)
    harness.eventually(lambda: len(step_spans(second, step)) == RANKS, 20, "and it can be asked again")
    assert agent.log().count("no commands from") == 1
    agent.balance()


def test_a_plain_collector_is_asked_once_and_gets_everything_else(start, recorders, replay, tmp_path):
    polls, paths = [], set()

    class Collector(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.add(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            polls.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    collector.daemon_threads = True
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    try:
        address = f"127.0.0.1:{collector.server_address[1]}"
        agent = start(TracingAgent, tmp_path / "agent", recorders, address, "--trace-budget", "1000")
        finish(replay(HEALTHY, speed=4))
        harness.eventually(lambda: "/v1/traces" in paths and "/v1/logs" in paths, DELIVERED_S, "spans and steps")
        # Once for commands, and once whether another port has them.
        assert len(polls) == 2 and re.fullmatch(r"/v1/lockstep/commands\?host=[^&]+", polls[0]), polls
        assert polls[1] == "/.well-known/lockstep"
        assert agent.log().count("no commands from") == 1
        assert agent.counters().total("lockstep_agent_commands_polls_total", result="unknown_path") == 1
        assert agent.stop() == 0
    finally:
        collector.shutdown()
        collector.server_close()


def test_an_agent_that_sends_by_grpc_says_that_nobody_can_ask_it_unless_told_where(start, server, tmp_path, recorders):
    options = ["--protocol", "grpc"]
    agent = start(TracingAgent, tmp_path / "grpc", recorders, server.otlp_grpc, *options)
    assert "detail is sent as sampled, not as asked" in agent.log()
    agent.stop()
    agent = start(
        TracingAgent, tmp_path / "both", recorders, server.otlp_grpc, *options, "--commands", "http://" + server.otlp_http
    )
    harness.eventually(lambda: server.counters().total("lockstep_http_deferred", receiver="otlp_http") == 1, 10, "it asks")
    assert "not as asked" not in agent.log()


def test_many_agents_may_wait_and_a_command_finds_its_own(server):
    """Each waits on a connection; no thread of the server waits with it."""
    host, port = server.otlp_http.rsplit(":", 1)
    sockets = [socket.create_connection((host, int(port))) for _ in range(500)]
    try:
        for number, one in enumerate(sockets):
            one.sendall(f"GET /v1/lockstep/commands?host=node-{number} HTTP/1.1\r\nHost: s\r\nX-Lockstep: 1\r\n\r\n".encode())
        harness.eventually(
            lambda: server.counters().total("lockstep_http_deferred", receiver="otlp_http") == 500, 20, "all of them wait"
        )
        resource = harness.identity("j", 7, 8)  # on node-7
        assert server.post("logs", harness.logs_request(resource, [harness.step_event(3)])).status == 200
        assert harness.request(server.http, "POST", "/api/jobs/j/steps/3/detail", headers=harness.OURS).status == 202
        sockets[7].settimeout(10)
        assert b"detail j 0 3 3 7\n" in sockets[7].recv(4096)
        assert server.counters().total("lockstep_http_deferred", receiver="otlp_http") == 499
    finally:
        for one in sockets:
            one.close()
    harness.eventually(
        lambda: server.counters().total("lockstep_http_deferred", receiver="otlp_http") == 0, 10, "gone, and noticed"
    )
