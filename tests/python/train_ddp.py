"""A small DDP training job on gloo that knows nothing of Lockstep, unless --one-line: the subject of the system tests.

Started once per rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. --slow-input RANK makes that rank's data slow.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, length, delay_s):
        self.length, self.delay_s = length, delay_s

    def __len__(self):
        return self.length

    def __getitem__(self, at):
        if self.delay_s:
            time.sleep(self.delay_s)  # a loader that takes so long
        generator = torch.Generator().manual_seed(at)
        x = torch.randn(16, generator=generator)
        return x, x.sum().reshape(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--slow-input", type=int, default=-1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--checkpoint")
    parser.add_argument("--raise", dest="raising", default="", help="RANK:STEP: that rank raises in that step")
    parser.add_argument("--one-line", action="store_true")
    options = parser.parse_args()
    if options.one_line:
        import lockstep

        lockstep.init(flops_per_step=6e6, peak=1e9)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    batch = 4
    data = Numbers(options.steps * batch, 0.01 if rank == options.slow_input else 0)
    raising_rank, _, raising_step = options.raising.partition(":")
    for number, (x, y) in enumerate(DataLoader(data, batch_size=batch, num_workers=options.workers)):
        if raising_rank == str(rank) and number == int(raising_step):
            raise ValueError(f"the shard of rank {rank} is empty\nits path is /home/secret/shard")
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)  # the rest of what a loop does
        if options.one_line:
            lockstep.log(tokens=batch * 16)
    model.eval()
    with torch.no_grad():
        for x, y in DataLoader(Numbers(8, 0), batch_size=batch):
            model(x)
    if options.checkpoint and rank == 0:
        torch.save(model.state_dict(), options.checkpoint)
    dist.barrier()
    if options.one_line:
        print(lockstep.summary())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
