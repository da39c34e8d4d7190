"""Reads tests/data/node8: a whole node's files in a few texts, because eight of everything need be written once only.

A text holds sections; a section's first line says what it makes, the lines up to the next one are its content:

    @file PATH [each LISTS]     one file
    @nul PATH [each LISTS]      one file whose lines are ended by NUL bytes (environ, cmdline)
    @copy PATH,PATH [each ...]  the same file at each path
    @values DIR [each LISTS]    files of one line, "name value" each, as most of /sys is
    @link PATH TARGET [each ..] a symbolic link, made relative, as /sys has them
    @dir PATH
    @lldp PATH [each LISTS]     a frame as a switch sends it, from "key value" lines

"each rail" makes the section once for every row of the list "rail" in node.json, "each rail,thread" for every pair;
inside a file "@repeat LISTS TEXT" does so with a line. ${...} is an expression over those rows (rail.pid+thread.at,
with integer division), a constant or alias of node.json, and in /proc/interrupts ${all cpu N}, ${one cpu WHICH N} and
${columns cpu NAME}. Lines that begin with # between sections are comments.
"""

import itertools
import json
import os
import pathlib
import re
import types

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "node8"
TEXTS = ("proc.txt", "sys.txt", "job.txt", "rest.txt")
PLACE = re.compile(r"\$\{([^}]*)\}")
COLUMN = 11  # of /proc/interrupts


class Archive:
    """files: path -> bytes; links: path -> target, relative; folders: paths; tables: the lists of node.json."""

    def __init__(self, data=DATA):
        self._data, self._code = pathlib.Path(data), {}
        self._node = json.loads((self._data / "node.json").read_text())
        self.constants = self._node["constants"]
        self.tables = {name: rows for name, rows in self._node.items() if isinstance(rows, list)}
        for name, count in self._node["count"].items():
            self.tables[name] = [{"i": i} for i in range(count)]
        self.files, self.links, self.folders = {}, {}, []
        for name in TEXTS:
            for head, lines in sections((self._data / name).read_text()):
                self._make(head, lines)

    def alias(self, name, **rows):
        """An alias of node.json for these rows, e.g. alias("nic", rail=tables["rail"][3])."""
        return self._expand(self._node["alias"][name], self._names(rows))

    def _make(self, head, lines):
        kind, *words = head.split()
        lists = words.pop().split(",") if len(words) > 2 and words[-2] == "each" else []
        if lists:
            words.pop()
        for rows in itertools.product(*(self.tables[one] for one in lists)):
            names = self._names(dict(zip(lists, rows)))
            path, *target = [self._expand(word, names) for word in words]
            if kind == "@link":
                self.links[path] = os.path.relpath(target[0], os.path.dirname(path))
            elif kind == "@dir":
                self.folders.append(path)
            elif kind == "@values":
                for line in lines:
                    name, _, value = self._expand(line, names).partition(" ")
                    self.files[f"{path}/{name}"] = f"{value}\n".encode()
            else:
                end = "\0" if kind == "@nul" else "\n"
                text = "".join(one + end for line in lines for one in self._lines(line, names))
                content = lldp_frame(text) if kind == "@lldp" else text.encode()
                for one in path.split(",") if kind == "@copy" else [path]:
                    self.files[one] = content

    def _lines(self, line, names):
        if not line.startswith("@repeat "):
            return [self._expand(line, names)]
        _, lists, text = line.split(" ", 2)
        lists = lists.split(",")
        return [
            self._expand(text, {**names, **self._names(dict(zip(lists, rows)))})
            for rows in itertools.product(*(self.tables[one] for one in lists))
        ]

    def _names(self, rows):
        return {**self.constants, **{name: types.SimpleNamespace(**row) for name, row in rows.items()}}

    def _expand(self, text, names):
        while "${" in text:
            text = PLACE.sub(lambda found: self._value(found[1], names), text)
        return text

    def _value(self, expression, names):
        what, *words = expression.split()
        if words:
            return self._row_of_interrupts(what, words, names)
        expression, _, form = expression.partition(":")
        alias = self._node["alias"].get(expression)
        return alias if alias is not None else format(self._evaluate(expression, names), form)

    def _row_of_interrupts(self, what, words, names):
        columns = range(len(self.tables[words[0]]))
        if what == "columns":
            return "".join(f"{words[1] + str(i):<{COLUMN}}" for i in columns)
        here = columns if what == "all" else [self._evaluate(words[1], names)]
        return "".join(f"{words[-1] if i in here else 0:>{COLUMN - 1}} " for i in columns).rstrip()

    def _evaluate(self, expression, names):
        if expression not in self._code:
            self._code[expression] = compile(expression.replace("/", "//"), "node8", "eval")
        return eval(self._code[expression], {"__builtins__": {}}, names)


def sections(text):
    """(first line, lines), without comments and the blank lines at its end."""
    found = []
    for line in text.splitlines():
        if line.startswith("@") and not line.startswith("@repeat "):
            found.append((line, []))
        elif found and not line.startswith("#"):
            found[-1][1].append(line)
    for _, lines in found:
        while lines and not lines[-1]:
            lines.pop()
    return found


def lldp_frame(text):
    """IEEE 802.1AB: chassis (a MAC), port (a name), time to live, then who and what, and the end."""
    told = dict(line.split(" ", 1) for line in text.splitlines() if line)
    mac = {key: bytes.fromhex(told[key].replace(":", "")) for key in ("source", "chassis")}
    values = [
        (1, b"\x04" + mac["chassis"]),
        (2, b"\x05" + told["port"].encode()),
        (3, (120).to_bytes(2, "big")),
        (4, told["description"].encode()),
        (5, told["system"].encode()),
        (6, told["about"].encode()),
        (0, b""),
    ]
    frame = bytes.fromhex("0180c200000e") + mac["source"] + b"\x88\xcc"
    return frame + b"".join((kind << 9 | len(value)).to_bytes(2, "big") + value for kind, value in values)
