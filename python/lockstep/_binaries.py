"""Where the compiled parts are: the libraries a job loads and the programs.

In this order: the package itself (a wheel puts them into lockstep/lib and lockstep/bin), for the C API the file that
LOCKSTEP_LIBRARY names, and the build tree beside the source (build/lib, build/bin).
"""

from __future__ import annotations

import os

PACKAGE = os.path.dirname(os.path.abspath(__file__))
# python/lockstep of a source tree; of an installed package this is some folder without a build.
_BUILD = os.path.join(os.path.dirname(os.path.dirname(PACKAGE)), "build")


def _first(candidates: list[str], mode: int) -> str | None:
    for path in candidates:
        if path and os.path.isfile(path) and os.access(path, mode):
            return os.path.abspath(path)
    return None


def library_path(name: str = "liblockstep.so") -> str | None:
    """The absolute path of a library; None: it is not here."""
    told = os.environ.get("LOCKSTEP_LIBRARY", "") if name == "liblockstep.so" else ""
    return _first([os.path.join(PACKAGE, "lib", name), told, os.path.join(_BUILD, "lib", name)], os.R_OK)


def program_path(name: str = "lockstep") -> str | None:
    """The absolute path of a program (lockstep, lockstep-agent); None: it is not here."""
    return _first([os.path.join(PACKAGE, "bin", name), os.path.join(_BUILD, "bin", name)], os.R_OK | os.X_OK)


def include_path() -> str | None:
    """The folder that holds lockstep.h, for extensions that call the C API themselves; None: it is not here."""
    for folder in (os.path.join(PACKAGE, "include"), os.path.join(os.path.dirname(_BUILD), "plugin", "capi")):
        if os.path.isfile(os.path.join(folder, "lockstep.h")):
            return folder
    return None
