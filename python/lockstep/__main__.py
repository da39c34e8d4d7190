"""`python -m lockstep ...` and the console scripts `lockstep`, `lockstepd` and `lockstep-agent`: programs of their own."""

from __future__ import annotations

import os
import sys

from lockstep import _binaries


def _become(name: str) -> int:
    program = _binaries.program_path(name)
    if program is None:
        print(
            f"{name}: no program {name} in {os.path.join(_binaries.PACKAGE, 'bin')} or the build tree;"
            " install the wheel for this architecture, or ./dev build",
            file=sys.stderr,
        )
        return 127
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as problem:
        print(f"{name}: cannot start {program}: {problem.strerror}", file=sys.stderr)
        return 126


def main() -> int:
    return _become("lockstep")


def server() -> int:
    return _become("lockstepd")


def agent() -> int:
    return _become("lockstep-agent")


if __name__ == "__main__":
    sys.exit(main())
