"""What the agent may ask this process when its job hangs: its stacks, and where PyTorch dumps its Flight Recorder.

Python's faulthandler is registered for a real-time signal that nobody here uses and writes to <recorder>.stacks; which
signal that is, and what the environment says by now (a script may have set it after the start), is reported in
<recorder>.hook. Nothing is asked unless the job seems to hang, and LOCKSTEP_STACKS=0 forbids it.
"""

import os
import signal
import threading

from . import _guard, _kineto, _profiler

DUMP_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_VARIABLES = ("TORCH_FR_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
# Away from both ends of the range, where C libraries and tools take theirs.
FIRST, LAST = 12, 8

_offered: dict = {}  # stem, signal, file; of this process
_told = ""
_telling = threading.RLock()  # a profile is reported from the thread that writes it, too


def recorder_stem() -> str | None:
    """<folder>/<pid>-<start ticks>, as the recorder is named; None where there is no recorder of that name."""
    folder = os.environ.get("LOCKSTEP_RECORDER_DIR") or f"/dev/shm/lockstep-{os.geteuid()}"
    with open("/proc/self/stat", "rb") as file:
        ticks = file.read().rpartition(b")")[2].split()[19].decode()
    stem = f"{folder}/{os.getpid()}-{ticks}"
    return stem if os.path.exists(stem + ".lsfr") else None


def _free_signal() -> int | None:
    """One that nobody catches, ignores or blocks, in C neither; None where all are taken."""
    taken = 0
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(("SigCgt:", "SigIgn:", "SigBlk:")):
                taken |= int(line.split()[1], 16)
    for number in range(signal.SIGRTMIN + FIRST, signal.SIGRTMAX - LAST):
        if not taken >> (number - 1) & 1:
            return number
    return None


def forbidden() -> bool:
    return os.environ.get("LOCKSTEP_STACKS", "") == "0"


@_guard.guarded("stacks")
def offer() -> None:
    """Once the recorder is there. Again and again does no harm; what has changed is reported."""
    if not _offered:
        stem = recorder_stem()
        if stem is None:
            return
        _offered["stem"] = stem
        if not forbidden():
            _register(stem)
        _profiler.offer(stem, tell)
    tell()


def _register(stem: str) -> None:
    import faulthandler

    number = _free_signal()
    if number is None:
        _guard.say_once("stacks", "every real-time signal is taken; a hang is diagnosed without Python's stacks")
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.fdopen(os.open(stem + ".stacks", flags, 0o600), "ab", buffering=0)
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    _offered.update(signal=number, file=file)


@_guard.guarded("stacks")
def tell() -> None:
    with _telling:
        _tell()


def _tell() -> None:
    global _told
    stem = _offered.get("stem")
    if stem is None:
        return
    lines = []
    if forbidden():
        lines.append("stacks off")
    if "signal" in _offered:
        lines += [f"signal {_offered['signal']}", f"main {threading.main_thread().ident:#x}"]
    for word, names in (("dump", DUMP_VARIABLES), ("pipe", PIPE_VARIABLES)):
        value = next((os.environ[name] for name in names if os.environ.get(name)), None)
        if value and "\n" not in value:
            lines.append(f"{word} {value}")
    lines += _kineto.lines() + _profiler.lines()
    text = "".join(line + "\n" for line in lines)
    if text == _told:
        return
    _told = text
    # Whole or not at all: the agent may read at any moment.
    draft = stem + ".hook.new"
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, stem + ".hook")


@_guard.guarded("stacks")
def withdraw() -> None:
    """The job is over for this process: from now on the signal would end it, so nobody may be told to send it."""
    _profiler.withdraw()
    stem = _offered.pop("stem", None)
    if stem is None:
        return
    for name in (".hook", ".stacks"):
        try:
            os.unlink(stem + name)
        except OSError:
            pass
    # The handler stays: an agent that has read the word a moment ago may still send.


def after_fork_in_child() -> None:
    """The child is not the rank: it must not write into its parent's answer. The handler goes on to catch the signal."""
    global _told, _telling
    file = _offered.get("file")
    _told, _telling = "", threading.RLock()
    _profiler.after_fork_in_child()
    _offered.clear()
    if file is not None:
        try:
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, file.fileno(), inheritable=False)
            os.close(null)
        except OSError:
            pass
        _kept.append(file)


_kept: list = []  # the handler writes to their descriptors: they must not be closed
