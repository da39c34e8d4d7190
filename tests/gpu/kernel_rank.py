"""A rank that trains until it is told to stop and knows nothing of Lockstep: a small transformer in bf16, DDP or FSDP2, a DataLoader.
One rank may have a fault that no counter shows: inside its kernels, or in a line of its Python.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment; all ranks of the machine may share one GPU."""
import argparse
import json
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

WIDTH, HEADS, LAYERS, SEQUENCE, BATCH, VOCABULARY = 1024, 16, 4, 256, 16, 4096


def tokenize(seed):
    """What a loader does in Python, by hand."""
    total = 0
    for at in range(400_000):  # the slow line of --fault loader
        total += at ^ seed
    return total


def log_everything(step):
    """What somebody added to look into a problem, and forgot."""
    lines = []
    for at in range(150_000):  # the slow line of --fault loop
        lines.append(str(at + step))
    return len(lines)


class Tokens(IterableDataset):
    def __init__(self, slow):
        self.slow = slow

    def __iter__(self):
        seed = 0
        while True:
            if self.slow and seed % BATCH == 0:
                tokenize(seed)
            yield torch.randint(VOCABULARY, (SEQUENCE + 1,), generator=torch.Generator().manual_seed(seed))
            seed += 1


class Linear(torch.nn.Linear):
    fault = "none"

    def forward(self, x):
        if self.fault == "fp32":
            return F.linear(x.float(), self.weight.float()).to(x.dtype)
        if self.fault == "unaligned":  # one column of the work left out: an odd size, and nearly the same result
            return F.linear(x[..., :-1].contiguous(), self.weight[:, :-1].contiguous())
        if self.fault == "copies":
            for _ in range(12):
                x = x.clone()
        return F.linear(x, self.weight)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = Linear(WIDTH, 3 * WIDTH, bias=False), Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = Linear(WIDTH, 4 * WIDTH, bias=False), Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def wrapped(model, how):
    if how == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    from torch.distributed.fsdp import fully_shard
    for block in model[1:-1]:
        fully_shard(block)
    return fully_shard(model)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrap", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--fault", choices=("none", "fp32", "unaligned", "copies", "loader", "loop"), default="none")
    parser.add_argument("--rank", type=int, default=1, help="who has it")
    parser.add_argument("--into", required=True, help="folder for rankR.jsonl: when each step ended, and how long it was")
    options = parser.parse_args()
    torch.cuda.set_device(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    fault = options.fault if rank == options.rank else "none"
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, WIDTH), *[Block() for _ in range(LAYERS)], Linear(WIDTH, VOCABULARY, bias=False))
    for module in model[1:-1].modules():
        if isinstance(module, Linear):
            module.fault = fault
    model = wrapped(model.to("cuda", torch.bfloat16), options.wrap)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    with open(f"{options.into}/rank{rank}.jsonl", "w", buffering=1) as log:
        began = time.time_ns()
        for step, tokens in enumerate(DataLoader(Tokens(fault == "loader"), batch_size=BATCH)):
            tokens = tokens.to("cuda")
            scores = model(tokens[:, :-1])
            F.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if fault == "loop":
                log_everything(step)
            torch.cuda.synchronize()
            now = time.time_ns()
            log.write(json.dumps([step, now, now - began]) + "\n")
            began = now


if __name__ == "__main__":
    main()
