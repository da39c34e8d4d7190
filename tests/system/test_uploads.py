"""Files of captures on their way to the server: interrupted by a kill, refused, too large, on a full disk. The sender is the agent's own
uploader, as a program (tests/uploads)."""

import gzip
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess

import harness
import pytest
from test_clock_and_disk import ServerElsewhere

UPLOAD_FILE = harness.BIN.resolve().parent / "tests" / "upload_file"
UPLOADS = "/v1/lockstep/uploads"
JOB, CAPTURE, FILE = "team/llama", "p-0123456789ab", "rank-17.json.gz"
API = f"/api/jobs/{JOB}/profiles/{CAPTURE}"
MIB = 1 << 20


def ask(address, method, path, body, headers=None):
    return harness.request(address, method, path, body, {"Content-Type": "application/json", **harness.OURS, **(headers or {})})


def store(address, order, content, headers=None):
    """By hand, in one part: the answer to the finish, or to what was refused before it."""
    begun = ask(address, "POST", UPLOADS, json.dumps(order).encode(), headers)
    if begun.status != 200:
        return begun
    sent = hashlib.sha256(content).hexdigest()
    part = ask(address, "PUT", begun.json()["parts_url"] + "/1", content, {"x-lockstep-sha256": sent, **(headers or {})})
    if part.status != 200:
        return part
    finish = {"sha256": sent, "parts": [{"n": 1}]}
    return ask(address, "POST", f"{UPLOADS}/{begun.json()['upload']}/finish", json.dumps(finish).encode(), headers)


def noise(size):
    return random.Random(7).randbytes(size)


class Sender:
    """upload_file as a process."""

    def __init__(self, server, path, *more, job=JOB, file=FILE):
        self.process = subprocess.Popen(
            [UPLOAD_FILE, f"http://{server.otlp_http}", job, CAPTURE, file, path, *map(str, more)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def read_so_far(self, wanted):
        """Waits until so many bytes were read."""
        for line in self.process.stdout:
            if line.startswith("read ") and int(line.split()[1]) >= wanted:
                return
        raise AssertionError(self.process.stderr.read())

    def end(self):
        out, error = self.process.communicate(timeout=60)
        last = out.splitlines()[-1].split() if out else []
        return self.process.returncode, last[1:] if last[:1] == ["done"] else None, error


def parts(folder):
    return sorted(path.name[:11] for path in folder.rglob("part-*") if not path.name.endswith(".tmp"))


@pytest.mark.limit(90)
def test_an_upload_goes_on_where_a_kill_of_the_server_or_of_the_sender_left_it(start, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_bytes(noise(24 * MIB))
    server = start(harness.Server, tmp_path / "data", otlp_http=f"127.0.0.1:{harness.unused_port()}")
    blobs = tmp_path / "data" / "blobs" / "default"
    sender = Sender(server, trace)
    sender.read_so_far(12 * MIB)
    server.kill()
    there = parts(blobs)
    assert there and there[0] == "part-000001" and len(there) < 4
    assert not (blobs / "team%2Fllama").exists()
    sender.process.kill()
    sender.process.wait()

    again = start(harness.Server, tmp_path / "data", otlp_http=server.otlp_http)
    sender = Sender(again, trace)
    sender.read_so_far(18 * MIB)
    again.kill()
    again = start(harness.Server, tmp_path / "data", otlp_http=server.otlp_http)
    code, done, error = sender.end()
    assert code == 0, error
    key, size, digest = done
    assert key == f"default/team%2Fllama/{CAPTURE}/{FILE}"
    stored = blobs / "team%2Fllama" / CAPTURE / FILE
    content = stored.read_bytes()
    assert len(content) == int(size) and hashlib.sha256(content).hexdigest() == digest
    assert gzip.decompress(content) == trace.read_bytes()
    assert not parts(blobs), "what was put together is gone"

    whole = harness.request(again.http, "GET", f"{API}/files/{FILE}")
    assert whole.status == 200 and whole.body == content and whole.headers["accept-ranges"] == "bytes"
    some = harness.request(again.http, "GET", f"{API}/files/{FILE}", headers={"Range": "bytes=1000000-2999999"})
    assert some.status == 206 and some.body == content[1_000_000:3_000_000]
    assert again.get(f"{API}/files")["files"][0]["bytes"] == int(size)
    assert again.counters().total("lockstep_blob_bytes", state="stored") == int(size)
    removed = harness.request(again.http, "POST", f"{API}/remove", b"{}", {"Content-Type": "application/json"})
    assert removed.status == 200 and not stored.exists()


def test_who_may_not_send_is_told_so_and_nobody_reads_or_replaces_anothers(start, tmp_path):
    secret = tmp_path / "admin.token"
    secret.touch(mode=0o600)
    secret.write_text("an-admin-token-that-nobody-else-has-0123456789\n")
    server = start(harness.Server, tmp_path / "data", more=["--admin-token-file", secret])
    admin = {"Authorization": f"Bearer {secret.read_text().strip()}"}

    def token(roles, tenant, owner):
        wanted = {"roles": roles, "tenants": [tenant], "name": owner, "owner": owner}
        made = harness.request(server.http, "POST", "/api/tokens", json.dumps(wanted).encode(), {"Content-Type": "application/json", **admin})
        assert made.status == 200, made.text
        return made.json()["token"]

    def bearer(text):
        return {"Authorization": f"Bearer {text}"}

    ours, theirs = token(["ingest"], "default", "ours"), token(["ingest"], "default", "theirs")
    elsewhere, reader = token(["ingest", "read"], "blue", "blue"), token(["read"], "default", "reader")
    trace = tmp_path / "trace.json"
    trace.write_bytes(b'{"traceEvents": []}')
    assert Sender(server, trace, "--token", ours).end()[0] == 0
    for wrong, status in ((None, 401), ("lst_nobody", 401), (reader, 403), (theirs, 403)):
        code, _, error = Sender(server, trace, *(["--token", wrong] if wrong else []), file="rank-18.json.gz").end()
        assert code == 1 and f"the server answers {status}: " in error and len(error.splitlines()) == 1, error
    # The same names in another tenant are other files.
    trace.write_bytes(b'{"traceEvents": [1, 2, 3]}')
    harness.eventually(lambda: harness.request(server.http, "GET", "/api/jobs", headers=bearer(elsewhere)).status == 200, 20, "blue is open")
    assert Sender(server, trace, "--token", elsewhere).end()[1][0].startswith("blue/team%2Fllama/")

    def read(text, path=f"{API}/files/{FILE}"):
        return harness.request(server.http, "GET", path, headers=bearer(text))

    assert gzip.decompress(read(reader).body) == b'{"traceEvents": []}'
    assert gzip.decompress(read(elsewhere).body) == b'{"traceEvents": [1, 2, 3]}'
    assert read(ours).status == 403, "who sends does not read"
    forbidden = harness.request(server.http, "POST", f"{API}/remove", b"{}", {"Content-Type": "application/json", **bearer(reader)})
    assert forbidden.status == 403
    removed = harness.request(server.http, "POST", f"{API}/remove", b"{}", {"Content-Type": "application/json", **admin})
    assert removed.status == 200 and read(reader).status == 404 and read(elsewhere).status == 200
    rows = harness.request(server.http, "GET", "/api/audit", headers=admin).json()["audit"]
    assert any(row["object"] == f"job {JOB} capture {CAPTURE}" and "remove" in row["action"] for row in rows), rows


def test_what_is_too_large_is_refused_with_one_line_and_the_oldest_make_room(start, tmp_path):
    server = start(harness.Server, tmp_path / "data", more=["--blob-bytes-max", 16 * MIB, "--blob-bytes-per-job", 9 * MIB])
    trace = tmp_path / "trace.json"
    trace.write_bytes(noise(12 * MIB))
    code, _, error = Sender(server, trace).end()
    assert code == 1 and "413" in error and "--blob-bytes-per-job" in error and len(error.splitlines()) == 1, error
    assert not parts(tmp_path / "data" / "blobs"), "what can never be whole takes no room"
    trace.write_bytes(noise(5 * MIB))
    for job in "abcd":
        assert Sender(server, trace, job=job).end()[0] == 0
    status = [harness.request(server.http, "GET", f"/api/jobs/{job}/profiles/{CAPTURE}/files/{FILE}").status for job in "abcd"]
    assert status == [404, 200, 200, 200]
    refused = store(server.otlp_http, {"job": "e", "capture": CAPTURE, "file": FILE}, noise(9 * MIB))
    assert refused.status == 413 and len(refused.text.splitlines()) == 1, refused.text


def test_a_full_disk_is_one_line_and_nothing_is_half_there(start, tmp_path):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs the right to mount")
    place = tmp_path / "small"
    place.mkdir()
    mount = f"mount -t tmpfs -o size=24m none {place} && exec \"$@\""
    server = start(
        ServerElsewhere, tmp_path / "data", before=[shutil.which("unshare"), "-m", "sh", "-c", mount, "sh"], more=["--blobs", place]
    )
    inside = pathlib.Path(f"/proc/{server.pid}/root{place}")
    trace = tmp_path / "trace.json"
    trace.write_bytes(noise(17 * MIB))
    code, _, error = Sender(server, trace, "--give-up-ms", 1500).end()
    last = error.splitlines()[-1]
    assert code == 1 and "was not uploaded: the server answers 507: the server has no room" in last and str(place) not in error, error
    assert not (inside / "default" / "team%2Fllama").exists()
    assert "warning: blobs: " in harness.request(server.http, "GET", "/readyz").text
    assert harness.request(server.http, "GET", "/readyz").status == 200, "telemetry is on another disk"
    (upload,) = (one for one in (inside / "default" / ".uploads").iterdir() if one.is_dir())
    assert parts(upload), "what was sent stays for the next try"
