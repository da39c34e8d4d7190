"""vLLM: an iteration of the engine is a step.

The hook puts itself in place when vLLM is imported (lockstep.init(), `lockstep run`, the import hook):

    EngineCore.step, step_with_batch_queue (v1), LLMEngine.step (v0)   a step where there is something to do
    phases  "schedule" and "update" of the scheduler, "execute" of the model (v1)
    scalars running, waiting (requests), tokens (scheduled in this iteration)
    Worker.execute_model (v1)   a step of a worker process of its own (tensor or pipeline parallel)

EngineCore as in vLLM's source; Worker and the engine before v1 were not compared with a release. Tested with classes of
the same shape.
"""

import functools

import lockstep
from lockstep._guard import guarded
from lockstep._library import PHASES
from lockstep._marks import OTHER

from . import _common

_in_engine = 0  # this process runs the engine: its worker, if in the same process, is part of the engine's step


@guarded("vLLM hook")
def _schedule_begin():
    marks = _common.marks()
    if marks is not None:
        marks.set_phase(OTHER, "schedule")


@guarded("vLLM hook")
def _schedule_end(token, output):
    marks = _common.marks()
    if marks is not None:
        marks.set_phase(None)
        tokens = getattr(output, "total_num_scheduled_tokens", None)
        if isinstance(tokens, int):
            lockstep.log(tokens=tokens)


@guarded("vLLM hook")
def _execute_begin():
    marks = _common.marks()
    if marks is not None:
        marks.set_phase(
            PHASES["forward"], "execute"
        )  # until the scheduler takes the result: the call may return a future


@guarded("vLLM hook")
def _update_begin():
    marks = _common.marks()
    if marks is not None:
        marks.set_phase(OTHER, "update")


@guarded("vLLM hook")
def _update_end(token, output):
    marks = _common.marks()
    if marks is not None:
        marks.set_phase(None)


@guarded("vLLM hook")
def _watch_parts(engine) -> None:
    """Once for each engine: its scheduler and executor."""
    if getattr(engine, "_lockstep_watched", False):
        return
    engine._lockstep_watched = True
    scheduler, executor = getattr(engine, "scheduler", None), getattr(engine, "model_executor", None)
    if scheduler is not None and not isinstance(scheduler, list):  # v0 has a list of another kind
        _common.wrap_method(scheduler, "schedule", _schedule_begin, _schedule_end)
        _common.wrap_method(scheduler, "update_from_output", _update_begin, _update_end)
    if executor is not None:
        _common.wrap_method(executor, "execute_model", _execute_begin)


@guarded("vLLM hook")
def _has_work(engine) -> bool:
    for owner in (getattr(engine, "scheduler", None), engine):
        for name in ("has_requests", "has_unfinished_requests"):
            ask = getattr(owner, name, None)
            if callable(ask):
                if ask():
                    return True
                return bool(getattr(engine, "batch_queue", None))
    return True


def _length(queue):
    try:
        return len(queue)
    except Exception:
        return None


@guarded("vLLM hook")
def _step_ends(engine) -> None:
    schedulers = getattr(engine, "scheduler", None)
    told = {"running": 0, "waiting": 0}
    for scheduler in schedulers if isinstance(schedulers, list) else [schedulers]:
        for name in told:
            told[name] += _length(getattr(scheduler, name, None)) or 0
    marks = _common.marks()
    if marks is not None:
        marks.set_phase(None)
        for name, value in told.items():
            marks.scalar(name, float(value))


def _hook_step(kind, name) -> None:
    step = kind.__dict__.get(name)
    if step is None or getattr(step, "_lockstep", False):
        return

    @functools.wraps(step)
    def wrapper(self, *arguments, **options):
        global _in_engine
        if _in_engine or not _has_work(self):
            return step(self, *arguments, **options)
        _watch_parts(self)
        lockstep.step_begin()
        _in_engine += 1
        try:
            return step(self, *arguments, **options)
        finally:
            _in_engine -= 1
            _step_ends(self)
            lockstep.step_end()

    wrapper._lockstep = True
    setattr(kind, name, wrapper)


def _hook_worker(kind) -> None:
    execute = kind.__dict__.get("execute_model")
    if execute is None or getattr(execute, "_lockstep", False):
        return

    @functools.wraps(execute)
    def wrapper(self, scheduler_output, *arguments, **options):
        if _in_engine or not getattr(scheduler_output, "total_num_scheduled_tokens", 1):
            return execute(self, scheduler_output, *arguments, **options)
        lockstep.step_begin()
        lockstep.log(tokens=getattr(scheduler_output, "total_num_scheduled_tokens", None))
        token = lockstep._phase_begin("forward")
        try:
            return execute(self, scheduler_output, *arguments, **options)
        finally:
            lockstep._phase_end(token)
            lockstep.step_end()

    wrapper._lockstep = True
    kind.execute_model = wrapper


def hook(module) -> None:
    """Called with a module of vLLM that has just been imported."""
    for name in ("EngineCore", "LLMEngine"):
        kind = getattr(module, name, None)
        # Newer releases keep the old module as another name of the new engine, which runs EngineCore anyway.
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            for method in ("step", "step_with_batch_queue"):
                _hook_step(kind, method)
    worker = getattr(module, "Worker", None)
    if isinstance(worker, type):
        _hook_worker(worker)
