"""python -m lockstep.install_hook [--remove]: the hook for every Python process of this environment.

Writes lockstep-hook.pth into site-packages (--to DIR: into that folder); Python runs its line at start. Jobs need no
change; LOCKSTEP_DISABLE=1 or LOCKSTEP_AUTO=0 leaves one out.
"""

import argparse
import os
import site
import sys
import sysconfig

NAME = "lockstep-hook.pth"
# One line, as .pth files want it. Whatever fails in it must not be seen by processes that know nothing of Lockstep.
LINE = (
    "import os, sys; exec(\"try:\\n if os.environ.get('LOCKSTEP_AUTO') != '0': import lockstep._auto\\n"
    'except Exception:\\n pass")\n'
)


def folder() -> str:
    purelib = sysconfig.get_paths()["purelib"]
    if os.access(purelib, os.W_OK) and purelib in site.getsitepackages():
        return purelib
    for path in site.getsitepackages():
        if os.path.isdir(path) and os.access(path, os.W_OK):
            return path
    return site.getusersitepackages()


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lockstep.install_hook", description=__doc__.splitlines()[0])
    parser.add_argument("--remove", action="store_true", help="take it away again")
    parser.add_argument("--to", metavar="DIR", help="a folder of .pth files other than site-packages")
    options = parser.parse_args(arguments)
    path = os.path.join(options.to or folder(), NAME)
    try:
        if options.remove:
            if not os.path.exists(path):
                print(f"{path} is not there")
                return 0
            os.remove(path)
            print(f"removed {path}")
            return 0
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        text = LINE if os.path.dirname(path) == package else package + "\n" + LINE
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        print(f"wrote {path}")
        return 0
    except OSError as error:
        print(f"lockstep: {path}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
