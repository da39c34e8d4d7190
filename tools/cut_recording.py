#!/usr/bin/env python3
"""Cuts a recording of NCCL callbacks (docs/formats/calls.md) down to what a test needs.

    cut_recording.py SOURCE TARGET [--from-step A] [--to-step B] [--thin N] [--round-ns U] [--all-events]

Keeps the operations of the steps A to B (all, unless told) with their kernels, transfers and transfer steps; every
communicator is still made first, and finalized last where it was. Ranks without a step log are cut at the same
collectives as their peers. What stays is consistent: every handle used is started, every communicator shows the same
number of collectives on all its ranks (checked). Writes rankR.calls.zst and steps_rankR.json; needs the zstd program.
"""
import argparse
import collections
import gzip
import json
import pathlib
import re
import subprocess
import sys

COLL, P2P, PROXY_OP, PROXY_STEP, KERNEL_CH = "2", "4", "8", "16", "64"
OPERATIONS = {COLL, P2P}
CHILDREN = {PROXY_OP, PROXY_STEP, KERNEL_CH}
MARGIN_NS = 1_000_000  # between a moved init or finalize and the nearest call that was kept


def read_text(path):
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq", str(path)], check=True, capture_output=True).stdout.decode()
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    return path.read_text()


def find_files(folder, pattern):
    found = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(pattern + r"(\.zst|\.gz)?", path.name)
        if match:
            found[int(match[1])] = path
    return found


class Rank:
    def __init__(self, number, calls_path, steps_path):
        self.number = number
        self.lines = [line.split(" ") for line in read_text(calls_path).splitlines()]
        self.steps = json.loads(read_text(steps_path)) if steps_path else None
        self.comm_of = {fields[3]: fields[4] for fields in self.lines if fields[0] == "I"}

    def collectives(self):
        """(communicator, its how-manieth collective, handle, time) of every collective, in order."""
        counts = collections.Counter()
        for fields in self.lines:
            if fields[0] == "S" and fields[5] == COLL:
                comm = self.comm_of[fields[3]]
                yield comm, counts[comm], fields[4], int(fields[1])
                counts[comm] += 1

    def span(self, first, last):
        """The time of the wanted steps by this rank's own log."""
        wanted = [s for s in self.steps if first <= s["step"] <= last]
        if not wanted:
            sys.exit(f"rank {self.number}: no step from {first} to {last}")
        begin = wanted[0]["t0"] if wanted[0] is not self.steps[0] else 0
        # What follows the last step in the log belongs to it only where the recording is not cut there.
        end = wanted[-1]["t0"] + wanted[-1]["total"] if wanted[-1] is not self.steps[-1] else float("inf")
        return begin, end


def choose_operations(ranks, first, last):
    """Handles of the operations to keep, per rank."""
    kept = {rank.number: set() for rank in ranks}
    ordinals = {}  # communicator: its first collective to keep, and the first after those
    for rank in [rank for rank in ranks if rank.steps]:
        begin, end = rank.span(first, last)
        for fields in rank.lines:
            if fields[0] == "S" and fields[5] in OPERATIONS and begin <= int(fields[1]) < end:
                kept[rank.number].add(fields[4])
        for comm, ordinal, handle, _ in rank.collectives():
            if handle in kept[rank.number]:
                low, high = ordinals.get(comm, (ordinal, 0))
                ordinals[comm] = (low, max(high, ordinal + 1 if end < float("inf") else end))
    for rank in [rank for rank in ranks if not rank.steps]:
        for comm, ordinal, handle, _ in rank.collectives():
            low, high = ordinals.get(comm, (0, 0))
            if low <= ordinal < high:
                kept[rank.number].add(handle)
    return kept


def check_same_collectives(ranks, kept):
    by_comm = collections.defaultdict(dict)
    for rank in [rank for rank in ranks if rank.steps]:
        for comm in rank.comm_of.values():
            by_comm[comm][rank.number] = 0
        for comm, _, handle, _ in rank.collectives():
            by_comm[comm][rank.number] += handle in kept[rank.number]
    for comm, counts in by_comm.items():
        if len(set(counts.values())) > 1:
            sys.exit(f"communicator {comm}: collectives kept differ by rank: {counts}; cut at another step")


def survives(handle, thin):
    """One in `thin`, scattered: every fourth step of a transfer would always use the same buffers, which biases rates."""
    return (int(handle) * 2654435761 >> 16) % thin == 0


def cut_rank(rank, kept_operations, options):
    kept = set(kept_operations)
    body, inits, finals = [], [], []
    for fields in rank.lines[1:]:
        kind = fields[0]
        if kind == "I" and options.from_step is not None:
            inits.append(fields)
        elif kind == "F" and options.to_step is not None:
            finals.append(fields)
        elif kind in "IF":
            body.append(fields)
        elif kind == "S":
            handle, event, parent = fields[4], fields[5], fields[6]
            if event in CHILDREN and parent in kept:
                if event == PROXY_STEP and not survives(handle, options.thin):
                    continue
                kept.add(handle)
            elif options.all_events and event not in OPERATIONS | CHILDREN:
                kept.add(handle)
            elif handle not in kept:
                continue
            if parent not in kept:
                fields[6] = "0"
            if event in OPERATIONS and fields[-1] not in kept:
                fields[-1] = "0"
            body.append(fields)
        elif fields[3] in kept:
            body.append(fields)
    times = [int(fields[1]) for fields in body]
    if not times:
        sys.exit(f"rank {rank.number}: nothing left")
    # Communicators are made just before what was kept, and finalized just after it.
    for fields in inits:
        fields[1] = str(min(times) - MARGIN_NS)
    for fields in finals:
        fields[1] = str(max(times) + MARGIN_NS)
    for fields in inits + body + finals:
        fields[1] = str(int(fields[1]) // options.round_ns * options.round_ns)
    return "".join(" ".join(fields) + "\n" for fields in [rank.lines[0]] + inits + body + finals)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--from-step", type=int, metavar="A", help="first step to keep (default: from the start)")
    parser.add_argument("--to-step", type=int, metavar="B", help="last step to keep (default: to the end)")
    parser.add_argument("--thin", type=int, default=1, metavar="N", help="keep one in N of the transfers' steps")
    parser.add_argument("--round-ns", type=int, default=1, metavar="U", help="round host times down to U ns")
    parser.add_argument("--all-events", action="store_true",
                        help="keep events of the API, groups, launches and the proxy's own, too (no step range then)")
    options = parser.parse_args()
    if options.all_events and (options.from_step is not None or options.to_step is not None):
        parser.error("--all-events goes with whole recordings only")

    calls = find_files(options.source, r"rank(\d+)\.calls")
    logs = find_files(options.source, r"steps_rank(\d+)\.json")
    if not calls:
        sys.exit(f"{options.source}: no rankR.calls")
    ranks = [Rank(number, path, logs.get(number)) for number, path in sorted(calls.items())]
    first = options.from_step if options.from_step is not None else 0
    last = options.to_step if options.to_step is not None else 1 << 60
    kept = choose_operations(ranks, first, last)
    check_same_collectives(ranks, kept)
    options.target.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        text = cut_rank(rank, kept[rank.number], options)
        subprocess.run(["zstd", "-19", "-qfo", str(options.target / f"rank{rank.number}.calls.zst")],
                       input=text.encode(), check=True)
        if rank.steps:
            steps = [step for step in rank.steps if first <= step["step"] <= last]
            rows = ",\n".join(json.dumps(step) for step in steps)
            (options.target / f"steps_rank{rank.number}.json").write_text(f"[{rows}]\n")


if __name__ == "__main__":
    main()
