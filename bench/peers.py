"""Peers from their Go modules, built once into the cache folder, by version."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "lockstep" / "bin"


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str  # of the program in the cache
    module: str
    version: str
    command: str  # the package, as a path inside the module
    # A module of ours that only requires theirs: for one whose own tree does not build by itself. Otherwise a copy of
    # theirs is built, which keeps its checksums and replacements.
    by_import: bool = False


JAEGER = Peer("jaeger-1.76.0", "github.com/jaegertracing/jaeger", "v1.76.0", "cmd/jaeger")
TELEMETRYGEN = Peer(
    "telemetrygen-0.157.0",
    "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen",
    "v0.157.0",
    "",
)
VICTORIA_METRICS = Peer(
    "victoria-metrics-1.150.0",
    "github.com/VictoriaMetrics/VictoriaMetrics",
    "v1.150.0",
    "app/victoria-metrics",
    by_import=True,
)
PROMETHEUS = Peer("prometheus-3.14.0", "github.com/prometheus/prometheus", "v0.314.0", "cmd/prometheus")
VERSITYGW = Peer("versitygw-1.8.0", "github.com/versity/versitygw", "v1.8.0", "cmd/versitygw")  # S3 over a folder

HELM = Peer("helm-3.19.0", "helm.sh/helm/v3", "v3.19.0", "cmd/helm")


@dataclasses.dataclass(frozen=True)
class Collector:
    """The OpenTelemetry collector, put together by its own builder of the components named."""

    name: str
    version: str
    components: tuple[str, ...]  # below go.opentelemetry.io/collector

    @property
    def recipe(self) -> str:
        lines = ["dist:", "  name: collector", "  output_path: ./out", f'  version: "{self.version}"']
        for component in self.components:
            kind = component.split("/")[0]
            if f"{kind}s:" not in lines:
                lines.append(f"{kind}s:")
            lines.append(f"  - gomod: go.opentelemetry.io/collector/{component} v{self.version}")
        return "\n".join(lines) + "\n"


COLLECTOR = Collector(
    "otel-collector-0.159.0",
    "0.159.0",
    (
        "receiver/otlpreceiver",
        "exporter/otlpexporter",
        "exporter/otlphttpexporter",
        "processor/batchprocessor",
    ),
)


def _go(arguments, folder, **more):
    environment = {**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod -buildvcs=false"}
    return subprocess.run(["go", *map(str, arguments)], cwd=folder, env=environment, check=True, **more)


def _build_copy(peer: Peer, folder: pathlib.Path, out: pathlib.Path):
    told = _go(["mod", "download", "-json", f"{peer.module}@{peer.version}"], folder, capture_output=True, text=True)
    source = folder / "source"
    shutil.copytree(json.loads(told.stdout)["Dir"], source)
    subprocess.run(["chmod", "-R", "u+w", source], check=True)
    _go(["build", "-o", out, "./" + peer.command], source)


def _build_import(peer: Peer, folder: pathlib.Path, out: pathlib.Path):
    package = f"{peer.module}/{peer.command}"
    (folder / "go.mod").write_text(f"module peer\n\ngo 1.26\n\nrequire {peer.module} {peer.version}\n")
    (folder / "tools.go").write_text(f'//go:build tools\n\npackage peer\n\nimport _ "{package}"\n')
    _go(["mod", "tidy"], folder)
    _go(["build", "-o", out, package], folder)


def _build_collector(peer: Collector, folder: pathlib.Path, out: pathlib.Path):
    (folder / "recipe.yaml").write_text(peer.recipe)
    environment = {**os.environ, "GOBIN": str(folder), "GOWORK": "off"}
    builder = f"go.opentelemetry.io/collector/cmd/builder@v{peer.version}"
    subprocess.run(["go", "install", builder], cwd=folder, env=environment, check=True)
    subprocess.run([folder / "builder", "--config", "recipe.yaml"], cwd=folder, env=environment, check=True)
    shutil.move(folder / "out" / "collector", out)


def build(peer: Peer | Collector) -> pathlib.Path | None:
    """The program, or None where it cannot be had (no Go, no network)."""
    program = CACHE / peer.name
    if program.exists():
        return program
    if shutil.which("go") is None:
        print(f"bench: {peer.name} left out: there is no Go to build it with", file=sys.stderr)
        return None
    print(f"bench: building {peer.name}, once", file=sys.stderr)
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            part = program.with_name(f"{peer.name}.{os.getpid()}.part")
            if isinstance(peer, Collector):
                _build_collector(peer, pathlib.Path(folder), part)
            else:
                (_build_import if peer.by_import else _build_copy)(peer, pathlib.Path(folder), part)
            part.rename(program)
    except (subprocess.CalledProcessError, OSError, ValueError) as error:
        print(f"bench: {peer.name} left out: {error}", file=sys.stderr)
        return None
    return program


if __name__ == "__main__":  # builds what is named ahead of time, and says where it is: peers.py VICTORIA_METRICS PROMETHEUS
    programs = [build(globals()[name]) for name in sys.argv[1:]]
    print(*[program for program in programs if program], sep="\n")
    sys.exit(0 if all(programs) else 1)
