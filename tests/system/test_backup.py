"""A server under load is backed up, lost and restored; a second backup costs what is new; damage is noticed."""

import json
import re
import struct
import threading
import time

import pytest

import harness
from hostile import snappy, varint

JOB = "kept"
RANKS = 4
STEPS = 40
WRITE = "/prometheus/api/v1/write"


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def write_request(name, host, time_ms, value):
    """One sample of one series, as Prometheus sends it."""
    labels = b"".join(
        field(1, field(1, key.encode()) + field(2, text.encode())) for key, text in (("__name__", name), ("host", host))
    )
    sample = varint(1 << 3 | 1) + struct.pack("<d", value) + varint(2 << 3 | 0) + varint(time_ms)
    return snappy(field(1, labels + field(2, sample)))


def remote_write(server, name, host, time_ms, value):
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy", **harness.OURS}
    answer = harness.request(server.http, "POST", WRITE, write_request(name, host, time_ms, value), headers)
    assert answer.status in (200, 204), answer.text


def send_steps(server, job, steps):
    for rank in range(RANKS):
        resource = harness.identity(job, rank, RANKS)
        events = [harness.step_event(step, (1000 + 10 * rank + step) * 1_000_000) for step in steps]
        assert server.post("logs", harness.logs_request(resource, events)).status == 200


def send_spans(server, trace, count):
    begin = harness.now_ns() - 1_000_000_000
    spans = [(f"call {index}", begin + index * 1000, begin + index * 1000 + 500) for index in range(count)]
    message = harness.spans_request({"service.name": "kept-service"}, spans)
    for span in message.resource_spans[0].scope_spans[0].spans:
        span.trace_id = bytes.fromhex(trace)
    assert server.post("spans", message).status == 200


class Load:
    """Steps and samples that keep coming while backups are taken."""

    def __init__(self, server):
        self.server, self.stop, self.errors, self.sent = server, threading.Event(), [], 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop.is_set():
            try:
                send_steps(self.server, "noise", [self.sent])
                remote_write(self.server, "noise", "node-0", harness.now_ns() // 1_000_000, self.sent)
            except Exception as error:  # reported by the test
                self.errors.append(error)
                return
            self.sent += 1
            time.sleep(0.01)  # the pace of the load

    def end(self):
        self.stop.set()
        self.thread.join(timeout=20)
        assert not self.errors, self.errors


def backup(server, place):
    done = harness.lockstep("backup", place, "--server", server.url)
    assert done.returncode == 0, done.stderr
    line = done.stdout
    found = re.fullmatch(
        r"generation (\d+): ([\d.]+ \w+) new of ([\d.]+ \w+) in [\d.]+ s; "
        r"everything acknowledged before \S+Z \(record (\d+) of the log\)\n",
        line,
    )
    assert found, line
    return int(found[1]), int(found[4])


def manifest(place, generation):
    text = (place / "generations" / f"{generation:08d}.manifest").read_text()
    return json.loads(text.splitlines()[0])


def piece_bytes(place):
    return sum(path.stat().st_size for path in (place / "pieces").rglob("*") if path.is_file())


def answers(server, at_s, trace):
    """What people and their programs see of the data before the backup."""
    query = server.get("/prometheus/api/v1/query", query="kept_metric", time=at_s)
    ranks = server.get(f"/api/jobs/{JOB}/ranks", last=STEPS)
    return {
        "job": [server.get(f"/api/jobs/{JOB}")[key] for key in ("job_id", "attempt", "world_size", "last_step")],
        "steps": server.get(f"/api/jobs/{JOB}/steps", **{"from": 0, "to": STEPS - 1}),
        "ranks": [[row.get(key) for key in ("rank", "host", "last_step")] for row in ranks["ranks"]],
        "promql": sorted((row["metric"]["host"], row["value"][1]) for row in query["data"]["result"]),
        "trace": sorted(span["name"] for span in server.get("/api/spans", trace_id=trace, limit=1000)["spans"]),
        "verdicts": sorted(
            [one["id"], one["kind"], (one.get("feedback") or {}).get("note")]
            for one in server.get("/api/verdicts", state="all", limit=1000)["verdicts"]
        ),
    }


@pytest.mark.limit(150)
def test_a_server_backed_up_under_load_and_lost_answers_the_same_after_a_restore(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    place = tmp_path / "backups"
    trace = "0af7651916cd43dd8448eb211c80319c"
    send_steps(server, JOB, range(STEPS))
    send_spans(server, trace, 20)
    now_ms = harness.now_ns() // 1_000_000
    for host in range(8):
        remote_write(server, "kept_metric", f"node-{host}", now_ms, 100 + host)
    otlp = f"http://{server.otlp_http}"
    fleet = harness.lockstep(
        "sim", "--server", otlp, "--ranks", 8, "--steps", 200, "--step-ms", 50, "--fault", "slow-gpu:3:40"
    )
    assert fleet.returncode == 0, fleet.stderr
    verdicts = harness.eventually(
        lambda: server.get("/api/verdicts", state="all")["verdicts"], 20, "a verdict on the simulated job"
    )
    feedback = f"/api/verdicts/{verdicts[0]['id']}/feedback"
    said = harness.request(server.http, "POST", feedback, b'{"right": true, "note": "seen"}', harness.OURS)
    assert said.status == 200, said.text
    harness.eventually(lambda: server.get("/api/jobs/sim")["state"] == "ended", 20, "it is over, and nothing more is found")
    before = answers(server, now_ms / 1000 + 1, trace)
    assert before["promql"] and len(before["trace"]) == 20

    load = Load(server)
    generation, _ = backup(server, place)
    assert generation == 1
    first_bytes = piece_bytes(place)
    sent = load.sent
    harness.eventually(lambda: load.sent > sent + 10 or load.errors, 20, "the second has more than the first")
    generation, sequence = backup(server, place)
    load.end()
    assert generation == 2 and sequence > 0
    listed = harness.lockstep("backup", "list", place)
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == 3, listed.stdout

    # What the first has of sealed files the second shares.
    pieces = [{piece for file in manifest(place, n)["files"] for piece in file["pieces"]} for n in (1, 2)]
    assert pieces[0] & pieces[1]
    assert not list((tmp_path / "data" / "backup").glob("*")), "released"
    server.kill()

    data = tmp_path / "restored"
    done = harness.lockstep("restore", place, data)
    assert done.returncode == 0, done.stderr
    assert "all checked" in done.stdout
    again = start(harness.Server, data)
    assert answers(again, now_ms / 1000 + 1, trace) == before
    noise = again.get("/api/jobs/noise/steps", **{"from": 0, "to": 400})
    assert noise["steps"], "what came while the first backup was taken is in the second"
    counters = again.counters()
    assert counters.total("lockstep_log_torn_tails_total") == 0
    assert counters.total("lockstep_log_corrupt_segments_total") == 0
    send_steps(again, JOB, [STEPS])  # and it goes on
    assert again.get(f"/api/jobs/{JOB}")["last_step"] == STEPS
    assert first_bytes > 0


def test_a_second_backup_of_what_is_sealed_copies_little(start, tmp_path):
    data, place = tmp_path / "data", tmp_path / "backups"
    first = start(harness.Server, data)
    for job in range(6):
        send_steps(first, f"job-{job}", range(200))
    assert first.stop() == 0  # seals; what the log has does not grow any more
    server = start(harness.Server, data)
    backup(server, place)
    before = piece_bytes(place)
    send_steps(server, JOB, range(2))
    backup(server, place)
    added = piece_bytes(place) - before
    files = manifest(place, 2)["files"]
    whole = sum(file["bytes"] for file in files)
    print(f"second backup: {added} new bytes of {whole}")
    assert added < whole / 2, f"{added} new bytes of {whole}"
    log_bytes = max(file["bytes"] for file in files if file["name"].startswith("log/"))
    assert log_bytes > 0
    pruned = harness.lockstep("backup", "prune", place, "--keep", "1")
    assert pruned.returncode == 0 and pruned.stdout.startswith("1 generations"), pruned.stdout + pruned.stderr
    assert harness.lockstep("restore", place, tmp_path / "restored").returncode == 0
    assert harness.lockstep("restore", place, tmp_path / "other", "--generation", "1").returncode == 4


def test_a_flipped_byte_in_a_backup_is_named_and_nothing_is_restored(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    place = tmp_path / "backups"
    send_steps(server, JOB, range(STEPS))
    backup(server, place)
    log = next(file for file in manifest(place, 1)["files"] if file["name"].startswith("log/"))
    piece = place / "pieces" / log["pieces"][0][:2] / log["pieces"][0]
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    piece.write_bytes(content)
    done = harness.lockstep("restore", place, tmp_path / "restored")
    assert done.returncode == 5
    assert log["name"] in done.stderr and "is damaged" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "restored").exists() and not (tmp_path / "restored.part").exists()


def test_retention_and_compaction_while_a_backup_is_read_do_not_break_it(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--log-bytes-max", str(1 << 20), "--admin-api"])
    for first in range(0, 200, 50):
        send_steps(server, JOB, range(first, first + 50))
    now_ms = harness.now_ns() // 1_000_000
    remote_write(server, "kept_metric", "node-0", now_ms, 1)
    held = harness.request(server.http, "POST", "/api/backup", b"{}", harness.OURS).json()

    def content(file):
        body = b""
        while len(body) < file["bytes"]:
            path = f"/api/backup/file?id={held['id']}&name={file['name']}&from={len(body)}&bytes=100000"
            answer = harness.request(server.http, "GET", path)
            assert answer.status == 200, answer.text
            body += answer.body
        return body

    early = {file["name"]: content(file) for file in held["files"]}
    dropped = server.counters().total("lockstep_log_segments_dropped_total")
    for step in range(200, 8000, 200):  # beyond the log's limit: its oldest segments go
        send_steps(server, JOB, range(step, step + 200))
        if server.counters().total("lockstep_log_segments_dropped_total") > dropped:
            break
    admin = "/prometheus/api/v1/admin/tsdb/"
    for path in ("delete_series?match[]=kept_metric", "clean_tombstones"):
        assert harness.request(server.http, "POST", admin + path, b"", harness.OURS).status == 204
    assert server.counters().total("lockstep_log_segments_dropped_total") > dropped
    assert {file["name"]: content(file) for file in held["files"]} == early
    assert harness.request(server.http, "POST", f"/api/backup/release?id={held['id']}", b"{}", harness.OURS).status == 200
    gone = harness.request(server.http, "GET", f"/api/backup/file?id={held['id']}&name=state.sqlite")
    assert gone.status == 404


def test_mistakes_are_one_line(start, tmp_path):
    server = start(harness.Server, tmp_path / "data")
    keyless = {"HOME": str(tmp_path)}
    for arguments, code in (
        (["backup", "s3://bucket/prefix", "--server", server.url], 5),  # no keys
        (["backup", "list", "s3://Bucket/../prefix"], 5),
        (["backup", tmp_path / "data", "--server", server.url], 5),  # not a folder of backups
        (["backup", tmp_path / "b", "--server", "http://127.0.0.1:1"], 3),
        (["backup", "list", tmp_path / "nowhere"], 4),
        (["backup", "prune", tmp_path / "nowhere", "--keep", "1"], 4),
        (["backup", "prune", tmp_path / "b"], 2),
        (["restore", tmp_path / "nowhere", tmp_path / "r"], 4),
        (["restore", tmp_path / "nowhere"], 2),
    ):
        done = harness.lockstep(*arguments, environment=keyless)
        assert done.returncode == code, (arguments, done.returncode, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not (tmp_path / "nowhere").exists()
