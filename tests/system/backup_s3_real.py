"""Backups to a real S3: versitygw, which checks every signature, over TLS and plain. On request: ./dev test s3 builds it once
from its Go module, which takes minutes."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

import harness
from certificates import Authority
from peers import Child
from test_backup import JOB, STEPS, Load, answers, remote_write, send_spans, send_steps

KEY, SECRET = "lockstep-test", "a-secret-that-is-nowhere-else"
BUCKET = "kept"
PLACE = f"s3://{BUCKET}/cluster/a"


class Store(Child):
    """versitygw over a folder: an object is a file there."""

    def __init__(self, folder, papers=None):
        self.objects, self.papers = folder / BUCKET / "cluster" / "a", papers
        (folder / BUCKET).mkdir(parents=True)
        address = f"127.0.0.1:{harness.unused_port()}"
        certificate, key = papers.sign("store") if papers else (None, None)
        tls = ["--cert", certificate, "--key", key] if papers else []
        super().__init__(
            [os.environ["VERSITYGW"], "--port", address, *tls, "posix", folder],
            address,
            folder.with_suffix(".log"),
            {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
        )
        self.endpoint = f"http{'s' if papers else ''}://{address}"

    def environment(self, **more):
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": self.endpoint}
        trust = {"AWS_CA_BUNDLE": str(self.papers.certificate)} if self.papers else {}
        return {**keys, **trust, **more}

    def lockstep(self, *arguments, **more):
        done = harness.lockstep(*arguments, environment=self.environment(**more))
        assert SECRET not in done.stdout + done.stderr
        return done

    def names(self, below):
        return sorted(path.name for path in (self.objects / below).rglob("*") if path.is_file())


class SlowLine:
    """A line to the store that stands still before the piece of this number."""

    def __init__(self, address, pieces):
        self.address, self.left, self.stands_still = address, pieces, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            host, port = self.address.rsplit(":", 1)
            store = socket.create_connection((host, int(port)))
            threading.Thread(target=self.copy, args=(client, store, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(store, client, False), daemon=True).start()

    def copy(self, source, sink, is_counted):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.left -= data.count(b"PUT /kept/cluster/a/pieces/") if is_counted else 0
                if is_counted and self.left <= 0:
                    self.stands_still.set()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.mark.limit(150)
def test_a_server_backed_up_over_tls_and_lost_answers_the_same_after_a_restore(start, tmp_path):
    papers = Authority(tmp_path / "authority")
    store = start(Store, tmp_path / "store", papers)
    server = start(harness.Server, tmp_path / "data")
    trace = "0af7651916cd43dd8448eb211c80319c"
    send_steps(server, JOB, range(STEPS))
    send_spans(server, trace, 20)
    now_ms = harness.now_ns() // 1_000_000
    for host in range(8):
        remote_write(server, "kept_metric", f"node-{host}", now_ms, 100 + host)
    before = answers(server, now_ms / 1000 + 1, trace)
    load = Load(server)
    for generation in (1, 2, 3):
        done = store.lockstep("backup", PLACE, "--server", server.url)
        assert done.returncode == 0 and done.stdout.startswith(f"generation {generation}: "), done.stderr
    load.end()
    assert store.names("generations") == [f"0000000{n}.manifest" for n in (1, 2, 3)]
    assert not (store.objects / "lock").exists()
    listed = store.lockstep("backup", "list", PLACE)
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == 4, listed.stdout + listed.stderr
    pieces = len(store.names("pieces"))
    pruned = store.lockstep("backup", "prune", PLACE, "--keep", 1)
    assert pruned.returncode == 0 and pruned.stdout.startswith("2 generations"), pruned.stdout + pruned.stderr
    assert len(store.names("pieces")) < pieces
    server.kill()

    restored = store.lockstep("restore", PLACE, tmp_path / "restored")
    assert restored.returncode == 0 and "all checked" in restored.stdout, restored.stderr
    assert answers(start(harness.Server, tmp_path / "restored"), now_ms / 1000 + 1, trace) == before
    # The machine's own CAs do not know this store.
    distrusted = harness.lockstep("backup", "list", PLACE, environment={**store.environment(), "AWS_CA_BUNDLE": ""})
    assert distrusted.returncode == 5 and "certificate" in distrusted.stderr, distrusted.stderr


def test_one_that_is_killed_is_no_backup_and_the_next_goes_on_at_once(start, tmp_path):
    store = start(Store, tmp_path / "store")
    server = start(harness.Server, tmp_path / "data")
    for job in range(4):
        send_steps(server, f"job-{job}", range(200))
    line = SlowLine(store.address, 3)
    backup = subprocess.Popen(
        [harness.BIN / "lockstep", "backup", PLACE, "--server", server.url, "--s3-endpoint", line.endpoint],
        env={**os.environ, **store.environment()},
    )
    assert line.stands_still.wait(30)
    harness.eventually(lambda: store.names("pieces"), 20, "what came before it is stored")
    assert SECRET not in open(f"/proc/{backup.pid}/cmdline").read()
    busy = store.lockstep("backup", PLACE, "--server", server.url)
    assert busy.returncode == 5 and f"in use by another lockstep backup (pid {backup.pid}" in busy.stderr, busy.stderr
    backup.send_signal(signal.SIGKILL)
    backup.wait()
    assert store.names("pieces") and not store.names("generations")
    assert store.lockstep("restore", PLACE, tmp_path / "restored").returncode == 4
    done = store.lockstep("backup", PLACE, "--server", server.url)
    assert done.returncode == 0 and done.stdout.startswith("generation 1: "), done.stderr
    assert store.lockstep("restore", PLACE, tmp_path / "restored").returncode == 0


def test_mistakes_are_one_line_without_a_secret(start, tmp_path):
    store = start(Store, tmp_path / "store")
    server = start(harness.Server, tmp_path / "data")
    for place, environment, code, part in (
        (PLACE, {"AWS_SECRET_ACCESS_KEY": SECRET + "x"}, 5, "403 SignatureDoesNotMatch: the secret key is wrong"),
        (PLACE, {"AWS_ACCESS_KEY_ID": "nobody"}, 5, "the store answers 40"),
        ("s3://nowhere/a", {}, 4, "404 NoSuchBucket"),
        (PLACE, {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, 5, "(tried 5 times)"),
        (PLACE, {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}, 5, "no keys for S3"),
    ):
        done = store.lockstep("backup", place, "--server", server.url, **environment)
        assert done.returncode == code and part in done.stderr, (place, done.returncode, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not store.names(".")
    (store.objects / "lock").parent.mkdir(parents=True)
    (store.objects / "thesis.tex").write_text("x")
    done = store.lockstep("backup", PLACE, "--server", server.url)
    assert done.returncode == 5 and "neither empty nor a place of backups" in done.stderr, done.stderr


def test_a_flipped_byte_in_the_store_is_named_and_nothing_is_restored(start, tmp_path):
    store = start(Store, tmp_path / "store")
    server = start(harness.Server, tmp_path / "data")
    send_steps(server, JOB, range(STEPS))
    assert store.lockstep("backup", PLACE, "--server", server.url).returncode == 0
    piece = max((path for path in (store.objects / "pieces").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(piece.read_bytes())
    content[len(content) // 2] ^= 1
    piece.write_bytes(content)
    done = store.lockstep("restore", PLACE, tmp_path / "restored")
    assert done.returncode == 5 and piece.name in done.stderr and "is damaged" in done.stderr, done.stderr
    assert not (tmp_path / "restored").exists() and not (tmp_path / "restored.part").exists()
