"""Four ranks on this CPU that meet after every step, as a synchronous job does; knows no GPU and no framework.

    train.py [--slow RANK] [--steps N] [--pids FILE]

Rank --slow waits longer for each batch. With --pids the process ids of the ranks are written, one a line.
"""

import argparse
import multiprocessing
import os
import time

import lockstep

RANKS = 4
STEP_S = 0.1


def rank_main(rank: int, barrier, options) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS))
    lockstep.init()
    for step in range(options.steps):
        with lockstep.step():
            with lockstep.phase("input"):
                time.sleep(0.08 if rank == options.slow and step >= 30 else 0.01)  # the pace of the job, and its fault
            end = time.monotonic() + STEP_S / 4
            while time.monotonic() < end:
                sum(range(1000))
            barrier.wait()
    lockstep.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", type=int, default=-1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--pids", default="")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(RANKS)
    ranks = [context.Process(target=rank_main, args=(rank, barrier, options)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    if options.pids:
        with open(options.pids + ".new", "w") as file:
            file.write("".join(f"{process.pid}\n" for process in ranks))
        os.rename(options.pids + ".new", options.pids)
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main()
