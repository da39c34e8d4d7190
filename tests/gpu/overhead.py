"""What plugin and agent cost a job: step time with and without them.

Two jobs are alive, one with plugin and agent ("on"), one without ("off"), and train in turns of ten steps, on-off-off-on, so that
whatever slows the machine for a while slows both. The job that waits does nothing, and the agent stands still while "off" trains.
A pair is one such couple; its result is the relative difference of the median step times. Pairs differ by what stays the same
while a process lives (where memory lies, which sockets share a queue), so the interval is taken over pairs."""
import argparse
import json
import math
import os
import signal
import statistics
import time

from programs import PLUGIN, WORLD, Job, cores_for, fresh, plugin_numbers, ready_machine, start_agent

BLOCK = 10
SKIPPED_STEPS = 20
PAIR_S_MAX = 240
# Student's t, two-sided 95 %, by degrees of freedom from 1 on.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
       2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


def mean_and_half_width(values):
    """The mean and the half width of its 95 % confidence interval; None for one value."""
    if len(values) < 2:
        return statistics.fmean(values), None
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.96
    return statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values))


def blocks_of(step_ms):
    """Per block the counted steps, each the mean over ranks. The first steps warm up, the first of a block comes after a pause."""
    steps = [statistics.fmean(one) for one in zip(*step_ms)]
    return [steps[at + 1 : at + BLOCK] for at in range(SKIPPED_STEPS, len(steps), BLOCK)]


def compare(on, off):
    """on, off: blocks_of() each, in the same order."""
    all_on, all_off = sum(on, []), sum(off, [])
    return {
        "on_ms": statistics.median(all_on),
        "off_ms": statistics.median(all_off),
        "difference": statistics.median(all_on) / statistics.median(all_off) - 1,
        "difference_of_means": statistics.fmean(all_on) / statistics.fmean(all_off) - 1,
        "block_differences": [statistics.median(a) / statistics.median(b) - 1 for a, b in zip(on, off)],
    }


def summary(pairs):
    mean, half = mean_and_half_width([pair["difference"] for pair in pairs])
    of_means, half_of_means = mean_and_half_width([pair["difference_of_means"] for pair in pairs])
    of_blocks, half_of_blocks = mean_and_half_width(sum((pair["block_differences"] for pair in pairs), []))
    return {"pairs": len(pairs), "difference": mean, "half_width": half, "difference_of_means": of_means, "half_width_of_means": half_of_means,
            "difference_of_blocks": of_blocks, "half_width_of_blocks": half_of_blocks,
            "on_ms": statistics.fmean(pair["on_ms"] for pair in pairs), "off_ms": statistics.fmean(pair["off_ms"] for pair in pairs)}


class Side:
    """One of the two jobs, with its agent where it has one."""

    def __init__(self, folder, options, plugin, cores, agent_cores):
        self.on_s = 0.0
        self.agent = start_agent(folder, ["--export", f"file:{folder}/export"], agent_cores) if plugin else None
        self.job = Job(folder.name, folder, options.job, steps=options.steps, world=options.ranks, plugin=plugin, cores=cores, take_turns=BLOCK,
                       layers=options.layers, batch=options.batch, environment={"OMP_NUM_THREADS": "1"})

    def pause(self):
        if self.agent:
            self.agent.signal(signal.SIGSTOP)

    def train_block(self):
        if self.agent:
            self.agent.signal(signal.SIGCONT)
        began = time.monotonic()
        self.job.go()
        self.job.await_block()
        self.on_s += time.monotonic() - began

    def finish(self):
        """Blocks of step times, and what the agent says for itself."""
        self.job.wait(20)
        told = {}
        if self.agent:
            self.agent.signal(signal.SIGCONT)
            time.sleep(0.5)  # two of the agent's rounds
            told = {"agent_cpu_share": self.agent.cpu_s() / self.on_s, "agent_pinned": bool(cores_for(len(self.job.ranks))[1]),
                    "metrics": plugin_numbers(self.agent)}
        return blocks_of(self.job.step_ms()), told

    def stop(self):
        self.job.kill()
        if self.agent:
            self.agent.stop()


def run_pair(folder, index, options, make_side=None):
    """make_side(name, folder): a Side of another kind, for "on" and for "off"."""
    rank_cores, agent_cores = cores_for(options.ranks)
    signal.alarm(PAIR_S_MAX)  # a job that hangs ends the run with an exception
    sides = {}

    def start(name):
        side_folder = fresh(folder / f"pair{index}_{name}")
        if make_side:
            sides[name] = make_side(name, side_folder)
            return
        plugin = PLUGIN if name == "on" and not options.null else None
        sides[name] = Side(side_folder, options, plugin, rank_cores, agent_cores)

    def train(name, blocks=1):
        for _ in range(blocks):
            sides[name].train_block()

    first, second = ("on", "off") if index % 2 == 0 else ("off", "on")
    blocks = options.steps // BLOCK
    try:
        if options.apart:
            for name in (first, second):
                start(name)
                sides[name].job.await_block()
                train(name, blocks)
                sides[name].job.wait(20)
                sides[name].pause()
        else:
            for name in (first, second):
                start(name)
            for side in sides.values():
                side.job.await_block()
            for block in range(blocks):
                for name in (first, second) if block % 2 == 0 else (second, first):
                    for side in sides.values():
                        side.pause()
                    train(name)
        on, told = sides["on"].finish()
        off, _ = sides["off"].finish()
        return {**compare(on, off), **told}
    finally:
        signal.alarm(0)
        for side in sides.values():
            side.stop()


def percent(mean, half):
    return f"{mean * 100:+.2f} % ± " + ("?" if half is None else f"{half * 100:.2f}")


def main(out, arguments):
    parser = argparse.ArgumentParser(prog="run.py OUT overhead")
    parser.add_argument("--job", choices=["ddp", "hyb"], default="ddp")
    parser.add_argument("--ranks", type=int, default=0, help="default 4 (ddp) or 8 (hyb)")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=150, help="per job and pair, the first 20 not counted")
    parser.add_argument("--layers", type=int, default=8, help="size of the data parallel model")
    parser.add_argument("--batch", type=int, default=64, help="rows per rank and step: more of them make the GPU the bottleneck, not the sockets")
    parser.add_argument("--minutes", type=float, default=9.0, help="no pair is begun that would not end within this")
    parser.add_argument("--apart", action="store_true", help="one job after the other instead of in turns")
    parser.add_argument("--null", action="store_true", help="both jobs without the plugin: how far off the method itself is")
    options = parser.parse_args(arguments)
    options.ranks = options.ranks or WORLD[options.job]
    if options.steps < SKIPPED_STEPS + 2 * BLOCK or options.steps % BLOCK:
        parser.error(f"--steps: a multiple of {BLOCK}, at least {SKIPPED_STEPS + 2 * BLOCK}")

    def too_long(*_):
        raise TimeoutError(f"a pair did not end in {PAIR_S_MAX} s")

    signal.signal(signal.SIGALRM, too_long)
    with ready_machine():
        measure(out, options)


def measure(out, options):
    name = f"overhead_{options.job}{options.ranks}" + ("_null" if options.null else "")
    rank_cores, agent_cores = cores_for(options.ranks)
    if os.stat(out).st_dev != os.stat("/dev/shm").st_dev:
        print(f"{name}: OUT is not in /dev/shm: recorders on a disk cost what they would not cost in use", flush=True)
    print(f"{name}: {os.cpu_count()} cores, ranks {f'pinned to {len(rank_cores[0])} each' if rank_cores else 'not pinned'}, agent {'on its own' if agent_cores else 'anywhere'}", flush=True)
    began, longest, pairs = time.monotonic(), 0.0, []
    for index in range(options.pairs):
        at = time.monotonic()
        if at - began + longest > options.minutes * 60:
            print(f"{name}: no time for pair {index + 1} of {options.pairs}", flush=True)
            break
        pair = run_pair(out / name, index, options)
        longest = max(longest, time.monotonic() - at)
        pairs.append(pair)
        print(f"  pair {index + 1}: off {pair['off_ms']:.2f} ms, on {pair['on_ms']:.2f} ms, {pair['difference'] * 100:+.2f} %"
              f" (means {pair['difference_of_means'] * 100:+.2f} %), agent {pair.get('agent_cpu_share', 0) * 100:.2f} % of a core, {time.monotonic() - at:.0f} s", flush=True)
        result = {"options": vars(options), "summary": summary(pairs), "pairs": pairs}
        (out / f"{name}.json").write_text(json.dumps(result, indent=1))
    for line in pairs[-1].get("metrics", []):
        print(f"  {line}")
    told = summary(pairs)
    print(f"{name}: {percent(told['difference'], told['half_width'])} of the median step over {len(pairs)} pairs (95 %); of the mean step "
          f"{percent(told['difference_of_means'], told['half_width_of_means'])}; block by block {percent(told['difference_of_blocks'], told['half_width_of_blocks'])}", flush=True)
