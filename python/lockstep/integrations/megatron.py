"""Megatron-style loops.

    train_step = lockstep.integrations.megatron.wrap_train_step(train_step)     every call is a step
    timers = lockstep.integrations.megatron.wrap_timers(timers)                 its timers are phases

Process groups get their names from megatron.core.parallel_state by themselves.
"""

import functools

import lockstep
from lockstep._guard import guarded

from . import _common

# Timers of Megatron's training loop. One that spans several phases (forward-backward) is not one.
PHASES = {
    "batch-generator": "input",
    "forward-compute": "forward",
    "backward-compute": "backward",
    "optimizer": "optimizer",
    "save-checkpoint": "checkpoint",
    "save-checkpoint-non-persistent": "checkpoint",
    "eval-time": "eval",
    "evaluate": "eval",
}


@guarded("Megatron")
def _told(result) -> None:
    """(losses, skipped, ..., grad_norm, zeros): what of it is a plain number. Losses on the GPU stay there."""
    if not isinstance(result, tuple) or not result:
        return
    losses = result[0]
    if isinstance(losses, dict):
        for name, value in losses.items():
            if "loss" in str(name) and _common.on_host(value):
                lockstep.log(loss=value)
                break
    floats = [value for value in result[1:] if isinstance(value, float)]
    if floats:
        lockstep.log(grad_norm=floats[0])


def wrap_train_step(train_step, first_step: int | None = None, **options):
    """Decorator of a function that does one training iteration. Options go to lockstep.init()."""
    begun = False

    @guarded("Megatron")
    def begin(given):
        nonlocal begun
        if not begun:
            begun = True
            lockstep.init(**options)
            number = first_step if first_step is not None else given.get("iteration")
            lockstep.step_begin(number)
        else:
            lockstep.step_begin()

    @guarded("Megatron")
    def end(result):
        _told(result)
        marks = _common.marks()
        if marks is not None and marks.step is not None:
            marks.step_done(marks.step + 1)  # logging, evaluation and checkpoint count to this step

    @functools.wraps(train_step)
    def wrapper(*arguments, **more):
        begin(more)
        result = None
        try:
            result = train_step(*arguments, **more)
            return result
        finally:
            end(result)

    return wrapper


class _Timer:
    """A timer whose start and stop are a phase; everything else is the timer's own."""

    def __init__(self, timer, phase):
        self._timer, self._phase, self._token = timer, phase, None

    def start(self, *arguments, **options):
        self._token = lockstep._phase_begin(self._phase)
        return self._timer.start(*arguments, **options)

    def stop(self, *arguments, **options):
        try:
            return self._timer.stop(*arguments, **options)
        finally:
            lockstep._phase_end(self._token)
            self._token = None

    def __getattr__(self, name):
        return getattr(self._timer, name)


class _Timers:
    def __init__(self, timers):
        self._timers = timers
        self._known: dict[str, _Timer] = {}

    def __call__(self, name, *arguments, **options):
        timer = self._timers(name, *arguments, **options)
        phase = PHASES.get(name)
        if phase is None or not hasattr(timer, "start"):
            return timer
        known = self._known.get(name)
        if known is None or known._timer is not timer:
            known = self._known[name] = _Timer(timer, phase)
        return known

    def __getattr__(self, name):
        return getattr(self._timers, name)


def wrap_timers(timers):
    """An object to use in place of Megatron's timers."""
    return _Timers(timers)
