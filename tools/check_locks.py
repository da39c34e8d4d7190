#!/usr/bin/env python3
"""Members are touched only under their mutex. Clang follows the annotations of src/base/mutex.h through every source that can touch an
annotated member (those are private, so their own folder is what matters). Files that have not changed since they passed are not looked at
again.

    tools/check_locks.py            what ./dev check runs; the results are kept in build/locks
    tools/check_locks.py --plain    only this: the standard library's mutexes and locks, which Clang cannot follow, are used nowhere"""
import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "locks"
HEADER = "base/mutex.h"
FOLDERS = ("src", "apps", "plugin", "bench", "tests")
PLAIN = re.compile(r"\bstd::(recursive_|timed_|recursive_timed_|shared_|shared_timed_)?mutex\b|\bstd::(lock_guard|unique_lock|scoped_lock|shared_lock)\b|"
                   r"\bstd::condition_variable(_any)?\b|#\s*include\s+<(mutex|shared_mutex|condition_variable)>")
PLAIN_WORDS = ("mutex", "_lock", "lock_guard", "condition_variable")  # one of them is in whatever PLAIN finds
# Who may use those all the same, and why.
MAY_USE_PLAIN = {
    "src/base/mutex.h": "wraps them",
    "src/store/metrics/block.h": "std::once_flag, which is in <mutex>",
    "plugin/nccl/soak_host.cc": "holds as many communicators as a group has, by std::shared_lock with try_to_lock: Clang follows no list of locks",
    "tests/gpu/calls_recorder.cc": "is compiled alone on a machine with a GPU, without src/",
}

FOR_TESTS = re.compile(r"_(test|bench|fuzz)\.cc$")
FLAGS = ["-fsyntax-only", "-Wno-everything", "-ferror-limit=0", "-Wthread-safety", "-Werror=thread-safety"]
# What must be refused, or the check checks nothing.
WRONG = """#include "base/mutex.h"
class Wrong {
  void touch() { ++number_; }
  lockstep::Mutex mutex_;
  int number_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};
"""


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                yield path.relative_to(ROOT)


def plain_uses():
    wrong, used = [], set()
    for path in sources():
        text = (ROOT / path).read_text()
        for number, line in enumerate(text.splitlines(), 1) if any(word in text for word in PLAIN_WORDS) else ():
            if not PLAIN.search(line.split("//")[0]):
                continue
            used.add(str(path))
            if str(path) not in MAY_USE_PLAIN:
                wrong.append(f"{path}:{number}: {line.strip()}: use {HEADER}, or write the reason into tools/check_locks.py")
    wrong += [f"tools/check_locks.py: {path} needs no exception any more" for path in MAY_USE_PLAIN if path not in used]
    return wrong


def includes(path):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', (ROOT / path).read_text(), re.M)


def to_check():
    """Sources that include the header or a header that does; those of the product also through other headers of their own folder, as
    friends do."""
    by_name = {}
    for path in sources():
        by_name[str(path.relative_to("src")) if path.parts[0] == "src" else str(path)] = includes(path)
    annotated = {name for name, included in by_name.items() if HEADER in included}
    reach, grows = set(annotated), True
    while grows:
        more = {name for name, included in by_name.items()
                if any(other in reach and other.split("/")[0] == name.split("/")[0] for other in included)}
        grows = not more <= reach
        reach |= more
    return {name for name, included in by_name.items() if name.endswith(".cc") and
            (name in annotated or any(other in annotated for other in included) or (name in reach and not FOR_TESTS.search(name)))}


def notices():
    """Whether Clang follows the annotations as they are written now."""
    ran = subprocess.run(["clang++", "-std=c++20", "-I", ROOT / "src", *FLAGS, "-x", "c++", "-"], input=WRONG, capture_output=True, text=True)
    return "requires holding mutex 'mutex_'" in ran.stderr


def configure():
    """How each source is compiled, one by one and by Clang."""
    flags = ["-G", "Ninja", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++", "-DLOCKSTEP_WARNINGS_AS_ERRORS=OFF"]
    done = subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *flags], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr + "check_locks: cmake failed")
    return json.loads((BUILD / "compile_commands.json").read_text())


def write_ninja(commands, names):
    lines = [f"builddir = {BUILD}/checked", "rule check", "  command = $call -MD -MF $out.d -MT $out && touch $out", "  depfile = $out.d", "  deps = gcc", "  description = $in", ""]
    seen = set()
    for command in commands:
        path = pathlib.Path(command["file"]).relative_to(ROOT)
        name = str(path.relative_to("src")) if path.parts[0] == "src" else str(path)
        if name not in names or path in seen:
            continue
        seen.add(path)
        words = shlex.split(command["command"])
        words = words[next(i for i, word in enumerate(words) if "clang" in word):]  # without a compiler cache before it
        at = words.index("-o")
        del words[at:at + 2]
        words = [word for word in words if word != "-c" and not word.startswith("-O")]
        words += FLAGS
        call = " ".join(shlex.quote(word) for word in words).replace("$", "$$")
        lines += [f"build {BUILD}/checked/{path}.ok: check {path}", f"  call = {call}"]
    folder = BUILD / "checked"
    for path in seen:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / "build.ninja").write_text("\n".join(lines) + "\n")
    return len(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plain", action="store_true")
    arguments = parser.parse_args()
    if wrong := plain_uses():
        print("\n".join(wrong))
        sys.exit(f"check_locks: {len(wrong)} uses of locks that Clang cannot follow")
    if arguments.plain:
        return
    if not notices():
        sys.exit(f"check_locks: Clang does not refuse a member that is touched without its mutex: the annotations of {HEADER} say nothing to it")
    count = write_ninja(configure(), to_check())
    ran = subprocess.run(["ninja", "-C", ROOT, "-f", BUILD / "checked" / "build.ninja", "-k", "0", "-j", str(os.cpu_count())])
    if ran.returncode != 0:
        sys.exit("check_locks: members are touched without their mutex, see above; what the annotations mean is in src/base/mutex.h")
    print(f"check_locks: in {count} sources every annotated member is touched under its mutex")


if __name__ == "__main__":
    main()
