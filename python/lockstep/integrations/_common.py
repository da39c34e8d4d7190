"""What the integrations share."""

import lockstep
from lockstep import _runtime
from lockstep._guard import guarded

NAMES = {
    "lr": "learning_rate",
    "train_loss": "loss",
    "train/loss": "loss",
    "train/lr": "learning_rate",
    "gradient_norm": "grad_norm",
}
LOGGED_MAX = 16  # numbers taken from one log call of a framework


def marks():
    return _runtime.marks()


def on_host(value) -> bool:
    """A number that costs nothing to read."""
    if isinstance(value, bool) or value is None:
        return False
    if isinstance(value, (int, float)):
        return True
    device = getattr(getattr(value, "device", None), "type", None)
    return device == "cpu" and getattr(value, "numel", lambda: 0)() == 1


@guarded("log of a framework")
def log_numbers(values, only=("loss", "grad_norm", "learning_rate", "tokens", "flops")) -> None:
    """What a framework has logged, by the names we know; `only` None takes the others too."""
    told = {}
    for name, value in dict(values or {}).items():
        known = NAMES.get(name, name)
        if isinstance(known, str) and on_host(value) and (only is None or known in only) and len(told) < LOGGED_MAX:
            told[known] = value
    if told:
        lockstep.log(**told)


def wrap_method(thing, name, before=None, after=None):
    """thing.name(...) with before() -> token and after(token, result) around it; both are guarded by whoever wrote
    them. Where there is no such method nothing happens."""
    original = getattr(thing, name, None)
    if original is None or getattr(original, "_lockstep", False):
        return False

    def wrapper(*arguments, **options):
        token = before() if before is not None else None
        result = None
        try:
            result = original(*arguments, **options)
            return result
        finally:
            if after is not None:
                after(token, result)

    wrapper._lockstep = True
    wrapper.__name__ = getattr(original, "__name__", name)
    wrapper.__doc__ = getattr(original, "__doc__", None)
    wrapper.__wrapped__ = original
    setattr(thing, name, wrapper)
    return True


def phase_around(thing, name, phase):
    """thing.name(...) is this phase."""
    return wrap_method(thing, name, lambda: lockstep._phase_begin(phase), lambda token, _: lockstep._phase_end(token))
