"""Faults that come from outside the program, into jobs that know nothing of them: what the agent exported, one folder a case.

Eight ranks on two cores each, so that the node is full. `fsdp` is an FSDP2 transformer and `pipe` a pipeline by torch's own schedule, as
anybody writes them (full_node_rank.py), under the hook of `lockstep run`; `hyb` is train.py's tensor x data x pipeline. A fault begins
FAULT_AFTER_S after the first rank said that it trains, a slow wire and a small share of the GPU with the program, unless it says "wire".
Healthy jobs are odd now and then: they compile, evaluate, write checkpoints, have sequences of different lengths.
truth.json has what was done, to whom, from when to when."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from hook import hook_environment
from other_programs import PROGRAMS
from programs import Job, fresh, on_cores, restart_mps, run_all, start_agent

HERE = pathlib.Path(__file__).resolve().parent
WORLD = 8
FAULT_AFTER_S = 8
STOP_S, STOP_EVERY_S = 0.15, 0.33

# name: job; what is done from outside (Fault says how) and to which rank; train.py's case; the rank whose wire is slow from the beginning
# and its bytes a second; the rank that gets few of the GPU's processors and how many percent; what a healthy job does besides; seconds of
# training.
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
    "fsdp_wire_r1": {"job": "fsdp", "outside": "wire", "rank": 1, "bytes_per_s": 80_000_000, "seconds": 28},
    "fsdp_wire_r6": {"job": "fsdp", "outside": "wire", "rank": 6, "bytes_per_s": 200_000_000, "seconds": 26},
    "pipe_wire_r2": {"job": "pipe", "outside": "wire", "rank": 2, "bytes_per_s": 40_000_000, "seconds": 28},
    "pipe_wire_r5": {"job": "pipe", "outside": "wire", "rank": 5, "bytes_per_s": 40_000_000, "seconds": 28},
    "fsdp_narrow_r4": {"job": "fsdp", "outside": "narrow", "rank": 4, "seconds": 25},
    "pipe_narrow_r5": {"job": "pipe", "outside": "narrow", "rank": 5, "seconds": 25},
    "fsdp_nice_r5": {"job": "fsdp", "outside": "nice", "rank": 5, "seconds": 25},
    "pipe_cpu_r3": {"job": "pipe", "outside": "cpu", "rank": 3, "seconds": 25},
    "hyb_cpu_r4": {"job": "hyb", "outside": "cpu", "rank": 4, "seconds": 22},
    "fsdp_freeze_r7": {"job": "fsdp", "outside": "freeze", "rank": 7, "seconds": 28},
    "pipe_freeze_r1": {"job": "pipe", "outside": "freeze", "rank": 1, "seconds": 28},
    "fsdp_kill_r2": {"job": "fsdp", "outside": "kill", "rank": 2, "seconds": 18},
    "pipe_kill_r6": {"job": "pipe", "outside": "kill", "rank": 6, "seconds": 18},
    "fsdp_share_r3": {"job": "fsdp", "share": 3, "percent": 4, "seconds": 20},
    "pipe_share_r4": {"job": "pipe", "share": 4, "percent": 4, "seconds": 20},
    "fsdp_worker_r2": {"job": "fsdp", "odd": "loader", "outside": "worker", "rank": 2, "seconds": 25},
    "fsdp_worker_r5": {"job": "fsdp", "odd": "loader", "outside": "worker", "rank": 5, "seconds": 25},
    "pipe_stop_r6": {"job": "pipe", "outside": "stop", "rank": 6, "seconds": 22},
    "fsdp_stop_r0": {"job": "fsdp", "outside": "stop", "rank": 0, "seconds": 22},
    "pipe_healthy": {"job": "pipe", "seconds": 40},
    "fsdp_compile": {"job": "fsdp", "odd": "compile", "seconds": 40},
    "fsdp_evaluate": {"job": "fsdp", "odd": "evaluate", "seconds": 40},
    "fsdp_checkpoint": {"job": "fsdp", "odd": "checkpoint", "seconds": 40},
    "fsdp_lengths": {"job": "fsdp", "odd": "lengths", "seconds": 40},
    "fsdp_loader": {"job": "fsdp", "odd": "loader", "seconds": 30},
}


def batches_from_a_worker(sizes):
    """A DataLoader whose one worker takes some 25 ms of its core for a batch."""
    import torch

    class Tokens(torch.utils.data.IterableDataset):
        def __iter__(self):
            while True:
                until = time.thread_time() + 0.025
                while time.thread_time() < until:
                    pass
                yield torch.randint(sizes.vocabulary, (sizes.batch, sizes.length + 1))

    return iter(torch.utils.data.DataLoader(Tokens(), batch_size=None, num_workers=1, prefetch_factor=2))


def batches_from_a_pipe(sizes):
    """A DataLoader in the rank's own process that reads what comes out of feed<rank>, as from a file far away."""
    import torch

    class Fed(torch.utils.data.IterableDataset):
        def __iter__(self):
            shape = (sizes.batch, sizes.length + 1)
            with open(f"feed{os.environ['RANK']}", "rb") as feed:
                while True:
                    yield torch.frombuffer(bytearray(feed.read(4 * shape[0] * shape[1])), dtype=torch.int32).reshape(shape).long() % sizes.vocabulary

    return iter(torch.utils.data.DataLoader(Fed(), batch_size=None))


def sharded(sizes, device, odd):
    """FSDP2, and what else such jobs do; one step a call."""
    import torch
    import torch.distributed as dist
    from full_node_rank import Model, loss_of
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import fully_shard

    model = Model(sizes).to(device)
    for layer in model.layers:
        if odd == "compile":
            layer.compile()
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    sources = {"loader": batches_from_a_worker, "feed": batches_from_a_pipe}
    batches = sources[odd](sizes) if odd in sources else None
    done = 0

    def loss_now():
        length = 32 * int(torch.randint(2, sizes.length // 32 + 1, ())) if odd == "lengths" else sizes.length
        tokens = next(batches).to(device) if batches is not None else torch.randint(sizes.vocabulary, (sizes.batch, length + 1), device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            return loss_of(model(tokens[:, :-1]), tokens[:, 1:])

    def step():
        nonlocal done
        loss = loss_now()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        done += 1
        if odd == "evaluate" and done % 60 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(20):
                    loss_now()
            model.train()
        if odd == "checkpoint" and done % 60 == 0:
            state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
            if dist.get_rank() == 0:
                torch.save(state, "checkpoint.pt")

    return step


def train(options):
    """One rank, for so many seconds by the clock of rank 0."""
    import torch
    import torch.distributed as dist
    from full_node_rank import data_parallel, pipeline

    device = torch.device("cpu") if options.cpu else torch.device("cuda", 0)
    torch.set_num_threads(1)
    if not options.cpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.cpu else "nccl")
    torch.manual_seed(1 + dist.get_rank())
    sizes = argparse.Namespace(layers=8, width=512, vocabulary=4096, length=256, batch=8, micro_batch=2)
    if options.job in PROGRAMS:
        step = PROGRAMS[options.job](sizes, device)
    elif options.job == "pipe":
        step = pipeline(sizes, device)
    else:
        step = data_parallel(sizes, device, fsdp=False) if options.cpu else sharded(sizes, device, options.odd)
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


def workers_of(pid):
    """Its forks: what runs the same program as it does."""
    own = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if pathlib.Path(f"/proc/{child}/cmdline").read_bytes() == own]


class Feeds:
    """Writes to feed<rank> whatever each rank can read, and to one of them little while the file feed_is_slow is there."""

    PROGRAM = """
import os, sys, time
path, slow = sys.argv[1:]
with open(path, "wb", buffering=0) as feed:
    while True:
        feed.write(os.urandom(2048))
        if slow and os.path.exists(slow):
            time.sleep(0.05)  # the fault
"""

    def __init__(self, folder, slow_rank):
        self.feeders = []
        for rank in range(WORLD):
            os.mkfifo(folder / f"feed{rank}")
            slow = folder / "feed_is_slow" if rank == slow_rank else ""
            self.feeders.append(subprocess.Popen([sys.executable, "-c", self.PROGRAM, folder / f"feed{rank}", slow], stderr=subprocess.DEVNULL))

    def stop(self):
        for feeder in self.feeders:
            feeder.kill()
            feeder.wait()


class Fault:
    """What is done from outside, until stop(). Busy processes on the rank's cores (cpu), the same while the rank gives way to everybody
    (nice), all its threads on one core of these (narrow), NCCL's threads of it alone there
    (proxy), busy processes where its loader's worker is (worker); stopped again and again
    (stop), for good (freeze); killed (kill); its sockets slow (wire); what it reads its batches from slow (feed)."""

    def __init__(self, kind, pid, cores, when):
        self.kind, self.pid, self.when, self.busy = kind, pid, when, []
        if kind in ("cpu", "nice"):
            self.be_busy(cores)
        if kind == "nice":
            subprocess.run(["renice", "-n", "15", "-p", *self.tasks(pid)], check=False, stdout=subprocess.DEVNULL)
        if kind == "narrow":
            for task in self.tasks(pid):
                os.sched_setaffinity(int(task), cores[:1])
            self.be_busy(cores[:1], 1)
        if kind == "proxy":
            for task in self.tasks(pid):
                if pathlib.Path(f"/proc/{pid}/task/{task}/comm").read_text().startswith("NCCL"):
                    os.sched_setaffinity(int(task), cores[:1])
            self.be_busy(cores[:1])
        if kind == "worker":
            for worker in workers_of(pid):
                for task in self.tasks(worker):
                    os.sched_setaffinity(int(task), cores[-1:])
            self.be_busy(cores[-1:])
        if kind in ("wire", "feed"):
            when.touch()
        if kind in ("freeze", "kill"):
            os.kill(pid, signal.SIGSTOP if kind == "freeze" else signal.SIGKILL)

    @staticmethod
    def tasks(pid):
        return os.listdir(f"/proc/{pid}/task")

    def be_busy(self, cores, processes=8):
        self.busy += [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=on_cores(cores)) for _ in range(processes)]

    def go_on(self, seconds, until):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if self.kind == "stop":
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(STOP_S)  # the fault
                os.kill(self.pid, signal.SIGCONT)
            time.sleep(STOP_EVERY_S - STOP_S)  # and its pace

    def stop(self):
        for one in self.busy:
            one.kill()
            one.wait()
        self.when.unlink(missing_ok=True)


def start(name, case, folder, own):
    command = None
    if case["job"] != "hyb":
        command = [sys.executable, HERE / "outside.py", "--job", case["job"], "--odd", case.get("odd", ""), "--seconds", case["seconds"]]
    environment = {"SLOW_SOCKET_BYTES_PER_S": str(case.get("bytes_per_s", 0)), "PYTHONPATH": str(HERE)}
    if command:
        environment = {**environment, **hook_environment()}
        environment["PYTHONPATH"] += f":{HERE}"
    later = case.get("outside") == "wire"
    few = {case["share"]: {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(case["percent"])}} if "share" in case else {}
    if later:
        environment["SLOW_SOCKET_WHEN"] = str(folder / "wire_is_slow")
    return Job(name, folder, "hyb", case.get("case", "healthy"), steps=10_000, world=case.get("world", WORLD), slow_rank=case["rank"] if later else case.get("slow_wire"),
               cores=own, environment=environment, rank_environment=few, command=command)


def play(name, case, folder, at_end, until=lambda: False):
    """One job from its start to its end or until() is true, its fault in it: when the fault began (the job's first step where it has
    been there since), and the exit codes. at_end() is called before what is left of the job is killed."""
    cores = sorted(os.sched_getaffinity(0))
    world = case.get("world", WORLD)
    cores = cores[: 2 * world]
    own = [cores[2 * rank : 2 * rank + 2] for rank in range(world)] if len(cores) >= 2 * world else None
    feeds = Feeds(folder, case.get("rank")) if case.get("odd") == "feed" else None
    ranks = start(name, case, folder, own)
    trains = lambda: "trains" in (folder / "rank0.log").read_text() if case["job"] != "hyb" else bool(list((folder / "recorders").glob("*")))
    truth = dict(case, name=name)
    try:
        ranks.wait(60, until=trains)
        began_ns = time.time_ns()
        time.sleep(FAULT_AFTER_S)  # the healthy part
        if case.get("outside"):
            fault = Fault(case["outside"], ranks.ranks[case["rank"]].pid, own and own[case["rank"]], folder / f"{case['outside']}_is_slow")
            began_ns = truth["began_unix_ns"] = time.time_ns()
            fault.go_on(case["seconds"] - FAULT_AFTER_S - 2, until)
            truth["ended_unix_ns"] = time.time_ns()
            fault.stop()
        else:
            ranks.wait(case["seconds"] - FAULT_AFTER_S, until)
        ends = case["job"] != "hyb" and case.get("outside") not in ("freeze", "kill") and not until()
        codes = ranks.wait(15 if ends else 1)
        print(f"{name}: exit {codes}", flush=True)
        if any(codes):
            print((folder / "rank0.log").read_text()[-800:], flush=True)
        return began_ns, codes
    finally:
        (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        at_end()
        ranks.kill()
        if feeds:
            feeds.stop()
        (folder / "checkpoint.pt").unlink(missing_ok=True)


def run_case(name, out):
    restart_mps()
    folder = fresh(out / name)
    agent = start_agent(folder, ["--export", f"file:{folder}/export"])

    def at_end():
        time.sleep(1)  # a round of the agent
        agent.stop()  # so that the end of the run is no part of the recording

    play(name, CASES[name], folder, at_end)


def main(out, arguments):
    run_all(arguments, CASES, lambda name: run_case(name, out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=["fsdp", "pipe", *PROGRAMS], default="fsdp")
    parser.add_argument("--odd", choices=["", "compile", "evaluate", "checkpoint", "lengths", "loader", "feed"], default="")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--cpu", action="store_true")
    train(parser.parse_args())
