"""Finds Prometheus: its Go module (test scripts) and its program, built once into a cache outside the tree."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

MODULE, VERSION = "github.com/prometheus/prometheus", "v0.314.0"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "lockstep"


def module_folder():
    """The module's folder, downloaded where it is not there yet. Ends the program with one line if it cannot be had."""
    if shutil.which("go") is None:
        sys.exit("promql: the test scripts come with Prometheus's Go module, and there is no go here")
    with tempfile.TemporaryDirectory() as empty:
        (pathlib.Path(empty) / "go.mod").write_text("module empty\n")
        found = subprocess.run(["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=empty, capture_output=True, text=True)
    try:
        return pathlib.Path(json.loads(found.stdout)["Dir"])
    except (ValueError, KeyError):
        sys.exit(f"promql: {MODULE}@{VERSION} cannot be had: {(found.stderr or found.stdout).strip()[:300]}")


def prometheus_program(build=True):
    """Prometheus 3.14 from the cache, built there where missing (minutes)."""
    program = CACHE / "prometheus-3.14.0"
    if program.exists():
        return program
    if not build:
        return None
    print("promql: building Prometheus 3.14 once, this takes minutes", file=sys.stderr)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        source = pathlib.Path(work) / "source"
        shutil.copytree(module_folder(), source)
        subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
        environment = dict(os.environ, GOWORK="off", GOFLAGS="-mod=mod -buildvcs=false")
        subprocess.run(["go", "build", "-o", str(program) + ".part", "./cmd/prometheus"], cwd=source, env=environment, check=True)
    os.replace(str(program) + ".part", program)
    return program
