#!/usr/bin/env python3
"""Do the tests notice? Changes one operator of the code at a time, builds the folder's own tests, runs them, and puts the file back.

./dev mutate [N] [--seed S] [--folder F] [--each] | --again: N changes (default 20), drawn from all places of F (default: every folder of FOLDERS);
with --each, N of every folder, so that the large ones do not stand for all. A change is noticed when a test fails, crashes or does not
end; one that does not compile is drawn again. So is a survivor that is no change at all: every source of the product that includes the
file compiles to the same bytes with and without it, optimized as the product is ("same code").

A run is kept in bench/results/mutate.json (one of the same folder and seed takes its place; delete the file to begin anew), and all of
them are the page bench/results/mutate.md. Survivors are there with the line and the change; a reason written beside one stays. With N 0
nothing is changed but the page, whose sums go by those reasons: "no difference: ...", "a test was written after this run (...)". With
--again the survivors are tried again, those that make no difference apart: which of them do today's tests notice?

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
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results/mutate.md"
RUNS = ROOT / "bench/results/mutate.json"
UNDO = ROOT / "build/mutate.undo"
BUILD = ROOT / "build/mutate"
SHARDS = 6  # a good part of the tests waits
USERS_MAX = 10  # a header that more sources include is not compared: it counts as a change, and the survivor as one
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
# Lines on which a change mostly does not compile, or is none.
NO_CODE = re.compile(r"^\s*(#|static_assert|using |template|namespace |friend |case |typedef )|\bvirtual\b.*= 0;|= default|= delete|operator")
# Statements in which a change is no change of what the program does: what the log says, hints to the processor, room that is made ahead.
NO_EFFECT = re.compile(r"LOCKSTEP_LOG|__builtin_prefetch|\breserve(_more)?\(")


def code_only(text):
    """The text with blanks for comments, strings and characters, of the same length and lines."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return token.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def lines_without_effect(code):
    """Numbers of the lines on which such a statement stands, to the end of its brackets."""
    found = set()
    for match in NO_EFFECT.finditer(code):
        first = code.count("\n", 0, match.start())
        at, depth = code.find("(", match.start()), 0
        while 0 <= at < len(code):
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            at += 1
            if depth == 0:
                break
        found.update(range(first, code.count("\n", 0, at) + 1 if at > 0 else first + 1))
    return found


def places(path, left_out=False):
    """(line, column, old, new) of every change that can be made to a file; or of those that are left out."""
    code = code_only(path.read_text())
    without_effect = lines_without_effect(code)
    found = []
    for number, line in enumerate(code.split("\n")):
        if NO_CODE.search(line) or (number in without_effect) != left_out:
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


class SameCode:
    """Tells a change that the compiler takes for none. Compares whole objects: code, constants, relocations and names."""

    def __init__(self):
        self.commands = {}
        for entry in json.loads((BUILD / "compile_commands.json").read_text()):
            source = pathlib.Path(entry["file"])
            if source.suffix == ".cc" and source.is_relative_to(ROOT) and not source.is_relative_to(BUILD) and not FOR_TESTS.search(str(source)):
                self.commands[source] = entry["command"]
        self.unchanged, self.included = {}, {}

    def includes(self, path):
        """The files of ours that a source includes, itself among them."""
        if path not in self.included:
            self.included[path] = found = {path}
            for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
                at = next((at for at in (path.parent / name, ROOT / "src" / name, ROOT / name) if at.exists()), None)
                found |= self.includes(at.resolve()) if at else set()
        return self.included[path]

    def object_of(self, source):
        """The object's bytes, or None where it does not compile."""
        command = re.sub(r" -include \S+| -O\d| -o \S+| -fpch-preprocess| -Winvalid-pch| -Werror", "", self.commands[source])
        with tempfile.NamedTemporaryFile(suffix=".o") as out:
            done = subprocess.run([*shlex.split(command), "-O2", "-DNDEBUG", "-w", "-o", out.name], cwd=BUILD, capture_output=True)
            return pathlib.Path(out.name).read_bytes() if done.returncode == 0 else None

    def tells(self, path, text):
        """Whether no source of the product is another when the file's text is this."""
        users = sorted((source for source in self.commands if path in self.includes(source)),
                       key=lambda source: (source.stem != path.stem, source.parent != path.parent, source))  # who differs first comes first
        if not users or len(users) > USERS_MAX:
            return False
        for user in users:
            if user not in self.unchanged:
                self.unchanged[user] = self.object_of(user)
            with Changed(path, text):
                other = self.object_of(user)
            if other is None or other != self.unchanged[user]:
                return False
        return True


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
            reason = re.sub(r"; noticed at \w+$", "", row[2].strip()) if row else ""
            if reason:
                known[row[1]] = reason
    return known


def kind_of(reason):
    """What a reason says of its survivor."""
    return next((kind for kind in ("no difference", "a test was written") if reason.startswith(kind)), "a test is missing")


def survivors_to_try(runs, wanted):
    """(home, survivor, path, place) of every survivor of these folders that is still in the code and makes a difference."""
    known, found = reasons(), []
    for run in runs:
        for survivor in run["survivors"]:
            path = ROOT / survivor["change"].split("`")[1]
            is_wanted = any(f"{path.relative_to(ROOT)}/".startswith(f"{folder}/") for folder in wanted)
            if not is_wanted or not path.exists() or kind_of(known.get(survivor["change"], "")) == "no difference":
                continue
            lines = path.read_text().split("\n")
            same = [place for place in places(path) if key_of(path.relative_to(ROOT), place, lines[place[0]]) == survivor["change"]]
            if same:
                found.append((run["folder"], survivor, path, min(same, key=lambda place: abs(place[0] + 1 - survivor["line"]))))
    return found


def try_again(wanted):
    """Writes beside each survivor whether the tests of today notice it."""
    runs = json.loads(RUNS.read_text())
    configure()
    commit = commit_of_head()
    tests = {}
    try:
        for home, survivor, path, place in survivors_to_try(runs, wanted):
            if home not in tests:
                tests[home] = Tests(FOLDERS[home])
            with Changed(path, changed(path.read_text(), place)):
                result = tests[home].notice(path)
            survivor.pop("noticed at", None)
            if result == "noticed":
                survivor["noticed at"] = commit
            print(f"{result:16} {survivor['change']}", flush=True)
    finally:
        RUNS.write_text(json.dumps(runs, indent=1) + "\n")
        keep_runs([])
        for test in tests.values():  # nobody is to run the program of the last change
            build(test.target)


def commit_of_head():
    return subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def share(noticed, tried):
    return f"{noticed} of {tried} ({100 * noticed / max(1, tried):.0f} %)"


def keep_runs(runs):
    """All runs so far and these, as the file and as the page."""
    kept = json.loads(RUNS.read_text()) if RUNS.exists() else []
    new = {(run["folder"], run["seed"]) for run in runs}
    kept = sorted([run for run in kept if (run["folder"], run["seed"]) not in new] + runs, key=lambda run: (run["folder"], run["seed"]))
    known = reasons()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RUNS.write_text(json.dumps(kept, indent=1) + "\n")
    RESULTS.write_text(page(kept, known))


def page(runs, known):
    survivors = [(run["folder"], survivor) for run in runs for survivor in run["survivors"]]
    kinds = [(folder, kind_of(known.get(survivor["change"], ""))) for folder, survivor in survivors]

    def sums(folders):
        mine = [run for run in runs if run["folder"] in folders]
        noticed, same = (sum(run[name] or 0 for run in mine) for name in ("noticed", "same code"))
        survived = sum(len(run["survivors"]) for run in mine)
        return noticed, same, survived, sum(folder in folders and kind == "no difference" for folder, kind in kinds)

    folders = sorted({run["folder"] for run in runs})
    noticed, same, survived, no_difference = sums(folders)
    written = sum(kind == "a test was written" for _, kind in kinds)
    since = sum("noticed at" in survivor for _, survivor in survivors)
    left_out = {folder: sum(len(places(path, left_out=True)) for path in sources(folder)) for folder in FOLDERS}
    drawn_from = {folder: sum(len(places(path)) for path in sources(folder)) for folder in FOLDERS}
    text = f"""# What the tests notice

Made by `./dev mutate N --seed S --folder F`: one operator of the code is changed at a time, and the tests of its own folder are run. The
numbers of a run are of its commit, before the tests that it led to; a run may have been ended where its time was over.

**{share(noticed, noticed + survived)} changes were noticed.** Of the {survived} survivors {no_difference} make no difference as far as reading tells; of the others
{share(noticed, noticed + survived - no_difference)} were noticed. For {written} a test was written after the run; for {survived - no_difference - written} a test is missing.

**{share(noticed + since, noticed + survived)} are noticed by the tests of today**: survivors that make a difference were tried again
(`./dev mutate --again`); the commit at which they were noticed stands beside them.

What is left out of these numbers:
- **Same code**, {same} times: the change was survived, and every source of the product that includes the file compiles to the same object
  with and without it (`-O2 -DNDEBUG`). It is drawn again. Counted as survivors, {share(noticed, noticed + survived + same)} were noticed.
  A header that more than {USERS_MAX} sources include is not compared, nor was anything in runs that have a - there.
- {sum(run["does not compile"] for run in runs)} changes that do not compile. They are drawn again.
- {sum(left_out.values())} places beside the {sum(drawn_from.values())} that are drawn from: lines that write to the log, hints to the processor and
  `reserve()`. They are never drawn.

| folder | seed | commit | tried | noticed | same code | did not compile |
|---|---|---|---|---|---|---|
"""
    for run in runs:
        text += (f"| `{run['folder']}` | {run['seed']} | {run['commit']} | {run['noticed'] + len(run['survivors'])} | {run['noticed']} "
                 f"| {'-' if run['same code'] is None else run['same code']} | {run['does not compile']} |\n")
    text += "\nBy folder:\n\n| folder | noticed | with same code | without those that make no difference | places | left out |\n|---|---|---|---|---|---|\n"
    for folder in folders:
        mine = sums([folder])
        text += (f"| `{folder}` | {share(mine[0], mine[0] + mine[2])} | {share(mine[0], mine[0] + mine[1] + mine[2])} "
                 f"| {share(mine[0], mine[0] + mine[2] - mine[3])} | {drawn_from[folder]} | {left_out[folder]} |\n")
    failing = sorted({test for run in runs for test in run["tests left out"]})
    if failing:
        text += "\nTests left out, as they fail without a change where a folder's tests run in one process: " + ", ".join(failing) + ".\n"
    text += "\n## Survivors\n\nA reason says why no test has to notice; without one, a test is missing.\n\n| change | reason |\n|---|---|\n"
    for _, survivor in survivors:
        noticed_at = f"; noticed at {survivor['noticed at']}" if "noticed at" in survivor else ""
        text += f"| {survivor['change']} (line {survivor['line']}) | {known.get(survivor['change'], '')}{noticed_at} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(prog="./dev mutate", description="changes one operator at a time: do the tests notice?")
    parser.add_argument("n", nargs="?", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", action="append", default=[], help="one of " + ", ".join(FOLDERS) + ", a folder below one, or a file; may be said several times")
    parser.add_argument("--each", action="store_true", help="N changes in every folder, not in all together")
    parser.add_argument("--again", action="store_true", help="no new changes: the survivors of all runs")
    parser.add_argument("--list", action="store_true", help="only say what would be tried")
    arguments = parser.parse_args()
    put_back()
    if arguments.n == 0:
        keep_runs([])
        return 0
    wanted = [folder.rstrip("/") for folder in arguments.folder] or list(FOLDERS)
    for folder in wanted:
        if not any(f"{folder}/".startswith(f"{home}/") or f"{home}/".startswith(f"{folder}/") for home in FOLDERS):
            sys.exit(f"mutate: no tests for {folder}; there are {', '.join(FOLDERS)}")
    if subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results/mutate.*"], cwd=ROOT, capture_output=True, text=True).stdout and not arguments.list:
        sys.exit("mutate: there are changes in this tree: commit them first, so that nothing can be lost")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))  # as Ctrl-C does: by an exception, so that the file is put back

    if arguments.again:
        try_again(wanted)
        return 0
    all_places = [(home, path, place) for home in FOLDERS for path in sources(home)
                  if any(f"{path.relative_to(ROOT)}/".startswith(f"{folder}/") for folder in wanted) for place in places(path)]
    random.Random(arguments.seed).shuffle(all_places)
    if arguments.each:
        all_places.sort(key=lambda found: found[0])  # keeps the drawn order within each
    if not arguments.list:
        configure()
        same_code = SameCode()
        commit = commit_of_head()
    tests, runs, done, done_of = {}, {}, 0, dict.fromkeys(FOLDERS, 0)
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
                runs[home] = {"folder": home, "seed": arguments.seed, "commit": commit, "noticed": 0, "same code": 0, "does not compile": 0,
                              "survivors": [], "tests left out": sorted(tests[home].without)}
            began = time.monotonic()
            with Changed(path, changed(text, place)):
                result = tests[home].notice(path)
            if result == "survived" and same_code.tells(path, changed(text, place)):
                result = "same code"
            if result == "survived":
                runs[home]["survivors"].append({"change": key_of(shown, place, line), "line": place[0] + 1})
            else:
                runs[home][result] += 1
            if result in ("noticed", "survived"):
                done += 1
                done_of[home] += 1
            print(f"{done:4} {result:16} {time.monotonic() - began:5.1f} s  {shown}:{place[0] + 1}: {place[2]!r} to {place[3]!r}: {line.strip()}", flush=True)
    finally:
        if runs:
            keep_runs(list(runs.values()))
            print(f"mutate: written to {RESULTS.relative_to(ROOT)}")
        for test in tests.values():  # nobody is to run the program of the last change
            build(test.target)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
