"""Clients that mean harm: few bytes that become many, bodies that never end, queries that double. Standard library alone.

    python3 tests/system/hostile.py BIN SECONDS [MEMORY_MAX]

starts BIN/lockstepd with a small --memory-max, attacks it from every side at full speed and says what became of it; exit
status 1 where it took more memory than it may, stopped answering, or did not recover.
"""

import gzip
import http.client
import itertools
import json
import pathlib
import random
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

WRITE = "/prometheus/api/v1/write"
TYPE_1 = "application/x-protobuf;proto=prometheus.WriteRequest"
TYPE_2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
SLACK = 150 << 20  # what is held between two readings of the kernel's number by those who took too little


# Bytes


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def head_of(number, length):
    return varint(number << 3 | 2) + varint(length)


def field(number, content):
    return head_of(number, len(content)) + content


def sample(value, time_ms):
    return b"\x09" + struct.pack("<d", value) + b"\x10" + varint(time_ms)


def series_1(labels, value, time_ms):
    parts = [field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in sorted(labels.items())]
    return field(1, b"".join(parts) + field(2, sample(value, time_ms)))


def snappy_literal(data):
    return (b"\xfc" + struct.pack("<I", len(data) - 1) + data) if data else b""


def snappy(data):
    return varint(len(data)) + snappy_literal(data)


def snappy_repeat(head, unit, count):
    """head and count times unit: a copy of three bytes for every 64."""
    length = len(unit) * (count - 1)
    copy = struct.pack("<BH", 63 << 2 | 2, len(unit))
    rest = length % 64
    out = varint(len(head) + len(unit) * count) + snappy_literal(head) + snappy_literal(unit) + copy * (length // 64)
    return out + (struct.pack("<BH", (rest - 1) << 2 | 2, len(unit)) if rest else b"")


def zstd_of_one_byte(byte, count):
    """Frames of RLE blocks: 128 KiB for four bytes."""
    block = 128 << 10
    out = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x68"  # window 8 MiB
    blocks = count // block
    for i in range(blocks):
        out += struct.pack("<I", block << 3 | 1 << 1 | (i == blocks - 1))[:3] + bytes([byte])
    return out


# Attacks: each makes (address name, method, path, headers, body) again and again.


def remote_write(body, content_type=TYPE_1):
    return "http", "POST", WRITE, {"Content-Type": content_type, "Content-Encoding": "snappy"}, body


def remote_write_2_bombs():
    symbols = b"".join(field(4, text) for text in (b"", b"__name__", b"x" * 4000))
    unit = field(5, field(1, bytes([1, 2] * 3)) + field(2, sample(1, 1)))
    yield remote_write(snappy_repeat(symbols, unit, 400_000), TYPE_2)
    symbols = b"".join(field(4, text) for text in (b"", b"__name__", b"x" * (1 << 20)))
    unit = field(5, field(1, bytes([1, 2])) + field(2, sample(1, 1)))
    yield remote_write(snappy_repeat(symbols, unit, 2000), TYPE_2)
    zeros = 8_000_000  # bytes of one histogram's buckets
    buckets = head_of(12, zeros)
    histogram = field(1, bytes([1, 2])) + head_of(3, len(buckets) + zeros) + buckets
    symbols += head_of(5, len(histogram) + zeros) + histogram
    yield remote_write(snappy_repeat(symbols, b"\0" * 64, zeros // 64), TYPE_2)
    yield remote_write(snappy_repeat(b"", b"\x0a\x02\x12\x00", 8_000_000))


def compression_bombs():
    otlp = {"Content-Type": "application/x-protobuf"}
    for path in ("/v1/metrics", "/v1/logs", "/v1/traces"):
        yield "otlp_http", "POST", path, {**otlp, "Content-Encoding": "zstd"}, zstd_of_one_byte(0x0A, 1 << 30)
        yield "otlp_http", "POST", path, {**otlp, "Content-Encoding": "zstd"}, zstd_of_one_byte(0, 31 << 20)
        groups = gzip.compress(b"\x0a\x02\x12\x00" * (7 << 20), 1)
        yield "otlp_http", "POST", path, {**otlp, "Content-Encoding": "gzip"}, groups
        records = gzip.compress(field(1, field(2, b"\x12\x00" * 4_000_000)), 1)
        yield "otlp_http", "POST", path, {**otlp, "Content-Encoding": "gzip"}, records
    yield remote_write(snappy_repeat(b"", b"\0" * 64, (512 << 20) // 64))


def giant_batches():
    value = field(2, field(1, b"v" * 40))
    attributes = b"".join(field(6, field(1, b"key%d" % i) + value) for i in range(8))
    logs = field(1, field(2, b"".join(itertools.repeat(field(2, attributes), 60_000))))
    yield "otlp_http", "POST", "/v1/logs", {"Content-Type": "application/x-protobuf"}, logs
    points = field(1, b"\x19" + struct.pack("<Q", 1) + b"\x21" + struct.pack("<d", 1))
    metrics = field(1, field(2, field(2, field(1, b"n" * 200) + field(5, points * 200_000))))
    yield "otlp_http", "POST", "/v1/metrics", {"Content-Type": "application/x-protobuf"}, metrics
    numbers = b",".join(itertools.repeat(b"1", 3_000_000))
    text = b'{"resourceLogs":[{"x":[' + numbers + b"]}]}"
    yield "otlp_http", "POST", "/v1/logs", {"Content-Type": "application/json"}, text
    items = b",".join(itertools.repeat(b"{}", 500_000))
    text = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + items + b"]}]}]}"
    yield "otlp_http", "POST", "/v1/logs", {"Content-Type": "application/json"}, text


def wide_series(seed=itertools.count()):
    """Every request has series that nobody knows, with as many label bytes as are taken."""
    dice = random.Random(next(seed))
    while True:
        now_ms = int(time.time() * 1000)
        body = b""
        for i in range(40):
            word = f"{dice.getrandbits(64):x}"
            labels = {f"label{k}": (word + str(k)).ljust(240, "y") for k in range(60)}
            body += series_1({"__name__": "wide", "job": word, **labels}, i, now_ms)
        yield remote_write(snappy(body))


def queries():
    joined, replaced = "honest", "honest"
    for _ in range(40):
        joined = f'label_join({joined}, "host", "--------", "host", "host")'
        replaced = f'label_replace({replaced}, "host", "$1$1$1$1", "host", "(.*)")'
    deep = "(" * 400 + "x" * 200 + ")" * 400
    now = time.time()
    wide = {"query": 'count_values("v", label_join({__name__=~".+"}, "a", ",", "label1", "label2", "label3"))'}
    for path, form in (
        ("query", {"query": joined}),
        ("query", {"query": replaced}),
        ("query_range", {"query": joined, "start": now - 600, "end": now, "step": 1}),
        ("query_range", {"query": '{__name__=~".+"}', "start": now - 10_000, "end": now, "step": 1}),
        ("query", wide),
        ("query", {"query": 'label_replace({__name__=~".+"}, "z", "$1$1$1$1$1$1$1$1", "label1", "(.*)")'}),
        ("query_range", {"query": "vector(1) or " * 200 + "vector(2)", "start": 0, "end": 10_000, "step": 1}),
        ("series", {"match[]": '{__name__=~".+"}'}),
        ("format_query", {"query": " + ".join([deep] * 60)}),
        ("parse_query", {"query": " + ".join([deep] * 60)}),
    ):
        body = urllib.parse.urlencode({**form, "timeout": "3s"}).encode()
        yield "http", "POST", "/prometheus/api/v1/" + path, {"Content-Type": "application/x-www-form-urlencoded"}, body


ATTACKS = (remote_write_2_bombs, compression_bombs, giant_batches, wide_series, queries)


PREPARED = {}  # what takes long to make


def prepare():
    for attack in ATTACKS:
        if attack is not wide_series and attack not in PREPARED:
            PREPARED[attack] = list(attack())


class Target:
    """A server's addresses and process, by name: http, otlp_http."""

    def __init__(self, pid, http_address, otlp_http_address):
        self.pid = pid
        self.addresses = {"http": http_address, "otlp_http": otlp_http_address}

    def ask(self, name, method, path, headers=None, body=None, timeout=30):
        host, port = self.addresses[name].rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def resident_bytes(self):
        """In memory, without mapped files."""
        _, resident, shared = map(int, pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[:3])
        return (resident - shared) * 4096

    def write(self, value, host="a"):
        """An honest client's small write."""
        line = series_1({"__name__": "honest", "host": host, "job": "honest"}, value, int(time.time() * 1000))
        return self.ask(*remote_write(snappy(line))[:3], headers=remote_write(b"")[3], body=snappy(line))[0]

    def value(self):
        status, _, body = self.ask("http", "GET", "/prometheus/api/v1/query?query=honest")
        result = json.loads(body)["data"]["result"] if status == 200 else []
        return float(result[0]["value"][1]) if result else None

    def counters(self):
        """name{labels} -> number"""
        text = self.ask("http", "GET", "/metrics")[2].decode()
        return {name: float(number) for name, number in re.findall(r"^([a-z_]+(?:\{.*?\})?) (\S+)$", text, re.M)}


class Attack:
    """Each alone, so that none hides behind another's refusals, then all at once; and what was seen meanwhile."""

    def __init__(self, target):
        prepare()
        self.target = target
        self.over = threading.Event()  # this part of it
        self.done = threading.Event()
        self.resident_max = 0
        self.health_s = []
        self.honest = {}
        self.answers = {}
        self.lock = threading.Lock()

    def run(self, seconds):
        watchers = self.start((self.watch,), (self.ask_health,), (self.be_honest,))
        kinds = [[(self.send, attack)] * 2 for attack in ATTACKS] + [[(self.trickle,), (self.never_read,)]]
        for jobs in [*kinds, sum(kinds, [])]:
            self.over.clear()
            threads = self.start(*jobs)
            time.sleep(seconds / (2 if len(jobs) > 2 else 2 * len(kinds)))  # so long it goes on
            self.over.set()
            for thread in threads:
                thread.join(15)
        self.done.set()
        for thread in watchers:
            thread.join(60)
        return self

    @staticmethod
    def start(*jobs):
        threads = [threading.Thread(target=job[0], args=job[1:], daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        return threads

    def count(self, counts, key):
        with self.lock:
            counts[key] = counts.get(key, 0) + 1

    def send(self, attack):
        prepared = None if attack is wide_series else PREPARED[attack]
        while not self.over.is_set():
            for request in prepared or attack():
                if self.over.is_set():
                    return
                try:
                    status, headers, _ = self.target.ask(*request[:3], headers=request[3], body=request[4], timeout=10)
                    retry = "retry-after" in {name.lower() for name in headers}
                    self.count(self.answers, f"{attack.__name__} {status}{' retry' if retry else ''}")
                except OSError:  # refused in the middle of its body
                    self.count(self.answers, f"{attack.__name__} closed")

    def connect(self, name):
        host, port = self.target.addresses[name].rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=10)

    def trickle(self):
        """Bodies that are nearly there, and never whole."""
        head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 30000000\r\n\r\n"
        held = []
        while not self.over.is_set():
            try:
                name, path = random.choice((("http", WRITE.encode()), ("otlp_http", b"/v1/logs")))
                connection = self.connect(name)
                connection.settimeout(1)
                connection.sendall(head % path + b"x" * 4_000_000)
                held.append(connection)
            except OSError:
                pass
            if len(held) > 100:
                held.pop(0).close()
            time.sleep(0.05)  # its pace

    def never_read(self):
        """Large answers that nobody takes."""
        now = time.time()
        query = urllib.parse.urlencode({"query": "vector(1)", "start": now - 10_000, "end": now, "step": 1})
        held = []
        while not self.over.is_set():
            try:
                connection = self.connect("http")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(b"GET /prometheus/api/v1/query_range?%s HTTP/1.1\r\nHost: x\r\n\r\n" % query.encode())
                held.append(connection)
            except OSError:
                pass
            if len(held) > 200:
                held.pop(0).close()
            time.sleep(0.02)  # its pace

    def watch(self):
        while not self.done.wait(0.01):
            try:
                self.resident_max = max(self.resident_max, self.target.resident_bytes())
            except OSError:  # it is gone
                return

    def ask_health(self):
        while not self.done.wait(0.1):
            began = time.monotonic()
            try:
                self.target.ask("http", "GET", "/healthz", timeout=30)
                self.health_s.append(time.monotonic() - began)
            except OSError:
                self.health_s.append(30.0)

    def be_honest(self):
        while not self.done.wait(0.3):
            try:
                self.count(self.honest, self.target.write(1))
            except OSError:
                self.count(self.honest, "closed")


def main(binaries, seconds, memory_max=300 << 20):
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [f"{binaries}/lockstepd", "--data", f"{folder}/data", "--memory-max", str(memory_max)]
            + ["--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=open(f"{folder}/log", "wb"),
        )
        try:
            select.select([process.stdout], [], [], 30)
            ready = dict(word.split("=", 1) for word in process.stdout.readline().decode().split()[1:])
            target = Target(process.pid, ready["http"], ready["otlp_http"])
            assert target.write(1) == 204
            print(f"resident before: {target.resident_bytes() >> 20} MiB of {memory_max >> 20}", flush=True)
            began = time.monotonic()
            attack = Attack(target).run(seconds)
            print(f"attacked for {time.monotonic() - began:.0f} s")
            health = sorted(attack.health_s)
            print(f"resident at most {attack.resident_max >> 20} MiB, after {target.resident_bytes() >> 20} MiB")
            print(f"/healthz: {len(health)} answers, median {health[len(health) // 2]:.3f} s, slowest {health[-1]:.3f} s")
            print("honest writes:", attack.honest)
            for answer, count in sorted(attack.answers.items()):
                print(f"  {count:7d}  {answer}")
            deadline = time.monotonic() + 60
            while (target.write(2) != 204 or target.value() != 2) and time.monotonic() < deadline:
                time.sleep(0.5)  # the interval of the poll
            for name, number in target.counters().items():
                if name.startswith(("lockstep_memory", "lockstep_metric_samples_refused", "lockstep_ingest_undecodable")):
                    print(f"  {name} {number:.0f}")
            time.sleep(3)  # memory is given back after a while
            print(f"resident at the end: {target.resident_bytes() >> 20} MiB")
            good = target.value() == 2 and attack.resident_max < memory_max + SLACK
            print("good" if good else "NOT GOOD")
            return 0 if good else 1
        finally:
            process.terminate()
            process.wait(30)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:])))
