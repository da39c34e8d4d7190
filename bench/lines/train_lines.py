"""A small DDP job on CPU (gloo) with one slow function on one rank: in its loader, in a worker of its loader, or in its
loop. Prints how long its steps took, a line each: seconds since the epoch, milliseconds."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, os.environ["LOCKSTEP_PACKAGE"])
import lockstep  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--slow", choices=("loader", "worker", "loop", "spin", "none"), default="none")
parser.add_argument("--rank", type=int, default=2)
parser.add_argument("--ms", type=float, default=30)
parser.add_argument("--seconds", type=float, default=30)
options = parser.parse_args()
RANK = int(os.environ["RANK"])
SLOW = options.slow if RANK == options.rank else "none"


def decode(index):
    time.sleep(options.ms / 1000)  # LINE loader worker
    return index


def checksum(until):
    total = 0
    while time.monotonic() < until:
        total += sum(range(50))  # LINE spin
    return total


def log_metrics():
    time.sleep(options.ms / 1000)  # LINE loop


class Samples(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if SLOW in ("loader", "worker"):
            decode(index)
        return torch.randn(64), torch.randn(1)


def train():
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    workers = 2 if options.slow == "worker" else 0
    batch = 4 if options.slow == "worker" else 1
    end, last = time.time() + options.seconds, time.monotonic()
    running = torch.ones(1)
    for x, y in DataLoader(Samples(), batch_size=batch, num_workers=workers):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if SLOW == "loop":
            log_metrics()
        if SLOW == "spin":
            checksum(time.monotonic() + options.ms / 1000)
        running.fill_(time.time() < end)
        dist.all_reduce(running, op=dist.ReduceOp.MIN)
        now = time.monotonic()
        print(f"{time.time():.6f} {1000 * (now - last):.3f}", flush=True)
        last = now
        if running.item() == 0:
            break


torch.set_num_threads(1)
dist.init_process_group("gloo")
lockstep.init()
train()
dist.destroy_process_group()
