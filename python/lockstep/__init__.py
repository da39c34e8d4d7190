"""Lockstep's hook for training jobs: steps, phases and what a step achieved, from one line or none.

    import lockstep
    lockstep.init()

From there on optimizer steps, DataLoader fetches, backward passes and checkpoints of torch are seen without another
line; docs/guide/python.md has the rules. Nothing here raises into the job, imports torch or waits for a GPU, and
LOCKSTEP_DISABLE=1 turns all of it off.
"""

import contextlib
import os

from . import _guard
from ._guard import guarded

__version__ = "0.1.0"
__all__ = [
    "enabled", "group", "init", "log", "note", "phase", "set_flops", "shutdown", "step", "step_begin", "step_end",
    "summary",
]  # fmt: skip

OPTIONS = (
    "job_id", "rank", "world_size", "first_step", "hooks", "count_flops", "flops_per_step", "model", "sequence",
    "tokens_per_step", "peak", "dtype",
)  # fmt: skip


def _now():
    from . import _runtime

    return _runtime.marks()


@guarded("init", default=False)
def init(**options) -> bool:
    """Switches the hooks on; again and again does no harm. Returns enabled().

    job_id, rank, world_size  identity where the environment has none
    first_step                number of the first automatic step (a resumed job)
    hooks                     all of them unless given: "optimizer", "input", "backward", "checkpoint", "groups", "vllm"
    count_flops               counts one step with torch's FLOP counter (torch 2.1 and later)
    flops_per_step, model, sequence, tokens_per_step, peak, dtype   as set_flops() takes them
    """
    return _init(options, now=True)


def _init(options: dict, now: bool) -> bool:
    """now: this process is a rank, so the recorder may be made at once; else the first mark makes it."""
    if _guard.disabled():
        return False
    from . import _runtime, _torch_hooks

    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        _guard.say_once("options", f"init() knows no {', '.join(unknown)} ({', '.join(OPTIONS)})")
    _runtime.tell_identity(
        LOCKSTEP_JOB_ID=options.get("job_id"),
        LOCKSTEP_RANK=options.get("rank"),
        LOCKSTEP_WORLD_SIZE=options.get("world_size"),
    )
    if options.get("first_step") is not None:
        _runtime.set_first_step(options["first_step"])
    hooks = options.get("hooks")
    if hooks is None or hooks is True:
        told = os.environ.get("LOCKSTEP_HOOKS")
        hooks = _torch_hooks.KINDS if told is None else [name.strip() for name in told.split(",") if name.strip()]
    _torch_hooks.install([hooks] if isinstance(hooks, str) else hooks or ())
    flops = {name: options.get(name) for name in ("model", "sequence", "tokens_per_step", "peak", "dtype")}
    set_flops(per_step=options.get("flops_per_step") or os.environ.get("LOCKSTEP_FLOPS_PER_STEP"), **flops)
    if options.get("count_flops") or os.environ.get("LOCKSTEP_COUNT_FLOPS", "") not in ("", "0"):
        from . import _count_flops

        _count_flops.arm()
    if (
        now and _runtime.rank_is_known()
    ):  # else it is told at init_process_group(), or nothing says it: the first mark decides
        _runtime.marks()
    return enabled()


@guarded("enabled", default=False)
def enabled() -> bool:
    """Whether marks are recorded, or would be."""
    from . import _library, _runtime

    if _runtime.switched_off():
        return False
    if _runtime.started():
        sink = _runtime.marks().sink
        return sink.enabled() if hasattr(sink, "enabled") else sink.live
    return _library.find() is not None


@guarded("step_begin")
def step_begin(n: int | None = None) -> None:
    """The job reports its steps itself from now on; automatic step marks stop, phases go on."""
    marks = _now()
    if marks is not None:
        marks.step_begin(n)


@guarded("step_end")
def step_end(n: int | None = None) -> None:
    marks = _now()
    if marks is not None:
        marks.step_end(n)


@contextlib.contextmanager
def step(n: int | None = None):
    """with lockstep.step(): ... The DataLoader fetch before it belongs to it."""
    step_begin(n)
    try:
        yield
    finally:
        step_end()


@guarded("phase")
def _phase_begin(name):
    marks = _now()
    return None if marks is None else marks.phase_begin(name)


@guarded("phase")
def _phase_end(token):
    marks = _now()
    if marks is not None:
        marks.phase_end(token)


@contextlib.contextmanager
def phase(name: str):
    """with lockstep.phase("input"): ... Known: input, forward, backward, optimizer, checkpoint, eval, sync; any other
    name is a phase of its own. May nest; while one is open, automatic phases are silent."""
    token = _phase_begin(name)
    try:
        yield
    finally:
        _phase_end(token)


def _number(name: str, value) -> float | None:
    """None where reading it would wait for a device."""
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if device != "cpu":
        _guard.say_once(
            "device " + name,
            f"log({name}=...) got a tensor on {device}; reading it would stop the GPU, so it is left out:"
            " pass .item() where the job reads it anyway",
        )
        return None
    if hasattr(value, "detach"):
        value = value.detach()
    return float(value)


@guarded("log")
def log(loss=None, grad_norm=None, tokens=None, flops=None, learning_rate=None, **more) -> None:
    """Numbers of the step that is open: floats, or tensors in the host's memory. tokens and flops are of this rank."""
    marks = _now()
    if marks is None:
        return
    from . import _runtime

    told = {
        "loss": loss,
        "grad_norm": grad_norm,
        "tokens": tokens,
        "flops": flops,
        "learning_rate": learning_rate,
        **more,
    }
    for name, value in told.items():
        if value is None:
            continue
        try:
            number = _number(name, value)
        except (TypeError, ValueError, RuntimeError):
            _guard.say_once(
                "number " + name, f"log({name}=...) got {type(value).__name__}, not a number; it is left out"
            )
            continue
        if number is not None:
            marks.scalar(name, number)
            _runtime.achieved.told(name, number)


@guarded("note")
def note(text: str) -> None:
    """A remark at this moment, shown with the step."""
    marks = _now()
    if marks is not None:
        marks.sink.note(str(text))


@guarded("group")
def group(name: str, ranks) -> None:
    """The communicator of these ranks of the job is called `name` ("tp", "dp", ...)."""
    from . import _groups

    marks = _now()
    _groups.add(name, ranks, None if marks is None else marks.sink)


@guarded("set_flops")
def set_flops(
    per_step=None, model=None, sequence=None, tokens_per_step=None, causal=True, peak=None, dtype=None
) -> None:
    """What a step of this rank computes, for MFU (lockstep.flops has the formula).

    per_step         FLOPs of a step of this rank; or
    model            configuration (Hugging Face's, Megatron's, or a dictionary) for the formula, with
    sequence         tokens of a sequence, for the attention term, and
    tokens_per_step  of this rank; or log(tokens=...) in every step
    peak             FLOP/s of its device; unless given LOCKSTEP_PEAK_FLOPS, else the table by device name and
    dtype            "bf16" unless given
    """
    from . import _runtime, flops

    achieved = _runtime.achieved
    if peak is not None:
        achieved.peak = float(peak)
    if dtype is not None:
        achieved.dtype = str(dtype)
    if tokens_per_step is not None:
        achieved.tokens_per_step = float(tokens_per_step)
    if per_step is not None:
        achieved.per_step = float(per_step)
    elif model is not None:
        try:
            achieved.per_token = flops.flops_per_token(model, sequence, causal)
            achieved.per_step = None
        except flops.NotKnown as reason:
            _guard.say_once("formula", f"MFU is not known: {reason}")


@guarded("summary", default={"steps": 0})
def summary() -> dict:
    """This rank so far: steps, mean_step_ms, input_share, phases_ms, and where known tokens_per_s, flops_per_s, mfu."""
    from . import _runtime

    return _runtime.summary()


@guarded("shutdown")
def shutdown() -> None:
    """The job is over for this process; also done at its exit."""
    from . import _runtime

    _runtime.shutdown()
