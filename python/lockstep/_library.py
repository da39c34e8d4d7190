"""liblockstep.so through ctypes: loaded at the first mark, absent without harm.

PyDLL rather than CDLL: a call takes tens of nanoseconds, and giving the interpreter lock away for it could cost a whole
switch interval (5 ms) in a job with busy threads.
"""

import os
import threading

from . import _guard

PHASES = {
    "other": 0,
    "input": 1,
    "forward": 2,
    "backward": 3,
    "optimizer": 4,
    "checkpoint": 5,
    "eval": 6,
    "sync": 7,
}
NAME_BYTES_MAX = 15
NOTE_BYTES_MAX = 512


def find() -> str | None:
    """$LOCKSTEP_LIBRARY, what the wheel carries, the build tree beside this source; None where there is none."""
    told = os.environ.get("LOCKSTEP_LIBRARY")
    if told:
        return told if os.path.exists(told) else None
    from . import _binaries

    return _binaries.library_path()


class NoSink:
    """Where marks go when nothing is recorded."""

    live = False

    def step_begin(self, number): ...
    def step_end(self, number): ...
    def phase_begin(self, phase, name=None): ...
    def phase_end(self, phase): ...
    def scalar(self, name, value): ...
    def note(self, text): ...
    def group(self, name, ranks): ...
    def shutdown(self): ...


class Library(NoSink):
    """The C API. Thread-safe, as the library is. A call that this library does not have yet does the nearest thing."""

    live = True

    def __init__(self, path: str):
        import ctypes

        self._ctypes = ctypes
        library = ctypes.PyDLL(path)
        self._library = library

        def bind(name, *types, result=None):
            function = getattr(library, name, None)
            if function is not None:
                function.restype = result
                if types:
                    function.argtypes = types
            return function

        self.step_begin = bind("lockstep_step_begin", ctypes.c_int64)
        self.step_end = bind("lockstep_step_end", ctypes.c_int64)
        # Without argument types ctypes passes a Python int as a C int at once: converting it by type costs a call with
        # cold caches 8 us more, and a phase is always one of our own small numbers.
        self.phase_begin_plain = bind("lockstep_phase_begin")
        self._phase_begin_named = bind("lockstep_phase_begin_named", ctypes.c_int, ctypes.c_char_p)
        self.phase_end = bind("lockstep_phase_end")
        self._scalar = bind("lockstep_scalar", ctypes.c_char_p, ctypes.c_double)
        self._note = bind("lockstep_note", ctypes.c_char_p)
        self._group = bind("lockstep_group", ctypes.c_char_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t)
        self._enabled = bind("lockstep_enabled", result=ctypes.c_int)
        self.shutdown = bind("lockstep_shutdown")
        self._names: dict[str, bytes] = {}

    def enabled(self) -> bool:
        return bool(self._enabled())

    def _bytes(self, name: str) -> bytes:
        known = self._names.get(name)
        if known is None:
            known = name.encode("utf-8", "replace")[:NAME_BYTES_MAX]
            known = known.decode("utf-8", "ignore").encode()  # not half a character
            if len(self._names) < 1024:
                self._names[name] = known
        return known

    def phase_begin(self, phase, name=None):
        if name is None or self._phase_begin_named is None:
            self.phase_begin_plain(phase)
        else:
            self._phase_begin_named(phase, self._bytes(name))

    def scalar(self, name, value):
        self._scalar(self._bytes(name), value)

    def note(self, text):
        if self._note is not None:
            self._note(text.replace("\0", " ").encode("utf-8", "replace")[:NOTE_BYTES_MAX])

    def group(self, name, ranks):
        if self._group is not None:
            self._group(
                name.replace("\0", " ").encode("utf-8", "replace"),
                (self._ctypes.c_int32 * len(ranks))(*ranks),
                len(ranks),
            )


_lock = threading.Lock()
_opened: NoSink | None = None


def open_library() -> NoSink:
    """The library, or NoSink with one line that says why. Opened once."""
    global _opened
    if _opened is not None:
        return _opened
    with _lock:
        if _opened is None:
            _opened = _open()
    return _opened


def _open() -> NoSink:
    if _guard.disabled():
        return NoSink()
    path = find()
    if path is None:
        _guard.say_once("library", "liblockstep.so is not found (LOCKSTEP_LIBRARY names it); nothing is recorded")
        return NoSink()
    try:
        return Library(path)
    except Exception as error:
        _guard.say_once("library", f"{path} cannot be loaded ({str(error)[:200]}); nothing is recorded")
        return NoSink()


def after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
