"""The one recorder of this process: made at the first mark, never in a loader's worker, gone in a forked child.

A process that is only started with the hook (a launcher, a compiler's worker) makes no mark and so no recorder.
"""

import atexit
import os
import sys
import threading

from . import _evidence, _failure, _guard, _library
from ._marks import INPUT, Marks

RANK_VARIABLES = ("LOCKSTEP_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

_lock = threading.RLock()
_marks: Marks | None = None
_off = False
_first_step = 0
_when_made: list = []  # called with the marks


class Live:
    """What the hot hooks look at: the marks; None where there are none yet or the switch is off (marks() knows)."""

    __slots__ = ("marks",)

    def __init__(self):
        self.marks: Marks | None = None


live = Live()


def _set(made: Marks | None, off: bool) -> None:
    global _marks, _off
    _marks, _off = made, off
    live.marks = None if off else made


def switch(on: bool) -> None:
    """For measuring: the hooks stay in place and pass through, or go on."""
    _set(_marks, not on)


def _worth(slot: str) -> property:
    """Something that makes a step worth counting, from when it is first set."""

    def read(self):
        return getattr(self, slot)

    def write(self, value):
        setattr(self, slot, value)
        self._count()

    return property(read, write)


class Achieved:
    """FLOPs, tokens and peak: what a step was worth. Sends "flops" and "peak_flops" with every step. A job that reports
    nothing of the kind has no call at its steps' ends."""

    __slots__ = (
        "peak", "dtype", "flops", "flops_ns", "tokens", "latest",
        "_per_step", "_per_token", "_tokens_per_step", "_peak_looked", "_flops_reported", "_tokens_reported", "_marks",
        "_counts",
    )  # fmt: skip

    per_step: float | None = _worth("_per_step")
    per_token: float | None = _worth("_per_token")
    tokens_per_step: float | None = _worth("_tokens_per_step")

    def __init__(self):
        self._marks: Marks | None = None
        self._counts = False  # step_ends() is, or has to be, called
        self._per_step = self._per_token = self._tokens_per_step = None
        self.peak: float | None = None
        self.dtype = "bf16"
        self._peak_looked = False
        self._flops_reported: float | None = None  # by log() in this step
        self._tokens_reported: float | None = None
        self.flops = 0.0
        self.flops_ns = 0
        self.tokens = 0.0
        self.latest: dict[str, float] = {}

    def told(self, name: str, value: float) -> None:
        self.latest[name] = value
        if name == "flops":
            self._flops_reported = value
            self._count()
        elif name == "tokens":
            self._tokens_reported = (self._tokens_reported or 0) + value
            self._count()
        elif name == "peak_flops":
            self.peak = value

    def look_for_peak(self) -> None:
        """The variable, else the table by the device's name. Never starts CUDA; asks again until the job has."""
        if self.peak is not None or self._peak_looked:
            return
        text = os.environ.get("LOCKSTEP_PEAK_FLOPS")
        if text:
            self._peak_looked = True
            try:
                self.peak = float(text)
            except ValueError:
                _guard.say_once("peak", f"LOCKSTEP_PEAK_FLOPS is {text[:40]!r}, not a number; MFU is not known")
            return
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return
        self._peak_looked = True
        from . import flops

        name = torch.cuda.get_device_name()
        self.peak = flops.peak(name, self.dtype)
        if self.peak is None:
            _guard.say_once(
                "peak", f"peak FLOP/s of {name!r} in {self.dtype} are not known; LOCKSTEP_PEAK_FLOPS sets them"
            )

    def count_steps_of(self, marks: Marks) -> None:
        self._marks = marks
        if self._counts:
            marks._at_step_end.append(self.step_ends)

    def _count(self) -> None:
        if not self._counts:
            self._counts = True
            if self._marks is not None:
                self._marks._at_step_end.append(self.step_ends)

    def step_ends(self, step: int, duration_ns: int) -> None:
        marks = self._marks
        tokens = self._tokens_reported if self._tokens_reported is not None else self._tokens_per_step
        flops = self._flops_reported
        if flops is None:
            flops = self._per_step
            if flops is None and self._per_token is not None and tokens is not None:
                flops = self._per_token * tokens
            if flops is not None:
                marks.scalar("flops", flops)
        if tokens is not None:
            self.tokens += tokens
            if self._tokens_reported is None:
                marks.scalar("tokens", tokens)
        if flops is not None:
            self.flops += flops
            self.flops_ns += duration_ns
            self.look_for_peak()
            if self.peak is not None:
                marks.scalar("peak_flops", self.peak)
        self._flops_reported = self._tokens_reported = None


achieved = Achieved()


def started() -> bool:
    return _marks is not None


def switched_off() -> bool:
    return _off or _guard.disabled()


def when_made(call) -> None:
    """call(marks) now, or as soon as there are marks."""
    with _lock:
        made = _marks
        if made is None:
            _when_made.append(call)
    if made is not None:
        call(made)


def set_first_step(number: int) -> None:
    global _first_step
    _first_step = int(number)


def rank_is_known() -> bool:
    return any(os.environ.get(name) for name in RANK_VARIABLES)


def tell_identity(**variables) -> None:
    """Identity for a recorder that is not made yet; what the environment says already stays."""
    if started():
        return
    for name, value in variables.items():
        if value is not None and not os.environ.get(name):
            os.environ[name] = str(value)


def _is_loader_worker() -> bool:
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def marks() -> Marks | None:
    """None: nothing is recorded in this process."""
    if _marks is not None:
        return None if _off else _marks
    if _off:
        return None
    return _make()


def _make() -> Marks | None:
    with _lock:
        if _marks is None and not _off:
            if _guard.disabled() or _is_loader_worker():
                _set(None, True)
                return None
            sink = _library.open_library()
            if not sink.live:
                _set(None, True)
                return None
            made = Marks(sink, first_step=_first_step)
            if hasattr(sink, "enabled") and sink.enabled():  # the recorder is there, or made now
                _evidence.offer()
            achieved.count_steps_of(made)
            atexit.register(_at_exit)
            _failure.install()
            _set(made, False)
            from . import _groups

            _groups.tell_all(sink)
            for call in _when_made:
                call(made)
            _when_made.clear()
    return _marks


def use_sink(sink, **options) -> Marks:
    """For tests: marks go to `sink`."""
    global achieved
    achieved = Achieved()
    made = Marks(sink, **options)
    achieved.count_steps_of(made)
    _set(made, False)
    return made


def reset() -> None:
    """For tests: as before the first mark."""
    global achieved
    achieved = Achieved()
    _set(None, False)


def _at_exit() -> None:
    if _failure.raised():  # it has not said that it was done: the agent sees how it ends
        _evidence.withdraw()
    else:
        shutdown()


def shutdown() -> None:
    with _lock:
        if _marks is None or _off:
            return
        try:
            _marks.finish()
            _evidence.withdraw()
            _marks.sink.shutdown()
        except Exception as error:
            _guard.broken("shutdown", error)
        _set(_marks, True)


def summary() -> dict:
    made = _marks
    if made is None or made.steps == 0:
        return {"steps": 0}
    mean_ns = made.steps_ns / made.steps
    answer = {
        "steps": made.steps,
        "mean_step_ms": mean_ns / 1e6,
        "input_share": made.phase_ns[INPUT] / made.steps_ns if made.steps_ns else 0.0,
        "phases_ms": {
            name: made.phase_ns[at] / made.steps / 1e6 for name, at in _library.PHASES.items() if made.phase_ns[at]
        },
    }
    if achieved.tokens and made.steps_ns:
        answer["tokens_per_s"] = achieved.tokens / made.steps_ns * 1e9
    if achieved.flops and achieved.flops_ns:
        answer["flops_per_s"] = achieved.flops / achieved.flops_ns * 1e9
        if achieved.peak:
            answer["mfu"] = answer["flops_per_s"] / achieved.peak
    answer.update(
        {name: value for name, value in achieved.latest.items() if name in ("loss", "grad_norm", "learning_rate")}
    )
    return answer


def _after_fork_in_child() -> None:
    """A child of a process that records is not the rank (a loader's worker). Before the first mark it may be one."""
    global _lock
    _lock = threading.RLock()
    _library.after_fork_in_child()
    if _marks is not None:
        _set(_marks, True)
        _marks.after_fork_in_child()
    _evidence.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
