"""One rank of a small DDP job with a fault inside its kernels, profiled for five steps: real traces for `lockstep analyze`.

    RANK=r WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29555 [NCCL_HOSTID=h$r NCCL_SOCKET_IFNAME=lo] fault_rank.py KIND OUT

KIND: none; on a GPU, by rank 1, precision (fp32 matrices), unaligned (sizes of 2047), copies (30 clones a layer); without one (gloo), by
rank 2, host (sleeps outside operators), op (more operators). All ranks may share one GPU under MPS: NCCL wants a NCCL_HOSTID each then."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

RANK, KIND, OUT = int(os.environ["RANK"]), sys.argv[1], sys.argv[2]
GPU = torch.cuda.is_available()
FAULTY = RANK == (1 if GPU else 2)
SIZE, DTYPE, DEVICE = (2048, torch.bfloat16, "cuda") if GPU else (256, torch.float32, "cpu")


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(SIZE, SIZE, device=DEVICE, dtype=DTYPE) * 0.02)

    def forward(self, x):
        if FAULTY and KIND == "precision":
            return F.relu(F.linear(x.float(), self.w.float()).bfloat16())
        if FAULTY and KIND == "unaligned":
            odd = SIZE - 1
            return F.relu(F.pad(F.linear(x[:, :odd].contiguous(), self.w[:odd, :odd].contiguous()), (0, 1)))
        if FAULTY and KIND == "copies":
            for _ in range(30):
                x = x.clone()
        return F.relu(F.linear(x, self.w))


def main():
    if GPU:
        torch.cuda.set_device(0)
        torch.backends.cuda.matmul.allow_tf32 = False
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if GPU else "gloo")
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*[Layer() for _ in range(6)]), bucket_cap_mb=10 if GPU else 1)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(SIZE, SIZE, device=DEVICE, dtype=DTYPE)

    def step():
        y = x
        if FAULTY and KIND == "host":
            time.sleep(0.15)
        if FAULTY and KIND == "op":
            for _ in range(60):
                y = y @ torch.eye(SIZE) + torch.randn(SIZE, SIZE) * 1e-3
        model(y).float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if GPU:
            torch.cuda.synchronize()

    for _ in range(5):
        step()
    dist.barrier()
    with torch.profiler.profile(record_shapes=True) as profiler:
        for number in range(5):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
    os.makedirs(OUT, exist_ok=True)
    profiler.export_chrome_trace(os.path.join(OUT, f"rank-{RANK}.json.gz"))
    dist.barrier()


main()
