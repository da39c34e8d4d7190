#!/usr/bin/env python3
"""What a kernel profile costs the server: generated traces through a real one, analysed by its child process, then asked for as the
page does.

    build/venv/bin/python bench/analyze/served.py [--bin build/dev/bin] [--out bench/results/profile-served.md]"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Ranks, and how often each file is used (a rank more each time).
JOBS = ((8, 1), (8, 8))
ASKED = 15


def median(values):
    return sorted(values)[len(values) // 2]


def analysed(server, capture, helpers):
    began = time.monotonic()
    while True:
        answer = server.get(helpers.api(capture) + "/summary")
        if answer["state"] in ("ready", "failed"):
            assert answer["state"] == "ready", answer["error"]
            return time.monotonic() - began
        time.sleep(0.1)


def asked(harness, server, path, **parameters):
    took = []
    for _ in range(ASKED):
        began = time.monotonic()
        answer = harness.request(server.http, "GET", path + "?" + "&".join(f"{name}={value}" for name, value in parameters.items()))
        took.append(time.monotonic() - began)
        assert answer.status == 200, answer.text
    view = answer.json()
    slices = sum(len(lane["slices"]) for lane in view["lanes"])
    return f"| {median(took) * 1e3:.0f} ms | {max(took) * 1e3:.0f} ms | {slices:,} | {len(view['lanes'])} | {len(answer.body) / 1e6:.2f} MB |"


def measure(harness, helpers, contents, events, data):
    server = harness.Server(data)
    try:
        capture = helpers.profile(server, contents)
        seconds = analysed(server, capture, helpers)
        sizes = {file["file"]: file["bytes"] for file in server.get(helpers.api(capture) + "/files")["files"]}
        traces = sum(size for name, size in sizes.items() if not name.startswith("analysis-"))
        lines = [
            f"## {len(contents)} ranks, {events:,} events\n",
            f"Traces {traces / 1e6:.1f} MB (gzip); analysed {seconds:.1f} s after the last rank's event, at the lowest priority; "
            f"timeline {sizes['analysis-timeline.bin'] / 1e6:.1f} MB, summary {sizes['analysis-summary.json'] / 1e3:.0f} kB, "
            f"Perfetto file {sizes.get('analysis-perfetto.pftrace.gz', 0) / 1e6:.1f} MB (0: left out).\n",
            "| timeline asked for | median | most | slices | lanes | answer |",
            "|---|---|---|---|---|---|",
        ]
        path = helpers.api(capture) + "/timeline"
        whole = server.get(path)["to_ns"]
        for what, parameters in (
            ("the whole, 1,200 columns", {"width": 1200}),
            ("the whole, 8,000 columns", {"width": 8000}),
            ("a hundredth of it", {"from_ns": whole // 2, "to_ns": whole // 2 + whole // 100, "width": 1200}),
            ("a thousandth, two ranks", {"from_ns": whole // 2, "to_ns": whole // 2 + whole // 1000, "width": 1200, "ranks": "0,1"}),
        ):
            lines.append(f"| {what} {asked(harness, server, path, **parameters)}")
        return "\n".join(lines)
    finally:
        server.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build" / "dev" / "bin"))
    parser.add_argument("--layers", type=int, default=400)
    parser.add_argument("--out")
    options = parser.parse_args()
    os.environ["LOCKSTEP_BIN"] = options.bin
    sys.path.insert(0, str(ROOT / "tests" / "system"))
    import harness
    import test_profile_analysis as helpers

    text = "# Kernel profiles on the server\n\nMade by `bench/analyze/served.py`: " + f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f} from other work, programs of {os.path.relpath(options.bin, ROOT)}, "
    text += f"{ASKED} requests each.\n"
    for ranks, times in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            traces = pathlib.Path(folder) / "traces"
            made = subprocess.run(
                [sys.executable, ROOT / "bench" / "analyze" / "make_traces.py", traces, "--ranks", str(ranks), "--steps", "5", "--layers", str(options.layers), "--on-demand", "--offset-us", "500"],
                check=True, capture_output=True, text=True,
            )  # fmt: skip
            events = int(made.stdout.split(",")[1].split()[0]) * times
            contents = [(traces / f"rank-{rank}.json.gz").read_bytes() for rank in range(ranks)] * times
            text += "\n" + measure(harness, helpers, contents, events, pathlib.Path(folder) / "data") + "\n"
        if options.out:
            pathlib.Path(options.out).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
