#!/usr/bin/env python3
"""The documents hold together: every page is found, every link and path leads somewhere, every line fits a screen.

    tools/check_docs.py            say what is wrong, in all .md files of the tree
    tools/check_docs.py --wrap     first wrap prose that is too long (paragraphs with a long line alone)

- Every page under docs/ is linked from docs/README.md, the index by question.
- Every relative link leads to a file, and its #part to a heading of it.
- Every path of the tree that is named exists: what begins with a folder of the root, and what ends like a source file
  and is the end of some file's path ("recorder/ticks.h", "signatures.cc").
- Every cause of a verdict (src/model/verdict_terms.h) has its page docs/runbooks/CAUSE.md, with the same parts, and every such page
  its cause.
- ARCHITECTURE.md names every folder of src/ (two deep), bench/, deploy/ and tests/, and its table of detectors has the rows of
  src/diagnosis/detectors/registry.cc in their order, then those that the engine calls itself; nobody counts them in words.
- Every decision says what became of it, in its third line.
- Prose is at most 140 characters wide. Tables, code and bench/results (written by programs) may be wider.
"""
import fnmatch
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "README.md"
WIDTH = 140
TERMS = ROOT / "src" / "model" / "verdict_terms.h"
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DETECTORS = ROOT / "src" / "diagnosis" / "detectors"
CALLED_BY_THE_ENGINE = ["transport", "hang", "fail"]  # they look at other things than steps
FOLDERS_DEEP = {"src": 2, "bench": 1, "deploy": 1, "tests": 1}  # named in ARCHITECTURE.md
RUNBOOKS = ROOT / "docs" / "runbooks"
RUNBOOK_PARTS = ("How it is known", "Check it yourself", "What to do now", "What prevents it", "What looks alike")
SKIPPED = {".git", ".cache", "build", "node_modules", "dist", "artifacts", "__pycache__", ".pytest_cache"}
TOPS = ("apps", "bench", "cmake", "deploy", "docs", "plugin", "python", "src", "tests", "tools", "web")
# Written by programs when they run, so not in a fresh tree; or only where the build puts them.
MADE = ("artifacts/", "build/", "web/dist", "web/node_modules", "bench/results/micro-", "tests/recordings_test")

LINK = re.compile(r"\]\(([^()\s]+)\)")
IN_TREE = re.compile(r"(?<![\w./$~-])(?:\./)?((?:%s)/[\w.*/-]*[\w*/])" % "|".join(TOPS))
SOURCE = re.compile(r"(?<![\w./*$~-])((?:[\w*.-]+/)*[a-zA-Z0-9*][\w*-]*\.(?:h|cc))(?![\w/])")
LIST_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s+")
# At the start of a line these would begin something else than prose.
BEGINS_A_BLOCK = re.compile(r"([-*+]|\d+[.)]|#+|>|\||=+|-+|:|`{3}.*|~{3}.*|<.*)$")


def tree():
    """Every file of the tree, as paths from its root, and the folders that hold them."""
    files, folders = set(), set()
    for folder, inside, names in os.walk(ROOT):
        inside[:] = sorted(name for name in inside if name not in SKIPPED)
        here = pathlib.Path(folder).relative_to(ROOT).as_posix()
        folders.add(here)
        files.update(name if here == "." else f"{here}/{name}" for name in names)
    return files, folders


def slug(heading):
    """The name of a heading in an address, as GitHub makes it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def headings(path):
    return {slug(line.lstrip("#")) for line in path.read_text().splitlines() if re.match(r"#+ ", line)}


def wrong_links(path, number, line):
    for target in LINK.findall(line):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, part = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists():
            yield f"{number}: link to {target}, which is not there"
        elif part and there.suffix == ".md" and part not in headings(there):
            yield f"{number}: link to {target}, which has no such heading"


def wrong_paths(path, number, line, files, folders, ends):
    for match in IN_TREE.finditer(line):
        name = match[1].rstrip("/.")
        if name.startswith(MADE) or re.search(r"(^|/)[A-Z][A-Z_]*(/|$|\.|_|-)", name.replace("README.md", "")):
            continue  # NAME stands for a name
        if name in files or name in folders or fnmatch.filter(files, name) or fnmatch.filter(folders, name):
            continue
        if (path.parent / name).exists() or f"{name}.h" in files or f"{name}.py" in files:  # beside it; a module by its stem
            continue
        yield f"{number}: {name} is not in the tree"
    for match in SOURCE.finditer(line):
        name = match[1]
        if name.startswith(TOPS) or "NAME" in name:
            continue
        if name not in ends and not any(fnmatch.fnmatch(end, name) for end in ends if "*" in name):
            yield f"{number}: no file of the tree ends in {name}"


def blocks(lines):
    """(first, last + 1, is_prose) of each run of lines that belong together."""
    at, fenced = 0, False
    while at < len(lines):
        line = lines[at]
        start = at
        at += 1
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        elif not fenced and line.strip() and not re.match(r"\s*(#|\||<)| {4}(?!\s*([-*+]|\d+[.)])\s)", line):
            while at < len(lines) and lines[at].strip() and not re.match(r"\s*(#+ |\||<|```|~~~)", lines[at]) \
                    and not LIST_ITEM.match(lines[at]):
                at += 1
            yield start, at, True
            continue
        yield start, at, False


def words(text):
    """Split at blanks, but not inside `code` or a [link](of few words)."""
    pieces = re.findall(r"(?:`+[^`]*`+|\[[^]\n]{0,60}\]\([^)\s]*\)|\S)+", text)
    assert " ".join(pieces).split() == text.split(), text
    return pieces


def wrapped(lines):
    marker = LIST_ITEM.match(lines[0])
    first = lines[0][:marker.end()] if marker else re.match(r"\s*", lines[0])[0]
    rest = " " * len(first)
    text = " ".join([lines[0][len(first):].strip()] + [line.strip() for line in lines[1:]])
    made, line = [], first
    for word in words(text):
        if len(line) + len(word) + 1 > WIDTH and line.strip() != first.strip() and not BEGINS_A_BLOCK.match(word):
            made.append(line.rstrip())
            line = rest
        line += word + " "
    return made + [line.rstrip()]


def too_long(lines):
    """Of these lines, the numbers of those that are wider than a screen and could be broken."""
    for start, end, prose in blocks(lines):
        if prose and any(len(line) > WIDTH for line in lines[start:end]) and wrapped(lines[start:end]) != lines[start:end]:
            yield from (number for number in range(start, end) if len(lines[number]) > WIDTH)


def wrap(path):
    lines = path.read_text().splitlines()
    made = []
    for start, end, prose in blocks(lines):
        block = lines[start:end]
        made += wrapped(block) if prose and any(len(line) > WIDTH for line in block) else block
    if made != lines:
        path.write_text("\n".join(made) + "\n")


def causes():
    """The causes of verdicts and their titles."""
    source = TERMS.read_text().replace("\\\n", "")
    table = source[source.index("#define LOCKSTEP_CAUSES"):source.index("#define LOCKSTEP_CLAIM_KINDS")]
    return dict(re.findall(r'X\(k\w+, "([\w-]+)",[^"]*"[^"]*", "([^"]*)"\)', table))


def wrong_runbooks():
    known = causes()
    written = {path.stem: path for path in RUNBOOKS.glob("*.md")}
    for cause in sorted(known.keys() - written.keys()):
        yield f"docs/runbooks/{cause}.md: missing, the cause {cause} has no page"
    for cause, path in sorted(written.items()):
        lines = path.read_text().splitlines()
        if cause not in known:
            yield f"docs/runbooks/{cause}.md: there is no such cause"
        elif lines[0] != f"# What to do when Lockstep says: {known[cause]} ({cause})":
            yield f"docs/runbooks/{cause}.md:1: the title is not that of the cause, {known[cause]!r}"
        parts = tuple(line[3:] for line in lines if line.startswith("## "))
        if parts != RUNBOOK_PARTS:
            yield f"docs/runbooks/{cause}.md: its parts are not {', '.join(RUNBOOK_PARTS)}"


def wrong_detectors():
    source = (DETECTORS / "registry.cc").read_text()
    registry = re.findall(r'^ {4}\{"(\w+)", "', source[source.index("kStepDetectors[]"):], re.M)
    text = ARCHITECTURE.read_text()
    table = text[text.index("| detector |"):].split("\n\n")[0]
    rows = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    if rows != registry + CALLED_BY_THE_ENGINE:
        yield f"ARCHITECTURE.md: the table of detectors has {', '.join(rows)}; registry.cc and the engine have " \
              f"{', '.join(registry + CALLED_BY_THE_ENGINE)}"
    for folder in sorted(path.name for path in DETECTORS.iterdir() if path.is_dir()):
        if folder not in rows:
            yield f"ARCHITECTURE.md: the table of detectors lacks src/diagnosis/detectors/{folder}"
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.search(r"\b(\w+)(?= detectors\b)|(?<=The )(\w+)(?= of `detectors/registry.cc`)", line):
            if re.fullmatch(r"\d+|(?i:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty)", found[0]):
                yield f"ARCHITECTURE.md:{number}: a number of detectors in words, which nobody keeps true"


def wrong_folders(folders):
    text = ARCHITECTURE.read_text()
    paragraphs = re.split(r"\n(?=\s*- )", text[text.index("## Folders"):text.index("## From steps")])
    for folder in sorted(folders):
        top, _, inside = folder.partition("/")
        if not inside or inside.count("/") >= FOLDERS_DEEP.get(top, 0) or inside.endswith(("testing", "testdata")):
            continue
        parent, name = folder.rsplit("/", 1)
        path = re.compile(rf"(?<![\w/])(?:src/)?{re.escape(inside if top == 'src' else folder)}(?![\w/-])")
        beside = re.compile(rf"(?<![\w/]){re.escape(name)}(?![\w-])")
        if not any(path.search(one) or (re.match(rf"\s*- `{re.escape(parent)}/?`", one) and beside.search(one)) for one in paragraphs):
            yield f"ARCHITECTURE.md: no word on {folder}"


def main():
    files, folders = tree()
    ends = {"/".join(parts[-count:]) for parts in (name.split("/") for name in files) if parts[-1].endswith((".h", ".cc"))
            for count in range(1, len(parts) + 1)}
    pages = [ROOT / name for name in sorted(files) if name.endswith(".md")]
    measured = ROOT / "bench" / "results"
    wrong = []
    for path in pages:
        name = path.relative_to(ROOT).as_posix()
        if "--wrap" in sys.argv[1:] and measured not in path.parents:
            wrap(path)
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines, 1):
            for what in (*wrong_links(path, number, line), *wrong_paths(path, number, line, files, folders, ends)):
                wrong.append(f"{name}:{what}")
        if measured not in path.parents:
            wrong += [f"{name}:{number + 1}: longer than {WIDTH} characters (tools/check_docs.py --wrap)" for number in too_long(lines)]
    linked = {(INDEX.parent / target.partition("#")[0]).resolve() for target in LINK.findall(INDEX.read_text())} if INDEX.exists() else set()
    for path in pages:
        if INDEX.parent in path.parents and path not in linked | {INDEX}:
            wrong.append(f"{path.relative_to(ROOT)}: not linked from docs/README.md")
        if path.parent == INDEX.parent / "decisions" and not re.match(r"# \d+\. .*\n\n\*\*Status\.\*\* ", path.read_text()):
            wrong.append(f"{path.relative_to(ROOT)}: has no line **Status.** behind its title")
    wrong += wrong_runbooks()
    wrong += wrong_detectors()
    wrong += wrong_folders(folders)
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"docs: {len(pages)} pages, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
