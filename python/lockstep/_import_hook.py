"""Runs a function right after a module was imported, without importing it.

A finder in front of sys.meta_path lets the others find the module and only wraps the loader's exec_module() for names
that somebody waits for. Everything else passes at the cost of a look into a dictionary.
"""

import sys
import threading

from . import _guard

_waiting: dict[str, list] = {}
_lock = threading.RLock()
_busy = threading.local()


class _Loader:
    """The module's own loader, and then what waits. Whatever else is asked of it is asked of the module's own."""

    def __init__(self, loader, name):
        self._loader, self._name = loader, name

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        # The module keeps its own loader: tools that look at __loader__ or __spec__ see what they would without us.
        module.__loader__ = self._loader
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.loader = self._loader
        self._loader.exec_module(module)
        _run(self._name, module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in _waiting or getattr(_busy, "name", None) == name:
            return None
        _busy.name = name
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = None if finder is self or find is None else find(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader, name)
                    return spec
            return None
        finally:
            _busy.name = None


def _run(name, module):
    with _lock:
        calls = _waiting.pop(name, [])
    for call in calls:
        try:
            call(module)
        except Exception as error:
            _guard.broken(f"hook of {name}", error)


_finder = _Finder()


def after_import(name: str, call) -> None:
    """call(module) now, if the module is there, else right after somebody imports it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        try:
            call(module)
        except Exception as error:
            _guard.broken(f"hook of {name}", error)
        return
    with _lock:
        _waiting.setdefault(name, []).append(call)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
