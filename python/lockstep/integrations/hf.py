"""Hugging Face Trainer:  Trainer(..., callbacks=[lockstep.integrations.hf.LockstepCallback()])

A step is an optimizer step of the trainer, with its own number (global_step). Logging, evaluation and checkpoint after
it count to it. The loss is taken when the trainer logs it (logging_steps), never earlier: it is on the GPU until then.
"""

import lockstep
from lockstep._guard import guarded

from . import _common


class _Callback:
    """The events of transformers.TrainerCallback that we use. Options go to lockstep.init()."""

    def __init__(self, **options):
        super().__init__()
        self._options = options
        self._tokens_seen = None

    @guarded("Trainer callback")
    def on_train_begin(self, args, state, control, model=None, **_):
        lockstep.init(**self._options)
        config = getattr(model, "config", None)
        if config is not None and not self._options.get("flops_per_step") and not self._options.get("model"):
            lockstep.set_flops(model=config, sequence=self._options.get("sequence"))
        marks = _common.marks()
        if marks is not None:
            marks.step_done(state.global_step)  # the first fetch begins it

    @guarded("Trainer callback")
    def on_step_begin(self, args, state, control, **_):
        lockstep.step_begin(state.global_step)

    @guarded("Trainer callback")
    def on_step_end(self, args, state, control, **_):
        seen = getattr(state, "num_input_tokens_seen", None)
        if seen:
            if self._tokens_seen is not None and seen > self._tokens_seen:
                # The trainer sums over all ranks.
                lockstep.log(tokens=(seen - self._tokens_seen) / max(getattr(args, "world_size", 1) or 1, 1))
            self._tokens_seen = seen
        marks = _common.marks()
        if marks is not None:
            marks.step_done(state.global_step)
            if not getattr(control, "should_log", False):
                self._what_follows(marks, control)

    @guarded("Trainer callback")
    def on_log(self, args, state, control, logs=None, **_):
        _common.log_numbers(logs)
        marks = _common.marks()
        if marks is not None:
            self._what_follows(marks, control)

    @staticmethod
    def _what_follows(marks, control) -> None:
        # The trainer reports evaluations and checkpoints only when they are over, but what it will do it has decided.
        if getattr(control, "should_evaluate", False):
            marks.eval_begin()
        elif getattr(control, "should_save", False):
            marks.save_begin()

    @guarded("Trainer callback")
    def on_prediction_step(self, args, state, control, **_):
        marks = _common.marks()
        if marks is not None:
            marks.eval_begin()

    @guarded("Trainer callback")
    def on_evaluate(self, args, state, control, metrics=None, **_):
        marks = _common.marks()
        if marks is not None:
            marks.eval_end()
            if getattr(control, "should_save", False):
                marks.save_begin()

    @guarded("Trainer callback")
    def on_save(self, args, state, control, **_):
        marks = _common.marks()
        if marks is not None:
            marks.save_end((None,))

    @guarded("Trainer callback")
    def on_train_end(self, args, state, control, **_):
        marks = _common.marks()
        if marks is not None:
            marks.finish()


def make_callback(base):
    return type("LockstepCallback", (_Callback, base), {"__doc__": __doc__, "__module__": __name__})


def __getattr__(name):
    if name == "LockstepCallback":
        try:
            from transformers import TrainerCallback as base
        except ImportError:
            base = object
        globals()[name] = made = make_callback(base)
        return made
    raise AttributeError(name)
