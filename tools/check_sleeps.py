#!/usr/bin/env python3
"""Says where a test sleeps without saying why.

    tools/check_sleeps.py [FOLDER]      exit code 1 if a sleep has no comment

A test waits for a condition (testing::eventually, harness.eventually, becomes() of tests/web/browser.mjs) or owns the clock; that something
does not happen is shown by something later that did. Where a sleep is the point - the pace of a job that is played, the interval of a poll -
a comment on its line or on the one before says so. Tests are what is in tests/ and every *_test.cc."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent
TESTS = ("tests", ":!tests/data", "*_test.cc")
# By the end of the name: a call that sleeps, in a string too (a program that a test plays), and what a comment looks like.
PYTHON = (re.compile(r"\btime\.sleep\("), re.compile(r"(?:^|\s)#"))
SCRIPT = (re.compile(r"\bwaitForTimeout\(|\bsetTimeout\("), re.compile(r"(?:^|\s)//"))
CXX = (re.compile(r"\b(?:sleep_for|sleep_until|u?sleep|(?:clock_)?nanosleep)\("), re.compile(r"(?:^|\s)//"))
KINDS = {".py": PYTHON, ".mjs": SCRIPT, ".cc": CXX, ".h": CXX}


def unexplained(text, sleeps, comment):
    """Numbers of the lines, from 1."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = sleeps.search(line)
        if found and not comment.match(line.lstrip()) and not comment.search(line, found.end()) and not comment.search(before):
            yield number
        before = line


def main(root):
    # New files count too; 1: none has a sleep.
    found = subprocess.run(["git", "grep", "--untracked", "-lE", "sleep|Timeout", "--", *TESTS], cwd=root, stdout=subprocess.PIPE, text=True)
    assert found.returncode <= 1, "git grep failed"
    paths = [root / name for name in found.stdout.splitlines() if pathlib.Path(name).suffix in KINDS]
    wrong = [f"{path.relative_to(root)}:{number}" for path in paths for number in unexplained(path.read_text(), *KINDS[path.suffix])]
    for place in wrong:
        print(f"{place}: a sleep that nobody explains: wait for a condition, or say on its line or the one before why it sleeps")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
