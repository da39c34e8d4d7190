#!/usr/bin/env python3
"""The agent's gRPC client beside libcurl with nghttp2: what each adds to a program in size, start, memory and CPU. Both make the same
calls to the same server, in turns.

    run.py --bin DIR --server LOCKSTEPD [--rounds N] [--out FILE]"""
import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from server import Server

PROGRAMS = {"own (src/net)": "own_client", "libcurl": "curl_client"}


def stripped_bytes(program, folder):
    copy = folder / program.name
    shutil.copy(program, copy)
    subprocess.run(["strip", copy], check=True)
    return copy.stat().st_size


def libraries(program):
    """Path of each shared library that comes with it, but for the C and C++ runtime."""
    text = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    runtime = re.compile(r"lib(c|m|gcc_s|stdc\+\+)\.so|ld-linux")
    return [line.split()[2] for line in text.splitlines() if "=>" in line and not runtime.search(line)]


def run_once(program, url, calls, size, ca):
    began = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e3
    done = subprocess.run([program, url, str(calls), str(size), "--ca", ca], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{program}: {done.stderr.strip()}")
    found = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", done.stdout)}
    return {"first": found["first_ms"] - began, "cpu": found["cpu_s"], "rss": found["rss_kb"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--server", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--calls", type=int, default=500)  # after a thousand on one connection libcurl 7.88 reports an error of framing
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    rows = {name: {} for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        # Over TLS: libcurl 7.88, as Debian 12 has it, cannot use a connection a second time where HTTP/2 comes without (curl pull request
        # 10643).
        server = Server(options.server, folder, tls=True)
        try:
            url, certificate = server.url("otlp_grpc"), server.certificate
            found = {name: {"one": [], "small": [], "large": []} for name in PROGRAMS}
            for at in range(options.rounds):
                for name, program in PROGRAMS.items():
                    path = options.bin / program
                    found[name]["one"].append(run_once(path, url, 1, 100, certificate))
                    if at % 3 == 0:
                        found[name]["small"].append(run_once(path, url, options.calls, 2_000, certificate))
                        found[name]["large"].append(run_once(path, url, options.calls // 10, 1_000_000, certificate))
        finally:
            server.stop()
        for name, program in PROGRAMS.items():
            path = options.bin / program
            libs = libraries(path)
            median = {kind: {key: statistics.median(one[key] for one in runs) for key in runs[0]} for kind, runs in found[name].items()}
            rows[name] = {
                "program, stripped": f"{stripped_bytes(path, folder) / 1e3:.0f} kB",
                "shared libraries beside the runtime": f"{len(libs)}, {sum(pathlib.Path(one).stat().st_size for one in libs) / 1e6:.1f} MB",
                "from its start to the first answer": f"{median['one']['first']:.1f} ms",
                "CPU of that": f"{median['one']['cpu'] * 1e3:.1f} ms",
                "memory after one call": f"{median['one']['rss'] / 1e3:.1f} MB",
                "CPU of a call of 2 kB": f"{median['small']['cpu'] / options.calls * 1e6:.0f} us",
                "CPU of a call of 1 MB": f"{median['large']['cpu'] / (options.calls // 10) * 1e6:.0f} us",
                "memory after calls of 1 MB": f"{median['large']['rss'] / 1e3:.1f} MB",
            }
    lines = [f"| | {' | '.join(PROGRAMS)} |", "|---|" + "---|" * len(PROGRAMS)]
    lines += [f"| {key} | {' | '.join(rows[name][key] for name in PROGRAMS)} |" for key in rows["libcurl"]]
    print("\n".join(lines))
    if options.out:
        head = "# The agent's gRPC client beside libcurl\n\n`./dev bench client`: one connection with TLS, unary calls one after the other, medians.\n\n"
        options.out.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
