"""Conditions that take turns inside one run, block by block: the order, and what a comparison of them says."""
import math
import random
import statistics

from overhead import mean_and_half_width

SETTLE_MS = 750  # of a block, in which what was switched settles: an agent that stood still reads its backlog in its first polls, four a second
STALL = 2.0  # times the run's median step: a stall, whoever made it. Cut to that in "typical", and counted


def plan_of(conditions, seed, block):
    """The condition of a block: each comes once in a round, in an order that is drawn anew for every round."""
    order = list(conditions)
    random.Random(f"{seed}:{block // len(order)}").shuffle(order)
    return order[block % len(order)]


def blocks_of(steps, block):
    """Of each block, over ranks and over the steps that count: "mean", "median" and "typical" (the mean with stalls cut) in ms, and "stalls" as
    a share of its steps. steps: of each rank, when every step began in ns."""
    ranks = [[(b - a) / 1e6 for a, b in zip(one, one[1:])] for one in steps]
    all_steps = [statistics.fmean(one) for one in zip(*ranks)]
    most = STALL * statistics.median(all_steps)
    found = []
    for at in range(0, len(all_steps), block):
        counted, passed = [], 0.0
        for step in all_steps[at : at + block]:
            if passed >= SETTLE_MS:
                counted.append(step)
            passed += step
        if not counted:
            raise ValueError(f"a block of {block} steps takes {passed:.0f} ms and settles for {SETTLE_MS}: --block should be larger")
        typical = statistics.fmean(min(step, most) for step in counted)
        found.append({"mean": statistics.fmean(counted), "typical": typical, "median": statistics.median(counted), "stalls": sum(step > most for step in counted) / len(counted)})
    return found


MEASURES = ("mean", "typical", "median")


def compare(blocks, conditions, seed):
    """name: difference to "off" of each measure with its half width, in percent; the mean step in ms and the share of stalls."""
    rounds = []
    for at in range(0, len(blocks) - len(conditions) + 1, len(conditions)):
        rounds.append({plan_of(conditions, seed, block): blocks[block] for block in range(at, at + len(conditions))})
    result = {}
    for name in conditions:
        row = {"ms": statistics.fmean(one[name]["mean"] for one in rounds), "rounds": len(rounds), "stalls": statistics.fmean(one[name]["stalls"] for one in rounds)}
        for measure in MEASURES:
            row[measure], row[f"{measure}_half"] = mean_and_half_width([100 * math.log(one[name][measure] / one["off"][measure]) for one in rounds])
        result[name] = row
    return result


def table(kind, result, shares):
    """shares: of a core, by condition."""
    off = result["off"]
    lines = ["", f"### {kind}, {off['rounds']} rounds, step without {off['ms']:.1f} ms, stalls without {100 * off['stalls']:.2f} % of steps", ""]
    lines += ["| on | mean step | stalls cut | median step | stalls | agent, share of a core |", "|---|---|---|---|---|---|"]
    for name, row in result.items():
        if name != "off":
            cells = [f"{row[measure]:+.2f} % ± {row[f'{measure}_half'] or math.nan:.2f}" for measure in MEASURES]
            share = shares.get(name)
            lines.append(f"| {name} | {' | '.join(cells)} | {100 * row['stalls']:.2f} % | {'' if share is None else f'{100 * share:.1f} %'} |")
    return lines
