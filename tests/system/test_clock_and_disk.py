"""A clock that is wrong, a disk that is full, files of another release: nothing that was acknowledged is lost, and /readyz says what is the matter."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import harness

DAY_S = 86_400
MINUTE_NS = 60 * 10**9


class ServerElsewhere(harness.Server):
    """A server whose clock or disk is made up: `before` are the words that stand before its own command line."""

    def __init__(self, data, before=(), environment=None, more=()):
        data = pathlib.Path(data)
        program, *arguments = [*before, harness.BIN / "lockstepd"]
        harness.Daemon.__init__(
            self,
            program,
            [*arguments, "--data", data, "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", *more],
            data.parent / (data.name + ".log"),
            environment,
        )


@pytest.fixture
def moved(start, tmp_path):
    """A server whose wall clock can be moved while it runs; its monotonic clock goes on."""
    library = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))[0]
    offset = tmp_path / "offset"

    class Moved:
        def start(self, seconds, more=()):
            self.move(seconds)
            environment = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1"}
            environment |= {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            self.server = start(ServerElsewhere, tmp_path / "data", environment=environment, more=more)
            return self.server

        def move(self, seconds):
            beside = offset.with_suffix(".new")
            beside.write_text(f"{seconds:+d}s")
            beside.rename(offset)

    return Moved()


def ready(server):
    return harness.request(server.http, "GET", "/readyz")


def send_line(server, host, text, time_ns=None):
    """How many records were refused."""
    record = {"body": text, "time_unix_nano": time_ns or harness.now_ns()}
    answer = server.post("logs", harness.logs_request({"host.name": host, "service.name": "job"}, [record]))
    assert answer.status == 200, answer.text
    return 1 if answer.body else 0  # an empty answer: all of it was taken


def send_sample(server, name, time_ns, host="host-1"):
    answer = server.post("metrics", harness.gauge_request({"host.name": host}, name, [({}, time_ns, 1.0)]))
    assert answer.status == 200, answer.text
    return 1 if answer.body else 0


def samples(server, name, from_s, to_s):
    got = server.get("/prometheus/api/v1/query_range", query=f"sum(count_over_time({name}[1m]))", start=from_s, end=to_s, step=30)
    return [value for series in got["data"]["result"] for _, value in series["values"]]


def test_a_server_whose_clock_is_behind_takes_what_three_hosts_agree_on_and_says_so(moved):
    server = moved.start(-60 * DAY_S)
    assert ready(server).text == "ok\n"
    assert send_line(server, "host-1", "one") == 1  # from the future, as far as it knows
    assert send_line(server, "host-2", "two") == 1
    assert send_line(server, "host-3", "three") == 0
    assert send_line(server, "host-1", "four") == 0
    harness.eventually(lambda: "warning: clock: most of 3 senders are 1440 h ahead" in ready(server).text, 10, "it warns")
    assert ready(server).status == 200
    assert server.counters().total("lockstep_ready", check="clock") == 0
    harness.eventually(lambda: server.counters().total("lockstep_clock_off_ms", which="senders") > 59 * DAY_S * 1000, 10, "so does the gauge")
    assert {one["body"] for one in server.get("/api/logs")["logs"]} == {"three", "four"}
    moved.move(0)
    harness.eventually(lambda: ready(server).text == "ok\n", 10, "the clock is right again")
    assert send_line(server, "host-2", "five") == 0


def test_a_clock_that_jumps_ahead_erases_nothing_and_refuses_nothing_true(moved):
    server = moved.start(0, more=["--admin-api", "--metric-days", "1"])
    now = harness.now_ns()
    assert send_sample(server, "power", now - 5 * MINUTE_NS) == 0
    # What is in memory becomes a block, which retention may take.
    assert harness.request(server.http, "POST", "/prometheus/api/v1/admin/tsdb/snapshot", headers=harness.OURS).status == 200
    assert server.counters().total("lockstep_metric_blocks", tier="raw") == 1
    moved.move(60 * DAY_S)
    harness.eventually(lambda: "warning: clock: this server's clock has jumped ahead by 1440 h" in ready(server).text, 10, "it is seen")
    assert send_sample(server, "scraped", now + 60 * DAY_S * 10**9) == 0  # as a scrape would stamp it
    rounds = server.counters().total("lockstep_metric_log_bytes_total")
    harness.eventually(lambda: send_sample(server, "power", harness.now_ns()) == 0, 5, "what is true is taken")
    harness.eventually(lambda: server.counters().total("lockstep_metric_log_bytes_total") > rounds, 10, "the engine has gone round")
    assert samples(server, "power_ratio", now / 1e9 - 600, now / 1e9 - 60), "what was there is there"
    assert server.counters().total("lockstep_metric_blocks", tier="raw") >= 1
    moved.move(0)
    harness.eventually(lambda: ready(server).text == "ok\n", 10, "it is back")
    assert send_sample(server, "power", harness.now_ns()) == 0
    assert samples(server, "power_ratio", now / 1e9 - 600, now / 1e9 - 60)


def test_a_full_disk_refuses_what_is_sent_and_is_well_again_when_there_is_room(start, tmp_path):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs the right to mount")
    data = tmp_path / "small"
    data.mkdir()
    mount = f"mount -t tmpfs -o size=48m none {data} && exec \"$@\""
    server = start(ServerElsewhere, data / "data", before=[shutil.which("unshare"), "-m", "sh", "-c", mount, "sh"])
    assert send_line(server, "host-1", "before") == 0
    assert ready(server).status == 200
    filler = pathlib.Path(f"/proc/{server.pid}/root{data}/filler")
    with pytest.raises(OSError), open(filler, "wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20) if file.tell() < 40 << 20 else bytes(4096))
    harness.eventually(lambda: ready(server).status == 503, 10, "it is not ready")
    assert ready(server).text.startswith("disk: ") and "is full" in ready(server).text
    got = json.loads(harness.request(server.http, "GET", "/readyz?format=json").body)
    assert not got["ready"] and [one["name"] for one in got["checks"] if not one["ok"]] == ["disk"]

    def refused():
        lines = harness.logs_request({"host.name": "host-1", "service.name": "job"}, [{"body": "x" * 100_000}])
        answer = server.post("logs", lines)
        assert answer.status == 503 and int(answer.headers["retry-after"]) > 0, answer.status
        return True

    harness.eventually(refused, 10, "logs are refused")
    assert [one["body"] for one in server.get("/api/logs", limit=1000)["logs"] if one["body"] == "before"], "what is there is read"
    assert harness.request(server.http, "GET", "/healthz").status == 200
    filler.unlink()
    harness.eventually(lambda: ready(server).text == "ok\n", 10, "it is ready")
    assert send_line(server, "host-1", "after") == 0
    assert send_sample(server, "power", harness.now_ns()) == 0
    assert server.counters().total("lockstep_ready", check="disk") == 1


def test_files_of_another_release_are_left_alone_and_the_server_says_both_versions(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    assert send_line(server, "host-1", "kept") == 0
    server.stop()
    segment = next((tmp_path / "data" / "log").glob("*.log"))
    ours = segment.read_bytes()
    assert ours[:4] == b"LSR1"
    segment.write_bytes(b"LSR2" + ours[4:])
    said = subprocess.run(
        [harness.BIN / "lockstepd", "--data", tmp_path / "data", "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert said.returncode == 1
    assert f"lockstepd: {segment}: a durable log of format version 2, and this server reads version 1; nothing was changed." in said.stderr
    assert segment.read_bytes() == b"LSR2" + ours[4:]
    segment.write_bytes(ours)
    server = start(harness.Server, tmp_path / "data")
    assert [one["body"] for one in server.get("/api/logs")["logs"]] == ["kept"]


def test_what_left_the_log_for_its_size_is_in_files_when_the_server_is_killed(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--log-bytes-max", 1 << 20])
    resource = harness.identity("job", 0, 1)
    for first in range(0, 20_000, 500):
        answer = server.post("logs", harness.logs_request(resource, [harness.step_event(step) for step in range(first, first + 500)]))
        assert answer.status == 200 and not answer.body
    counters = server.counters()
    assert counters.total("lockstep_log_segments_dropped_total") > 0
    assert counters.total("lockstep_log_unsealed_records_dropped_total") == 0
    server.kill()  # long before steps are written to files for their age
    server = start(harness.Server, tmp_path / "data", more=["--log-bytes-max", 1 << 20])
    for first in (0, 2_500, 10_000, 19_500):
        told = server.get("/api/jobs/job/steps", **{"from": first, "to": first + 499})
        assert told["steps"] == list(range(first, first + 500))
