"""Put on PYTHONPATH by `lockstep run`: Python imports it at start, before the job's own code.

With LOCKSTEP_AUTO=1 it switches the hooks on; then a sitecustomize that it hides, further down the path, is run as it
would be without this one. It never fails.
"""

import os
import sys


def _switch_on():
    here = os.path.dirname(os.path.abspath(__file__))
    package = os.path.dirname(os.path.dirname(here))
    if os.environ.get("LOCKSTEP_AUTO", "") in ("", "0") or os.environ.get("LOCKSTEP_DISABLE", "") not in ("", "0"):
        return
    added = package not in sys.path
    if added:
        sys.path.append(package)  # last: what else lies in that folder must not hide the job's modules
    import lockstep._auto  # noqa: F401


def _run_the_hidden_one():
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _switch_on()
except Exception as error:
    sys.stderr.write("lockstep: the hook could not be switched on (%s: %s)\n" % (type(error).__name__, error))
_run_the_hidden_one()  # its errors are the user's own; Python reports them as it always does
