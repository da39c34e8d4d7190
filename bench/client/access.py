#!/usr/bin/env python3
"""What TLS and tokens cost the server: CPU of a gRPC call by the agent's client, with neither, either and both, in turns.

    access.py --bin DIR --server LOCKSTEPD [--rounds N] [--calls N] [--out FILE]"""
import argparse
import os
import pathlib
import secrets
import statistics
import subprocess
import tempfile

from run import free_port, make_certificate

WAYS = {"neither": (False, False), "a token": (False, True), "TLS": (True, False), "TLS and a token": (True, True)}
SIZES = {"2 kB": 2_000, "100 kB": 100_000}


class Server:
    def __init__(self, program, folder, tls, token):
        self.port, self.tls, self.token = free_port(), tls, token
        self.certificate, key = make_certificate(folder)
        words = [program, "--data", folder / "data", "--http", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--otlp-grpc", f"127.0.0.1:{self.port}"]
        words += ["--tls-certificate", self.certificate, "--tls-key", key] if tls else []
        self.secret = secrets.token_urlsafe(32)
        file = folder / "admin"
        file.touch(mode=0o600)
        file.write_text(self.secret)
        words += ["--admin-token-file", file] if token else []
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            raise SystemExit("the server did not start")
        if token:  # what calls here is an agent
            http = dict(word.split("=", 1) for word in ready.split()[1:])["http"]
            words = [program.parent / "lockstep", "token", "create", "--role", "ingest", "--server", f"{'https' if tls else 'http'}://{http}", "--token-file", file]
            words += ["--ca", self.certificate] if tls else []
            self.secret = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def calls(self, client, count, size):
        """CPU seconds of the server for a call."""
        words = [client, f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}", str(count), str(size), "--ca", self.certificate if self.tls else ""]
        words += ["--token", self.secret] if self.token else []
        before = self.cpu_s()
        subprocess.run(words, check=True, capture_output=True)
        return (self.cpu_s() - before) / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--server", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    found = {way: {size: [] for size in SIZES} for way in WAYS}
    with tempfile.TemporaryDirectory() as name:
        servers = {}
        try:
            for number, (way, (tls, token)) in enumerate(WAYS.items()):
                folder = pathlib.Path(name) / str(number)
                folder.mkdir()
                servers[way] = Server(options.server, folder, tls, token)
            for _ in range(options.rounds):
                for way, server in servers.items():
                    for size, count in SIZES.items():
                        calls = options.calls if count < 10_000 else options.calls // 8
                        found[way][size].append(server.calls(options.bin / "own_client", calls, count))
        finally:
            for server in servers.values():
                server.process.terminate()
                server.process.wait()
    lines = [f"| with | {' | '.join(f'a call of {size}' for size in SIZES)} |", "|---|" + "---|" * len(SIZES)]
    for way in WAYS:
        lines.append(f"| {way} | " + " | ".join(f"{statistics.median(found[way][size]) * 1e6:.0f} us" for size in SIZES) + " |")
    print("\n".join(lines))
    if options.out:
        head = "# What TLS and tokens cost the server\n\n`./dev bench access`: CPU of the server for a gRPC call of an agent over a kept connection, medians.\n\n"
        options.out.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
