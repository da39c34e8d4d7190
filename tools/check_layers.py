#!/usr/bin/env python3
"""Folders depend in one direction. Reads every #include of ours and says which folder reaches where it may not.

A folder may include what is in its row, and what those rows include. The log and the stores touch the disk through
base/disk.h and base/files.h alone, so that the tests that make it fail (tests/faults) see every call."""
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
    "s3": ["net"],
    "backup": ["s3", "net"],  # what `lockstep backup` keeps and reads; the server's side of it is in server
    "bus": ["model"],
    "store": ["model"],
    "access": ["net", "store"],
    "apply": ["store"],
    "analysis": ["apply", "store"],
    "query": ["analysis", "store"],
    "control": ["access", "wire", "net", "apply", "store"],
    "ingest": ["wire", "net", "bus", "store", "control"],
    "egress": ["wire", "net", "store"],
    "diagnosis": ["analysis", "fabric"],
    "incident": ["alert", "fabric"],  # verdicts and hardware events of one cause; where people stand with it
    "sle": ["diagnosis"],  # minutes of GPUs: judged, charged, kept
    "api": ["incident", "alert", "sle", "diagnosis", "fabric", "query", "control", "ingest", "net", "profile"],
    "server": ["api", "diagnosis", "ingest", "egress", "control", "apply", "bus", "s3"],
    "sim": ["wire", "net", "recorder", "plugin", "sources"],  # never diagnosis: whoever plays the truth may not know the judge
    "testing": ["base"],  # for tests alone: see FOR_TESTS
    "profile": ["analysis"],  # kernel traces of ranks: read, aligned, analysed
    "alert": ["diagnosis", "query", "egress", "access"],  # who is called: alerts, rules, notifiers
    "fabric": ["analysis"],  # the network between nodes: topology, paths, flows of switches
    "apps/agent": ["agent"],
    "apps/server": ["server"],
    "apps/cli": ["backup", "sim", "net", "recorder", "sources", "diagnosis", "analysis", "profile", "query"],
    # Programs that measure and tests that need more than one room: each names the rooms it is about.
    "bench/analyze": ["profile"],
    "bench/client": ["net"],
    "bench/diagnosis": ["diagnosis", "ingest", "sim", "wire"],
    "bench/fabric": ["fabric"],
    "bench/flows": ["wire", "fabric"],
    "bench/full_node": ["plugin"],
    "bench/metrics": ["wire", "net"],
    "bench/node": ["sources"],
    "bench/plugin": ["plugin", "recorder", "sim", "net"],
    "bench/sequential": ["diagnosis"],
    "bench/sle": ["sle"],
    "bench/steps": ["store"],
    "bench/traces": ["ingest", "store", "wire"],
    "tests/alerts": ["alert"],
    "tests/faults": ["bus", "sle", "store"],
    "tests/golden": ["agent", "analysis", "diagnosis", "sim", "wire"],
    "tests/gpu": ["plugin"],
    "tests/hostile": ["agent"],
    "tests/promql": ["query"],
    "tests/scenarios": ["analysis", "apply", "diagnosis", "sim", "wire", "apps/cli"],
    "tests/standins": ["sources"],
    "tests/uploads": ["agent"],
}
# What a test may use besides: it plays the other side.
TESTS_ALSO = {"wire": ["model"], "agent": ["recorder"], "sim": ["recorder", "agent"], "analysis": ["wire"],
              "control": ["diagnosis", "ingest"], "egress": ["ingest"], "alert": ["ingest"], "incident": ["ingest"],
              "ingest": ["agent"], "server": ["agent"]}

# Tests, fuzzers, benchmarks and what they share: they may use src/testing, which no product may.
FOR_TESTS = re.compile(r"_(test|fuzz|bench|soak|testing|world)\.(cc|h)$|(^|/)(testing|test_\w+)\.h$|/testing/|^(bench|tests)/")

BY_PART = ("apps", "bench", "tests")  # whose folders have a row each

DISK_ONLY = ("bus", "store")
DISK_HEADERS = re.compile(r"\s*#\s*include\s+<(fcntl\.h|unistd\.h|sys/uio\.h|fstream|cstdio|stdio\.h)>")
DISK_CALLS = re.compile(r"(?<![\w>])::(open(at)?|creat|p?readv?|p?writev?|f(data)?sync|sync_file_range|fallocate|f?truncate|rename(at)?|link(at)?|"
                        r"unlink(at)?|mkdir(at)?|rmdir|remove)\(|(?<![\w:.>])(f(data)?sync|ftruncate|pwritev?|preadv?|writev|unlink|mkdir|fopen)\(|"
                        r"std::filesystem::(create_\w+|remove(_all)?|rename|resize_file|copy\w*|permissions)\(")


def may_not_call_disk(path):
    """Code of a store; its tests, benchmarks and fuzzers may call the system's files themselves."""
    return folder_of(path) in DISK_ONLY and not re.search(r"_(test|bench|fuzz)\.cc$|_world\.h$", path.name)


def calls_disk(line):
    return DISK_HEADERS.match(line) or DISK_CALLS.search(line.split("//")[0])


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
    if parts[0] in BY_PART:
        return "/".join(parts[:2])
    return parts[0]


def target_of(include):
    parts = include.split("/")
    if parts[0] in BY_PART:
        return "/".join(parts[:2])
    return parts[0]


def main():
    wrong = []
    files = [path for top in ("src", "plugin", "apps", "bench", "tests") for path in sorted((ROOT / top).rglob("*")) if path.suffix in (".h", ".cc")]
    for path in files:
        folder = folder_of(path)
        if folder not in MAY_USE:
            wrong.append(f"{path.relative_to(ROOT)}: folder {folder} is not in tools/check_layers.py")
            continue
        allowed = reach(folder)
        if re.search(r"_(test|fuzz|bench)\.cc$", path.name):
            for extra in TESTS_ALSO.get(folder, []):
                allowed |= reach(extra)
        if FOR_TESTS.search(str(path.relative_to(ROOT))):
            allowed = allowed | {"testing"}
        disk_only = may_not_call_disk(path)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if disk_only and calls_disk(line):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: {folder} reaches the disk past base/disk.h: {line.strip()}")
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line) if "#" in line else None
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
