"""The one recorder of this process: made at the first mark, never in a loader's worker, gone in a forked child.

A process that is only started with the hook (a launcher, a compiler's worker) makes no mark and so no recorder.
"""

import atexit
import os
import sys
import threading

from . import _guard, _library
from ._marks import INPUT, Marks

RANK_VARIABLES = ("LOCKSTEP_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

_lock = threading.RLock()
_marks: Marks | None = None
_off = False
_first_step = 0
_when_made: list = []  # called with the marks


class Achieved:
    """FLOPs, tokens and peak: what a step was worth. Sends "flops" and "peak_flops" with every step."""

    def __init__(self):
        self.per_step: float | None = None
        self.per_token: float | None = None
        self.tokens_per_step: float | None = None
        self.peak: float | None = None
        self.dtype = "bf16"
        self._peak_looked = False
        self._flops_told: float | None = None  # by log() in this step
        self._tokens_told: float | None = None
        self.flops = 0.0
        self.flops_ns = 0
        self.tokens = 0.0
        self.latest: dict[str, float] = {}

    def told(self, name: str, value: float) -> None:
        self.latest[name] = value
        if name == "flops":
            self._flops_told = value
        elif name == "tokens":
            self._tokens_told = (self._tokens_told or 0) + value
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
                "peak", f"peak FLOP/s of {name!r} in {self.dtype} are not known; LOCKSTEP_PEAK_FLOPS tells them"
            )

    def step_ends(self, marks: Marks, duration_ns: int) -> None:
        tokens = self._tokens_told if self._tokens_told is not None else self.tokens_per_step
        flops = self._flops_told
        if flops is None:
            flops = self.per_step
            if flops is None and self.per_token is not None and tokens is not None:
                flops = self.per_token * tokens
            if flops is not None:
                marks.scalar("flops", flops)
        if tokens is not None:
            self.tokens += tokens
            if self._tokens_told is None:
                marks.scalar("tokens", tokens)
        if flops is not None:
            self.flops += flops
            self.flops_ns += duration_ns
            self.look_for_peak()
            if self.peak is not None:
                marks.scalar("peak_flops", self.peak)
        self._flops_told = self._tokens_told = None


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
    global _marks, _off
    with _lock:
        if _marks is None and not _off:
            if _guard.disabled() or _is_loader_worker():
                _off = True
                return None
            sink = _library.open_library()
            if not sink.live:
                _off = True
                return None
            made = Marks(sink, first_step=_first_step)
            made._at_step_end.append(lambda step, duration_ns: achieved.step_ends(made, duration_ns))
            atexit.register(shutdown)
            _marks = made
            from . import _groups

            _groups.tell_all(sink)
            for call in _when_made:
                call(made)
            _when_made.clear()
    return _marks


def use_sink(sink, **options) -> Marks:
    """For tests: marks go to `sink`."""
    global _marks, _off, achieved
    achieved = Achieved()
    _marks, _off = Marks(sink, **options), False
    made = _marks
    made._at_step_end.append(lambda step, duration_ns: achieved.step_ends(made, duration_ns))
    return made


def reset() -> None:
    """For tests: as before the first mark."""
    global _marks, _off, achieved
    _marks, _off, achieved = None, False, Achieved()


def shutdown() -> None:
    global _off
    with _lock:
        if _marks is None or _off:
            return
        try:
            _marks.finish()
            _marks.sink.shutdown()
        except Exception as error:
            _guard.broken("shutdown", error)
        _off = True


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
    global _lock, _off
    _lock = threading.RLock()
    _library.after_fork_in_child()
    if _marks is not None:
        _off = True
        _marks.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
