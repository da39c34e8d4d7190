"""Peers from their Go modules, built once into the cache folder: Jaeger 2 and telemetrygen."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep" / "bin"
JAEGER = ("github.com/jaegertracing/jaeger", "v1.76.0", "./cmd/jaeger", "jaeger-1.76.0")
TELEMETRYGEN = (
    "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen",
    "v0.157.0",
    ".",
    "telemetrygen-0.157.0",
)


def build(peer: tuple[str, str, str, str]) -> pathlib.Path | None:
    """The program, or None where it cannot be had (no Go, no network)."""
    module, version, command, name = peer
    program = CACHE / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        print(f"bench traces: {name} left out: there is no Go to build it with", file=sys.stderr)
        return None
    print(f"bench traces: building {name}, once", file=sys.stderr)
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        told = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{version}"], check=True, capture_output=True, text=True
        )
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "source"
            shutil.copytree(json.loads(told.stdout)["Dir"], source)
            subprocess.run(["chmod", "-R", "u+w", source], check=True)
            environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false"}
            part = program.with_suffix(".part")
            subprocess.run(["go", "build", "-o", part, command], cwd=source, env=environment, check=True)
            part.rename(program)
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        print(f"bench traces: {name} left out: {error}", file=sys.stderr)
        return None
    return program
