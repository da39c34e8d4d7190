"""One rank of plain.py with the Python hook looked at from inside: switched on and off step by step, or its own time counted.

    hook_rank.py turns|counted FOLDER -- arguments of plain.py (with --take-turns)

turns: the hook is off and on by the step, on-off-off-on (ON), in every rank the same. The wrappers stay in place and pass through when it is off.
counted: every entry point of the hook (whatever torch calls of it) is timed; FOLDER/counted_rankR.json has a reading for each block of steps."""
import functools
import json
import os
import pathlib
import runpy
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ON = (True, False, False, True)


class Turns:
    """In place of standard input: plain.py asks here before every block (of one step)."""

    def __init__(self, runtime):
        self.runtime, self.step = runtime, 0

    def readline(self):
        self.runtime.switch(ON[self.step % len(ON)])
        self.step += 1
        return "go\n"


class Counted:
    """In place of standard input: takes a reading before every block."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.ns = self.cpu_ns = self.calls = self.depth = 0
        self.entry_points = {}
        self.readings = []

    def enter(self):
        self.depth += 1
        if self.depth == 1:
            self.cpu_began, self.began = time.thread_time_ns(), time.perf_counter_ns()

    def leave(self, label):
        self.depth -= 1
        if self.depth == 0:
            took = time.perf_counter_ns() - self.began
            self.calls += 1
            self.ns += took
            self.entry_points[label] = self.entry_points.get(label, 0) + took
            self.cpu_ns += time.thread_time_ns() - self.cpu_began

    def called(self, name, function):
        """The function with a clock around it. An entry point inside another counts once."""
        label = f"{name}: {function.__name__.strip('_')}"

        def call(*arguments, **options):
            self.enter()
            try:
                return function(*arguments, **options)
            finally:
                self.leave(label)

        return call

    def guarded(self, name, default=None):
        """As _guard.guarded, with a clock around it."""
        return lambda function: self.called(name, functools.wraps(function)(self.plain(name, default)(function)))

    def around(self, name, original, hook):
        """hook(original), with the clock running whenever neither the job nor the original does: from the job's call to the original's, and from the
        original's end to the job."""
        def own(*arguments, **options):
            outermost = self.depth == 1
            if outermost:
                self.leave(f"{name} begin")
            try:
                return original(*arguments, **options)
            finally:
                if outermost:
                    self.enter()

        wrapper = hook(functools.wraps(original)(own))

        @functools.wraps(original)
        def call(*arguments, **options):
            self.enter()
            try:
                return wrapper(*arguments, **options)
            finally:
                self.leave(f"{name} end")

        return call

    def readline(self):
        marks = self.runtime._marks
        self.readings.append({"steps": 0 if marks is None else marks.steps, "ns": self.ns, "cpu_ns": self.cpu_ns, "calls": self.calls, "entry_points": dict(self.entry_points)})
        return "go\n"

    def timer_ns(self):
        """What the clock itself adds to an entry point."""
        def nothing():
            pass

        empty = self.called("clock", nothing)
        self.ns = 0
        for _ in range(10_000):
            empty()
        return self.ns / 10_000


def main():
    how, folder, rest = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[4:]
    sys.path.append(str(HERE.parent.parent / "python"))
    import lockstep
    from lockstep import _guard, _runtime

    if how == "counted":
        told = Counted(_runtime)
        told.plain, _guard.guarded = _guard.guarded, told.guarded
        from lockstep import _torch_hooks

        _torch_hooks.measured = told
    else:
        told = Turns(_runtime)
    lockstep.init()
    if not lockstep.enabled():
        sys.exit("the hook is not on: LOCKSTEP_LIBRARY has to name liblockstep.so")
    sys.stdin = told
    sys.argv = [str(HERE / "plain.py"), *rest]
    runpy.run_path(sys.argv[0], run_name="__main__")
    _runtime.switch(True)
    if how == "counted":
        told.readline()
        result = {"readings": told.readings, "timer_ns": told.timer_ns()}
        (folder / f"counted_rank{os.environ['RANK']}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
