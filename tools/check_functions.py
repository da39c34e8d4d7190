#!/usr/bin/env python3
"""No function is longer than a person can hold. Says which C++ function has more than LINES_MAX lines and no reason written down here,
and fails where more functions than LONG_FUNCTIONS_MAX have more than LONG lines.

    tools/check_functions.py [--longest N]

Lengths are counted from the signature to the closing brace as clang-format leaves them: a body ends at the first line that has nothing but
a brace at the indentation of its signature."""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "plugin", "bench", "tests")
LINES_MAX = 100
LONG = 60
# Only ever lowered: who makes one more of them cuts one of them (--longest says which there are).
LONG_FUNCTIONS_MAX = 29

# path and function: why it is longer. What is no longer so long has to leave the list.
REASONS = {
    "src/diagnosis/signals/signatures.cc table": "a table: one row for each cause",
}

NO_FUNCTION = re.compile(r"^\s*((namespace|class|struct|union|enum|if|for|while|switch|else|do|try|extern|return|case|default|public|private|protected)\b|#|//|\})")
NAME = re.compile(r"([~\w:]+(?:<[^<>]*>)?(?:::operator\S+)?|operator\S+)\s*\(")


def functions(lines):
    """Name, number of the first line and how many lines, of every function."""
    at = 0
    while at < len(lines):
        line = lines[at]
        indent = len(line) - len(line.lstrip())
        in_macro = line.endswith("\\") or (at > 0 and lines[at - 1].endswith("\\"))
        if in_macro or indent not in (0, 2) or not line.strip() or NO_FUNCTION.match(line):
            at += 1
            continue
        end_of_signature = at
        while end_of_signature < min(at + 14, len(lines)) and not re.search(r"[;{}]\s*(//.*)?$", lines[end_of_signature]):
            end_of_signature += 1
        signature = " ".join(one.strip() for one in lines[at : end_of_signature + 1])
        named = NAME.search(signature)
        if end_of_signature >= len(lines) or not re.search(r"\{\s*(//.*)?$", signature) or not named or re.search(r"=\s*\[|=\s*\{$", signature):
            at = end_of_signature + 1
            continue
        closing = " " * indent + "}"
        end = next((row for row in range(end_of_signature + 1, len(lines)) if lines[row].rstrip() == closing), None)
        if end is None or lines[end].startswith(closing + ";"):
            at = end_of_signature + 1
            continue
        yield named.group(1), at + 1, end - at + 1
        at = end + 1 if indent == 0 else end_of_signature + 1


def all_functions():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".cc", ".h"):
                for name, line, length in functions(path.read_text(encoding="utf-8").splitlines()):
                    yield str(path.relative_to(ROOT)), name, line, length


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=int, metavar="N", help="list the longest N and end")
    options = parser.parse_args()
    found = sorted(all_functions(), key=lambda one: -one[3])
    if options.longest:
        for path, name, line, length in found[: options.longest]:
            print(f"{length:4} {path}:{line} {name}")
        return 0
    wrong, used = [], set()
    for path, name, line, length in found:
        if length <= LINES_MAX:
            break
        if f"{path} {name}" in REASONS:
            used.add(f"{path} {name}")
        else:
            wrong.append(f"{path}:{line}: {name} has {length} lines, at most {LINES_MAX} without a reason in tools/check_functions.py")
    wrong += [f"tools/check_functions.py: {key} is not longer than {LINES_MAX} lines any more" for key in REASONS if key not in used]
    over = sum(length > LONG for _, _, _, length in found)
    if over > LONG_FUNCTIONS_MAX:
        wrong.append(f"{over} functions have more than {LONG} lines, at most {LONG_FUNCTIONS_MAX} may (--longest {over} lists them)")
    elif over < LONG_FUNCTIONS_MAX:
        print(f"tools/check_functions.py: LONG_FUNCTIONS_MAX can be {over}")
    print("\n".join(wrong + [f"functions: {len(found)}, over {LONG} lines {over} of at most {LONG_FUNCTIONS_MAX}, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
