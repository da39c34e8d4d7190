"""FLOPs of one step by torch's own counter (torch.utils.flop_counter, torch 2.1 and later), then off for good.

The counter sees matrix products, convolutions and attention as torch dispatches them, forward and backward; kernels of
others without a formula it does not see, and a compiled region runs uncompiled while it counts. Hence once, after the
first steps, and the step's cost is said.
"""

import sys

from . import _guard, _runtime

AT_STEP = 3  # the first steps warm up: compilation, autotuning, allocator


class _Counting:
    def __init__(self, marks):
        self._marks = marks
        self._mode = None
        self._seen = 0
        self._others_ns = 0
        self._over = False

    def begins(self, step) -> None:
        if self._over or self._mode is not None:
            return
        self._seen += 1
        if self._seen <= AT_STEP:
            return
        try:
            from torch.utils.flop_counter import FlopCounterMode
        except ImportError:
            self._over = True
            version = getattr(sys.modules.get("torch"), "__version__", "?")
            _guard.say_once("counter", f"torch {version} has no FLOP counter (2.1 and later do); MFU needs set_flops()")
            return
        self._mode = FlopCounterMode(display=False)
        self._mode.__enter__()

    def ends(self, step, duration_ns) -> None:
        if self._over:
            return
        if self._mode is None:
            self._others_ns = duration_ns  # the newest before: the first ones are no measure
            return
        mode, self._mode, self._over = self._mode, None, True
        mode.__exit__(None, None, None)
        flops = float(mode.get_total_flops())
        text = f"counted {flops:.4g} FLOPs in step {step}; it took {duration_ns / 1e6:.1f} ms"
        if self._others_ns:
            text += f" ({(duration_ns - self._others_ns) / 1e6:+.1f} ms against the one before)"
        _guard.say_once("counted", text)
        self._marks.sink.note(text)
        if flops > 0 and _runtime.achieved.per_step is None:
            _runtime.achieved.per_step = flops


def arm() -> None:
    """Counts as soon as there are steps; again does nothing."""
    _runtime.when_made(_attach)


def _attach(marks) -> None:
    if getattr(marks, "_counting", None) is None:
        marks._counting = counting = _Counting(marks)
        marks._at_step_begin.append(counting.begins)
        marks._at_step_end.insert(0, counting.ends)
