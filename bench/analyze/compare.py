#!/usr/bin/env python3
"""`lockstep analyze` beside HTA on the same traces: values, time, memory.

Traces: generated ones (make_traces.py), and with --data every trace below that folder that HTA can load (its own tests/data, say).
Each is analysed by both, one after the other, on one core each; then larger ones by us alone. Results as Markdown."""
import argparse
import gzip
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 0.001  # relative: what agrees


def run_ours(program, files, *options):
    done = subprocess.run([program, *options, *map(str, files)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return {**json.loads(done.stderr.splitlines()[-1]), "analysis": json.loads(done.stdout) if done.stdout else None}


def run_hta(python, files, limit_s):
    try:
        done = subprocess.run([python, HERE / "hta_run.py", *map(str, files)], capture_output=True, text=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None, f"more than {limit_s} s"
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["?"])[-1][:90]
    return json.loads(done.stdout.splitlines()[-1]), ""


def near(a, b, absolute):
    return abs(a - b) <= max(absolute, TOLERANCE * max(abs(a), abs(b)))


def compare_values(ours, theirs):
    """(checked, differing [(what, ours, HTA's)]) of one rank's trace."""
    rank = ours["analysis"]["ranks"][0]
    checked, different = 0, []

    def check(what, own, other, absolute=2.0):
        nonlocal checked
        if other is None:
            return
        checked += 1
        if not near(own, other, absolute):
            different.append((what, own, other))

    if theirs.get("temporal"):
        row = theirs["temporal"][0]
        check("idle time", rank["time"]["idle_us"], row["idle_time(us)"])
        check("compute time", rank["time"]["compute_us"], row["compute_time(us)"])
        check("non-compute time", rank["time"]["non_compute_us"], row["non_compute_time(us)"])
        check("kernel time", rank["time"]["total_us"], row["kernel_time(us)"])
    if theirs.get("overlap"):
        check("overlap %", rank["time"]["overlap_percent"], theirs["overlap"][0]["comp_comm_overlap_pctg"], 0.02)
    if theirs.get("idle"):
        key = "idle_time" if "idle_time" in theirs["idle"][0] else "idle_time(us)"
        for row in rank["idle"]:
            for category in ("host_wait", "kernel_wait", "other"):
                other = sum(line[key] for line in theirs["idle"] if line["stream"] == row["stream"] and line["idle_category"] == category)
                check(f"idle {category}", row[f"{category}_us"], other)
    if theirs.get("kernels"):
        own = {(kernel["class"], kernel["name"]): kernel for kernel in rank["kernels"]}
        for line in theirs["kernels"][1]:
            kernel = own.get((line["kernel_type"].lower(), line["name"]))
            if line["name"] == "others":
                continue
            if kernel is None:
                different.append(("kernel class", 0, line["sum (us)"]))
                checked += 1
                continue
            for column, field in (("sum (us)", "sum_us"), ("max (us)", "max_us"), ("min (us)", "min_us"), ("mean (us)", "mean_us")):
                check(f"kernel {field}", kernel[field], line[column], 1.0)
    if theirs.get("launches"):
        check("launches", rank["launches"]["count"], list(theirs["launches"].values())[0], 0.5)
    if theirs.get("queue"):
        for row in rank["queues"]:
            for line in theirs["queue"]:
                if line["stream"] == row["stream"]:
                    check("queue max", row["max"], line["max"], 0.5)
                    check("queue mean", row["mean"], line["mean"], 0.01)
    if theirs.get("bandwidth"):
        for row in rank["copies"]:
            for line in theirs["bandwidth"]:
                if line["name"] == row["kind"]:
                    check("copies max GB/s", row["max_gb_per_s"], line["max"], 0.01)
    return checked, different


def megabytes(count):
    return f"{count / 1e6:,.0f}" if count >= 1e7 else f"{count / 1e6:.1f}"


def generated(out, *options):
    if not os.path.isdir(out):
        subprocess.run([sys.executable, HERE / "make_traces.py", out, *map(str, options)], check=True, stdout=subprocess.DEVNULL)
    return sorted(pathlib.Path(out).glob("rank-*"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))


def json_bytes(path):
    if not str(path).endswith(".gz"):
        return path.stat().st_size
    with gzip.open(path) as file:
        return sum(len(piece) for piece in iter(lambda: file.read(1 << 20), b""))


def both(options, name, files, lines, differences):
    ours = run_ours(options.program, files, "--within-steps")
    theirs, why = run_hta(options.hta, files, options.limit)
    if ours is None:
        return
    if theirs is None:
        lines.append(f"| {name} | {len(files)} | {megabytes(ours['json_bytes'])} | {ours['cpu_s']:.3f} | {megabytes(ours['rss_bytes'])} | HTA fails: {why} | - | - | - | - |")
        return
    checked, different = compare_values(ours, theirs)
    for what, own, other in different:
        differences.setdefault(what, []).append((name, own, other))
    lines.append(f"| {name} | {len(files)} | {megabytes(ours['json_bytes'])} | {ours['cpu_s']:.3f} | {megabytes(ours['rss_bytes'])} | "
                 f"{theirs['load_s']:.2f} + {theirs['all_s'] - theirs['load_s']:.2f} | {theirs['cpu_s']:.2f} | {megabytes(theirs['rss_bytes'])} | "
                 f"**{theirs['cpu_s'] / ours['cpu_s']:.0f}x** | {checked - len(different)} of {checked}"
                 + (" (HTA's " + ", ".join(theirs["failed"]) + " failed)" if theirs.get("failed") else "") + " |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True, help="analyze_bench")
    parser.add_argument("--hta", required=True, help="the Python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--out", required=True)
    parser.add_argument("--data", help="a folder of traces, such as tests/data of facebookresearch/HolisticTraceAnalysis")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "lockstep-analyze"), help="generated traces are kept here")
    parser.add_argument("--limit", type=int, default=900, help="seconds that HTA may take for one trace")
    parser.add_argument("--small", action="store_true", help="without the gigabytes")
    options = parser.parse_args()
    os.makedirs(options.work, exist_ok=True)
    version = subprocess.run([options.hta, "-m", "pip", "show", "HolisticTraceAnalysis"], capture_output=True, text=True, check=False).stdout
    version = next((line.split()[1] for line in version.splitlines() if line.startswith("Version")), "?")
    lines, differences = [], {}
    seen = set()  # HTA's own data has several twice
    for path in sorted(pathlib.Path(options.data).rglob("*.json*")) if options.data else []:
        content = hash(path.read_bytes())
        if path.stat().st_size > 20_000 and content not in seen:  # below it HTA's time is that of its imports
            seen.add(content)
            both(options, path.name.split(".json")[0].split("__")[-1][:40], [path], lines, differences)
    one = generated(os.path.join(options.work, "one"), "--ranks", 1, "--steps", 60, "--layers", 24)
    both(options, "generated, one rank", one, lines, differences)
    eight = generated(os.path.join(options.work, "eight"), "--ranks", 8, "--steps", 10, "--layers", 12, "--offset-us", 500, "--fault", "3:slow")
    both(options, "generated, 8 ranks", eight, lines, {})
    large = []
    for name, arguments in ([] if options.small else [("2 GB, one rank", ("--ranks", 1, "--steps", 3600, "--layers", 48, "--plain")),
                                                      ("64 ranks", ("--ranks", 64, "--steps", 20, "--layers", 24, "--offset-us", 500, "--drift-ppm", 20, "--fault", "41:precision"))]):
        files = generated(os.path.join(options.work, name.replace(" ", "-").replace(",", "")), *arguments)
        ours = run_ours(options.program, files, "--threads", str(os.cpu_count()))
        size = ours["json_bytes"]
        large.append(f"| {name} | {len(files)} | {megabytes(size)} | {ours['wall_s']:.2f} | {ours['cpu_s']:.2f} | {size / ours['cpu_s'] / 1e6:.0f} | "
                     f"{megabytes(ours['rss_bytes'])} | {ours['rss_bytes'] / size:.2f} | {ours['analysis']['verdict']['sentence']} |")
    write(options, version, lines, differences, large)


EXPLAINED = {
    "idle time": "HTA takes `cuda_sync` events of a stream for something that runs",
    "kernel time": "the same: a wait before the first or after the last kernel makes the whole longer",
    "non-compute time": "the same",
    "compute time": "names that HTA does not take for computation (anything that contains `Sync`, `dma`, `Memcpy`)",
    "overlap %": "what is communication: HTA goes by the name's beginning only",
    "idle host_wait": "HTA measures a gap from the end of the kernel before it even where an earlier one still runs, so that gaps can be negative",
    "idle kernel_wait": "the same",
    "idle other": "the same; and HTA leaves out what has no launch in the trace",
    "kernel class": "HTA lists `cuda_sync` events as kernels (\"Context Sync\", \"Event Sync\")",
    "kernel sum_us": "of activities that share a correlation HTA's join keeps some twice and some not",
    "launches": "HTA counts by a list of names (`cudaLaunchKernel`, `cudaMemcpyAsync`, ...); ours by what a call has started",
    "queue max": "launches that HTA's list of names leaves out (`cudaLaunchKernelExC`, synchronous copies); and its queue falls below 0 where a kernel "
                 "is reported to begin before its launch",
    "queue mean": "the same",
    "copies max GB/s": "a copy that begins in the microsecond in which another ends: HTA adds them",
}


def write(options, version, lines, differences, large):
    with open(options.out, "w") as out:
        out.write("# Kernel traces: `lockstep analyze` beside HTA\n\n")
        out.write(f"Made by `./dev bench analyze`: HTA {version} from PyPI and ours (Release) on the same traces in the same run, {platform.machine()}, "
                  f"{os.cpu_count()} cores, shared with other work. Both read the whole\nfile and make the same analyses (temporal breakdown, overlap, kernels, "
                  "idle time, launches, queue length, copies); ours also matches collectives, walks\nthe critical path and judges. Seconds of ours are CPU "
                  "seconds of one thread; HTA's imports are not counted. HTA runs with `include_last_profiler_step` and\nwithout rounding to microseconds.\n\n")
        out.write("| trace | files | MB of JSON | ours, CPU s | ours, MB | HTA load + analyses, s | HTA, CPU s | HTA, MB | CPU | values that agree |\n")
        out.write("|---|---|---|---|---|---|---|---|---|---|\n" + "\n".join(lines) + "\n\n")
        out.write(f"Values agree within {TOLERANCE * 100:.1f} % or a microsecond or two.\n\n")
        if differences:
            out.write("## What differs\n\n| value | in | for example (ours, HTA's) | why |\n|---|---|---|---|\n")
            for what, found in sorted(differences.items()):
                name, own, other = max(found, key=lambda item: abs(item[1] - item[2]))
                traces = len({item[0] for item in found})
                out.write(f"| {what} | {len(found)} values of {traces} trace{'s' if traces > 1 else ''} | {name}: {own:,.2f}, {other:,.2f} | {EXPLAINED.get(what, 'not explained')} |\n")
            out.write("\n")
        if large:
            out.write("## Large traces, ours alone\n\n| trace | files | MB of JSON | s | CPU s | MB a CPU second | peak MB | of the JSON | verdict |\n")
            out.write("|---|---|---|---|---|---|---|---|---|\n" + "\n".join(large) + "\n")
    print(pathlib.Path(options.out).read_text())


main()
