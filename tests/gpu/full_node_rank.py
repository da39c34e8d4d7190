"""One rank of a training job on a node whose cores are all taken: DDP, FSDP2 or pipeline, as anybody writes it.

    full_node_rank.py KIND FOLDER --plan FILE [--seconds S] ...

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment. All ranks share one GPU; without one (--cpu) they use gloo.
After a warm-up the job runs in blocks of equal length. FILE (JSON) says what is switched on in which block; the hook is switched here,
everything else by whoever reads rank 0's "block N" lines. FOLDER/steps_rankR.json has the beginning of every step."""
import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist

from blocks import plan_of

WARM_UP_STEPS = 25


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention_norm, self.mlp_norm = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attend_in, self.attend_out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))
        self.heads = max(1, width // 64)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.attend_in(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, -1) @ v
        x = x + self.attend_out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.mlp_norm(x))


class Model(torch.nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embed = torch.nn.Embedding(options.vocabulary, options.width)
        self.layers = torch.nn.ModuleList(Layer(options.width) for _ in range(options.layers))
        self.head = torch.nn.Linear(options.width, options.vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def loss_of(scores, targets):
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def data_parallel(options, device, fsdp):
    model = Model(options).to(device)
    if fsdp:
        from torch.distributed.fsdp import fully_shard
        for layer in model.layers:
            fully_shard(layer)
        model = fully_shard(model) or model
    else:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        tokens = torch.randint(options.vocabulary, (options.batch, options.length + 1), device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = loss_of(model(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def pipeline(options, device):
    """One stage per rank, one forward and one backward of each micro-batch in turn (1F1B), by torch's own schedule."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world = dist.get_rank(), dist.get_world_size()

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(options.vocabulary, options.width) if rank == 0 else None
            self.layers = torch.nn.ModuleList(Layer(options.width) for _ in range(max(1, options.layers // 2)))
            self.head = torch.nn.Linear(options.width, options.vocabulary, bias=False) if rank == world - 1 else None

        def forward(self, x):
            x = self.embed(x) if self.embed is not None else x
            for layer in self.layers:
                x = layer(x)
            return self.head(x) if self.head is not None else x

    model = Stage().to(device)
    micro = 2 * world
    tokens = torch.randint(options.vocabulary, (micro * options.micro_batch, options.length), device=device)
    schedule = Schedule1F1B(PipelineStage(model, rank, world, device), micro, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        losses = []
        if rank == 0:
            schedule.step(tokens)
        elif rank == world - 1:
            schedule.step(target=tokens, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        done = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=device)
        dist.broadcast(done, world - 1)  # every rank knows the loss: as people log it
        return done.item()

    return step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["ddp", "fsdp2", "pipeline"])
    parser.add_argument("folder")
    parser.add_argument("--plan", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--block", type=int, default=20)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    plan = json.load(open(options.plan))
    switch = lambda on: None
    if os.environ.get("LOCKSTEP_LIBRARY"):
        import lockstep
        from lockstep import _runtime
        lockstep.init()
        if not lockstep.enabled():
            sys.exit("the hook is not on: LOCKSTEP_LIBRARY has to name liblockstep.so")
        switch = _runtime.switch
    device = torch.device("cpu") if options.cpu else torch.device("cuda", 0)
    torch.set_num_threads(1)
    if not options.cpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo" if options.cpu else "nccl")
    rank = dist.get_rank()
    torch.manual_seed(1 + (0 if options.kind == "ddp" else rank))
    step = pipeline(options, device) if options.kind == "pipeline" else data_parallel(options, device, options.kind == "fsdp2")

    began = []
    for _ in range(WARM_UP_STEPS):
        began.append(time.monotonic_ns())
        loss = step()
    took = torch.tensor([(began[-1] - began[WARM_UP_STEPS // 2]) / 1e9 / (WARM_UP_STEPS - 1 - WARM_UP_STEPS // 2)], device=device)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)  # so that all ranks run the same number of blocks
    for step_number in range(int(plan["settle_s"] / took.item())):  # everything is on, as in use
        if rank == 0 and step_number == 0:
            print("settle", flush=True)
        loss = step()
    rounds = max(1, int(options.seconds / (took.item() * options.block * len(plan["conditions"]))))
    steps = []
    for block in range(rounds * len(plan["conditions"])):
        condition = plan_of(plan["conditions"], plan["seed"], block)
        switch(plan["conditions"][condition]["hook"])
        if rank == 0:
            print(f"block {block} {condition}", flush=True)
        for _ in range(options.block):
            steps.append(time.monotonic_ns())
            loss = step()
    steps.append(time.monotonic_ns())
    if rank == 0:
        print("over", flush=True)
    if loss != loss:
        sys.exit("the loss is not a number")
    with open(f"{options.folder}/steps_rank{rank}.json", "w") as out:
        json.dump(steps, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
