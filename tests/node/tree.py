#!/usr/bin/env python3
"""The recorded node as a folder of files, at rest or alive.

    tree.py write DIR                     the tree as it was recorded
    tree.py play DIR [--speed N] [--seconds N] [--seed N] [--gpu-script FILE] [--fault NAME@SECONDS[+SECONDS] ...]
                                          writes it and lets it live: N seconds of the node's time for each of ours;
                                          a fault begins at a second of the node's time, and ends so many later
    tree.py faults                        what can go wrong

Point a reader at DIR as its root directory. The NVML stand-in reads --gpu-script (LOCKSTEP_NVML_STANDIN)."""

import argparse
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import faults  # noqa: E402
from node import Node  # noqa: E402


def fault_at(text):
    found = re.fullmatch(r"(\w+)@([0-9.]+)(?:\+([0-9.]+))?", text)
    if not found or found[1] not in faults.FAULTS:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME@SECONDS (names: tree.py faults)")
    return found[1], float(found[2]), float(found[3]) if found[3] else None


def play(node, seconds, speed, scheduled):
    """One second of the node's time after the other, on time, until `seconds` have been played (None: for ever)."""
    ends = {}
    for name, at, lasts in scheduled:
        node.later(name, at)
        if lasts is not None:
            ends[name] = at + lasts
    began = time.monotonic()
    while seconds is None or node.played < seconds:
        time.sleep(max(0.0, began + (node.played + 1) / speed - time.monotonic()))  # the pace of the node
        node.advance(1)
        for name in [name for name, end in ends.items() if node.played >= end and name in node.active()]:
            node.clear(name)
            del ends[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("faults")
    for name in ("write", "play"):
        command = commands.add_parser(name)
        command.add_argument("folder")
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--gpu-script")
        if name == "play":
            command.add_argument("--speed", type=float, default=1.0)
            command.add_argument("--seconds", type=float)
            command.add_argument("--fault", type=fault_at, action="append", default=[])
    options = parser.parse_args()
    if options.command == "faults":
        for name, kind in sorted(faults.FAULTS.items()):
            print(f"{name:16} {kind.__doc__}")
        return
    node = Node(options.seed, gpu_script=options.gpu_script)
    node.write(options.folder)
    if options.command == "play":
        try:
            play(node, options.seconds, options.speed, options.fault)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
