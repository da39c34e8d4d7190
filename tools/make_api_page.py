#!/usr/bin/env python3
"""docs/formats/api-routes.md from the table of routes (src/api/routes.cc).

    tools/make_api_page.py           writes it
    tools/make_api_page.py --check   says whether it is up to date
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "api" / "routes.cc"
PAGE = ROOT / "docs" / "formats" / "api-routes.md"
TEXT = r'"((?:[^"\\]|\\.)*)"'
ROLES = {"kAnyone": "anyone", "kRead": "read", "kOperate": "operate", "kAdmin": "admin"}

HEAD = """\
# Every path of the API

Made by `tools/make_api_page.py` from the table of routes (`src/api/routes.cc`), which the server itself goes by: a parameter that is not
in the row is refused, and so is who has not the role ([security](../guide/security.md)). What the answers hold: [api](api.md).
**Turns**: may take long, a few run at a time. **Changes**: refused from pages of other sites, and in the audit log.

| method | path | parameters | role | answers | |
|---|---|---|---|---|---|
"""


def routes():
    source = SOURCE.read_text()
    table = source[source.index("constexpr Route kRoutes[] = {"):]
    table = re.sub(r"^\s*//.*$", "", table[:table.index("\n};")], flags=re.M)
    constants = dict(re.findall(rf"constexpr const char\* (k\w+) =\s*{TEXT};", source))
    row = re.compile(rf"\{{\s*{TEXT},\s*(?:{TEXT}|(k\w+)),\s*((?:{TEXT}\s*)+),\s*Role::(k\w+),\s*\w+((?:,\s*(?:{TEXT}|true|false))*)\s*\}}")
    for match in row.finditer(table):
        path, given, constant, _, _, role, rest = match.groups()[:7]
        help_text = "".join(re.findall(TEXT, match[4]))
        method = (re.findall(TEXT, rest) or ["GET"])[0]
        flags = [word == "true" for word in re.findall(r"\b(true|false)\b", rest)] + [False, False]
        yield method, path, given if given is not None else constants[constant], ROLES[role], help_text, flags[0], flags[1]


def page():
    lines = []
    for method, path, parameters, role, help_text, turns, changes in routes():
        shown = ", ".join(f"`{name}`" for name in parameters.split())
        marks = " ".join(word for word, there in (("turns", turns), ("changes", changes)) if there)
        lines.append(f"| {method} | `{path}` | {shown} | {role} | {help_text.replace('|', chr(92) + '|')} | {marks} |\n")
    expected = len(re.findall(r"Role::k(?:Anyone|Read|Operate|Admin),", SOURCE.read_text()))
    assert len(lines) == expected, f"{len(lines)} rows understood of {expected}"
    return HEAD + "".join(lines)


def main():
    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made)
        return 0
    if not PAGE.is_file() or PAGE.read_text() != made:
        print("docs/formats/api-routes.md is not what src/api/routes.cc says: tools/make_api_page.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
