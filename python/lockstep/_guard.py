"""Whatever goes wrong in Lockstep, the job runs on.

Every entry point of this package (public functions, hooks, callbacks) goes through guarded(): an error inside says one line
on standard error, once for each of them, and that one does nothing from then on.
"""

import functools
import os
import sys

_said: set[str] = set()


def disabled() -> bool:
    return os.environ.get("LOCKSTEP_DISABLE", "") not in ("", "0")


def say_once(key: str, text: str) -> None:
    """One line on standard error, once per process for each key."""
    if key in _said:
        return
    _said.add(key)
    try:
        sys.stderr.write("lockstep: " + text.replace("\n", " ") + "\n")
    except Exception:
        pass  # standard error may be closed; nothing is worth an exception in the job


def broken(name: str, error: BaseException) -> None:
    say_once(
        "broken " + name,
        f"{name} failed ({type(error).__name__}: {str(error)[:200]}) and is off from now on; the job runs on",
    )


def guarded(name: str, default=None):
    """Decorator: never raises; after the first error it returns `default` at once."""

    def decorate(function):
        off = False

        @functools.wraps(function)
        def call(*arguments, **options):
            nonlocal off
            if off:
                return default
            try:
                return function(*arguments, **options)
            except Exception as error:
                off = True
                broken(name, error)
                return default

        return call

    return decorate
