"""What hook.py computes: nothing here starts anything, so that all of it is tested without a GPU.

Phases and split of a step as Lockstep tells them are held against the profiler's trace of the same step, in the window that Lockstep
tells for it, on Unix time. Truth of the phases, from the trace alone:
  input       the annotation that torch puts around a DataLoader's __next__
  forward     from there to the call of backward
  backward    the script's annotation around its call; `engine`: from the first to the last operation of autograd and DDP in the step
  optimizer   the annotation that torch puts around an optimizer's step
  checkpoint  the script's annotation around torch.save
Truth of the split is docs/guide/where-the-time-goes.md word for word, with those phases: compute is the union of the rank's kernels, copies and
fills that are not NCCL's, communication that of NCCL's without compute; where neither is, input, checkpoint, host (another phase), idle (none)."""
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from kineto_truth import Trace, joined, length, without  # noqa: E402

from overhead import mean_and_half_width  # noqa: E402

PHASES = ("input", "forward", "backward", "optimizer", "checkpoint")
PARTS = ("compute", "communication", "input", "host", "checkpoint", "idle")
TURNS = 4  # on, off, off, on: hook_rank.ON
SKIPPED_STEPS = 20


# Cost


def median_and_interval(values):
    """The median, and what it lies between with 95 % confidence (order statistics: no shape of the distribution is assumed)."""
    ordered = sorted(values)
    spread = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - spread))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + spread))
    return statistics.median(ordered), ordered[low], ordered[high]


def difference_of(differences):
    median, low, high = median_and_interval(differences)
    mean, half = mean_and_half_width(differences)
    return {"count": len(differences), "median": median, "low": low, "high": high, "mean": mean, "half_width": half}


def turns_of(step_ms):
    """step_ms: one list per rank of a job that had the hook on, off, off, on, step by step. Each couple of neighbours, one on and one off,
    gives a difference; two neighbours that had it alike give the method's own error, with changing sign."""
    steps = [statistics.fmean(one) for one in zip(*step_ms)][SKIPPED_STEPS:]
    steps = steps[: len(steps) // TURNS * TURNS]
    if len(steps) < 2 * TURNS:
        raise RuntimeError(f"{len(steps)} steps are too few to compare")
    on_off, alike, on, off = [], [], [], []
    for at in range(0, len(steps), TURNS):
        a, b, c, d = steps[at : at + TURNS]
        on += [a, d]
        off += [b, c]
        on_off += [a / b - 1, d / c - 1]
        alike.append(b / c - 1)
        if at + TURNS < len(steps):
            alike.append(steps[at + TURNS] / d - 1)
    return {"on_ms": statistics.median(on), "off_ms": statistics.median(off), "difference": difference_of(on_off), "null": difference_of(alike)}


def counted_of(ranks, skipped_blocks=2):
    """ranks: what hook_rank.py counted in each. Microseconds inside the hook per step, blocks of steps apart. Elapsed time is what the step loses; CPU time
    (of the thread, with all the clocks' own) is without what the machine did to the thread meanwhile."""
    per_rank, blocks, calls, cpu, entry_points = [], [], [], [], {}
    for rank in ranks:
        readings = rank["readings"][skipped_blocks:]
        own = []
        for before, after in zip(readings, readings[1:]):
            steps = after["steps"] - before["steps"]
            if steps > 0:
                own.append((after["ns"] - before["ns"]) / steps / 1e3)
                calls.append((after["calls"] - before["calls"]) / steps)
                cpu.append((after["cpu_ns"] - before["cpu_ns"]) / steps / 1e3)
                for name, ns in after["entry_points"].items():
                    entry_points.setdefault(name, []).append((ns - before["entry_points"].get(name, 0)) / steps / 1e3)
        if not own:
            raise RuntimeError("a rank counted no steps: the hook was not on")
        per_rank.append(statistics.median(own))
        blocks += own
    calls_typical = statistics.median(calls)
    return {"us_per_step": statistics.median(per_rank), "us_slowest_rank": max(per_rank), "us_worst_block": max(blocks), "us_best_block": min(blocks),
            "cpu_us_per_step": statistics.median(cpu), "entry_points_us": {name: statistics.median(values) for name, values in entry_points.items()}, "blocks": len(blocks),
            "calls_per_step": calls_typical, "clock_us_per_step": calls_typical * statistics.median(rank["timer_ns"] for rank in ranks) / 1e3}


# Phases and split


def both(spans, what):
    """What is in both; each sorted and joined."""
    return without(spans, without(spans, what))


def named(trace, prefix):
    return [span for name, spans in trace.annotations.items() if name.startswith(prefix) for span in spans]


def phase_truth(trace, begin, end):
    """Spans of each phase in the window."""
    def cut(spans):
        return joined(spans, begin, end)

    truth = {"input": cut(named(trace, "enumerate(DataLoader)#")), "optimizer": cut(named(trace, "Optimizer.step#")), "checkpoint": cut(named(trace, "save")),
             "backward": cut(trace.annotations.get("backward", []))}
    engine = cut(trace.backward)
    truth["engine"] = [(engine[0][0], engine[-1][1])] if engine else []
    forward = []
    for backward_begin, _ in truth["backward"]:
        fetched = [last for _, last in truth["input"] if last <= backward_begin]
        if fetched:
            forward.append((max(fetched), backward_begin))
    truth["forward"] = cut(forward)
    return truth


def split_truth(trace, begin, end, phases):
    compute = joined(trace.compute, begin, end)
    nccl = joined(trace.nccl, begin, end)
    exposed = without(nccl, compute)
    nothing = without(without([(begin, end)], compute), nccl)
    after_input = without(nothing, phases["input"])
    after_checkpoint = without(after_input, phases["checkpoint"])
    other = joined(phases["forward"] + phases["backward"] + phases["optimizer"], begin, end)
    host = both(after_checkpoint, other)
    spans = {"compute": compute, "communication": exposed, "host": host}
    return {**{name: length(value) for name, value in spans.items()}, "input": length(nothing) - length(after_input),
            "checkpoint": length(after_input) - length(after_checkpoint), "idle": length(after_checkpoint) - length(host)}


def window(step):
    begin = step["start_unix_ns"]
    return begin, begin + round(step["duration_ms"] * 1e6)


def compared(rank, trace, steps):
    """One entry for each of the reported steps that the trace covers whole: ms of truth and reported by phase and by part. parts: None where
    Lockstep reports no split. end_us: from the end of the optimizer's step in the trace to the end of the step as reported."""
    out = []
    ends = [last for _, last in named(trace, "Optimizer.step#")]
    if trace.covered is None or not ends:
        return out
    for step in steps:
        begin, end = window(step)
        if begin < trace.covered[0] or end > trace.covered[1]:
            continue
        truth = phase_truth(trace, begin, end)
        phases = {name: (length(truth[name]) / 1e6, step["phases_ms"].get(name, 0.0)) for name in PHASES}
        phases["engine"] = (length(truth["engine"]) / 1e6, step["phases_ms"].get("backward", 0.0))
        parts = None
        if step["parts_ms"] is not None:
            split = split_truth(trace, begin, end, truth)
            parts = {name: (split[name] / 1e6, step["parts_ms"][name]) for name in PARTS}
        nearest = min(ends, key=lambda at: abs(at - end))
        out.append({"rank": rank, "step": step["step"], "duration_ms": step["duration_ms"], "end_us": (end - nearest) / 1e3, "phases": phases, "parts": parts})
    return out


def rows_of(entries, kind):
    """kind: "phases" or "parts". Median and worst difference of each, in ms and in % of the step it was found in."""
    entries = [entry for entry in entries if entry[kind] is not None]
    rows = []
    for name in entries[0][kind] if entries else ():
        truth = [entry[kind][name][0] for entry in entries]
        reported = [entry[kind][name][1] for entry in entries]
        off_ms = [abs(a - b) for a, b in zip(truth, reported)]
        off_percent = [100 * off / entry["duration_ms"] for off, entry in zip(off_ms, entries)]
        worst = max(range(len(entries)), key=lambda at: off_percent[at])
        rows.append({"name": name, "truth_ms": statistics.median(truth), "reported_ms": statistics.median(reported), "truth_most_ms": max(truth), "median_ms": statistics.median(off_ms),
                     "worst_ms": max(off_ms), "median_percent": statistics.median(off_percent), "worst_percent": off_percent[worst],
                     "worst_at": f"rank {entries[worst]['rank']} step {entries[worst]['step']}"})
    return rows


def table(rows, title):
    lines = [f"| {title} | truth, ms (median) | reported, ms (median) | truth, ms (most) | difference, ms (median) | worst | difference, % of the step (median) | worst | worst at |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row['name']} | {row['truth_ms']:.2f} | {row['reported_ms']:.2f} | {row['truth_most_ms']:.2f} | {row['median_ms']:.3f} | {row['worst_ms']:.3f}"
                     f" | {row['median_percent']:.2f} % | {row['worst_percent']:.2f} % | {row['worst_at']} |")
    return lines


def read_trace(path):
    """On Unix time, as steps at the server are."""
    try:
        return Trace(path, 0)
    except (KeyError, TypeError, ValueError) as problem:
        raise RuntimeError(f"{path.name} is no trace of Kineto's ({problem!r}): is this PyTorch built with it?") from problem
