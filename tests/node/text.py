"""A file of /proc or /sys whose numbers move: looked up by row and column, changed, and written as the kernel would."""

import os
import re

WORDS = re.compile(r"([\s=:]+)")


class Text:
    """Lines of words. A row is found by its first word (or by the word at `key_column`), or by its number; a column by
    its number (from the end where negative), by the word before it ("total" in "some avg10=0.00 … total=12"), or by the
    line of names above it (/proc/net/snmp).
    A number that grows eats the blanks before it, so that tables stay aligned; decimals and width in hex stay."""

    def __init__(self, content, key_column=0, base=10):
        self.content, self.base = content, base
        self._lines, self._rows, self._names = [], {}, {}
        for line in content.splitlines():
            parts = WORDS.split(line)
            if not parts[0]:  # a line that begins with blanks: its first word is the second part
                parts = [parts[1], *parts[2:]] if len(parts) > 1 else parts
                at = 1
            else:
                at = 0
            self._lines.append((parts, at))
            words = parts[at::2]
            if key_column < len(words):
                key = words[key_column]
                if key in self._rows:  # the second line of that name has the values, the first their names
                    above, start = self._lines[self._rows[key]]
                    self._names[key] = {name: i for i, name in enumerate(above[start::2])}
                self._rows[key] = len(self._lines) - 1
        self._changed = False

    def rows(self):
        return list(self._rows)

    def _place(self, row, column):
        parts, at = self._lines[row if isinstance(row, int) else self._rows[row]]
        if isinstance(column, str):
            if row in self._names:
                column = self._names[row][column]
            else:
                column = parts[at::2].index(column) + 1
        elif column < 0:
            column += len(parts[at::2])
        return parts, at + 2 * column

    def get(self, row, column=1):
        parts, place = self._place(row, column)
        word = parts[place]
        return float(word) if "." in word else int(word, self.base)

    def set(self, row, column, value):
        parts, place = self._place(row, column)
        old = parts[place]
        if isinstance(value, str):
            new = value
        elif "." in old:
            new = f"{value:.{len(old) - old.index('.') - 1}f}"
        elif self.base == 16:
            new = f"{int(value) & 0xFFFFFFFF:0{len(old)}x}"
        else:
            new = str(int(value))
        if new == old:
            return
        before = parts[place - 1] if place else ""
        blanks = len(before) - len(before.rstrip(" "))
        if blanks > 2:  # a column; two are how /proc/stat begins
            parts[place - 1] = before[:-blanks] + " " * max(1, blanks - len(new) + len(old))
        parts[place] = new
        self._changed = True

    def add(self, row, column, by):
        self.set(row, column, self.get(row, column) + by)

    def render(self):
        if self._changed:
            self.content = "".join("".join(parts) + "\n" for parts, _ in self._lines)
            self._changed = False
        return self.content.encode()


class Value:
    """A file that is one word or number, e.g. a counter of /sys. bits: where it wraps; 0: nowhere."""

    def __init__(self, content, bits=0):
        self.content, self.bits = content, bits

    def get(self):
        return int(self.content)

    def set(self, value):
        if isinstance(value, int) and self.bits:
            value %= 1 << self.bits
        self.content = f"{value}\n"

    def add(self, by):
        self.set(self.get() + by)

    def render(self):
        return self.content.encode()


def rewrite(path, content, before):
    """The whole file in one write, at the same inode: readers keep it open and pread. Where it has become shorter, the
    rest is blank lines for the instant until it is cut."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(file, content.ljust(before, b"\n"), 0)
        if len(content) < before:
            os.ftruncate(file, len(content))
    finally:
        os.close(file)
