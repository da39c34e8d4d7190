#!/usr/bin/env python3
"""The published what-if results of ByteDance-Seed/StragglerAnalysis beside ours, on its own traces.

DIR is the `data` folder of that repository: trace-NAME.parquet, meta-NAME.yaml, and what its authors got
(result-NAME.json, mw-NAME.json, ms-NAME.json). It stays outside this tree. Exit status 1 where ours differ by more than
the tolerance."""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys

TOLERANCE = 1e-5  # the authors compute in 32-bit numbers
TYPES = {
    "forward-compute": "forward compute",
    "backward-compute": "backward compute",
    "forward-pp-comm": "forward send/receive",
    "backward-pp-comm": "backward send/receive",
    "params-all-gather": "gather of parameters",
    "grads-reduce-scatter": "scatter of gradients",
    "layernorm-grads-all-reduce": "sum of layernorm gradients",
    "embedding-grads-all-reduce": "sum of embedding gradients",
    "optimizer-clip-main-grad": "clipping of gradients",
    "optimizer": "optimizer",
    "gc": "garbage collection",
}


class Row:
    def __init__(self, what: str, theirs: float, ours: float):
        self.what, self.theirs, self.ours = what, theirs, ours
        self.difference = abs(theirs - ours)

    def text(self) -> str:
        return f"| {self.what} | {self.theirs:.5f} | {self.ours:.5f} | {self.difference:.1e} |"


def mean(by_step: dict[str, float]) -> float:
    return statistics.fmean(by_step.values())


def load(path: pathlib.Path) -> dict:
    return json.loads(path.read_text())


def compare(folder: pathlib.Path, name: str, ours: dict) -> tuple[list[Row], float, int]:
    result, mw, ms = (load(folder / f"{kind}-{name}.json") for kind in ("result", "mw", "ms"))
    recorded, replayed = mean(result["step_t_base"]), mean(result["step_t_nodelay"])
    rows = [
        Row("step as recorded, s", recorded, ours["recorded_s"]),
        Row("replayed, T, s", replayed, ours["replayed_s"]),
        Row("ideal, T_ideal, s", mean(result["step_t_noblk"]), ours["ideal_s"]),
        Row("**S**", result["blocking_slowdown"], ours["slowdown"]),
        Row("**M_W**, worst 3 % of workers", mw["Mw"], ours["worst_workers_share"]),
        Row("**M_S**, last stage", ms["Ms"], ours["last_stage_share"]),
        Row("replay error", abs(recorded - replayed) / recorded, ours["replay_error"]),
    ]
    types = {part["name"]: part["slowdown"] for part in ours["types"]}
    inner = [Row(name, value, types[TYPES[name]]) for name, value in result["blocking_decompose_by_optype"].items()]
    for kind in ("dp_rank", "stage"):
        mine = ours["dp_slowdown" if kind == "dp_rank" else "stage_slowdown"]
        inner += [Row(f"{kind} {key}", value, mine[int(key)]) for key, value in result[f"blocking_decompose_by_{kind}"].items()]
    return rows, max(row.difference for row in inner), len(inner)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, metavar="DIR", help="the `data` folder of the published traces")
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="where lockstep is")
    parser.add_argument("--runs", type=int, default=5, help="times are the median of so many (default 5)")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the report")
    arguments = parser.parse_args()
    traces = sorted(arguments.folder.glob("trace-*.parquet"))
    if not traces:
        print(f"{arguments.folder}: no trace-*.parquet here; it is the data folder of ByteDance-Seed/StragglerAnalysis", file=sys.stderr)
        return 2
    lines, worst, times = [], 0.0, []
    for trace in traces:
        name = trace.stem.removeprefix("trace-")
        runs = []
        for _ in range(arguments.runs):
            command = [arguments.bin / "lockstep", "whatif", trace, "--json"]
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["traces"][0])
        ours = runs[0]
        rows, inner, count = compare(arguments.folder, name, ours)
        worst = max([worst, inner] + [row.difference for row in rows])
        lines += [f"## {name}: {ours['operations']:,} operations, {ours['steps']} steps, {ours['workers_total']} workers "
                  f"({ours['dp_ranks']} x {ours['stages']}), {ours['gpus']} GPUs", "",
                  "| | published | ours | difference |", "|---|---|---|---|"]
        lines += [row.text() for row in rows]
        lines += [f"| S of {count} operation types, data-parallel ranks and stages | | | at most {inner:.1e} |", "",
                  f"{ours['sentence']} Shares: "
                  + ", ".join(f"{part['name']} {part['share'] * 100:.1f} %" for part in ours["causes"])
                  + f", unexplained {ours['causes_unexplained'] * 100:.1f} %.", ""]
        took = {key: statistics.median(run["took_ms"][key] for run in runs) for key in ("read", "build", "replay")}
        replays = 2 + 2 * len(ours["types"]) + ours["dp_ranks"] + ours["stages"] + ours["workers_total"] + 9
        times.append(f"| {name} | {took['read']:.0f} | {took['build']:.0f} | {took['replay']:.0f} | {replays} | "
                     f"{took['replay'] * 1e6 / replays / ours['operations']:.0f} |")
    lines += ["## Time", "", "| trace | read, ms | build the graph, ms | all replays, ms | replays | ns per operation and replay |",
              "|---|---|---|---|---|---|", *times, ""]
    head = ["# What-if: the published results beside ours", "",
            "`./dev bench whatif DIR`, DIR being the `data` folder of ByteDance-Seed/StragglerAnalysis (OSDI'25, "
            "Apache-2.0), which stays outside this tree. Published: its `result-`, `mw-` and `ms-` files.",
            f"{platform.machine()}, one core; median of {arguments.runs} runs. Largest difference of any number: "
            f"{worst:.1e} (tolerance {TOLERANCE}; the published ones are computed in 32-bit numbers).", ""]
    report = "\n".join(head + lines).rstrip() + "\n"
    print(report, end="")
    if arguments.out:
        arguments.out.write_text(report)
    if worst > TOLERANCE:
        print(f"ours differ by {worst:.2e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
