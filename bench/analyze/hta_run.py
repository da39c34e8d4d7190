"""What HTA says of traces, and what it costs: run by compare.py with HTA's own Python. Arguments: traces. Prints one JSON object."""
import json
import logging
import os
import resource
import sys
import time
import warnings

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
import_began = time.perf_counter()
from hta.trace_analysis import TraceAnalysis  # noqa: E402

imported = time.perf_counter()


def cpu():
    return sum(getattr(resource.getrusage(who), field) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) for field in ("ru_utime", "ru_stime"))


def rows(frame):
    if frame is not None and frame.columns.nlevels > 1:
        frame.columns = [(one or other) if not (one and other) else other for one, other in frame.columns]
    return json.loads(frame.to_json(orient="records")) if frame is not None else None


def main():
    files = {rank: path for rank, path in enumerate(sys.argv[1:])}
    out, cpu_before, began = {"import_s": imported - import_began}, cpu(), time.perf_counter()
    analysis = TraceAnalysis(trace_files=files, trace_dir="", include_last_profiler_step=True)
    out["load_s"] = time.perf_counter() - began
    ranks = list(files)
    steps = {
        "temporal": lambda: rows(analysis.get_temporal_breakdown(visualize=False)),
        "overlap": lambda: rows(analysis.get_comm_comp_overlap(visualize=False)),
        "kernels": lambda: [rows(frame) for frame in analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000, include_memory_kernels=True)],
        "idle": lambda: rows(analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)[0]),
        "launches": lambda: {rank: len(frame) for rank, frame in analysis.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False).items()},
        "queue": lambda: rows(analysis.get_queue_length_summary(ranks=ranks).reset_index()),
        "bandwidth": lambda: rows(analysis.get_memory_bw_summary(ranks=ranks).reset_index()),
    }
    for name, run in steps.items():
        at = time.perf_counter()
        try:
            out[name] = run()
        except Exception as error:  # some analyses do not take some traces
            out[name] = None
            out.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"[:120]
        out.setdefault("seconds", {})[name] = time.perf_counter() - at
    out["all_s"] = time.perf_counter() - began
    out["cpu_s"] = cpu() - cpu_before
    out["rss_bytes"] = 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps(out))


main()
