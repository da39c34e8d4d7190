#!/usr/bin/env python3
"""Writes the numbers of docs/proofs.md and README.md from the measured files in bench/results.

    tools/make_proofs.py            write them, between the marks "numbers" and "end of numbers"
    tools/make_proofs.py --check    say whether they are as this program would write them

A number stands in one place, the measured file; who measures again runs this afterwards.
"""
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- numbers: written by tools/make_proofs.py -->\n", "<!-- end of numbers -->\n"


class Number(NamedTuple):
    what: str
    text: str  # {0}, {1}...: what the groups of the patterns found, in their order
    file: str
    patterns: tuple  # each is searched behind the one before; ^ is the start of a line
    command: str
    in_readme: bool = False


def row(label, column=1):
    """The pattern of a cell in the table row of this label; column 1 is the first behind the label."""
    return r"^\| " + re.escape(label) + r" *" + r"\|[^|\n]*" * (column - 1) + r"\| *([^|\n]*?) *\|"


NUMBERS = [
    Number("simulated faults that no rule was tuned on, named rightly at the first answer",
           "rank {2}, layer {3} ({0} scenarios, {1} faults); one false verdict in {4} healthy hours", "score.md",
           (r"^(\d+) scenarios, (\d+) faults", row("rank, first answer", 2), row("layer, first answer", 2), r"\(1 in ([\d.]+) h\)"),
           "./dev score", True),
    Number("simulated healthy and odd jobs that nobody had looked at: false confirmed verdicts",
           "{1} in {0} job-hours, where one in 1,000 is stated", "score-hard.md", (r"^\| 28000001 \| ([\d,.]+) \| (\d+) \|",),
           "lockstep score --healthy-hours", True),
    Number("the same faults in time", "detected within 3 s or 2 steps {0}, a verdict within 10 s {1}", "score.md",
           (r"^\| (?:faults of 20 % and more )?detected within 3 s or 2 steps *\|[^|\n]*\| *([^|\n]*?) *\|",
            r"^\| verdict within 10 s(?: or 4 steps)? *\|[^|\n]*\| *([^|\n]*?) *\|"), "./dev score"),
    Number("real NCCL jobs on an H200, faults injected live, healthy runs among them", "{0} right (rank and layer)", "h200.md",
           (r"after the wrong and the missed one were mended", r"\*\*(\d+ of \d+) right\*\*"), "tests/gpu/run.py OUT live ddp hyb", True),
    Number("median step with plugin, hook and agent where ranks take every core (H200)",
           "DDP {0}, FSDP2 {1}, pipeline {2} (95 % interval)", "h200.md",
           (r"twice the median:", row("DDP, batch 192, width 256", 4), row("FSDP2, batch 160, width 256", 4),
            row("pipeline, 16 micro-batches of 2, width 512", 4)),
           "tests/gpu/run.py OUT full-node", True),
    Number("the plugin's callbacks for a collective over NVLink (stand-in for NCCL)", "{0} us; NVIDIA's example {1} us", "plugin.md",
           (r"Per collective over NVLink\*\* \(16 channels\): Lockstep ([\d.]+) us, NVIDIA's example ([\d.]+)",), "./dev bench plugin", True),
    Number("the agent reading 8 GPUs (1 real H200, 7 replayed), host and network every second", "{0} % of a core, {1} MiB", "node-h200.md",
           (row("agent, 8 GPUs (1 real, 7 replayed), 1 Hz", 2), r"\|([^|]*)\|"), "tests/gpu/run.py OUT node", True),
    Number("the agent on a recorded node with 8 GPUs, both scraped every second", "{1} of a core; node_exporter {0}", "node.md",
           (r"^\| CPU, share of one core \| ([^|]*?) \|(?:[^|]*\|){2} ([^|]*?) \|",), "./dev bench node"),
    Number("what a GPU costs the network, a step a second", "{0} kB/s (8 ranks), {1} kB/s (4 ranks)", "node-wire.md",
           (r"^\| hyb_healthy[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|", r"^\| ddp_healthy[^|]*\|[^|]*\|[^|]*\| ([\d.]+) \|"), "python3 bench/node/wire.py"),
    Number("a million series by remote write", "{0} CPU-s per million samples, {2} bytes a series; VictoriaMetrics {1} and {3}", "metrics.md",
           (row("CPU-s per million samples, after the first step"), r" ([\d.]+) \([\d.]+x\)", row("memory, bytes per series"),
            r" ([\d,]+) \([\d.]+x\)"), "./dev bench metrics", True),
    Number("a fleet's metrics for ten minutes on two cores, load included",
           "{0} series, {1} samples taken a second, at most {3}; pushes late by up to {2}", "metrics-fleet.md",
           (r"^## ([\d,]+) series", r"^\| samples/s offered, taken \| [\d,]+, ([\d,]+) \|", row("behind its time at most"),
            r"at most; bytes per series at most \| [\d.]+ GB, ([\d.]+ GB)"), "./dev bench metrics --fleet"),
    Number("PromQL beside Prometheus 3.14", "{0} queries answered alike, {1} cases of its own test scripts", "promql.md",
           (r"([\d,]+ of [\d,]+) agree", r"^([\d,]+ of [\d,]+) cases pass"), "./dev test promql"),
    Number("what TLS and a token cost the server",
           "a small request {2} of CPU instead of {0}, a sample by remote write {4} instead of {1}, a new connection {3}", "access.md",
           (r"^\| neither \|[^|]*\|[^|]*\| ([^|]*?) \|[^|]*\| ([^|]*?) \|",
            r"^\| TLS and a token \|[^|]*\|[^|]*\| ([^|]*?) \| ([^|]*?) \| ([^|]*?) \|"), "./dev bench access"),
    Number("spans received by OTLP", "{0} CPU-s per million, {2} MiB at most; Jaeger 2 {1} and {3} MiB", "traces.md",
           (r"^\| CPU seconds per million spans \| ([\d.]+) \| ([\d.]+)", r"^\| memory at its peak, MiB \| (\d+) \| (\d+)"), "./dev bench traces"),
    Number("a rank's step with five communicators on disk", "{0}", "steps.md", (row("on disk"),), "./dev bench"),
    Number("from the last report of a step to the verdict, one core: 8,192, 32,768 and 98,304 ranks", "{0}, {1} and {2} ms of CPU (median)",
           "diagnosis.md", tuple(r"^\| %s \|[^|]*\|[^|]*\| (\d+)" % ranks for ranks in ("8,192", "32,768", "98,304")), "./dev bench diagnosis"),
]


def measured(number):
    text = (RESULTS / number.file).read_text()
    found, at = [], 0
    for pattern in number.patterns:
        match = re.compile(pattern, re.MULTILINE).search(text, at)
        if match is None:
            sys.exit(f"make_proofs: bench/results/{number.file} has no {pattern!r} (for {number.what!r})")
        found += [group.replace("*", "").strip() for group in match.groups()]
        at = match.end() - 1
    return number.text.format(*found)


def table(numbers, results):
    lines = ["| what | measured | made by |", "|---|---|---|"]
    lines += [f"| {number.what} | {measured(number)} | `{number.command}`, [{number.file}]({results}/{number.file}) |" for number in numbers]
    return "\n".join(lines) + "\n"


def main():
    wrong = 0
    for page, numbers, results in (("README.md", [number for number in NUMBERS if number.in_readme], "bench/results"),
                                   ("docs/proofs.md", NUMBERS, "../bench/results")):
        path = ROOT / page
        text = path.read_text()
        before, begin, rest = text.partition(BEGIN)
        _, end, after = rest.partition(END)
        if not begin or not end:
            sys.exit(f"make_proofs: {page} lacks the marks of its numbers")
        made = before + BEGIN + table(numbers, results) + END + after
        if made == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"{page}: its numbers are not those of bench/results (tools/make_proofs.py writes them)", file=sys.stderr)
            wrong += 1
        else:
            path.write_text(made)
    print(f"proofs: {len(NUMBERS)} numbers, {wrong} pages wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
