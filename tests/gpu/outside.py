"""Faults that come from outside the program, into jobs that know nothing of them: what the agent exported, one folder a case.

Eight ranks on two cores each, so that the node is full. `fsdp` is an FSDP2 transformer as anybody writes it (full_node_rank.py's), under the
hook of `lockstep run`; `hyb` is train.py's tensor x data x pipeline. A fault begins FAULT_AFTER_S after the first rank said that it
trains, a slow wire with the program. truth.json has what was done, to whom, from when to when."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from hook import hook_environment
from programs import Job, fresh, on_cores, restart_mps, run_all, start_agent

HERE = pathlib.Path(__file__).resolve().parent
WORLD = 8
FAULT_AFTER_S = 8
STOP_S, STOP_EVERY_S = 0.15, 0.33

# name: job, what is done from outside: "cpu" (busy processes on the rank's cores) or "stop" (stopped again and again) or None, its rank;
# train.py's case; the rank whose wire is slow from the beginning and its bytes a second; seconds of training.
CASES = {
    "fsdp_healthy": {"job": "fsdp", "seconds": 20},
    "fsdp_link_first_r5": {"job": "fsdp", "slow_wire": 5, "bytes_per_s": 60_000_000, "seconds": 40},
    "fsdp_cpu_r3": {"job": "fsdp", "outside": "cpu", "rank": 3, "seconds": 30},
    "fsdp_stop_r6": {"job": "fsdp", "outside": "stop", "rank": 6, "seconds": 24},
    "hyb_stop_r2": {"job": "hyb", "outside": "stop", "rank": 2, "seconds": 24},
    "fsdp_link_first_r2": {"job": "fsdp", "slow_wire": 2, "bytes_per_s": 120_000_000, "seconds": 25},
    "fsdp_cpu_r6": {"job": "fsdp", "outside": "cpu", "rank": 6, "seconds": 25},
    "hyb_stop_r5": {"job": "hyb", "outside": "stop", "rank": 5, "seconds": 22},
    "hyb_gpu_r3_and_link_r4": {"job": "hyb", "case": "gpu:3:2", "slow_wire": 4, "bytes_per_s": 150_000_000, "seconds": 20},
    "hyb_gpu_r6_and_link_r1": {"job": "hyb", "case": "gpu:6:2", "slow_wire": 1, "bytes_per_s": 150_000_000, "seconds": 24},
}


def train(options):
    """One rank: FSDP2 for so many seconds, by the clock of rank 0."""
    import torch
    import torch.distributed as dist
    from full_node_rank import data_parallel

    device = torch.device("cpu") if options.cpu else torch.device("cuda", 0)
    torch.set_num_threads(1)
    if not options.cpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.cpu else "nccl")
    torch.manual_seed(1 + dist.get_rank())
    sizes = argparse.Namespace(layers=8, width=512, vocabulary=4096, length=256, batch=8)
    step = data_parallel(sizes, device, fsdp=not options.cpu)
    until = None
    for number in range(100_000):
        step()
        if until is None:
            until = time.monotonic() + options.seconds
            print("trains", flush=True)
        if number % 5 == 4:
            over = torch.tensor([float(time.monotonic() > until)], device=device)
            dist.broadcast(over, 0)
            if over.item():
                break
    dist.destroy_process_group()


class Fault:
    """What is done from outside, until stop()."""

    def __init__(self, kind, pid, cores):
        self.kind, self.pid, self.busy = kind, pid, []
        if kind == "cpu":
            self.busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=on_cores(cores)) for _ in range(8)]

    def go_on(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.kind == "stop":
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(STOP_S)
                os.kill(self.pid, signal.SIGCONT)
            time.sleep(STOP_EVERY_S - STOP_S)

    def stop(self):
        for one in self.busy:
            one.kill()
            one.wait()


def run_case(name, out):
    case = CASES[name]
    restart_mps()
    folder = fresh(out / name)
    cores = sorted(os.sched_getaffinity(0))
    own = [cores[2 * rank : 2 * rank + 2] for rank in range(WORLD)] if len(cores) >= 2 * WORLD else None
    agent = start_agent(folder, ["--export", f"file:{folder}/export"])
    command = [sys.executable, HERE / "outside.py", "--seconds", case["seconds"]] if case["job"] == "fsdp" else None
    environment = {"SLOW_SOCKET_BYTES_PER_S": str(case.get("bytes_per_s", 0)), "PYTHONPATH": str(HERE)}
    if case["job"] == "fsdp":
        environment = {**environment, **hook_environment()}
        environment["PYTHONPATH"] += f":{HERE}"
    ranks = Job(name, folder, "hyb", case.get("case", "healthy"), steps=10_000, world=WORLD, slow_rank=case.get("slow_wire"), cores=own,
                environment=environment, command=command)
    truth = dict(case, name=name)
    try:
        ranks.wait(60, until=lambda: "trains" in (folder / "rank0.log").read_text() if command else bool(list((folder / "recorders").glob("*"))))
        time.sleep(FAULT_AFTER_S)
        if case.get("outside"):
            fault = Fault(case["outside"], ranks.ranks[case["rank"]].pid, own and own[case["rank"]])
            truth["began_unix_ns"] = time.time_ns()
            fault.go_on(case["seconds"] - FAULT_AFTER_S - 2)
            truth["ended_unix_ns"] = time.time_ns()
            fault.stop()
        else:
            ranks.wait(case["seconds"] - FAULT_AFTER_S)
        codes = ranks.wait(20 if command else 1)
        print(f"{name}: exit {codes}", flush=True)
        if any(codes):
            print((folder / "rank0.log").read_text()[-800:], flush=True)
    finally:
        time.sleep(1)
        agent.stop()  # first, so that the end of the run is no part of the recording
        ranks.kill()
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def main(out, arguments):
    run_all(arguments, CASES, lambda name: run_case(name, out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--cpu", action="store_true")
    train(parser.parse_args())
