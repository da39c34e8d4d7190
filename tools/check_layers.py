#!/usr/bin/env python3
"""Folders depend in one direction. Reads every #include of ours and says which folder reaches where it may not.

A folder may include what is in its row, and what those rows include."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MAY_USE = {
    "base": [],
    "model": ["base"],
    "recorder": ["base"],
    "plugin": ["base", "recorder"],
    "wire": ["model"],
    "net": ["base"],
    "sources": ["model", "recorder"],
    "agent": ["sources", "wire", "net"],
    "bus": ["model"],
    "store": ["model"],
    "query": ["store"],
    "whatif": ["model"],
    "ingest": ["wire", "net", "bus", "store"],
    "diagnosis": ["query"],
    "api": ["diagnosis", "ingest", "net"],
    "sim": ["wire", "net", "recorder", "plugin", "sources"],  # never diagnosis: whoever plays the truth may not know the judge
    "apps/agent": ["agent"],
    "apps/server": ["api"],
    "apps/cli": ["sim", "net", "recorder", "sources", "diagnosis", "whatif"],
}
# What a test may use besides: it plays the other side.
TESTS_ALSO = {"wire": ["model"], "agent": ["recorder"], "sim": ["recorder", "agent"], "whatif": ["wire"]}


def reach(folder):
    seen, todo = {folder}, [folder]
    while todo:
        for other in MAY_USE[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def folder_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return parts[1]
    if parts[0] == "apps":
        return "/".join(parts[:2])
    return parts[0]


def target_of(include):
    parts = include.split("/")
    if parts[0] == "apps":
        return "/".join(parts[:2])
    return parts[0]


def main():
    wrong = []
    files = [path for top in ("src", "plugin", "apps") for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".h", ".cc")]
    for path in files:
        folder = folder_of(path)
        if folder not in MAY_USE:
            wrong.append(f"{path.relative_to(ROOT)}: folder {folder} is not in tools/check_layers.py")
            continue
        allowed = reach(folder)
        if path.name.endswith("_test.cc"):
            for extra in TESTS_ALSO.get(folder, []):
                allowed |= reach(extra)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match or "/" not in match[1]:
                continue
            target = target_of(match[1])
            if target in MAY_USE and target not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {folder} may not use {target} ({match[1]})")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"layers: {len(files)} files, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
