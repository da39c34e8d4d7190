#!/usr/bin/env python3
"""Real NCCL jobs on one GPU, each rank its own "host", under the real plugin and agent. For a machine with an NVIDIA GPU,
PyTorch and a C++ compiler; nothing is installed. Everything a run leaves is in OUT, the flight recorders too: take a folder in
/dev/shm, where they are in use.

    run.py OUT [CASE ...]                     recordings: what the agent exported, one folder a case (all without names)
    run.py OUT overhead --ranks 4 --pairs 6   step time with and without plugin and agent
    run.py OUT full-node                      the same on a node whose cores are all taken: DDP, FSDP2 and pipeline, 8 ranks
    run.py OUT live ddp                       faults injected while a server watches: what it names, after how long.
                                              Needs build/carry, made by bundle.sh where the server can be built
    run.py OUT kernels [CASE ...]             faults inside a rank's kernels or Python, profiled while it trains: kernel, reason, line named,
                                              and what a profile costs. Needs build/carry
    run.py OUT outside [CASE ...]             recordings of faults from outside: a slow wire from the first step, busy cores, stops
    run.py OUT live-outside [CASE ...]        faults from outside while a server watches a full node: what it names, after how long. Needs build/carry
    run.py OUT ras                            what NCCL's RAS service says of a healthy, a stuck and a broken job
    run.py OUT masks [--seconds N]            what asking NCCL costs, by message size, beside no plugin
    run.py OUT chain [--second PATH]          our plugin with a second one behind it
    run.py OUT node [--parts calls,...]       what reading the GPU costs, beside nvidia-smi; agreement of values; a real XID
    run.py OUT hook [--parts overhead,...]    the Python hook: its cost, its phases against the profiler, lockstep run. Needs build/carry
    run.py OUT flight                         dumps of PyTorch's Flight Recorder of stuck jobs, asked for through its pipes
    run.py OUT graph                          CUDA graphs, all-to-all and one-byte types: export, recorders and callbacks
"""
import pathlib
import statistics
import sys
import time

import flight
import full_node
import hook
import kernels
import live
import live_outside
import masks
import node
import outside
import overhead
import plugins
import ras
from programs import Job, fresh, run_all, start_agent

# name: job, case, rank whose sockets are slow (or None), whether it ends by itself
CASES = {
    "ddp_healthy": ("ddp", "healthy", None, True),
    "ddp_input_r3": ("ddp", "input:3", None, True),
    "ddp_host_r1": ("ddp", "host:1", None, True),
    "ddp_gpu_r0": ("ddp", "gpu:0:0.5", None, True),
    "ddp_rarehost_r2": ("ddp", "rarehost:2", None, True),
    "ddp_packing": ("ddp", "packing", None, True),
    "ddp_gc": ("ddp", "gc", None, True),
    "ddp_checkpoint": ("ddp", "checkpoint", None, True),
    "ddp_eval": ("ddp", "eval", None, True),
    "ddp_warmup_r2": ("ddp", "warmup:2", None, True),
    "ddp_logging_r0": ("ddp", "logging:0", None, True),
    "ddp_link_r2": ("ddp", "healthy", 2, True),
    "ddp_dead_r2": ("ddp", "dead:2", None, False),
    "hyb_healthy": ("hyb", "healthy", None, True),
    "hyb_stage": ("hyb", "stage", None, True),
    "hyb_packing": ("hyb", "packing", None, True),
    "hyb_host_r3": ("hyb", "host:3", None, True),
    "hyb_gpu_r6": ("hyb", "gpu:6", None, True),
    "hyb_pulse_r3": ("hyb", "pulse:3", None, True),
    "hyb_link_r5": ("hyb", "healthy", 5, True),
    "hyb_missing_r4": ("hyb", "missing:4", None, False),
    "ddp_pulse_r1": ("ddp", "pulse:1", None, True),
    "ddp_silentsave": ("ddp", "silentsave", None, True),
    "ddp_missing_r3": ("ddp", "missing:3", None, False),
    "hyb_input_r2": ("hyb", "input:2", None, True),
    "hyb_rarehost_r7": ("hyb", "rarehost:7", None, True),
    "hyb_gc": ("hyb", "gc", None, True),
    "hyb_checkpoint": ("hyb", "checkpoint", None, True),
    "hyb_eval": ("hyb", "eval", None, True),
    "hyb_warmup_r5": ("hyb", "warmup:5", None, True),
    "hyb_link_r2": ("hyb", "healthy", 2, True),
    "hyb_dead_r1": ("hyb", "dead:1", None, False),
    "ddp_mismatch_r2": ("ddp", "mismatch:2", None, False),
    "ddp_sizes_r1": ("ddp", "sizes:1", None, False),
    "hyb_mismatch_r6": ("hyb", "mismatch:6", None, False),
    "hyb_sizes_r1": ("hyb", "sizes:1", None, False),
}


def run_case(name, out):
    job, case, slow_rank, ends = CASES[name]
    folder = fresh(out / name)
    began = time.monotonic()
    agent = start_agent(folder, ["--export", f"file:{folder}/export"])
    ranks = Job(name, folder, job, case, slow_rank=slow_rank)
    try:
        codes = ranks.wait(70 if ends else 45)
        time.sleep(0.5)  # a round of the agent
        print(f"  agent: {agent.cpu_s():.2f} s CPU in {time.monotonic() - began:.1f} s", flush=True)
        agent.stop()
    finally:
        ranks.kill()
        agent.stop()
    times = [value for rank in ranks.step_ms() for value in rank[5:]]
    typical = statistics.median(times) if times else float("nan")
    print(f"{name}: exit {codes}, step {typical:.1f} ms, {time.monotonic() - began:.1f} s", flush=True)


def record(out, names):
    run_all(names, CASES, lambda name: run_case(name, out))


COMMANDS = {"flight": flight.main, "full-node": full_node.main, "hook": hook.main, "kernels": kernels.main, "node": node.run, "outside": outside.main, "overhead": overhead.main, "live": live.main, "live-outside": live_outside.main, "ras": ras.main, "masks": masks.main, "chain": plugins.chain, "graph": plugins.graph}


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        raise SystemExit(__doc__)
    out = pathlib.Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    words = sys.argv[2:]
    command, arguments = (COMMANDS[words[0]], words[1:]) if words and words[0] in COMMANDS else (record, words)
    command(out, arguments)


if __name__ == "__main__":
    main()
