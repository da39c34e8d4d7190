"""DeepSpeed:  engine = lockstep.integrations.deepspeed.wrap(engine)

A step is an optimizer step of the engine (engine.step() at the end of a gradient accumulation, or train_batch() of a
pipeline), with its own number (global_steps). The engine's optimizers call torch's as often as they like.
"""

import lockstep
from lockstep._guard import guarded

from . import _common


@guarded("DeepSpeed")
def _wrap(engine, options):
    lockstep.init(**options)
    marks = _common.marks()
    if marks is not None:
        marks.step_done(getattr(engine, "global_steps", 0))

    @guarded("DeepSpeed")
    def stepped(*_):
        now = _common.marks()
        number = getattr(engine, "global_steps", None)
        if now is not None and number is not None and number != engine._lockstep_steps:
            engine._lockstep_steps = number
            norm = engine.get_global_grad_norm() if hasattr(engine, "get_global_grad_norm") else None
            if _common.on_host(norm):
                lockstep.log(grad_norm=norm)
            now.step_done(number)

    @guarded("DeepSpeed")
    def begin(phase):
        now = _common.marks()
        if now is not None:
            now.training()
        return lockstep._phase_begin(phase) if phase else None

    engine._lockstep_steps = getattr(engine, "global_steps", 0)
    end = lambda token, _: lockstep._phase_end(token)  # noqa: E731
    _common.wrap_method(engine, "forward", lambda: begin("forward"), end)
    _common.wrap_method(engine, "backward", lambda: begin("backward"), end)
    _common.wrap_method(
        engine, "step", lambda: begin("optimizer"), lambda token, _: (lockstep._phase_end(token), stepped())
    )
    _common.wrap_method(engine, "train_batch", lambda: begin(None), stepped)
    _common.phase_around(engine, "save_checkpoint", "checkpoint")


def wrap(engine, **options):
    """The engine itself. Options go to lockstep.init()."""
    _wrap(engine, options)
    return engine
