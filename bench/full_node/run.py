#!/usr/bin/env python3
"""What the agent costs a job that leaves no core free, without a GPU: a spinning rank pinned to every core, the real plugin's callbacks
in its steps, a barrier at the end of each. Blocks of steps with the agent running and stopped take turns inside one run (the
conditions of tests/gpu/full_node.py); the result is the mean over rounds of log(block / block without), with its 95 % interval.

    run.py --bin DIR [--seconds N] [--work-ms N] [--block N] [--conditions off,on,...] [--out FILE]"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "gpu"))
import full_node  # noqa: E402
from blocks import blocks_of, compare, plan_of, table  # noqa: E402


def run(folder, options):
    recorders = folder / "recorders"
    recorders.mkdir()
    shared = folder / "shared"
    shared.write_bytes(bytes(4096))
    cores = sorted(os.sched_getaffinity(0))
    conditions = {name: full_node.CONDITIONS[name] for name in options.conditions}
    rounds = max(2, int(options.seconds * 1000 / (options.work_ms * options.block * len(conditions))))
    blocks = rounds * len(conditions)
    names = {one["agent"] for one in conditions.values()} - {None}
    agents, ranks = {}, []
    try:
        for name in sorted(names):
            agents[name] = full_node.Agent(name, folder, recorders, options.bin / "lockstep-agent")
            agents[name].go("start")
            agents[name].go(None)
        for rank, core in enumerate(cores):
            words = [options.bin / "spinning_rank", rank, len(cores), core, shared, options.block, blocks, int(options.work_ms * 1000)]
            variables = dict(os.environ, LOCKSTEP_RECORDER_DIR=str(recorders), LOCKSTEP_JOB_ID="spinning", RANK=str(rank), WORLD_SIZE=str(len(cores)))
            ranks.append(subprocess.Popen(list(map(str, words)), env=variables, stdout=subprocess.PIPE, text=True))
        while (line := ranks[0].stdout.readline()) and line != "over\n":
            condition = plan_of(conditions, options.seed, int(line.split()[1]))
            wanted = conditions[condition]
            full_node.set_detail(recorders, wanted["mask"])
            for name, agent in agents.items():
                agent.go(condition if name == wanted["agent"] else None)
                if name == wanted["agent"]:
                    agent.schedule(wanted["policy"] or "low")
        codes = [rank.wait(30) for rank in ranks]
        if any(codes):
            raise SystemExit(f"ranks ended with {codes}")
        for agent in agents.values():
            agent.go("end")
        time.sleep(0.5)
        numbers = [line for agent in agents.values() for line in full_node.plugin_numbers(agent.daemon) if line.startswith("lockstep_agent_")]
    finally:
        for rank in ranks:
            rank.kill()
        for agent in agents.values():
            agent.stop()
    steps = [int(word) for word in (folder / "shared.steps").read_text().split()]
    result = compare(blocks_of([steps], options.block), conditions, options.seed)
    shares = {name: use[1] / use[0] for agent in agents.values() for name, use in agent.use.items()}
    return table(f"spinning ranks on {len(cores)} of {len(cores)} cores, a barrier every {options.work_ms:g} ms", result, shares), numbers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--work-ms", type=float, default=20, help="of a step")
    parser.add_argument("--block", type=int, default=150, help="steps; a block has to be longer than it settles")
    parser.add_argument("--conditions", default="off,on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    options.conditions = options.conditions.split(",")
    if "off" not in options.conditions or any(name not in full_node.CONDITIONS for name in options.conditions):
        parser.error(f"--conditions: of {','.join(full_node.CONDITIONS)}, with off")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="lockstep-full-node-") as folder:
        lines, numbers = run(pathlib.Path(folder), options)
    print("\n".join([*lines, "", *numbers]), flush=True)
    if options.out:
        head = ["# What the agent costs where no core is free", "", "Made by `./dev bench full-node` (bench/full_node/run.py). The same with real jobs on a GPU: h200.md.", f"{len(os.sched_getaffinity(0))} cores, {os.uname().machine}, Linux {os.uname().release}, {time.strftime('%Y-%m-%d')}."]
        options.out.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
