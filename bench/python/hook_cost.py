"""What the Python hooks cost a training step, on CPU torch: blocks of steps with hooks on and off in turns.

    python3 bench/python/hook_cost.py [--steps N] [--blocks N] [--out bench/results/python-hook.md]

The loop is as small as a loop can be (a linear layer, one optimizer, a DataLoader), so that what the hooks add is not
lost in the noise of what they are added to; their cost does not depend on the model. Off means LOCKSTEP's switch inside
the process (the wrappers stay in place and pass through); a process without the package is measured beside it.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEP_US = 100_000  # the share is of a step of 100 ms
TARGET_US = 100


def train(steps):
    """A function that trains a block of steps and returns (elapsed, CPU time) of one in microseconds."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(steps, 4), torch.randn(steps, 1)), batch_size=1)

    def block():
        before, cpu_before = time.perf_counter_ns(), time.process_time_ns()
        for x, y in data:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        cpu = time.process_time_ns() - cpu_before
        return (time.perf_counter_ns() - before) / steps / 1e3, cpu / steps / 1e3

    return block


def inside(steps, blocks):
    """One process, hooks on and off in turns, the order of a pair changing; then everything a job can tell besides."""
    import lockstep
    from lockstep import _runtime

    lockstep.init(flops_per_step=1e9, peak=1e12)
    if not lockstep.enabled():
        sys.exit("the library is not found: LOCKSTEP_LIBRARY names it")
    block = train(steps)
    block()

    def measure(on):
        _runtime._off = not on
        try:
            return block()
        finally:
            _runtime._off = False

    on, off = [], []
    for number in range(blocks):
        for which in (True, False) if number % 2 else (False, True):
            (on if which else off).append(measure(which))

    def call_us(call, count=20_000):
        before = time.process_time_ns()
        for _ in range(count):
            call()
        return (time.process_time_ns() - before) / count / 1e3

    def a_step():
        with lockstep.step():
            pass

    def a_phase():
        with lockstep.phase("rollout"):
            pass

    calls = {
        "with lockstep.step()": call_us(a_step),
        'with lockstep.phase("rollout")': call_us(a_phase),
        "lockstep.log(loss=..., tokens=...)": call_us(lambda: lockstep.log(loss=1.0, tokens=5)),
    }
    print(json.dumps({"on": on, "off": off, "calls": calls, "steps": lockstep.summary()["steps"]}))


def without(steps, blocks):
    block = train(steps)
    block()
    print(json.dumps([block() for _ in range(blocks)]))


def import_us():
    """Of `import lockstep` in a fresh interpreter, the best of several."""
    code = (
        "import contextlib, functools, os, time; before = time.process_time_ns(); import lockstep;"
        "print((time.process_time_ns() - before) / 1e3)"
    )
    return min(float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(7))


def run(part, options, folder):
    environment = {
        **os.environ,
        "LOCKSTEP_RECORDER_DIR": folder,
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCKSTEP_JOB_ID": "bench",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, __file__, "--part", part, "--steps", str(options.steps), "--blocks", str(options.blocks)]
    return json.loads(subprocess.check_output(command, env=environment))


def report(options):
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        plain = run("without", options, folder)
        both = run("inside", options, folder)

    def column(blocks, at):
        return statistics.median(block[at] for block in blocks)

    pairs = [[one[at] - other[at] for one, other in zip(both["on"], both["off"])] for at in (0, 1)]
    elapsed, cost = (statistics.median(differences) for differences in pairs)
    version = subprocess.check_output(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], text=True
    ).strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    on, off = (" ".join(f"{cpu:.1f}" for _, cpu in both[which]) for which in ("on", "off"))
    spread = [f"(pairs {min(pair):.1f} to {max(pair):.1f})" for pair in pairs]
    kept = "kept" if cost < TARGET_US else "MISSED"
    lines = [
        "# What the Python hooks cost",
        "",
        f"`bench/python/hook_cost.py --steps {options.steps} --blocks {options.blocks}`: {model}, {os.cpu_count()} cores,",
        f"{platform.machine()}, Python {platform.python_version()}, torch {version} on the CPU, one thread; load of the",
        f"machine at the end {os.getloadavg()[0]:.1f}. A step is one fetch, forward, backward and optimizer step of a linear",
        "layer; every hook is on (input, backward with its loss, optimizer, flops and peak) with the real recorder behind it.",
        "",
        "| us per step, median of blocks | CPU time | elapsed |",
        "|---|---|---|",
        f"| without the package | {column(plain, 1):.1f} | {column(plain, 0):.1f} |",
        f"| hooks in place, switched off | {column(both['off'], 1):.1f} | {column(both['off'], 0):.1f} |",
        f"| hooks on | {column(both['on'], 1):.1f} | {column(both['on'], 0):.1f} |",
        f"| **hooks on against off, in turns** | **{cost:.1f}** {spread[1]} | {elapsed:.1f} {spread[0]} |",
        f"| share of a step of 100 ms, target < 0.1 % | {100 * cost / STEP_US:.4f} %, {kept} | {100 * elapsed / STEP_US:.4f} % |",
        "",
        "CPU time is what the hooks take from a job; elapsed time says the same only on a machine with nothing else to do.",
        "",
        "| call | us of CPU time |",
        "|---|---|",
        *[f"| `{name}` | {value:.2f} |" for name, value in both["calls"].items()],
        f"| `import lockstep`, once (target < 10,000) | {import_us():.0f} |",
        "",
        f"Blocks, us of CPU time per step: on {on}; off {off}.",
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--part", choices=("inside", "without"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        (inside if options.part == "inside" else without)(options.steps, options.blocks)
        return
    text = report(options)
    print(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
