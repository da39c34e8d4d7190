#!/usr/bin/env python3
"""Where each step's time went by the kernel trace of the same step: the truth that docs/guide/where-the-time-goes.md is
held against.

    kineto_truth.py FOLDER > kineto_truth.json

FOLDER is a recording (docs/formats/calls.md) with kineto_rankR.json, the PyTorch profiler's trace of some of its steps.
Only steps that the trace covers whole are told.

A step is the host's window of it: from its begin to its end by the script's own log, on CLOCK_MONOTONIC. Trace times
are Unix time; the first line of rankR.calls has a reading of both clocks. That this fits is shown by NCCL's kernels,
which both files have: `clock_error_us` is the median distance of their starts. Within the window:

  compute        union of the rank's GPU work that is not NCCL's: kernels, copies, fills
  communication  union of NCCL's kernels, less compute: exposed
  input, checkpoint   nothing on the GPU, and the phase is open
  host           nothing on the GPU, and the threads that launch do not stand in a call that waits for the GPU
  idle           the rest: nothing on the GPU although the host waits for it

`host_seen_ns` is the part of host in which the trace shows an operator or a call of CUDA under way; the rest is Python
between them, or a thread that does not run. `overlapped_ns` is the part of NCCL's kernels that compute covers.
Parts add up to the step."""
import bisect
import json
import pathlib
import re
import statistics
import sys

GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
ENGINE = ("autograd::engine::evaluate_function", "torch.distributed.ddp.reducer")
PHASES_NOT = {"step", "t0", "total", "loss"}

Spans = list[tuple[int, int]]


def joined(spans: Spans, begin: int, end: int) -> Spans:
    """Sorted, joined and cut to the window."""
    out: list[list[int]] = []
    for first, last in sorted((max(a, begin), min(b, end)) for a, b in spans):
        if last <= first:
            continue
        if out and first <= out[-1][1]:
            out[-1][1] = max(out[-1][1], last)
        else:
            out.append([first, last])
    return [(a, b) for a, b in out]


def without(spans: Spans, what: Spans) -> Spans:
    out = []
    ends = [last for _, last in what]
    for begin, end in spans:
        at = bisect.bisect_right(ends, begin)
        while at < len(what) and what[at][0] < end:
            if what[at][0] > begin:
                out.append((begin, what[at][0]))
            begin = max(begin, what[at][1])
            at += 1
        if begin < end:
            out.append((begin, end))
    return out


def length(spans: Spans) -> int:
    return sum(end - begin for begin, end in spans)


class Trace:
    """One rank's trace, on the recording's monotonic clock."""

    def __init__(self, path: pathlib.Path, unix_minus_monotonic_ns: int):
        document = json.loads(path.read_text())
        shift = document["baseTimeNanoseconds"] - unix_minus_monotonic_ns
        self.compute: Spans = []
        self.nccl: Spans = []
        self.at_work: Spans = []
        self.annotations: dict[str, Spans] = {}  # by name: record_function() of the script and of torch itself
        self.backward: Spans = []  # the autograd engine's and DDP's work
        self.covered = None
        calls = []
        copies_to_pageable = set()
        for event in document["traceEvents"]:
            if event.get("ph") != "X":
                continue
            begin = round(event["ts"] * 1000) + shift
            span = (begin, begin + round(event["dur"] * 1000))
            category, name = event.get("cat"), event["name"]
            if category in GPU_WORK:
                (self.nccl if name.startswith("nccl") else self.compute).append(span)
                if "Pageable" in name and "DtoH" in name:
                    copies_to_pageable.add(event["args"].get("correlation"))
            elif category in ("cuda_runtime", "cuda_driver"):
                calls.append((span, event["tid"], name, event["args"].get("correlation")))
                self.at_work.append(span)
            elif category == "cpu_op":
                self.at_work.append(span)
                if name.startswith(ENGINE):
                    self.backward.append(span)
            elif category == "user_annotation":
                self.annotations.setdefault(name, []).append(span)
                if name.startswith("ProfilerStep"):
                    first, last = self.covered or span
                    self.covered = (min(first, span[0]), max(last, span[1]))
        launching = {thread for _, thread, name, _ in calls if "Launch" in name}
        # A copy to memory that is not pinned comes back only when it is done.
        self.waiting = [span for span, thread, name, correlation in calls
                        if thread in launching and ("Synchronize" in name or correlation in copies_to_pageable)]

    def split(self, step: dict) -> dict:
        begin, end = step["t0"], step["t0"] + step["total"]
        compute = joined(self.compute, begin, end)
        nccl = joined(self.nccl, begin, end)
        exposed = without(nccl, compute)
        nothing = without(without([(begin, end)], compute), nccl)
        phases: dict[str, Spans] = {}
        at = begin
        for name, value in step.items():
            if name not in PHASES_NOT and isinstance(value, int):
                phases.setdefault(name, []).append((at, at + value))
                at += value
        after_input = without(nothing, joined(phases.get("data", []), begin, end))
        after_checkpoint = without(after_input, joined(phases.get("ckpt", []), begin, end))
        host = without(after_checkpoint, joined(self.waiting, begin, end))
        unseen = without(host, joined(self.at_work, begin, end))
        return {
            "step": step["step"],
            "duration_ns": end - begin,
            "compute_ns": length(compute),
            "communication_ns": length(exposed),
            "input_ns": length(nothing) - length(after_input),
            "host_ns": length(host),
            "checkpoint_ns": length(after_input) - length(after_checkpoint),
            "idle_ns": length(after_checkpoint) - length(host),
            "host_seen_ns": length(host) - length(unseen),
            "overlapped_ns": length(nccl) - length(exposed),
        }


def gpu_starts(calls: list[str]) -> list[int]:
    """When NCCL's operations started on the GPU, on the host's clock by the smallest delay of a callback."""
    first: dict[str, int] = {}
    operation_of: dict[str, str] = {}
    offset = None
    for line in calls:
        fields = line.split(" ")
        if fields[0] == "S" and fields[5] == "64":
            time, gpu = int(fields[1]), int(fields[9])
            operation_of[fields[4]] = fields[6]
            first[fields[6]] = min(first.get(fields[6], gpu), gpu)
        elif fields[0] == "R" and fields[4] == "22" and fields[3] in operation_of:
            time, gpu = int(fields[1]), int(fields[5])
        else:
            continue
        offset = time - gpu if offset is None else min(offset, time - gpu)
    return sorted(gpu + offset for gpu in first.values())


def truth_of(folder: pathlib.Path, rank: int) -> dict:
    calls = (folder / f"rank{rank}.calls").read_text().splitlines()
    _, _, _, _, _, realtime_ns, monotonic_ns = calls[0].split(" ")
    trace = Trace(folder / f"kineto_rank{rank}.json", int(realtime_ns) - int(monotonic_ns))
    starts = gpu_starts(calls)
    distances = []
    for begin, _ in trace.nccl:
        at = bisect.bisect_left(starts, begin)
        distances.append(min(abs(begin - start) for start in starts[max(0, at - 1):at + 1]))
    begin, end = trace.covered
    steps = json.loads((folder / f"steps_rank{rank}.json").read_text())
    return {
        "rank": rank,
        "clock_error_us": round(statistics.median(distances) / 1000, 1),
        "steps": [trace.split(step) for step in steps if begin <= step["t0"] and step["t0"] + step["total"] <= end],
    }


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: kineto_truth.py FOLDER > kineto_truth.json", file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    ranks = sorted(int(match[1]) for path in folder.iterdir()
                   if (match := re.fullmatch(r"kineto_rank(\d+)\.json", path.name)))
    if not ranks:
        print(f"{folder}: no kineto_rankR.json", file=sys.stderr)
        return 1
    told = [truth_of(folder, rank) for rank in ranks]
    for rank in told:
        for step in rank["steps"]:
            parts = sum(step[f"{part}_ns"] for part in
                        ("compute", "communication", "input", "host", "checkpoint", "idle"))
            assert parts == step["duration_ns"], (rank["rank"], step)
    lines = ",\n".join(
        json.dumps({"rank": rank["rank"], "clock_error_us": rank["clock_error_us"]})[:-1]
        + ', "steps": [\n  ' + ",\n  ".join(json.dumps(step) for step in rank["steps"]) + "]}"
        for rank in told)
    print(f'{{"ranks": [\n{lines}]}}')
    return 0


if __name__ == "__main__":
    sys.exit(main())
