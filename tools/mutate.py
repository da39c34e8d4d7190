#!/usr/bin/env python3
"""Do the tests notice? Changes one operator of the code at a time, builds the folder's own tests, runs them, and puts the file back.

./dev mutate [N] [--seed S] [--folder F] [--each]: N changes (default 20), drawn from all places of F (default: every folder of FOLDERS);
with --each, N of every folder, so that the large ones do not stand for all. A change is noticed when a test fails, crashes or does not
end; one that does not compile is drawn again. Survivors go into bench/results/mutate.md with the line and the change; a reason written
there beside one stays when it is met again.

A change costs one source file and one link, because it has a build folder of its own (build/mutate) without batches of sources and without
optimization; the first run fills it (minutes). It works in this tree. So it refuses a tree with changes, puts the file back on every way
out, and keeps the original in build/mutate.undo while a file is changed: after a crash of the machine the next start puts it back."""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/mutate.md"
UNDO = ROOT / "build/mutate.undo"
BUILD = ROOT / "build/mutate"
SHARDS = 6  # a good part of the tests waits
# The folders, and the program of their tests.
FOLDERS = {
    "src/agent": "agent_test",
    "src/bus": "bus_test",
    "src/ingest": "ingest_test",
    "src/query/promql": "query_test",
    "src/recorder": "recorder_test",
    "src/store": "store_test",
    "src/wire": "wire_test",
}
# What no product is made of.
FOR_TESTS = re.compile(r"_(test|fuzz|bench|soak|testing|world|oracle|fuzzing|load)\.(cc|h)$|(^|/)(testing|test_\w+)\.h$|/testing/")
# One operator each: what is looked for, and what takes its place. Blanks around tell a comparison from a template.
OPERATORS = [
    (r" < ", " <= "), (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" && ", " || "), (r" \|\| ", " && "),
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " / "), (r" / ", " * "), (r" % ", " * "), (r" \+= ", " -= "), (r" -= ", " += "),
    (r"\+\+(?=\w)", "--"), (r"--(?=\w)", "++"),
    (r"(?<![\w.'])0(?![\w.'])", "1"), (r"(?<![\w.'])1(?![\w.'])", "0"),
    (r"\breturn true\b", "return false"), (r"\breturn false\b", "return true"),
    (r"(?<![!\w])!(?=[\w(*])", ""),
    (r"\bstd::min\b", "std::max"), (r"\bstd::max\b", "std::min"),
]
# Lines on which a change is no change of what the program does (hints to the processor, room that is made ahead), or never compiles.
NO_CODE = re.compile(r"^\s*(#|static_assert|using |template|namespace |friend |case |typedef )|LOCKSTEP_LOG|\bvirtual\b.*= 0;|= default|= delete|operator"
                     r"|__builtin_prefetch|\breserve(_more)?\(")


def code_only(text):
    """The text with blanks for comments, strings and characters, of the same length and lines."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return token.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def places(path):
    """(line, column, old, new) of every change that can be made to a file."""
    code = code_only(path.read_text())
    found = []
    for number, line in enumerate(code.split("\n")):
        if NO_CODE.search(line):
            continue
        for pattern, new in OPERATORS:
            found += [(number, match.start(), match[0], new) for match in re.finditer(pattern, line)]
    return found


def changed(text, place):
    number, column, old, new = place
    lines = text.split("\n")
    line = lines[number]
    assert line[column:column + len(old)] == old, (number, line, old)
    lines[number] = line[:column] + new + line[column + len(old):]
    return "\n".join(lines)


def sources(folder):
    return [path for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in (".cc", ".h") and not FOR_TESTS.search(str(path.relative_to(ROOT)))]


class Changed:
    """A file that is another while the block runs, and the old one after it, whatever happens."""

    def __init__(self, path, text):
        self.path, self.text = path, text

    def __enter__(self):
        self.original = self.path.read_bytes()
        UNDO.write_text(json.dumps({"path": str(self.path.relative_to(ROOT)), "text": self.original.decode()}))
        self.path.write_text(self.text)

    def __exit__(self, *_):
        self.path.write_bytes(self.original)
        UNDO.unlink(missing_ok=True)


def put_back():
    """What a run that was killed left behind."""
    if UNDO.exists():
        left = json.loads(UNDO.read_text())
        (ROOT / left["path"]).write_text(left["text"])
        UNDO.unlink()
        print(f"mutate: {left['path']} was left changed by a run that was killed; it is as before again", file=sys.stderr)


def configure():
    """The build folder of this program alone."""
    if (BUILD / "build.ninja").exists():
        return
    linker = ["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold"] if shutil.which("ld.gold") else []
    subprocess.run(["cmake", "--preset", "dev", "-B", BUILD, "-DLOCKSTEP_SINGLE_LIBRARIES=ON", "-DCMAKE_CXX_FLAGS=-O0", "-DCMAKE_C_FLAGS=-O0", *linker],
                   cwd=ROOT, stdout=subprocess.DEVNULL, check=True)


def build(target):
    """None, or what the compiler said."""
    done = subprocess.run(["cmake", "--build", BUILD, "--target", target], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return done.stdout + done.stderr


def suites_beside(path):
    """The filter of the tests that stand beside a source, which mostly notice first; empty where there are none."""
    beside = path.with_name(path.stem + "_test.cc")
    if not beside.exists():
        return ""
    return ":".join(f"{suite}.*:*/{suite}.*" for suite in sorted(set(re.findall(r"^TEST(?:_F|_P)?\((\w+),", beside.read_text(), re.M))))


def run_tests(target, without, timeout_s, only=""):
    """(ok, the tests that failed). The first that fails ends it; without None, all are run."""
    program = BUILD / "tests" / target
    filters = [f"--gtest_filter={only}" + ("-" + ":".join(sorted(without)) if without else "")] if without or only else []
    if without is not None:
        filters.append("--gtest_fail_fast")
    running, outputs = [], []
    deadline = time.monotonic() + timeout_s
    free = shutil.disk_usage(tempfile.gettempdir()).free
    try:
        for shard in range(SHARDS):
            environment = dict(os.environ, GTEST_TOTAL_SHARDS=str(SHARDS), GTEST_SHARD_INDEX=str(shard), GTEST_BRIEF="1", LOCKSTEP_LOG="error")
            outputs.append(tempfile.TemporaryFile("w+", errors="replace"))
            running.append(subprocess.Popen([program, *filters], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=outputs[-1],
                                            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit))
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            if without is not None and any(process.poll() for process in running):
                break
            if shutil.disk_usage(tempfile.gettempdir()).free < free - (8 << 30):  # no limit of a file's size: some tests make large holes
                break
            time.sleep(0.05)
        ok = all(process.poll() == 0 for process in running)
    finally:
        for process in running:  # it and what it has started
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
    failed = set()
    for output in outputs:
        output.seek(0)
        failed |= set(re.findall(r"^\[  FAILED  \] ([\w/.]+)", output.read(), re.M))
        output.close()
    return ok, failed


def limit():
    """A loop that never ends may fill this much memory, not the machine's."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


class Tests:
    """The tests of one folder as they are without any change."""

    def __init__(self, target):
        self.target = target
        complaint = build(target)
        if complaint is not None:
            sys.exit(f"mutate: {target} does not build as it is:\n{complaint[-2000:]}")
        began = time.monotonic()
        ok, self.without = run_tests(target, None, 900)
        self.timeout_s = 3 * (time.monotonic() - began) + 30
        if not ok and not self.without:
            sys.exit(f"mutate: {target} fails as it is")
        if self.without and not run_tests(target, self.without, self.timeout_s)[0]:
            sys.exit(f"mutate: {target} fails as it is, and not always in the same tests")

    def notice(self, path):
        """"noticed", "survived" or "does not compile", of the tree as it is now."""
        complaint = build(self.target)
        if complaint is not None:
            # A program that cannot even list its tests was noticed as well.
            return "does not compile" if re.search(r"\berror: |undefined reference", complaint) else "noticed"
        for only in filter(None, (suites_beside(path), "*")):
            if not self.pass_all(only):
                return "noticed"
        return "survived"

    def pass_all(self, only):
        """Whether all of these tests pass. One that fails is asked again alone: on a machine with much to do a test may fail by itself."""
        for _ in range(3):
            ok, failed = run_tests(self.target, self.without, self.timeout_s, only)
            if ok:
                return True
            if not failed or not run_tests(self.target, self.without, self.timeout_s, ":".join(sorted(failed)))[0]:
                return False
        return False


def key_of(path, place, line):
    text = f"`{path}` `{place[2].strip()}` to `{place[3].strip() or 'nothing'}` in `{line.strip()}`"
    return text.replace("|", "\u00a6")  # a table's own sign


def reasons():
    """What somebody has written beside survivors."""
    known = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            row = re.match(r"\| (`[^|]*`) \(line \d+\) \| (.*) \|$", line)
            if row and row[2].strip():
                known[row[1]] = row[2].strip()
    return known


def write_results(arguments, per_folder, survivors, left_out):
    noticed = sum(row["noticed"] for row in per_folder.values())
    tried = noticed + len(survivors)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    known = reasons()
    text = f"""# What the tests notice

Made by `./dev mutate {arguments.n} --seed {arguments.seed}{' --each' if arguments.each else ''}{''.join(' --folder ' + folder for folder in arguments.folder)}` on commit {commit}: one operator of the code is changed at a
time, and the tests of its own folder are run. A change that does not compile is drawn again and not counted.

**{noticed} of {tried} changes were noticed ({100 * noticed / max(1, tried):.0f} %).**

| folder | tried | noticed | did not compile |
|---|---|---|---|
"""
    for folder, row in sorted(per_folder.items()):
        text += f"| `{folder}` | {row['noticed'] + row['survived']} | {row['noticed']} | {row['does not compile']} |\n"
    if left_out:
        text += "\nLeft out, as they fail without a change where a folder's tests run in one process: " + ", ".join(sorted(left_out)) + ".\n"
    text += "\n## Survivors\n\nA reason says why no test has to notice; without one, a test is missing.\n\n| change | reason |\n|---|---|\n"
    for key, number in survivors:
        text += f"| {key} (line {number}) | {known.get(key, '')} |\n"
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(text)


def main():
    parser = argparse.ArgumentParser(prog="./dev mutate", description="changes one operator at a time: do the tests notice?")
    parser.add_argument("n", nargs="?", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", action="append", default=[], help="one of " + ", ".join(FOLDERS) + ", a folder below one, or a file; may be said several times")
    parser.add_argument("--each", action="store_true", help="N changes in every folder, not in all together")
    parser.add_argument("--list", action="store_true", help="only say what would be tried")
    arguments = parser.parse_args()
    put_back()
    wanted = [folder.rstrip("/") for folder in arguments.folder] or list(FOLDERS)
    for folder in wanted:
        if not any(f"{folder}/".startswith(f"{home}/") or f"{home}/".startswith(f"{folder}/") for home in FOLDERS):
            sys.exit(f"mutate: no tests for {folder}; there are {', '.join(FOLDERS)}")
    if subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, capture_output=True, text=True).stdout and not arguments.list:
        sys.exit("mutate: there are changes in this tree: commit them first, so that nothing can be lost")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))  # as Ctrl-C does: by an exception, so that the file is put back

    all_places = [(home, path, place) for home in FOLDERS for path in sources(home)
                  if any(f"{path.relative_to(ROOT)}/".startswith(f"{folder}/") for folder in wanted) for place in places(path)]
    random.Random(arguments.seed).shuffle(all_places)
    if arguments.each:
        all_places.sort(key=lambda found: found[0])  # keeps the drawn order within each
    if not arguments.list:
        configure()
    tests, per_folder, survivors, done, done_of = {}, {}, [], 0, dict.fromkeys(FOLDERS, 0)
    try:
        for home, path, place in all_places:
            if (done_of[home] if arguments.each else done) >= arguments.n:
                continue
            shown = path.relative_to(ROOT)
            text = path.read_text()
            line = text.split("\n")[place[0]]
            if arguments.list:
                print(f"{shown}:{place[0] + 1}: {place[2]!r} to {place[3]!r}: {line.strip()}")
                done += 1
                done_of[home] += 1
                continue
            if home not in tests:
                print(f"mutate: {FOLDERS[home]} without a change", flush=True)
                tests[home] = Tests(FOLDERS[home])
            row = per_folder.setdefault(home, {"noticed": 0, "survived": 0, "does not compile": 0})
            began = time.monotonic()
            with Changed(path, changed(text, place)):
                result = tests[home].notice(path)
            row[result] += 1
            if result != "does not compile":
                done += 1
                done_of[home] += 1
            if result == "survived":
                survivors.append((key_of(shown, place, line), place[0] + 1))
            print(f"{done:4} {result:16} {time.monotonic() - began:5.1f} s  {shown}:{place[0] + 1}: {place[2]!r} to {place[3]!r}: {line.strip()}", flush=True)
    finally:
        if per_folder:
            write_results(arguments, per_folder, survivors, set().union(*(test.without for test in tests.values())) if tests else set())
            print(f"mutate: written to {RESULTS.relative_to(ROOT)}")
        for test in tests.values():  # nobody is to run the program of the last change
            build(test.target)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
