#!/usr/bin/env python3
"""What TLS and tokens cost the server: its processor time for a request, a sample and a connection, with neither, either and both, in
turns; and how long somebody else's request takes while others begin handshakes. Processor time, because other work on the machine changes
the time on the clock and hardly this.

    access.py --bin DIR --server LOCKSTEPD [--rounds N] [--calls N] [--build TEXT] [--out FILE]"""
import argparse
import http.client
import multiprocessing
import os
import pathlib
import socket
import ssl
import statistics
import struct
import subprocess
import tempfile
import time

from server import Server

WAYS = {"neither": (False, False), "a token": (False, True), "TLS": (True, False), "TLS and a token": (True, True)}
SERIES = 1000  # of a remote write request, each with one sample
HANDSHAKES = 200
SLOW_KEY = "RSA 2048"  # signs some five times as long as P-256


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def remote_write_body(time_ms):
    """A sample for each of SERIES series, snappy as one literal."""
    series = b""
    for at in range(SERIES):
        labels = {"__name__": "bench_access", "instance": f"node-{at}:9100", "job": "node"}
        body = b"".join(field(1, field(1, name.encode()) + field(2, value.encode())) for name, value in labels.items())
        series += field(1, body + field(2, b"\x09" + struct.pack("<d", at + time_ms % 7) + b"\x10" + varint(time_ms)))
    return varint(len(series)) + b"\xfc" + struct.pack("<I", len(series) - 1) + series


class Client:
    """One kept connection to the API."""

    def __init__(self, server, role):
        host, port = server.addresses["http"].rsplit(":", 1)
        if server.certificate:
            self.connection = http.client.HTTPSConnection(host, int(port), context=ssl.create_default_context(cafile=server.certificate))
        else:
            self.connection = http.client.HTTPConnection(host, int(port))
        self.headers = {"Authorization": f"Bearer {server.tokens[role]}"} if server.tokens else {}

    def ask(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, {**self.headers, **(headers or {})})
        answer = self.connection.getresponse()
        answer.read()
        if answer.status // 100 != 2:
            raise SystemExit(f"{method} {path}: {answer.status}")


def grpc_calls(size):
    def run(server, options):
        calls = options.calls if size < 10_000 else options.calls // 8
        words = [options.bin / "own_client", server.url("otlp_grpc"), str(calls), str(size), "--ca", server.certificate]
        words += ["--token", server.tokens["ingest"]] if server.tokens else []
        subprocess.run(words, check=True, capture_output=True)
        return calls

    return run


def api_requests(server, options):
    client = Client(server, "read")
    for _ in range(options.calls):
        client.ask("GET", "/api/agents")
    return options.calls


def samples(server, options):
    client, requests = Client(server, "ingest"), options.calls // 40
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
    now_ms = time.time_ns() // 1_000_000
    for at in range(requests):
        client.ask("POST", "/prometheus/api/v1/write", remote_write_body(now_ms + at), headers)
    return requests * SERIES


def connections(server, options):
    count = options.calls // 10
    for _ in range(count):
        Client(server, "read").ask("GET", "/healthz", headers={"Connection": "close"})
    return count


# What is counted, how, and its unit: nanoseconds of the server for each.
MEASURED = {
    "a gRPC call of 2 kB": (grpc_calls(2_000), "us"),
    "a gRPC call of 100 kB": (grpc_calls(100_000), "us"),
    "a small request to the API": (api_requests, "us"),
    "a connection with one request": (connections, "us"),
    f"a sample by remote write, {SERIES} in a request": (samples, "ns"),
}
SCALE = {"us": 1e6, "ns": 1e9}


def hellos(count):
    """The first flights of so many clients."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for _ in range(count):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            context.wrap_bio(incoming, outgoing).do_handshake()
        except ssl.SSLWantReadError:
            yield outgoing.read()


def shake_hands(address, whole, began, ends):
    """HANDSHAKES at once: whole first flights and no second ones, again and again; or the beginning of one and silence."""
    first = list(hellos(HANDSHAKES))
    while time.monotonic() < ends:
        sockets = [socket.create_connection(address) for _ in first]
        for one, hello in zip(sockets, first):
            one.sendall(hello if whole else hello[:40])
        began.set()
        time.sleep(0.2 if whole else max(0.0, ends - time.monotonic()))
        for one in sockets:
            one.close()


def waits_ms(server, seconds, handshakes=None):
    """How long requests over a kept connection take meanwhile: on the clock, and in processor time of the server, which is what was done
    before they were answered, whoever else works on the machine. handshakes: None, or whether they are whole."""
    client, waits = Client(server, "read"), []
    client.ask("GET", "/api/agents")
    host, port = server.addresses["http"].rsplit(":", 1)
    other = None
    if handshakes is not None:
        began = multiprocessing.Event()
        other = multiprocessing.Process(target=shake_hands, args=((host, int(port)), handshakes, began, time.monotonic() + seconds + 2))
        other.start()
        began.wait()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        asked, used = time.monotonic(), server.cpu_s()
        client.ask("GET", "/api/agents")
        waits.append(((time.monotonic() - asked) * 1e3, (server.cpu_s() - used) * 1e3))
        time.sleep(0.002)
    if other is not None:
        other.join()
    return [sorted(one) for one in zip(*waits)]


def measure(servers, options):
    found = {way: {what: [] for what in MEASURED} for way in WAYS}
    for at in range(options.rounds + 1):
        for way, server in servers.items():
            for what, (run, _) in MEASURED.items():
                before = server.cpu_s()
                count = run(server, options)
                if at > 0:  # the first makes series and caches
                    found[way][what].append((server.cpu_s() - before) / count)
    lines = [f"| with | {' | '.join(MEASURED)} |", "|---|" + "---|" * len(MEASURED)]
    for way in WAYS:
        cells = [f"{statistics.median(found[way][what]) * SCALE[unit]:.0f} {unit}" for what, (_, unit) in MEASURED.items()]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return lines


def measure_waits(server, seconds):
    lines = ["| meanwhile | requests | answered after, on the clock: median, longest | in the server's processor time: median, 99 %, longest |", "|---|---|---|---|"]
    ways = {"nothing": None, f"{HANDSHAKES} handshakes that do not go on": False, f"{HANDSHAKES} handshakes at once, five times a second": True}
    for name, handshakes in ways.items():
        clock, used = waits_ms(server, seconds, handshakes)
        lines.append(
            f"| {name} | {len(clock)} | {statistics.median(clock):.1f}, {clock[-1]:.1f} ms"
            f" | {statistics.median(used):.1f}, {used[int(len(used) * 0.99)]:.1f}, {used[-1]:.1f} ms |"
        )
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--server", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=6, help="of each look at handshakes")
    parser.add_argument("--build", default="Release", help="how the server was compiled, for the page")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        servers = {}
        try:
            for number, (way, (tls, token)) in enumerate(WAYS.items()):
                folder = pathlib.Path(name) / str(number)
                folder.mkdir()
                servers[way] = Server(options.server, folder, tls, token)
            costs = measure(servers, options)
            folder = pathlib.Path(name) / "waits"
            folder.mkdir()
            servers["waits"] = Server(options.server, folder, tls=True, token=True, key=SLOW_KEY)
            waits = measure_waits(servers["waits"], options.seconds)
        finally:
            for server in servers.values():
                server.stop()
    text = f"""# What TLS and tokens cost the server

`./dev bench access`: processor time of the server, all threads, for each; medians of {options.rounds} rounds in which the four servers take
turns. Connections are kept but where one is counted; the certificate is ECDSA P-256; the server was built with {options.build}.
{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} when it ended: processor time, because other work on the machine changes the time on the clock.

{chr(10).join(costs)}

Requests of somebody else over a kept connection with TLS, while others begin handshakes with the same listener, whose certificate is
{SLOW_KEY} here. The clock has the machine's other work in it; the processor time is what the server did before it answered:

{chr(10).join(waits)}
"""
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
