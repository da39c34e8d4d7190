"""`python -m lockstep ...` and the console script `lockstep`: the command line, which is a program of its own."""

from __future__ import annotations

import os
import sys

from lockstep import _binaries


def main() -> int:
    program = _binaries.program_path("lockstep")
    if program is None:
        print(
            f"lockstep: no program lockstep in {os.path.join(_binaries.PACKAGE, 'bin')} or the build tree;"
            " install the wheel for this architecture, or ./dev build",
            file=sys.stderr,
        )
        return 127
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as problem:
        print(f"lockstep: cannot start {program}: {problem.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main())
