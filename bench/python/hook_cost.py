"""What the Python hooks cost a training step, on CPU torch.

    python3 bench/python/hook_cost.py [--steps N] [--blocks N]           a loop with hooks on and off in turns
    python3 bench/python/hook_cost.py --entry-points [--against FOLDER]  each of them alone, caches warm and cold

The loop is as small as a loop can be (a linear layer, one optimizer, a DataLoader), so that what the hooks add is not
lost in the noise of what they are added to; their cost does not depend on the model. Off means LOCKSTEP's switch inside
the process (the wrappers stay in place and pass through); a process without the package is measured beside it.

In that loop the next entry point of the hook (a function that torch calls) follows after some tens of microseconds. In a
real one tens of milliseconds of other work lie between two, so everything that one touches has left the near caches.
--entry-points puts such work between them and reads the clock from outside: just before torch calls into the hook and
just after the hook calls torch's own function, and the other way round. So it measures any version of the package alike;
--against names the folder of another one (its python/), measured in turns with this one. bench/results/python-hook.md
has the answers of both.
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
        _runtime.switch(on)
        try:
            return block()
        finally:
            _runtime.switch(True)

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


ENTRY_POINTS = ("fetch begin", "fetch end", "backward begin", "backward end", "optimizer begin", "optimizer end")
COLD_BYTES = 64 << 20


class EntryPoints:
    """Torch's own functions replaced by clocks, before the package puts its hooks around them."""

    def __init__(self):
        import torch
        from torch.utils.data import DataLoader, TensorDataset, dataloader

        torch.set_num_threads(1)
        self.torch = torch
        self.between = lambda: None
        self.took = {name: [] for name in ENTRY_POINTS}
        self.began = 0
        self.memory = torch.ones(COLD_BYTES // 8, dtype=torch.int64)
        self.objects = [{"name": f"object {number}", "values": list(range(number % 50))} for number in range(2000)]
        self.model = torch.nn.Linear(64, 64)

        def fetch(iterator):
            self.inside("fetch begin", "fetch end")
            return 1

        def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None):
            self.inside("backward begin", "backward end")

        dataloader._BaseDataLoaderIter.__next__ = fetch
        torch.autograd.backward = backward
        module = sys.modules["torch.optim.optimizer"]
        self.new_torch = hasattr(module, "register_optimizer_step_pre_hook")
        if self.new_torch:
            module.register_optimizer_step_pre_hook(lambda *_: self.before())
            module.register_optimizer_step_post_hook(lambda *_: self.before())
        else:
            profile = module.Optimizer._hook_for_profile

            def hook_for_profile(optimizer):
                profile(optimizer)
                kind = type(optimizer)

                def step(optimizer, closure=None):
                    self.inside("optimizer begin", "optimizer end")

                step.hooked = True
                kind.step = step

            module.Optimizer._hook_for_profile = hook_for_profile

        import_package()  # its hooks come around what was put in place above

        if self.new_torch:
            module.register_optimizer_step_pre_hook(lambda *_: self.after("optimizer begin"))
            module.register_optimizer_step_post_hook(lambda *_: self.after("optimizer end"))
        self.loader = iter(DataLoader(TensorDataset(torch.zeros(4, 1)), batch_size=1))
        # A loss that is not in the host's memory, as in every job on GPUs. Nobody reads it here.
        self.loss = torch.empty((), device="meta")

        class Plain(torch.optim.Optimizer):
            def step(self, closure=None):
                return None

        self.optimizer = Plain([torch.nn.Parameter(torch.zeros(1))], {})

    def before(self):
        self.between()
        self.began = time.perf_counter_ns()

    def after(self, entry_point):
        now = time.perf_counter_ns()
        self.took[entry_point].append(now - self.began)

    def inside(self, begin, end):
        self.after(begin)
        self.before()

    def other_work(self):
        """What a step does between two entry points, as far as a cache can tell: memory, Python and torch."""
        self.memory.sum()
        json.loads(json.dumps(self.objects))
        with self.torch.no_grad():
            self.model(self.torch.ones(8, 64)).relu().tolist()

    def step(self):
        self.before()
        next(self.loader)
        self.after("fetch end")
        self.before()
        self.torch.autograd.backward(self.loss, None, None, False, inputs=None)
        self.after("backward end")
        if self.new_torch:
            self.optimizer.step()
        else:
            self.before()
            self.optimizer.step()
            self.after("optimizer end")

    def measure(self, steps, between):
        """{entry point: ns of each step}"""
        self.took, self.between = {name: [] for name in ENTRY_POINTS}, between
        for _ in range(steps):
            self.step()
        return self.took


def import_package():
    if os.environ["BENCH_PACKAGE"] == "none":
        return
    import lockstep

    lockstep.init()
    if not lockstep.enabled():
        sys.exit("the library is not found: LOCKSTEP_LIBRARY names it")


def entry_points(steps, _):
    """One process: warm and cold steps with whatever package PYTHONPATH has."""
    clock = EntryPoints()
    clock.measure(200, lambda: None)
    clock.measure(3, clock.other_work)
    result = {"cold": clock.measure(steps, clock.other_work), "warm": clock.measure(20 * steps, lambda: None)}
    if os.environ["BENCH_PACKAGE"] != "none":
        import lockstep

        result["steps"] = lockstep.summary()["steps"]
        if result["steps"] < 21 * steps:
            sys.exit(f"the hook saw {result['steps']} steps of {21 * steps}: nothing was measured")
    print(json.dumps(result))


def entry_points_report(options):
    before = {"before": str(options.against)} if options.against else {}
    packages = {"none": "", **before, "now": str(ROOT / "python")}
    took = {name: {way: {entry_point: [] for entry_point in ENTRY_POINTS} for way in ("warm", "cold")} for name in packages}
    blocks = {name: [] for name in packages}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for number in range(options.blocks):
            for name in packages if number % 2 else reversed(packages):
                os.environ["PYTHONPATH"], os.environ["BENCH_PACKAGE"] = packages[name], name
                block = run("entry_points", options, folder)
                for way in ("warm", "cold"):
                    for entry_point in ENTRY_POINTS:
                        took[name][way][entry_point] += block[way][entry_point]
                blocks[name].append(statistics.median(map(sum, zip(*block["cold"].values()))) / 1e3)

    def cell(values):
        return f"{statistics.median(values) / 1e3:.1f} / {statistics.quantiles(values, n=10)[-1] / 1e3:.1f}"

    columns = [(name, way) for way in ("cold", "warm") for name in packages]
    lines = [
        f"`bench/python/hook_cost.py --entry-points --steps {options.steps} --blocks {options.blocks}`: {machine()}. {options.steps} cold",
        f"and {20 * options.steps} warm steps in each of {options.blocks} processes a column, in turns. Cold: {COLD_BYTES >> 20} MiB are read and other",
        "Python and torch code runs before every entry point. Us, median / 90th percentile; none: the same clocks and calls",
        "without the package, to be taken off.",
        "",
        "| entry point | " + " | ".join(f"{way}, {name}" for name, way in columns) + " |",
        "|---|" + "---|" * len(columns),
        *[f"| {entry_point} | " + " | ".join(cell(took[name][way][entry_point]) for name, way in columns) + " |" for entry_point in ENTRY_POINTS],
    ]
    sums = {(name, way): [sum(step) for step in zip(*took[name][way].values())] for name, way in columns}
    lines.append("| step | " + " | ".join(cell(sums[column]) for column in columns) + " |")
    own = [
        "" if name == "none" else f"**{(statistics.median(sums[name, way]) - statistics.median(sums['none', way])) / 1e3:.1f}**"
        for name, way in columns
    ]
    lines += ["| the hook's own | " + " | ".join(own) + " |", ""]
    lines += ["Blocks, us of a cold step: " + "; ".join(f"{name} {' '.join(f'{us:.0f}' for us in told)}" for name, told in blocks.items()) + ".", ""]
    return "\n".join(lines)


def machine():
    version = subprocess.check_output(
        [sys.executable, "-c", "import torch; print(torch.__version__)"], text=True
    ).strip()
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return (
        f"{model}, {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" torch {version} on the CPU, one thread; load of the machine at the end {os.getloadavg()[0]:.1f}"
    )


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
    on, off = (" ".join(f"{cpu:.1f}" for _, cpu in both[which]) for which in ("on", "off"))
    spread = [f"(pairs {min(pair):.1f} to {max(pair):.1f})" for pair in pairs]
    kept = "kept" if cost < TARGET_US else "MISSED"
    lines = [
        f"`bench/python/hook_cost.py --steps {options.steps} --blocks {options.blocks}`: {machine()}.",
        "A step is one fetch, forward, backward and optimizer step of a linear",
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
    parser.add_argument("--entry-points", "--doors", action="store_true", help="each entry point of the hook alone, caches warm and cold")
    parser.add_argument("--against", type=pathlib.Path, help="another version's python/, in turns with this one")
    parser.add_argument("--part", choices=("inside", "without", "entry_points"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        {"inside": inside, "without": without, "entry_points": entry_points}[options.part](options.steps, options.blocks)
        return
    print((entry_points_report if options.entry_points else report)(options))


if __name__ == "__main__":
    main()
