"""One rank of a small real training job on NCCL, with a fault or a healthy oddity on request.

Every rank is a process of its own (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment) and tells its steps and
phases through liblockstep.so. Cases are named KIND or KIND:RANK or KIND:RANK:AMOUNT."""
import argparse
import ctypes
import json
import os
import random
import signal
import socket
import stat
import sys
import time

import torch
import torch.distributed as dist

PHASES = {"input": 1, "forward": 2, "backward": 3, "optimizer": 4, "checkpoint": 5, "eval": 6, "sync": 7}
STUCK = {"dead", "missing", "mismatch", "sizes"}  # faults that end the training; the others can be on from the first step
SO_MAX_PACING_RATE = 47


class Marks:
    """The C API, or nothing where the library is not given."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path) if path else None
        if self.library:
            for name in ("lockstep_step_begin", "lockstep_step_end"):
                getattr(self.library, name).argtypes = [ctypes.c_int64]

    def step_begin(self, step):
        if self.library:
            self.library.lockstep_step_begin(step)

    def step_end(self, step):
        if self.library:
            self.library.lockstep_step_end(step)

    def phase(self, name):
        if self.library:
            self.library.lockstep_phase_begin(PHASES[name])

    def shutdown(self):
        if self.library:
            self.library.lockstep_shutdown()


class Case:
    """What is wrong, where, from which step on. The rank at fault writes the time at which it began (ns) to `began_path`."""

    def __init__(self, text, from_step, began_path):
        parts = text.split(":")
        self.kind = parts[0]
        self.rank = int(parts[1]) if len(parts) > 1 and parts[1] else -1
        self.amount = float(parts[2]) if len(parts) > 2 else 1.0
        self.first = from_step if from_step is not None else 20 if self.kind in STUCK else 0
        self.began_path = began_path

    def here(self, kind, step):
        on = self.kind == kind and self.rank == dist.get_rank() and step >= self.first
        if on and self.began_path:
            with open(self.began_path + ".new", "w") as out:
                out.write(str(time.time_ns()))
            os.rename(self.began_path + ".new", self.began_path)
            self.began_path = ""
        return on


class Turns:
    """With blocks of `size` steps: says "block" before each and waits until it may go on. Two jobs can so train in turns."""

    def __init__(self, size):
        self.size = size

    def wait(self, step):
        if self.size and step % self.size == 0:
            self.say()
            sys.stdin.readline()

    def say(self):
        if self.size:
            print("block", flush=True)

    def ask(self):
        """The line that says what to do next."""
        self.say()
        return sys.stdin.readline()


def burn(matrix, count):
    for _ in range(int(count)):
        torch.mm(matrix, matrix)


def slow_sockets(bytes_per_s):
    """From now on each TCP socket of this process sends at most so fast, by the kernel's own pacing: a slow link."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    one.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, int(bytes_per_s))
        except OSError:
            continue  # closed since the folder was read


def start_pulses():
    """Stops this process for a while, again and again, from a process beside it."""
    target = os.getpid()
    if os.fork() == 0:
        while os.getppid() == target or os.path.exists(f"/proc/{target}"):
            time.sleep(0.35)  # the pace of the fault
            try:
                os.kill(target, signal.SIGSTOP)
                time.sleep(0.12)  # so long it stands still
                os.kill(target, signal.SIGCONT)
            except ProcessLookupError:
                break
        os._exit(0)


def common_faults(case, step, matrix):
    """What any job may suffer between its input and its backward pass."""
    rank = dist.get_rank()
    if case.here("host", step):
        time.sleep(0.05 * case.amount)  # the fault
    if case.here("gpu", step):
        burn(matrix, 60 * case.amount)
    if case.kind == "packing":  # healthy: work differs by rank and step, at random
        burn(matrix, random.Random(f"{rank}/{step}").randint(0, 60))
    if case.kind == "gc" and random.Random(f"gc/{step}").randint(0, dist.get_world_size() * 3) == rank:
        time.sleep(0.12)  # healthy: now and then some rank collects garbage
    if case.here("rarehost", step) and step % 6 == 3:
        time.sleep(0.15)  # the fault
    if case.here("warmup", step) and step < 6:
        time.sleep(0.1)  # healthy: the first steps are slow
    if case.here("logging", step):
        time.sleep(0.002)  # healthy: a line of a log


def begin_step(case, step, marks, matrix):
    """The part of a step before any communication: input, then whatever is wrong with this rank."""
    marks.step_begin(step)
    marks.phase("input")
    if case.here("input", step):
        time.sleep(0.06 * case.amount)  # the fault
    marks.phase("forward")
    common_faults(case, step, matrix)
    if case.here("link", step) and step == case.first:
        slow_sockets(150e6 / case.amount)
    if case.here("pulse", step) and step == case.first:
        start_pulses()
    if case.here("dead", step):
        os.kill(os.getpid(), signal.SIGKILL)
    if case.here("missing", step):
        time.sleep(60)  # the fault


def agree(case, step, value):
    """For `mismatch` and `sizes` alone: one more all-reduce over all ranks in every step, until one rank calls something else."""
    if case.kind not in ("mismatch", "sizes"):
        return
    if case.here("mismatch", step):
        # From the next rank of the ring: this rank only receives then, its neighbour gets nothing from it, and nobody can finish.
        dist.broadcast(value, (dist.get_rank() + 1) % dist.get_world_size())
    elif case.here("sizes", step):
        dist.all_reduce(value[:1000])
    else:
        dist.all_reduce(value)


def aside(case, step, marks):
    if case.kind == "checkpoint" and step % 8 == 7 and dist.get_rank() == 0:
        marks.phase("checkpoint")
        time.sleep(0.5)  # healthy: the file is written
    if case.kind == "eval" and step % 15 == 14:
        marks.phase("eval")
        time.sleep(0.8 + 0.05 * dist.get_rank())  # healthy: an evaluation


def train_ddp(case, options, marks, turns, log):
    torch.manual_seed(1)
    width = 1024
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)) for _ in range(options.layers)]).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    matrix = torch.randn(2048, 2048, device="cuda")
    batch = torch.randn(options.batch, width, device="cuda")
    norms = torch.zeros(4 << 20, device="cuda")
    for step in range(options.steps):
        turns.wait(step)
        begin = time.monotonic_ns()
        begin_step(case, step, marks, matrix)
        loss = model(batch).square().mean()
        marks.phase("backward")
        loss.backward()
        marks.phase("optimizer")
        agree(case, step, norms)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        aside(case, step, marks)
        marks.step_end(step)
        log.append({"step": step, "t0": begin, "total": time.monotonic_ns() - begin})
        if case.kind == "silentsave" and step % 8 == 7 and dist.get_rank() == 0:
            time.sleep(0.5)  # healthy: a checkpoint between two steps that nobody is told of


def train_hybrid(case, options, marks, turns, log):
    """2 pipeline stages x 2 data parallel x 2 tensor parallel; rank = pp*4 + dp*2 + tp."""
    rank = dist.get_rank()
    pp, dp, tp = rank // 4, rank // 2 % 2, rank % 2
    groups = {}
    for a in range(2):
        for b in range(2):
            groups["tp", a, b] = dist.new_group([a * 4 + b * 2, a * 4 + b * 2 + 1])
            groups["dp", a, b] = dist.new_group([a * 4 + b, a * 4 + 2 + b])
            groups["pp", a, b] = dist.new_group([a * 2 + b, 4 + a * 2 + b])
    tp_group, dp_group, pp_group = groups["tp", pp, dp], groups["dp", pp, tp], groups["pp", dp, tp]
    peer = (rank + 4) % 8
    width, blocks, micro = 1024, 4, 2
    weights = [torch.randn(width, width, device="cuda") * 0.01 for _ in range(blocks)]
    gradient = torch.randn(8 << 20, device="cuda")
    matrix = torch.randn(2048, 2048, device="cuda")
    value = torch.randn(512, width, device="cuda")
    received = torch.empty_like(value)
    norms = torch.zeros(4 << 20, device="cuda")

    def compute(x):
        for weight in weights:
            x = x @ weight
            dist.all_reduce(x, group=tp_group)
            if case.kind == "stage" and pp == 1:  # healthy: the last stage has more to do
                burn(matrix, 6 * case.amount)
        return x * 0.5

    for step in range(options.steps):
        turns.wait(step)
        begin = time.monotonic_ns()
        begin_step(case, step, marks, matrix)
        for _ in range(micro):
            if pp == 0:
                out = compute(value)
                dist.send(out, peer, group=pp_group)
                dist.recv(received, peer, group=pp_group)
                compute(received)
            else:
                dist.recv(received, peer, group=pp_group)
                out = compute(compute(received))
                dist.send(out, peer, group=pp_group)
        dist.all_reduce(gradient, group=dp_group)
        marks.phase("sync")
        agree(case, step, norms)
        torch.cuda.synchronize()
        aside(case, step, marks)
        marks.step_end(step)
        log.append({"step": step, "t0": begin, "total": time.monotonic_ns() - begin})


def train_graph(case, options, marks, turns, log):
    """Eager all-reduces, and in every fourth step 50 replays of one that a CUDA graph holds."""
    value = torch.ones(1 << 20, device="cuda")
    matrix = torch.randn(2048, 2048, device="cuda")
    share = 1.0 / dist.get_world_size()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # connections and buffers have to be there before the capture
        for _ in range(3):
            dist.all_reduce(value)
            value.mul_(share)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        dist.all_reduce(value)
        value.mul_(share)
    for step in range(options.steps):
        turns.wait(step)
        begin = time.monotonic_ns()
        begin_step(case, step, marks, matrix)
        burn(matrix, 5)
        dist.all_reduce(value)
        value.mul_(share)
        if step % 4 == 3:
            for _ in range(50):
                graph.replay()
        torch.cuda.synchronize()
        marks.step_end(step)
        log.append({"step": step, "t0": begin, "total": time.monotonic_ns() - begin})
    if abs(value.mean().item() - 1.0) > 1e-3:
        raise RuntimeError(f"the replayed all-reduces gave {value.mean().item()} instead of 1")
    graph.reset()  # NCCL keeps a communicator alive while a graph holds its work


def train_all_to_all(case, options, marks, turns, log):
    """All-to-all, and all-gathers of one-byte types: what a profiler sees of them differs from what was called."""
    ranks = dist.get_world_size()
    matrix = torch.randn(2048, 2048, device="cuda")
    sent = torch.full((ranks << 18,), float(dist.get_rank()), device="cuda")
    received = torch.empty_like(sent)
    gathers = []
    for name in ("uint8", "float8_e4m3fn", "float8_e5m2"):
        part = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda").view(getattr(torch, name))
        whole = torch.empty(ranks << 20, dtype=torch.uint8, device="cuda").view(getattr(torch, name))
        try:
            dist.all_gather_into_tensor(whole, part)
            gathers.append((whole, part))
        except (RuntimeError, TypeError, ValueError) as problem:
            print(f"no all-gather of {name}: {problem}", flush=True)
    for step in range(options.steps):
        turns.wait(step)
        begin = time.monotonic_ns()
        begin_step(case, step, marks, matrix)
        burn(matrix, 5)
        dist.all_to_all_single(received, sent)
        for whole, part in gathers:
            dist.all_gather_into_tensor(whole, part)
        torch.cuda.synchronize()
        marks.step_end(step)
        log.append({"step": step, "t0": begin, "total": time.monotonic_ns() - begin})


def messages(case, options, marks, turns, log):
    """All-reduces one after the other, as the blocks say that come as lines "BYTES COUNT SETTLE" (masks.py): SETTLE of them first that
    are not timed. A step is 16 of them. Ends with any other line."""
    step = 0

    def run(value, count):
        nonlocal step
        for index in range(count):
            if index % 16 == 0:
                marks.step_begin(step)
            dist.all_reduce(value)
            if index % 16 == 15 or index + 1 == count:
                marks.step_end(step)
                step += 1
        torch.cuda.synchronize()

    while len(words := turns.ask().split()) == 3:
        size, count, settle = map(int, words)
        value = torch.ones(size // 4, device="cuda")
        run(value, max(settle, 4))  # the first ones meet a GPU that was idle
        dist.barrier()
        begin = time.monotonic_ns()
        run(value, count)
        print(f"us {(time.monotonic_ns() - begin) / count / 1e3:.3f}", flush=True)


JOBS = {"messages": messages, "ddp": train_ddp, "hyb": train_hybrid, "graph": train_graph, "a2a": train_all_to_all}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=list(JOBS), default="ddp")
    parser.add_argument("--case", default="healthy")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=8, help="size of the data parallel model")
    parser.add_argument("--batch", type=int, default=64, help="rows per rank and step of the data parallel model")
    parser.add_argument("--from-step", type=int, default=None, help="the fault is on from here (default 0; 20 for one that ends the training)")
    parser.add_argument("--began", default="", help="file for the time at which the fault began")
    parser.add_argument("--take-turns", type=int, default=0, help="steps in a block; see Turns")
    parser.add_argument("--library", default="")
    parser.add_argument("--log", default="", help="folder for the step log, steps_rankR.json as in docs/formats/calls.md")
    parser.add_argument("--destroy", action="store_true", help="end as a program should, communicators first")
    options = parser.parse_args()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=None if options.job == "hyb" else torch.device("cuda:0"))
    rank = dist.get_rank()
    marks, turns, log = Marks(options.library), Turns(options.take_turns), []
    JOBS[options.job](Case(options.case, options.from_step, options.began), options, marks, turns, log)
    turns.say()
    if options.destroy:
        dist.destroy_process_group()
    marks.shutdown()
    if options.log:
        with open(f"{options.log}/steps_rank{rank}.json", "w") as out:
            json.dump(log, out)
    if not options.destroy:
        sys.stdout.flush()
        os._exit(0)  # some NCCL versions wait for peers at exit; the measurement is over


if __name__ == "__main__":
    main()
