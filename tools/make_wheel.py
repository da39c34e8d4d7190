#!/usr/bin/env python3
"""Puts the Python package, the libraries that a job loads, the programs and the web page into one wheel.

    tools/make_wheel.py --build DIR [--arch x86_64|aarch64] [--web DIR] [--out DIR] [--local]

DIR has bin/ and lib/; for aarch64, which is built without the server, the server and its page are left out. A wheel is a zip file: what is installed, and METADATA, WHEEL, entry_points.txt and RECORD beside
it. The same input gives the same bytes. With --local the programs are taken as they are, for this machine alone; else
whatever shared library they need that not every Linux has goes along, and a symbol of a C library newer than the tag
says is an error.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLIBC = (2, 36)
LIBRARIES = ["liblockstep.so", "libnccl-profiler-lockstep.so"]
PROGRAMS = {"x86_64": ["lockstep", "lockstep-agent", "lockstepd"], "aarch64": ["lockstep", "lockstep-agent"]}
FUNCTIONS = {"lockstep": "main", "lockstep-agent": "agent", "lockstepd": "server"}  # of lockstep/__main__.py
# On every Linux that the tag speaks of.
SYSTEM = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+))\.so(\.\d+)*")

METADATA = """\
Metadata-Version: 2.1
Name: lockstep
Version: {version}
Summary: Why is my distributed GPU job slow, or stuck? Steps, phases and NCCL of a training job, from one line or none.
License: Apache-2.0
Requires-Python: >=3.10
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

    lockstep demo                                               a simulated fleet, without a GPU
    lockstepd --data ~/lockstep                                 the server, on http://127.0.0.1:7070
    lockstep run -- torchrun --nproc-per-node 8 train.py

or, in the training script:

    import lockstep
    lockstep.init()

The package carries the C API (`lockstep.h`, `liblockstep.so`), NCCL's profiler plugin, the node's agent{programs}.
It needs no other package.
"""


class Wrong(Exception):
    """One line that says what is wrong."""


def version() -> str:
    """CMakeLists.txt says it; where another file repeats it, it must be the same."""
    found = re.search(r"project\(lockstep VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    if not found:
        raise Wrong("CMakeLists.txt has no project(lockstep VERSION ...)")
    for name, pattern in (
        ("python/lockstep/__init__.py", r'__version__ = "([^"]*)"'),
        ("web/package.json", r'"version": "([^"]*)"'),
        ("deploy/helm/lockstep/Chart.yaml", r'appVersion: "([^"]*)"'),
        ("deploy/helm/lockstep/values.yaml", r"image: lockstep-server:(\S+)"),
    ):
        told = re.search(pattern, (ROOT / name).read_text())
        if not told or told[1] != found[1]:
            raise Wrong(f"{name} does not say the version {found[1]} of CMakeLists.txt")
    return found[1]


def output_of(*command: str) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except FileNotFoundError:
        raise Wrong(f"there is no {command[0]} here") from None
    except subprocess.CalledProcessError as problem:
        raise Wrong(f"{' '.join(command)}: {problem.stderr.strip()}") from None


def needed(path: pathlib.Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", output_of("readelf", "-dW", str(path)))


def newest_glibc(path: pathlib.Path) -> tuple[int, int]:
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output_of("readelf", "-VW", str(path)))
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def machine(path: pathlib.Path) -> str:
    found = re.search(r"Machine:\s+(.+)", output_of("readelf", "-hW", str(path)))
    return {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}.get(found[1] if found else "", "unknown")


def resolved(path: pathlib.Path, name: str) -> pathlib.Path:
    for line in output_of("ldd", str(path)).splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] == name and words[1] == "=>":
            return pathlib.Path(words[2])
    raise Wrong(f"{path.name} needs {name}, which is not here")


def stripped(path: pathlib.Path, folder: pathlib.Path, arch: str) -> pathlib.Path:
    copy = folder / path.name
    shutil.copyfile(path, copy)
    tool = "strip" if arch == os.uname().machine else f"{arch}-linux-gnu-strip"
    output_of(tool, "--strip-all" if os.access(path, os.X_OK) and ".so" not in path.name else "--strip-unneeded", str(copy))
    return copy


def compiled(build: pathlib.Path, arch: str, local: bool, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Where it goes in the wheel: the file."""
    files = {}
    for kind, names in (("lib", LIBRARIES), ("bin", PROGRAMS[arch])):
        for name in names:
            path = build / kind / name
            if not path.is_file():
                raise Wrong(f"{path} is not there: build it first")
            if machine(path) != arch:
                raise Wrong(f"{path} is for {machine(path)}, not for {arch}")
            files[f"lockstep/{kind}/{name}"] = path
    if local:
        return files
    for name, path in list(files.items()):
        for library in needed(path):
            if SYSTEM.fullmatch(library):
                continue
            if name.startswith("lockstep/lib/"):
                raise Wrong(f"{path.name} needs {library}; what a job loads may need the C library alone")
            files[f"lockstep/lib/{library}"] = resolved(path, library)
    for path in files.values():
        if newest_glibc(path) > GLIBC:
            raise Wrong(f"{path.name} needs glibc {'.'.join(map(str, newest_glibc(path)))}, the tag says {GLIBC}")
    return {name: stripped(path, folder, arch) for name, path in files.items()}


def package_files() -> dict[str, pathlib.Path]:
    files = {}
    for path in sorted((ROOT / "python" / "lockstep").rglob("*")):
        inside = path.relative_to(ROOT / "python")
        if path.is_file() and "__pycache__" not in inside.parts and not path.name.startswith("test_"):
            files[str(inside)] = path
    return files


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def web_files(web: pathlib.Path) -> dict[str, pathlib.Path]:
    if not (web / "index.html").is_file():
        raise Wrong(f"there is no index.html in {web}: build the page first (./dev wheel does)")
    return {
        f"lockstep/web/{path.relative_to(web)}": path
        for path in sorted(web.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def make_wheel(build: pathlib.Path, arch: str, web: pathlib.Path, out: pathlib.Path, local: bool) -> pathlib.Path:
    tag = f"py3-none-linux_{arch}" if local else f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}"
    info = f"lockstep-{version()}.dist-info"
    with tempfile.TemporaryDirectory() as temporary:
        files = package_files()
        files["lockstep/include/lockstep.h"] = ROOT / "plugin" / "capi" / "lockstep.h"
        files.update(compiled(build, arch, local, pathlib.Path(temporary)))
        if "lockstepd" in PROGRAMS[arch]:
            files.update(web_files(web))
        contents = {name: path.read_bytes() for name, path in files.items()}
    contents[f"{info}/METADATA"] = METADATA.format(
        version=version(),
        programs=", the server with its page, and the command line" if arch == "x86_64" else " and the commands `run` and `detail`",
    ).encode()
    contents[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: lockstep make_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    scripts = "".join(f"{name} = lockstep.__main__:{FUNCTIONS[name]}\n" for name in PROGRAMS[arch])
    contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    contents[f"{info}/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = f"{info}/RECORD"
    lines = [record_line(name, content) for name, content in sorted(contents.items())]
    contents[record] = ("".join(lines) + f"{record},,\n").encode()

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"lockstep-{version()}-{tag}.whl"
    packing = zipfile.ZIP_STORED if local else zipfile.ZIP_DEFLATED  # nobody downloads a local one
    with zipfile.ZipFile(path, "w", packing, compresslevel=9) as archive:
        for name, content in sorted(contents.items(), key=lambda item: (item[0].startswith(info), item[0])):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            executable = name.startswith(("lockstep/bin/", "lockstep/lib/"))
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = packing
            archive.writestr(entry, content)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes lockstep's wheel from a build.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder with bin/ and lib/")
    parser.add_argument("--arch", choices=["x86_64", "aarch64"], default=os.uname().machine)
    parser.add_argument("--web", type=pathlib.Path, default=ROOT / "web" / "dist", help="the built page")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "wheel")
    parser.add_argument("--local", action="store_true", help="for this machine alone: nothing checked or bundled")
    options = parser.parse_args()
    try:
        path = make_wheel(options.build, options.arch, options.web, options.out, options.local)
    except Wrong as problem:
        print(f"make_wheel: {problem}", file=sys.stderr)
        return 1
    print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
