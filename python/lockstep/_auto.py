"""Imported by the hooks that run at Python's start (sitecustomize, .pth): waits for torch and does nothing else.

Most Python processes never import torch; for those this costs the import of a few small modules.
"""

from . import _guard, _import_hook


@_guard.guarded("hook")
def _switch_on(module) -> None:
    import lockstep

    lockstep._init({}, now=False)


if not _guard.disabled():
    _import_hook.after_import("torch", _switch_on)
