"""A training script as anybody writes it, which knows nothing of Lockstep (but with --tell): a small language model without
attention, DDP, DataLoader, AdamW, a checkpoint now and then, the PyTorch profiler on request.

RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT come from the environment. On a GPU all ranks of the machine may share one."""
import argparse
import json
import sys
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, record_function
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __init__(self, length, sequence, vocabulary, delay_s):
        self.length, self.sequence, self.vocabulary, self.delay_s = length, sequence, vocabulary, delay_s

    def __len__(self):
        return self.length

    def __getitem__(self, at):
        if self.delay_s:
            time.sleep(self.delay_s)  # a loader that takes so long
        return torch.randint(self.vocabulary, (self.sequence + 1,), generator=torch.Generator().manual_seed(at))


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mlp = torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4, help="sequences per rank and step")
    parser.add_argument("--slow-input", type=int, default=-1, help="this rank's data is slow")
    parser.add_argument("--slow-ms", type=float, default=60, help="per step")
    parser.add_argument("--checkpoint", default="", help="rank 0 saves the model there")
    parser.add_argument("--checkpoint-every", type=int, default=6)
    parser.add_argument("--trace", default="", help="folder for the profiler's traces")
    parser.add_argument("--trace-from", type=int, default=16)
    parser.add_argument("--trace-steps", type=int, default=12)
    parser.add_argument("--take-turns", type=int, default=0, help="steps in a block; says \"block\" before each and waits for a line")
    parser.add_argument("--log", default="", help="folder for steps_rankR.json: the length of each step")
    parser.add_argument("--tell", action="store_true", help="the one script that says a line to Lockstep: its loss")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    if options.tell:
        import lockstep
        lockstep.init()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    body = torch.nn.Sequential(torch.nn.Embedding(options.vocabulary, options.width), *[Block(options.width) for _ in range(options.layers)],
                               torch.nn.Linear(options.width, options.vocabulary, bias=False)).to(device)
    model = torch.nn.parallel.DistributedDataParallel(body, device_ids=[0] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    delay_s = options.slow_ms / 1e3 / options.batch if rank == options.slow_input else 0
    loader = DataLoader(Tokens(options.steps * options.batch, options.sequence, options.vocabulary, delay_s), batch_size=options.batch)
    profiler = None
    if options.trace:
        def save_trace(done):
            done.export_chrome_trace(f"{options.trace}/trace_rank{rank}.json")

        when = torch.profiler.schedule(wait=options.trace_from - 2, warmup=2, active=options.trace_steps, repeat=1)
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        profiler = torch.profiler.profile(activities=activities, schedule=when, on_trace_ready=save_trace)
        profiler.start()
    log = []
    step = 0
    if options.take_turns:  # two jobs can so train in turns
        print("block", flush=True)
        sys.stdin.readline()
    began = time.monotonic_ns()
    for tokens in loader:
        tokens = tokens.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=cuda):
            scores = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if options.tell:
            lockstep.log(loss=value)
        if options.checkpoint and rank == 0 and step % options.checkpoint_every == options.checkpoint_every - 1:
            with record_function("save"):
                torch.save(body.state_dict(), options.checkpoint)
        if profiler:
            profiler.step()
        log.append({"step": step, "t0": began, "total": time.monotonic_ns() - began})
        step += 1
        if options.take_turns and step % options.take_turns == 0 and step < options.steps:
            print("block", flush=True)
            sys.stdin.readline()
        began = time.monotonic_ns()
    if profiler:
        profiler.stop()
    if value != value:
        raise RuntimeError("the loss is not a number")
    if options.log:
        with open(f"{options.log}/steps_rank{rank}.json", "w") as out:
            json.dump(log, out)
    if options.take_turns:
        print("block", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
