"""What every test here needs: the package from the source tree, and a sink that keeps marks as text."""

import itertools
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
sys.path.insert(0, str(PACKAGE))
for name in list(os.environ):
    if name.startswith("LOCKSTEP_") and name != "LOCKSTEP_LIBRARY":
        del os.environ[name]

PHASE_NAMES = ("other", "input", "forward", "backward", "optimizer", "checkpoint", "eval", "sync")


class Marked:
    """A sink: "step 3", "end 3", "+input", "-input", "loss=2.5", "note ...", "group tp 0,1"."""

    live = True

    def __init__(self):
        self.marks = []

    def step_begin(self, number):
        self.marks.append(f"step {number}")

    def step_end(self, number):
        self.marks.append(f"end {number}")

    def phase_begin(self, phase, name=None):
        self.marks.append("+" + (name or PHASE_NAMES[phase]))

    def phase_end(self, phase):
        self.marks.append("-" + PHASE_NAMES[phase])

    def scalar(self, name, value):
        self.marks.append(f"{name}={value:g}")

    def note(self, text):
        self.marks.append("note " + text)

    def group(self, name, ranks):
        self.marks.append(f"group {name} " + ",".join(map(str, ranks)))

    def shutdown(self):
        self.marks.append("shutdown")

    def take(self):
        """What has come since the last take, as one line."""
        text, self.marks = " ".join(self.marks), []
        return text

    def steps(self):
        """step number: its marks, as far as it was closed."""
        steps, number = {}, None
        for mark in self.marks:
            if mark.startswith("step "):
                number = int(mark[5:])
                steps[number] = []
            elif number is not None and not mark.startswith("end "):
                steps[number].append(mark)
        return steps


def clock_of(step_ns=1000):
    """A clock that moves by so much at every look."""
    ticks = itertools.count(0, step_ns)
    return lambda: next(ticks)


def eventually(check):
    """Whether check() came true; only what never does takes so long."""
    deadline = time.monotonic() + 60
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)  # the interval of the poll
    return True
