"""Lightning:  Trainer(callbacks=[lockstep.integrations.lightning.LockstepCallback()])  (either of its packages)

A step is what moves trainer.global_step; batches of one gradient accumulation are one step. Validation, logging and
checkpoints between batches count to the step before. The loss is read where it lies in the host's memory, or in the
steps in which Lightning itself logs (log_every_n_steps) and so reads it anyway.
"""

import sys

import lockstep
from lockstep._guard import guarded

from . import _common


class _Callback:
    """The hooks of a Lightning Callback that we use. Options go to lockstep.init()."""

    def __init__(self, **options):
        super().__init__()
        self._options = options
        self._number = 0
        self._global_step = None

    @guarded("Lightning callback")
    def on_train_start(self, trainer, pl_module):
        lockstep.init(**self._options)
        self._global_step = self._number = int(trainer.global_step)
        marks = _common.marks()
        if marks is not None:
            marks.step_done(self._number)

    @guarded("Lightning callback")
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx, *_):
        marks = _common.marks()
        if marks is not None and (marks.step is None or marks._deferred or marks._ahead):
            marks.step_begin(self._number)

    @guarded("Lightning callback")
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *_):
        marks = _common.marks()
        if marks is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if _common.on_host(loss):
            lockstep.log(loss=loss)
        elif loss is not None and self._logs_now(trainer):
            lockstep.log(loss=loss.item())
        if trainer.global_step != self._global_step:
            # Several optimizers move it by more than one; steps here are counted one by one.
            self._global_step = trainer.global_step
            self._number += 1
            marks.step_done(self._number)

    @staticmethod
    def _logs_now(trainer) -> bool:
        every = getattr(trainer, "log_every_n_steps", 0)
        return bool(every) and bool(getattr(trainer, "loggers", None)) and trainer.global_step % every == 0

    @guarded("Lightning callback")
    def on_validation_start(self, trainer, pl_module):
        marks = _common.marks()
        if marks is not None and marks.told:  # not the sanity check before training
            marks.eval_begin()

    @guarded("Lightning callback")
    def on_validation_end(self, trainer, pl_module):
        marks = _common.marks()
        if marks is not None:
            marks.eval_end()

    @guarded("Lightning callback")
    def on_train_end(self, trainer, pl_module):
        marks = _common.marks()
        if marks is not None:
            marks.finish()


def make_callback(base):
    return type("LockstepCallback", (_Callback, base), {"__doc__": __doc__, "__module__": __name__})


def _base():
    """Of the package that the job uses: the two do not accept each other's callbacks."""
    for package in sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: name not in sys.modules):
        try:
            return __import__(package, fromlist=["Callback"]).Callback
        except ImportError:
            continue
    return object


def __getattr__(name):
    if name == "LockstepCallback":
        globals()[name] = made = make_callback(_base())
        return made
    raise AttributeError(name)
