#!/usr/bin/env python3
"""One word for one thing, the one that people in the field would search for. Says where a word that was replaced has come back.

A word counts in identifiers and prose of code (C++, CMake, Python, the page), tests and documents; the names of tests are sentences. What is
public and kept for a version is in KEPT. bench/results and tests/data say what was measured and recorded, as it was called then."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What is looked for, where one of the words before it stands in the file at all (a search for plain words takes next to nothing), and what we say.
REPLACED = [
    (("door", "Door"), r"\b[Dd]oors?_?\b|[a-z]Doors?\b|\w+_doors?_?\b", "receiver (what comes in), endpoint (API)"),
    (("Book",), r"\b(Signal|Prior|Feedback)Book\b", "SignalStore, CausePriors, FeedbackStore"),
    (("QueryTurns", "find_turns"), r"\bQueryTurns\b|\bfind_turns\b", "QueryScheduler, rotating_stall"),
    (("Who", "roster", "Roster"), r"\bWho(Metric|Inputs|Options)?\s+[a-z_]+[;({]|\bRoster\b|\w*roster\w*", "GpuOwnership, OwnerTable"),
    (("DetailAsker", "StackAsks", "DetailWish", "fulfil"), r"\bDetailAsker\b|\bStackAsks\b|\bDetailWish\b|\bfulfil\b",
     "DetailRequester, StackRequester, request, issue"),
    (("HookWord", "Harvest", "spoilt"), r"\bHookWord\b|\bHarvest\b|\w*spoilt\w*", "HookConfig, CollectedBatch, corrupt"),
    (("HubSystem", "step_meetings"), r"\bHubSystem\b|\bstep_meetings\b", "OffsetSolver, collective_matching"),
    (("Answer", "GrpcReply"), r"\b(H2|Text|Grpc)Answer\b|\bGrpcReply\b|\bHttpAnswerParser\b|\bstruct Answer\b|\bAnswer\s+[a-z_]+(;|\(| = )",
     "...Response"),
    (("told", "Told"), r"\w_told\b|\btold_\w|[a-z]Told\b|\w*Told[A-Z]\w*", "reported"),
]
KEPT = (
    "lockstep_step_row_groups_spoilt_total", "lockstep_span_row_groups_spoilt_total", "lockstep_log_record_groups_spoilt_total",
    "lockstep_agent_points_told_total",
    '"--doors"',
    "src/base/counters.cc", "src/base/counters_test.cc",  # the former label of a receiver
)
NOT_HERE = ("bench/results/", "tests/data/", "tools/check_words.py")
KINDS = (".cc", ".h", ".c", ".md", ".tsx", ".ts", ".mjs", ".css", ".py", ".sh", ".cmake", "CMakeLists.txt")


def wrong_words(text):
    """Number of the line, the word and what we say instead."""
    for kept in KEPT:
        text = text.replace(kept, "")
    wanted = [row for row in REPLACED if any(word in text for word in row[0])]
    for number, line in enumerate(text.splitlines(), 1) if wanted else ():
        if re.match(r"\s*((TEST|TEST_F|TEST_P|TYPED_TEST)\(|def test_)", line):
            continue  # a sentence
        for words, pattern, instead in wanted:
            if any(word in line for word in words) and (found := re.search(pattern, line)):
                yield number, found.group(0), instead


def main():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [name for name in files if name.endswith(KINDS) and not name.startswith(NOT_HERE) and name not in KEPT and (ROOT / name).is_file()]
    wrong = []
    for name in files:
        text = (ROOT / name).read_text(encoding="utf-8")
        wrong += [f"{name}:{number}: \"{word}\": we say {instead}" for number, word, instead in wrong_words(text)]
    print("\n".join(wrong + [f"words: {len(files)} files, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
