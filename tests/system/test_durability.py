"""What was acknowledged is there afterwards, however the server ended."""

import contextlib
import http.client
import random
import socket
import subprocess
import threading
import time

import grpc
import pytest

import harness

KILLS = 20
HTTP_SENDERS = 3
SENDERS = HTTP_SENDERS + 1  # and one over gRPC
STEPS_MAX = 400  # per sender and round: within one window of /steps and one series of /metrics
METRIC = "durability.acknowledged"
STORED_METRIC = "durability_acknowledged_ratio"  # what the name was before is told a second later
MS_NS = 1_000_000  # samples are stored to the millisecond


def duration_ms(rank, step):
    """The value tells whose it is, so that a mix-up shows."""
    return 1000 + 500 * rank + step


class Round:
    """Senders of steps and samples with unique ids until the server is gone; remembers what was acknowledged."""

    def __init__(self, server, number):
        self.server, self.job = server, f"round-{number}"
        self.base_ns = harness.now_ns() // MS_NS * MS_NS
        self.steps = [set() for _ in range(SENDERS)]
        self.samples = [set() for _ in range(SENDERS)]
        self.refused = []  # answers other than success
        self.threads = [threading.Thread(target=self.run, args=(rank,), daemon=True) for rank in range(SENDERS)]

    def requests(self, rank):
        resource = harness.identity(self.job, rank, SENDERS)
        for step in range(STEPS_MAX):
            yield "logs", self.steps[rank], step, harness.logs_request(
                resource, [harness.step_event(step, duration_ms(rank, step) * 1_000_000)]
            )
            yield "metrics", self.samples[rank], step, harness.gauge_request(
                resource, METRIC, [({}, self.base_ns + step * MS_NS, float(duration_ms(rank, step)))]
            )

    def run(self, rank):
        try:
            (self.run_http if rank < HTTP_SENDERS else self.run_grpc)(rank)
        except (OSError, http.client.HTTPException, grpc.RpcError):
            pass  # the server is gone; what it had not answered was not acknowledged

    def run_http(self, rank):
        host, port = self.server.otlp_http.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        for signal, acknowledged, step, message in self.requests(rank):
            connection.request(
                "POST", harness.PATHS[signal], message.SerializeToString(), {"Content-Type": harness.PROTOBUF}
            )
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 200 and not body:
                acknowledged.add(step)
            else:
                self.refused.append((answer.status, body))

    def run_grpc(self, rank):
        with grpc.insecure_channel(self.server.otlp_grpc) as channel:
            calls = {signal: channel.unary_unary(path) for signal, path in harness.GRPC_METHODS.items()}
            for signal, acknowledged, step, message in self.requests(rank):
                body = calls[signal](message.SerializeToString(), timeout=10)
                if not body:
                    acknowledged.add(step)
                else:
                    self.refused.append((0, body))

    def start(self):
        for thread in self.threads:
            thread.start()

    def join(self):
        for thread in self.threads:
            thread.join(timeout=20)
            assert not thread.is_alive(), "a sender still waits for an answer of a server that is gone"

    def acknowledged(self):
        return sum(map(len, self.steps)) + sum(map(len, self.samples))

    def check(self, server):
        """Everything acknowledged is in the given server, with the right values."""
        if any(self.steps):
            window = server.get(f"/api/jobs/{self.job}/steps", **{"from": 0, "to": STEPS_MAX - 1})
            found = {
                (rank, step): row[at]
                for rank, row in zip(window["ranks"], window["duration_ms"])
                for at, step in enumerate(window["steps"])
                if row[at] is not None
            }
            wanted = {(rank, step): duration_ms(rank, step) for rank in range(SENDERS) for step in self.steps[rank]}
            missing = {key for key, value in wanted.items() if found.get(key) != value}
            assert (
                not missing
            ), f"{self.job}: {len(missing)} of {len(wanted)} acknowledged steps are not there, e.g. {sorted(missing)[:5]}"
        if any(self.samples):
            answer = server.get(
                "/api/metrics", name=STORED_METRIC, limit=1000, **{"from": self.base_ns, "to": self.base_ns + STEPS_MAX * MS_NS}
            )
            found = {
                (int(one["labels"]["rank"]), (time_ns - self.base_ns) // MS_NS): value
                for one in answer["series"]
                if one["labels"]["job_id"] == self.job
                for time_ns, value in one["points"]
            }
            wanted = {(rank, step): duration_ms(rank, step) for rank in range(SENDERS) for step in self.samples[rank]}
            missing = {key for key, value in wanted.items() if found.get(key) != value}
            assert (
                not missing
            ), f"{self.job}: {len(missing)} of {len(wanted)} acknowledged samples are not there, e.g. {sorted(missing)[:5]}"


@pytest.mark.limit(150)
def test_a_server_killed_under_load_twenty_times_has_everything_it_acknowledged(start, tmp_path):
    moments = random.Random(20)
    rounds = []
    under_load = 0
    server = start(harness.Server, tmp_path / "data")
    for number in range(KILLS):
        load = Round(server, number)
        rounds.append(load)
        load.start()
        # Not before something was acknowledged, so that every round counts; then at any moment.
        harness.eventually(load.acknowledged, 10, "an acknowledgement")
        time.sleep(moments.uniform(0.01, 0.4))  # the moment of the kill
        under_load += any(thread.is_alive() for thread in load.threads)
        server.kill()
        load.join()
        assert not load.refused, load.refused[:3]

        server = start(harness.Server, tmp_path / "data")
        for earlier in rounds:
            earlier.check(server)
        counters = server.counters()
        assert counters.total("lockstep_log_corrupt_segments_total") == 0
        assert counters.total("lockstep_log_records_missing_total") == 0
        assert counters.total("lockstep_replay_undecodable_records_total") == 0
    total = sum(load.acknowledged() for load in rounds)
    assert (
        total >= 10 * KILLS and under_load >= KILLS // 2
    ), f"{total} acknowledged, {under_load} kills under load: that was no load"
    assert server.stop() == 0


def test_sigterm_drains_what_is_in_progress_and_ends_with_0(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    load = Round(server, 0)
    load.start()
    harness.eventually(lambda: load.acknowledged() > 20, 10, "load")
    assert server.stop() == 0, server.log()
    load.join()
    assert all(status in (503, 0) for status, _ in load.refused), load.refused[:3]
    again = start(harness.Server, tmp_path / "data")
    load.check(again)
    assert (
        again.counters().total("lockstep_log_torn_tails_total") == 0
    ), "a server that ended by itself leaves no torn tail"
    assert again.stop() == 0


def test_clients_that_never_finish_do_not_keep_a_server_from_ending(server):
    with contextlib.ExitStack() as stack:
        for address, bytes_sent in (
            (server.otlp_http, b"POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nabc"),
            (server.otlp_http, b""),
            (server.http, b"GET /api"),
            (server.otlp_grpc, b"PRI * HTTP/2.0\r\n"),
        ):
            host, port = address.rsplit(":", 1)
            stack.enter_context(socket.create_connection((host, int(port)))).sendall(bytes_sent)
        channel = stack.enter_context(grpc.insecure_channel(server.otlp_grpc))
        assert channel.unary_unary(harness.GRPC_METHODS["logs"])(b"", timeout=10) == b""
        assert server.stop() == 0


def test_a_second_server_on_the_same_folder_is_refused_with_one_line(server, tmp_path):
    second = subprocess.run(
        [
            str(harness.BIN / "lockstepd"),
            "--data",
            str(tmp_path / "data"),
            "--http",
            "127.0.0.1:0",
            "--otlp-http",
            "127.0.0.1:0",
            "--otlp-grpc",
            "127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert second.returncode == 1 and second.stdout == ""
    (line,) = second.stderr.splitlines()
    assert str(tmp_path / "data") in line and f"pid {server.pid}" in line, line
    assert server.post("logs", harness.logs_request({"service.name": "s"}, [{"body": "still here"}])).status == 200


def test_a_folder_whose_owner_was_killed_is_free_again(start, tmp_path):
    start(harness.Server, tmp_path / "data").kill()
    assert start(harness.Server, tmp_path / "data").stop() == 0
