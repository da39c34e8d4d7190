"""Conditions that take turns inside one run, block by block: the order, and what a comparison of them says."""
import math
import random
import statistics

from overhead import mean_and_half_width

SKIPPED = 3  # steps of a block in which what was switched settles


def plan_of(conditions, seed, block):
    """The condition of a block: each comes once in a round, in an order that is drawn anew for every round."""
    order = list(conditions)
    random.Random(f"{seed}:{block // len(order)}").shuffle(order)
    return order[block % len(order)]


def blocks_of(steps, block):
    """Mean and median step of each block in ms, over ranks and over the steps that count. steps: of each rank, when every step began in ns."""
    ranks = [[(b - a) / 1e6 for a, b in zip(one, one[1:])] for one in steps]
    all_steps = [statistics.fmean(one) for one in zip(*ranks)]
    counted = [all_steps[at + SKIPPED : at + block] for at in range(0, len(all_steps), block)]
    return [(statistics.fmean(one), statistics.median(one)) for one in counted if one]


def compare(blocks, conditions, seed):
    """name: difference to "off" of means and of medians, each with its half width, in percent; and the mean step in ms."""
    rounds = []
    for at in range(0, len(blocks) - len(conditions) + 1, len(conditions)):
        rounds.append({plan_of(conditions, seed, block): blocks[block] for block in range(at, at + len(conditions))})
    result = {}
    for name in conditions:
        row = {"ms": statistics.fmean(one[name][0] for one in rounds), "rounds": len(rounds)}
        for which, label in ((0, "mean"), (1, "median")):
            logs = [100 * math.log(one[name][which] / one["off"][which]) for one in rounds]
            row[label], row[f"{label}_half"] = mean_and_half_width(logs)
        result[name] = row
    return result


def table(kind, result, shares):
    """shares: of a core, by condition."""
    lines = ["", f"### {kind}, {result['off']['rounds']} rounds, step without {result['off']['ms']:.1f} ms", "", "| on | mean step | median step | agent, share of a core |", "|---|---|---|---|"]
    for name, row in result.items():
        if name != "off":
            halves = [row["mean_half"] or math.nan, row["median_half"] or math.nan]
            share = shares.get(name)
            lines.append(f"| {name} | {row['mean']:+.2f} % ± {halves[0]:.2f} | {row['median']:+.2f} % ± {halves[1]:.2f} | {'' if share is None else f'{100 * share:.1f} %'} |")
    return lines
