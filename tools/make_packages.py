#!/usr/bin/env python3
"""Debian packages, a tarball and the list of what is inside, from one build.

    tools/make_packages.py --build DIR [--out DIR] [--web DIR]

DIR has bin/ and lib/ (build/release). Into --out (default build/release/files) go

    lockstep_VERSION_ARCH.deb          the command line
    lockstep-server_VERSION_ARCH.deb   lockstepd, its page and documents, a service
    lockstep-agent_VERSION_ARCH.deb    the node's agent, a service
    lockstep-plugin_VERSION_ARCH.deb   NCCL's plugin, the C API and the Python package, for jobs
    lockstep-VERSION-linux-ARCH.tar.gz all of it, to be unpacked anywhere
    lockstep-VERSION.spdx.json         what is linked in or bundled, as SPDX 2.3
    SHA256SUMS                         of every file in the folder

The same input gives the same bytes: times are those of the last commit, owners are root. tools/make_wheel.py makes the wheel.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import make_wheel
from make_wheel import ROOT, Wrong, output_of

SYSTEMD = ROOT / "deploy" / "systemd"
MAINTAINER = "Lockstep maintainers <maintainers@lockstep.invalid>"
DEBIAN_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}

# name: (summary, what it recommends, its unit and user, what purging it removes)
PACKAGES = {
    "lockstep": ("why is my distributed GPU job slow, or stuck: the command line", "lockstep-server, lockstep-plugin", None, None, []),
    "lockstep-server": ("why is my distributed GPU job slow, or stuck: the server and its page", "lockstep",
                        "lockstep-server.service", "lockstep-server", ["/var/lib/lockstep"]),
    "lockstep-agent": ("why is my distributed GPU job slow, or stuck: the agent of a node", "lockstep",
                       "lockstep-agent.service", "lockstep", ["/var/lib/lockstep-agent"]),
    "lockstep-plugin": ("why is my distributed GPU job slow, or stuck: NCCL plugin, C API and Python package", "lockstep", None, None, []),
}  # fmt: skip

DESCRIPTION = """\
 Lockstep watches distributed training jobs and names the rank, the host or
 the link that makes them slow, or why they stand still, with its evidence.
"""

POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if ! getent passwd {user} >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir {home} --shell /usr/sbin/nologin {user}
  fi
  deb-systemd-helper unmask {unit} >/dev/null || true
  if deb-systemd-helper --quiet was-enabled {unit}; then
    deb-systemd-helper enable {unit} >/dev/null || true
  fi
  deb-systemd-helper update-state {unit} >/dev/null || true
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    if [ -n "$2" ]; then action=restart; else action=start; fi
    deb-systemd-invoke $action {unit} >/dev/null || true
  fi
fi
"""

PRERM = """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then
  deb-systemd-invoke stop {unit} >/dev/null || true
fi
"""

# Data goes with purge alone, and nothing is asked.
POSTRM = """\
#!/bin/sh
set -e
if [ "$1" = remove ]; then
  if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
  if [ -x /usr/bin/deb-systemd-helper ]; then deb-systemd-helper mask {unit} >/dev/null || true; fi
fi
if [ "$1" = purge ]; then
  if [ -x /usr/bin/deb-systemd-helper ]; then
    deb-systemd-helper purge {unit} >/dev/null || true
    deb-systemd-helper unmask {unit} >/dev/null || true
  fi
  rm -rf {folders}
  # Only the user that postinst made: somebody may be called so.
  if getent passwd {user} | grep -q ':{home}:/usr/sbin/nologin$'; then userdel {user} >/dev/null 2>&1 || true; fi
  rmdir /etc/lockstep 2>/dev/null || true
fi
"""


class Tree:
    """What an installation has: path -> (bytes or the target of a link, mode)."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, int]] = {}
        self.links: dict[str, str] = {}

    def add(self, path: str, content: bytes | pathlib.Path, mode: int = 0o644) -> None:
        self.files[path] = (content.read_bytes() if isinstance(content, pathlib.Path) else content, mode)

    def add_folder(self, path: str, folder: pathlib.Path) -> None:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in file.relative_to(folder).parts):
                self.add(f"{path}/{file.relative_to(folder)}", file)

    def write(self, folder: pathlib.Path) -> None:
        for path, (content, mode) in self.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(mode)
        for path, to in self.links.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(to)
        for inner in [folder, *folder.rglob("*")]:
            if inner.is_dir() and not inner.is_symlink():
                inner.chmod(0o755)


def changed_at() -> int:
    """When the tree was last changed, so that the same commit gives the same bytes."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or output_of("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))


def program(build: pathlib.Path, name: str, arch: str, folder: pathlib.Path) -> pathlib.Path:
    path = build / ("lib" if name.endswith(".so") else "bin") / name
    if not path.is_file():
        raise Wrong(f"{path} is not there: build it first")
    if make_wheel.machine(path) != arch:
        raise Wrong(f"{path} is for {make_wheel.machine(path)}, not for {arch}")
    return make_wheel.stripped(path, folder, arch)


def python_package(tree: Tree) -> None:
    for name, path in make_wheel.package_files().items():
        tree.add(f"usr/lib/lockstep/python/{name}", path)
    # Where the package looks for libraries and programs.
    tree.links["usr/lib/lockstep/python/lockstep/lib"] = "../.."
    tree.links["usr/lib/lockstep/python/lockstep/bin"] = "../../../../bin"


def trees(build: pathlib.Path, web: pathlib.Path, arch: str, scratch: pathlib.Path) -> dict[str, Tree]:
    made = {name: Tree() for name in PACKAGES}
    made["lockstep"].add("usr/bin/lockstep", program(build, "lockstep", arch, scratch), 0o755)
    server = made["lockstep-server"]
    server.add("usr/bin/lockstepd", program(build, "lockstepd", arch, scratch), 0o755)
    if not (web / "index.html").is_file():
        raise Wrong(f"there is no index.html in {web}: build the page first (./dev release does)")
    server.add_folder("usr/share/lockstep/web", web)
    server.add("usr/lib/systemd/system/lockstep-server.service", SYSTEMD / "lockstep-server.service")
    server.add("etc/lockstep/lockstepd.yaml", SYSTEMD / "lockstepd.yaml")
    agent = made["lockstep-agent"]
    agent.add("usr/bin/lockstep-agent", program(build, "lockstep-agent", arch, scratch), 0o755)
    agent.add("usr/lib/systemd/system/lockstep-agent.service", SYSTEMD / "lockstep-agent.service")
    agent.add("etc/lockstep/agent.conf", SYSTEMD / "agent.conf")
    plugin = made["lockstep-plugin"]
    for name in make_wheel.LIBRARIES:
        plugin.add(f"usr/lib/lockstep/{name}", program(build, name, arch, scratch), 0o644)
        plugin.links[f"usr/lib/{arch}-linux-gnu/{name}"] = f"../lockstep/{name}"
    plugin.links["usr/lib/lockstep/librccl-profiler-lockstep.so"] = "libnccl-profiler-lockstep.so"
    plugin.links[f"usr/lib/{arch}-linux-gnu/librccl-profiler-lockstep.so"] = "../lockstep/librccl-profiler-lockstep.so"
    plugin.add("usr/include/lockstep.h", ROOT / "plugin" / "capi" / "lockstep.h")
    python_package(plugin)
    plugin.links["usr/lib/python3/dist-packages/lockstep"] = "../../lockstep/python/lockstep"
    for name, tree in made.items():
        tree.add(f"usr/share/doc/{name}/copyright", ROOT / "LICENSE")
    return made


def package_of(path: pathlib.Path) -> str:
    """The Debian package that has a file."""
    for candidate in (str(path), str(path.resolve()), str(path).removeprefix("/usr")):
        try:
            return output_of("dpkg", "-S", candidate).split(":")[0]
        except Wrong:
            continue
    raise Wrong(f"no Debian package has {path}")


def version_of(package: str) -> str:
    return output_of("dpkg-query", "-W", "-f", "${Version}", package)


def depends(name: str, build: pathlib.Path) -> str:
    """Packages of the shared libraries that its programs need, as far as not every Debian has them."""
    needs = {f"libc6 (>= {make_wheel.GLIBC[0]}.{make_wheel.GLIBC[1]})"}
    programs = {"lockstep": ["lockstep"], "lockstep-server": ["lockstepd"], "lockstep-agent": ["lockstep-agent"]}.get(name, [])
    for one in programs:
        path = build / "bin" / one
        for library in make_wheel.needed(path):
            if library.startswith(("libstdc++", "libgcc_s")):
                needs.add("libstdc++6" if "stdc" in library else "libgcc-s1")
            elif not make_wheel.SYSTEM.fullmatch(library):
                needs.add(package_of(make_wheel.resolved(path, library)))
    if PACKAGES[name][2]:
        needs |= {"init-system-helpers", "passwd"}
    return ", ".join(sorted(needs))


def make_deb(name: str, tree: Tree, build: pathlib.Path, arch: str, out: pathlib.Path, scratch: pathlib.Path) -> pathlib.Path:
    summary, recommends, unit, user, folders = PACKAGES[name]
    root = scratch / name
    tree.write(root)
    control = root / "DEBIAN"
    control.mkdir(mode=0o755)
    size = sum(len(content) for content, _ in tree.files.values()) // 1024
    fields = {
        "Package": name, "Version": make_wheel.version(), "Architecture": DEBIAN_ARCH[arch], "Maintainer": MAINTAINER,
        "Installed-Size": size, "Depends": depends(name, build), "Recommends": recommends, "Section": "admin", "Priority": "optional",
    }  # fmt: skip
    text = "".join(f"{key}: {value}\n" for key, value in fields.items()) + f"Description: {summary}\n{DESCRIPTION}"
    (control / "control").write_text(text)
    conffiles = "".join(f"/{path}\n" for path in sorted(tree.files) if path.startswith("etc/"))
    if conffiles:
        (control / "conffiles").write_text(conffiles)
    if unit:
        words = {"unit": unit, "user": user, "home": folders[0], "folders": " ".join(folders)}
        for script, template in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
            (control / script).write_text(template.format(**words))
            (control / script).chmod(0o755)
    elif name == "lockstep-plugin":
        (control / "triggers").write_text("activate-noawait ldconfig\n")
        # Files that Python compiles beside the package's own.
        (control / "prerm").write_text("#!/bin/sh\nset -e\nfind /usr/lib/lockstep/python -name __pycache__ -prune -exec rm -rf {} +\n")
        (control / "prerm").chmod(0o755)
    sums = "".join(f"{hashlib.md5(content).hexdigest()}  {path}\n" for path, (content, _) in sorted(tree.files.items()) if not path.startswith("etc/"))
    (control / "md5sums").write_text(sums)
    path = out / f"{name}_{make_wheel.version()}_{DEBIAN_ARCH[arch]}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(changed_at())}
    done = subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise Wrong(done.stderr.strip())
    return path


def make_tarball(all_trees: dict[str, Tree], build: pathlib.Path, arch: str, out: pathlib.Path) -> pathlib.Path:
    """bin, lib, share and etc, which find each other wherever they are; with the shared libraries that not every Linux has."""
    top = f"lockstep-{make_wheel.version()}-linux-{arch}"
    files: dict[str, tuple[bytes, int]] = {}
    links: dict[str, str] = {}
    for tree in all_trees.values():
        for path, value in tree.files.items():
            if "/doc/" not in path:
                files[path.removeprefix("usr/").replace("lib/systemd/system/", "systemd/")] = value
        links.update({path.removeprefix("usr/"): to for path, to in tree.links.items() if "/lockstep/" in path})
    links = {path: to for path, to in links.items() if not path.startswith((f"lib/{arch}", "lib/python3"))}
    files["LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    for name in ("lockstep", "lockstepd", "lockstep-agent"):
        for library in make_wheel.needed(build / "bin" / name):
            if not make_wheel.SYSTEM.fullmatch(library):
                files[f"lib/{library}"] = (make_wheel.resolved(build / "bin" / name, library).read_bytes(), 0o755)
    path = out / f"{top}.tar.gz"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted({*files, *links}):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.mtime = changed_at()
            if name in links:
                entry.type, entry.linkname = tarfile.SYMTYPE, links[name]
                archive.addfile(entry)
            else:
                content, entry.mode = files[name]
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return path


def linked_libraries(build: pathlib.Path) -> set[pathlib.Path]:
    """Libraries of the machine that the build links in, static or not, and the compiler's own."""
    ninja = build / "build.ninja"
    found = set(re.findall(r"(/usr/lib/\S+?\.(?:a|so[.\d]*))(?=\s|$)", ninja.read_text())) if ninja.is_file() else set()
    return {pathlib.Path(path) for path in found if os.path.exists(path)}


def spdx_package(identifier: str, name: str, version: str, supplier: str, **more: object) -> dict[str, object]:
    return {
        "SPDXID": f"SPDXRef-{re.sub(r'[^A-Za-z0-9.-]', '-', identifier)}", "name": name, "versionInfo": version, "supplier": supplier,
        "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION", **more,
    }  # fmt: skip


def purl(url: str) -> dict[str, object]:
    return {"externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": url}]}


def make_sbom(build: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    version = make_wheel.version()
    own = spdx_package("lockstep", "lockstep", version, "Organization: Lockstep", licenseDeclared="Apache-2.0", licenseConcluded="Apache-2.0")
    parts = []
    libraries = sorted({package_of(path) for path in linked_libraries(build)} | {"libstdc++6", "libgcc-s1", "libboost-dev", "libsimdjson-dev"})
    for name in libraries:
        if subprocess.run(["dpkg-query", "-W", name], capture_output=True).returncode != 0:
            continue
        distribution = "pkg:deb/debian/{}@{}?arch={}&distro=debian-12"
        architecture = output_of("dpkg", "--print-architecture").strip()
        parts.append(spdx_package(f"deb-{name}", name, version_of(name), "Organization: Debian",
                                  **purl(distribution.format(name, version_of(name), architecture))))  # fmt: skip
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    for place, entry in sorted(lock["packages"].items()):
        if place.startswith("node_modules/") and not entry.get("dev"):
            name = place.removeprefix("node_modules/")
            parts.append(spdx_package(f"npm-{name}", name, entry["version"], "NOASSERTION", licenseDeclared=entry.get("license", "NOASSERTION"),
                                      **purl(f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}")))  # fmt: skip
    created = subprocess.run(["date", "-u", "-d", f"@{changed_at()}", "+%Y-%m-%dT%H:%M:%SZ"], capture_output=True, text=True).stdout.strip()
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"lockstep-{version}",
        "documentNamespace": f"urn:lockstep:sbom:{version}:{changed_at()}",
        "creationInfo": {"created": created, "creators": ["Tool: lockstep-make_packages"]},
        "packages": [own, *parts],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]},
            *({"spdxElementId": own["SPDXID"], "relationshipType": "CONTAINS", "relatedSpdxElement": part["SPDXID"]} for part in parts),
        ],
    }  # fmt: skip
    path = out / f"lockstep-{version}.spdx.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def write_sums(out: pathlib.Path) -> None:
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
             for path in sorted(out.iterdir()) if path.is_file() and path.name != "SHA256SUMS"]  # fmt: skip
    (out / "SHA256SUMS").write_text("".join(lines))


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes Debian packages, a tarball, an SBOM and checksums from a build.")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="folder with bin/ and lib/")
    parser.add_argument("--web", type=pathlib.Path, default=ROOT / "web" / "dist", help="the built page")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "release" / "files")
    parser.add_argument("--sums-only", action="store_true", help="only write SHA256SUMS of what is there")
    options = parser.parse_args()
    arch = os.uname().machine
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        if not options.sums_only:
            with tempfile.TemporaryDirectory() as temporary:
                scratch = pathlib.Path(temporary)
                (scratch / "stripped").mkdir()
                made = trees(options.build, options.web, arch, scratch / "stripped")
                for name, tree in made.items():
                    path = make_deb(name, tree, options.build, arch, options.out, scratch)
                    print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
                path = make_tarball(made, options.build, arch, options.out)
                print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
                print(make_sbom(options.build, options.out))
        write_sums(options.out)
    except (Wrong, OSError) as problem:
        print(f"make_packages: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
