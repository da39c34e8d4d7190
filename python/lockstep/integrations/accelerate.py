"""Accelerate:  accelerator = lockstep.integrations.accelerate.wrap(Accelerator(...))

Steps and phases come from the hooks by themselves: Accelerate's optimizer, backward and loaders end in torch's. What
wrap() adds is the numbers given to accelerator.log() and checkpoints by accelerator.save_state() and save_model().
"""

import functools

import lockstep
from lockstep._guard import guarded

from . import _common


@guarded("Accelerate")
def _wrap(accelerator, options):
    lockstep.init(**options)
    log = accelerator.log
    if getattr(log, "_lockstep", False):
        return

    @functools.wraps(log)
    def logged(values, *arguments, **more):
        _common.log_numbers(values)
        return log(values, *arguments, **more)

    logged._lockstep = True
    accelerator.log = logged
    for name in ("save_state", "save_model"):
        _common.phase_around(accelerator, name, "checkpoint")


def wrap(accelerator, **options):
    """The accelerator itself. Options go to lockstep.init()."""
    _wrap(accelerator, options)
    return accelerator
