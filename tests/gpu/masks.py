"""What asking NCCL costs, by message size: all-reduces of 64 KB to 16 MB under several masks, beside no plugin.

One job for each of SIDES is alive, all on the same GPU, and they take turns: of every size each runs a block, in an order that is turned
round from round to round, so that whatever slows the machine for a while slows all. A round gives one difference from "no plugin" for
each size and side; the interval is taken over rounds. "no plugin, again" is a second job without one: its difference is how far off the
method itself is, because jobs differ by what stays the same while a process lives (where memory lies, which sockets share a queue).

No agent runs. What a mask costs is NCCL's own work for it, plus the plugin's callbacks.

Not shown: NVLink and shared memory. All ranks share one GPU, which NCCL allows only where each is a "host" of its own (NCCL_HOSTID), so
messages go through sockets and take longer than inside a node. The difference in us is what carries over, the one in % is not."""
import argparse
import json
import signal
import statistics
import time

from overhead import mean_and_half_width
from programs import PLUGIN, Job, cores_for, fresh, ready_machine

SIZES = [1 << power for power in range(16, 25)]  # bytes
# name: what it stands for in the table, has the plugin, its LOCKSTEP_NCCL_MASK
SIDES = {
    "none": ("no plugin", False, None),
    "null": ("no plugin, again", False, None),
    "auto": ("what the plugin chooses", True, None),
    "low": ("operations (0x6)", True, "0x6"),
    "full": ("everything (0x105e)", True, "0x105e"),
}
BLOCK_S = 0.12
# The plugin decides by the rate of the last quarter of a second: what it chooses shows only after two of those.
SETTLE_S = 0.6
FIRST_COUNT = 40
COUNT_MAX = 4000


def count_for(seconds, us):
    """How many all-reduces of this length fit; all ranks have to make the same number."""
    return max(10, min(COUNT_MAX, int(seconds * 1e6 / us)))


class Side:
    def __init__(self, name, folder, options, cores):
        _, plugin, mask = SIDES[name]
        self.settle_s = SETTLE_S if name == "auto" else 0.0
        self.job = Job(f"masks_{name}", folder, "messages", world=options.ranks, plugin=PLUGIN if plugin else None, cores=cores, take_turns=1,
                       environment={"LOCKSTEP_NCCL_MASK": mask} if mask else {})

    def block(self, size, count, settle):
        """Microseconds of one all-reduce: the mean over the block, the slowest rank's."""
        self.job.say(f"{size} {count} {settle}")
        told = [line for lines in self.job.await_block() for line in lines if line.startswith("us ")]
        return max(float(line.split()[1]) for line in told)

    def end(self):
        self.job.say("end")
        return self.job.wait(20)


def measure(sides, sizes, seconds, clock=time.monotonic, said=print):
    """Rounds of blocks until the time is up: {size: {side: [us of each round]}}. The first round, which finds out how long a block is
    and opens NCCL's connections, does not count. A round that cannot end in time is not begun."""
    began = clock()
    us = {size: {name: [] for name in sides} for size in sizes}
    usual, longest, done = {}, 0.0, 0
    while clock() - began + longest <= seconds:
        at = clock()
        for size in sizes:
            order = list(sides)
            turn = done % len(order)
            order = order[turn:] + order[:turn]
            for name in order if done % 2 == 0 else order[::-1]:
                side = sides[name]
                known = usual.get((size, name))
                count = count_for(BLOCK_S, known) if known else FIRST_COUNT
                settle = count_for(side.settle_s, known) if known and side.settle_s else 0
                usual[size, name] = side.block(size, count, settle)
                if done > 0:
                    us[size][name].append(usual[size, name])
        done += 1
        longest = max(longest, clock() - at) if done > 1 else 0.0
        said(f"  round {done}: {clock() - at:.1f} s", flush=True)
    return us


def compare(us):
    """{size: {"none_us", side: {"us", "us_half", "percent", "percent_half"}}}: differences from "none" round by round, 95 %."""
    result = {}
    for size, by_side in us.items():
        none = by_side["none"]
        row = {"none_us": statistics.median(none), "rounds": len(none)}
        for name, values in by_side.items():
            if name == "none":
                continue
            mean_us, half_us = mean_and_half_width([a - b for a, b in zip(values, none)])
            mean, half = mean_and_half_width([(a / b - 1) * 100 for a, b in zip(values, none)])
            row[name] = {"us": mean_us, "us_half": half_us, "percent": mean, "percent_half": half}
        result[size] = row
    return result


def size_text(size):
    return f"{size >> 20} MB" if size >= 1 << 20 else f"{size >> 10} KB"


def table(compared):
    """Markdown: microseconds without the plugin, then each side's difference in % ± its interval, and in us."""
    names = [name for name in SIDES if name != "none"]
    lines = ["| bytes | rounds | no plugin, us | " + " | ".join(SIDES[name][0] for name in names) + " |", "|---|---|---|" + "---|" * len(names)]
    for size, row in compared.items():
        cells = []
        for name in names:
            one = row[name]
            half, half_us = ("?" if width is None else f"{width:.1f}" for width in (one["percent_half"], one["us_half"]))
            cells.append(f"{one['percent']:+.1f} % ± {half} ({one['us']:+.1f} us ± {half_us})")
        lines.append(f"| {size_text(size)} | {row['rounds']} | {row['none_us']:.0f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def sizes_of(text):
    sizes = [int(word) for word in text.split(",")]
    if not sizes or any(size < 4 or size % 4 for size in sizes):
        raise argparse.ArgumentTypeError(f"{text}: sizes in bytes, multiples of 4, joined by commas")
    return sizes


def main(out, words):
    parser = argparse.ArgumentParser(prog="run.py OUT masks")
    parser.add_argument("--seconds", type=float, default=100.0, help="for the measurement itself; building and starting take about a minute more")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", type=sizes_of, default=SIZES, help="in bytes, joined by commas")
    options = parser.parse_args(words)

    def too_long(*_):
        raise TimeoutError(f"masks did not end in {options.seconds + 120:.0f} s")

    signal.signal(signal.SIGALRM, too_long)
    with ready_machine():
        signal.alarm(int(options.seconds) + 120)
        cores, _ = cores_for(options.ranks)
        sides = {}
        try:
            for name in SIDES:
                sides[name] = Side(name, fresh(out / f"masks_{name}"), options, cores)
            for side in sides.values():
                side.job.await_block()
            us = measure(sides, options.sizes, options.seconds)
            for name, side in sides.items():
                codes = side.end()
                if any(codes):
                    raise SystemExit(f"masks {name}: exit {codes}; see {side.job.folder}")
        finally:
            signal.alarm(0)
            for side in sides.values():
                side.job.kill()
    if not all(us[options.sizes[-1]].values()):
        raise SystemExit(f"masks: no whole round in {options.seconds:.0f} s; give it more --seconds or fewer --sizes")
    compared = compare(us)
    (out / "masks.json").write_text(json.dumps({"options": {"seconds": options.seconds, "ranks": options.ranks}, "compared": compared, "all_us": us}, indent=1))
    print(table(compared), flush=True)
