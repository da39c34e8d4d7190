"""An exception that ends this process: its type and one line of its message are left beside the recorder, where the agent
finds them when the process is gone (<recorder>.failed). No traceback, and of the message no more than one bounded line.

The hooks that were there before run as if nothing were here, whatever happens in between. An exception of another thread
does not end a process: it is left too, and counts only where the process did not end well. One that was asked for
(KeyboardInterrupt, SystemExit) is none.
"""

import os
import sys
import threading
import time

from . import _evidence, _guard

TYPE_BYTES_MAX = 100
MESSAGE_BYTES_MAX = 200

_installed = False
_raised = False  # in the main thread: the process is about to end


def raised() -> bool:
    return _raised


def install() -> None:
    """Once per process; what is there by now is called after ours."""
    global _installed
    if _installed or os.environ.get("LOCKSTEP_REASONS", "") == "0":
        return
    _installed = True
    sys.excepthook = _before(sys.excepthook, _of_main)
    threading.excepthook = _before(threading.excepthook, _of_thread)


def _before(original, tell):
    def hook(*arguments):
        try:
            tell(*arguments)
        except BaseException:
            pass  # the job's own exception is what matters now
        return original(*arguments)

    return hook


def _of_main(kind, value, _traceback) -> None:
    global _raised
    if not issubclass(kind, Exception):
        return
    _leave(kind, value, "")
    _raised = True


def _of_thread(arguments) -> None:
    if arguments.exc_type is not None and issubclass(arguments.exc_type, Exception) and not _raised:
        _leave(arguments.exc_type, arguments.exc_value, getattr(arguments.thread, "name", "") or "unknown")


def one_line(text: str, bytes_max: int) -> str:
    """The first line that says anything, what a terminal would act on left out, cut to so many bytes."""
    line = next((line for line in text[:4096].splitlines() if line.strip()), "")
    line = "".join(character if character.isprintable() else " " for character in line).strip()
    return line.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _words(value) -> str:
    try:
        return str(value)
    except Exception:
        return ""


@_guard.guarded("failure")
def _leave(kind, value, thread: str) -> None:
    now = time.time_ns()
    stem = _evidence.recorder_stem()
    if stem is None:
        return  # not a rank: a loader's worker, a launcher
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    lines = [f"time {now}", f"type {one_line(name, TYPE_BYTES_MAX)}", f"message {one_line(_words(value), MESSAGE_BYTES_MAX)}"]
    if thread:
        lines.append(f"thread {one_line(thread, TYPE_BYTES_MAX)}")
    # Whole or not at all: the agent may read at any moment.
    draft = stem + ".failed.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write("".join(line + "\n" for line in lines))
    os.replace(draft, stem + ".failed")
