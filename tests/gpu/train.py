"""One rank of a small real training job on NCCL, with a fault or a healthy oddity on request.

Every rank is a process of its own (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment) and tells its steps and
phases through liblockstep.so. Cases are named KIND or KIND:RANK or KIND:RANK:AMOUNT."""
import argparse
import ctypes
import json
import os
import random
import signal
import threading
import time

import torch
import torch.distributed as dist

PHASES = {"input": 1, "forward": 2, "backward": 3, "optimizer": 4, "checkpoint": 5, "eval": 6, "sync": 7}


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
    def __init__(self, text):
        parts = text.split(":")
        self.kind = parts[0]
        self.rank = int(parts[1]) if len(parts) > 1 and parts[1] else -1
        self.amount = float(parts[2]) if len(parts) > 2 else 1.0

    def here(self, kind):
        return self.kind == kind and self.rank == dist.get_rank()


def burn(matrix, count):
    for _ in range(int(count)):
        torch.mm(matrix, matrix)


def common_faults(case, step, matrix):
    """What any job may suffer between its input and its backward pass."""
    rank = dist.get_rank()
    if case.here("host"):
        time.sleep(0.05 * case.amount)
    if case.here("gpu"):
        burn(matrix, 60 * case.amount)
    if case.kind == "packing":  # healthy: work differs by rank and step, at random
        burn(matrix, random.Random(f"{rank}/{step}").randint(0, 60))
    if case.kind == "gc" and random.Random(f"gc/{step}").randint(0, dist.get_world_size() * 3) == rank:
        time.sleep(0.12)  # healthy: now and then some rank collects garbage
    if case.here("rarehost") and step % 6 == 3:
        time.sleep(0.15)
    if case.here("warmup") and step < 6:
        time.sleep(0.1)
    if case.here("logging"):
        time.sleep(0.002)


def begin_step(case, step, marks, matrix):
    """The part of a step before any communication: input, then whatever is wrong with this rank."""
    marks.step_begin(step)
    marks.phase("input")
    if case.here("input"):
        time.sleep(0.06 * case.amount)
    marks.phase("forward")
    common_faults(case, step, matrix)
    if case.here("dead") and step == 20:
        os.kill(os.getpid(), signal.SIGKILL)
    if case.here("missing") and step == 20:
        time.sleep(60)


def pulses(case):
    """Stops this rank's process for a while, again and again, from a process beside it."""
    if not case.here("pulse"):
        return
    target = os.getpid()
    child = os.fork()
    if child == 0:
        while os.getppid() == target or os.path.exists(f"/proc/{target}"):
            time.sleep(0.35)
            try:
                os.kill(target, signal.SIGSTOP)
                time.sleep(0.12)
                os.kill(target, signal.SIGCONT)
            except ProcessLookupError:
                break
        os._exit(0)


def aside(case, step, marks):
    if case.kind == "checkpoint" and step % 8 == 7 and dist.get_rank() == 0:
        marks.phase("checkpoint")
        time.sleep(0.5)
    if case.kind == "eval" and step % 15 == 14:
        marks.phase("eval")
        time.sleep(0.8 + 0.05 * dist.get_rank())


def train_ddp(case, steps, marks, log):
    torch.manual_seed(1)
    width, layers = 1024, 8
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)) for _ in range(layers)]).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    matrix = torch.randn(2048, 2048, device="cuda")
    batch = torch.randn(64, width, device="cuda")
    pulses(case)
    for step in range(steps):
        begin = time.monotonic_ns()
        begin_step(case, step, marks, matrix)
        loss = model(batch).square().mean()
        marks.phase("backward")
        loss.backward()
        marks.phase("optimizer")
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        aside(case, step, marks)
        marks.step_end(step)
        log.append((time.monotonic_ns() - begin) / 1e6)
        if case.kind == "silentsave" and step % 8 == 7 and dist.get_rank() == 0:
            time.sleep(0.5)  # healthy: a checkpoint between two steps that nobody is told of


def train_hybrid(case, steps, marks, log):
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
    pulses(case)

    def compute(x):
        for weight in weights:
            x = x @ weight
            dist.all_reduce(x, group=tp_group)
            if case.kind == "stage" and pp == 1:  # healthy: the last stage has more to do
                burn(matrix, 6 * case.amount)
        return x * 0.5

    for step in range(steps):
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
        torch.cuda.synchronize()
        aside(case, step, marks)
        marks.step_end(step)
        log.append((time.monotonic_ns() - begin) / 1e6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--job", choices=["ddp", "hyb"], default="ddp")
    parser.add_argument("--case", default="healthy")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--library", default="")
    parser.add_argument("--log", default="")
    options = parser.parse_args()
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", device_id=torch.device("cuda:0") if options.job == "ddp" else None)
    marks = Marks(options.library)
    log = []
    (train_ddp if options.job == "ddp" else train_hybrid)(Case(options.case), options.steps, marks, log)
    marks.shutdown()
    if options.log:
        with open(f"{options.log}.{dist.get_rank()}", "w") as out:
            json.dump(log, out)
    os._exit(0)  # some NCCL versions wait for peers at exit; the measurement is over


if __name__ == "__main__":
    main()
