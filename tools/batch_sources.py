#!/usr/bin/env python3
"""Joins the source files of a target into few larger ones (LOCKSTEP_UNITY, the dev preset): headers are read and templates
instantiated once for a batch instead of once for each file.

    batch_sources.py --out FOLDER [--lines N] FILE.cc ...

Writes FOLDER/batch_1.cc, ... and prints their paths, one a line. Nobody has to invent names that are unique in a folder, and no file's
meaning depends on its neighbours: a name that a file keeps to itself (unnamed namespace, static) and that occurs in another of its batch
gets the file's name appended while that file is read (`#define hex hex_of_framing_test`). Where that could touch something else of the
same name (a member, a macro, a fixture of a test, anything in our headers), the file comes behind those that have the name, or, where
these must come behind it too, into another batch. All headers of a batch come before its files.
Files that did not change are not written again.
"""
import argparse
import functools
import pathlib
import re
import sys

# A name, a number or a sign, or a whole directive; what means nothing here (blanks, comments, texts) is read along with what follows.
TOKEN = re.compile(
    r'(?:\s+|//[^\n]*|/\*.*?\*/|R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\')*'
    r'(?:(?P<directive>\#(?:\\\n|[^\n])*)|(?P<token>[A-Za-z_]\w*|\d[\w\'.]*|::|\S))', re.S)
WORD = re.compile(r'[A-Za-z_]\w*')
TEST_MACRO = re.compile(r'(TYPED_)?TEST(_[FP])?$|INSTANTIATE_')
NOT_NAMES = frozenset(
    'alignas auto bool char class const consteval constexpr constinit decltype double enum explicit extern float inline int long mutable '
    'namespace noexcept operator requires return short signed sizeof static struct template thread_local typename union unsigned using '
    'virtual void volatile __attribute__ static_assert TEST TEST_F TEST_P'.split())


ROOT = pathlib.Path(__file__).resolve().parent.parent
headers = {}  # path, as text -> (its identifiers but for names of parameters, the headers of ours that it reads)


@functools.cache
def header_at(include, folder):
    name = re.match(r'#\s*include\s*"([^"]+)"', include)
    bases = (folder, ROOT / 'src', ROOT) if name else ()
    return next((str((base / name.group(1)).resolve()) for base in bases if (base / name.group(1)).exists()), None)


def headers_from(include, folder, seen):
    """Adds a header of ours and those that it reads to `seen`."""
    path = header_at(include, folder)
    if path is None or path in seen:
        return
    seen.add(path)
    if path not in headers:
        text = pathlib.Path(path).read_text()
        words = set(re.findall(r'\b[A-Za-z_]\w*\b(?!\s*[,)])', re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', '', text)))
        headers[path] = words, re.findall(r'^\s*(#\s*include\s*"[^"]+")', text, re.M)
    for line in headers[path][1]:
        headers_from(line, pathlib.Path(path).parent, seen)


class Source:
    """One file: its identifiers, the names that it keeps to itself, its headers and its length."""

    def __init__(self, path):
        self.path = path
        text = path.read_text()
        self.lines = text.count('\n') + 1
        self.words = set()   # every identifier
        self.own = set()     # what no other file may see
        self.fixed = {'PrintTo', 'main'}  # names that mean something else too, or that others look for: never replaced
        self.opens = set()   # `using namespace`: only files with the same may come behind it in a batch
        self.uses = set()    # `using a::b`: may be said twice
        self.headers = set()  # of ours, that it reads
        self.includes = []
        self._read(text)

    def _read(self, text):
        tokens = []
        depth_if = 0
        for match in TOKEN.finditer(text + '\n;'):  # so that what is read along has something to go with
            if match['token'] is not None:
                tokens.append(match['token'])
                continue
            line = match['directive'].rstrip()
            word = re.match(r'#\s*(\w+)', line)
            word = word.group(1) if word else ''
            if word in ('if', 'ifdef', 'ifndef'):
                depth_if += 1
            elif word == 'endif':
                depth_if -= 1
            elif word == 'include' and depth_if == 0:
                self.includes.append(line)
            elif word == 'define':
                self.own.add(re.match(r'#\s*define\s+(\w+)', line).group(1))
                self.fixed.update(WORD.findall(line))
            self.words.update(WORD.findall(line) if word != 'include' else ())
        self.words.update(token for token in tokens if token[0].isalpha() or token[0] == '_')
        for index, token in enumerate(tokens[1:], 1):
            if tokens[index - 1] in ('.', '::', '~', 'namespace') or tokens[index - 2:index] == ['-', '>']:
                self.fixed.add(token)
        for include in self.includes:
            headers_from(include, self.path.parent, self.headers)
        for header in self.headers:
            self.fixed |= headers[header][0]
        for index, token in enumerate(tokens):
            if token == '__attribute__':
                self.fixed.update(tokens[index + 1:tokens.index(')', index)])
            if token[0] in 'TI' and TEST_MACRO.match(token):
                self.fixed.update(tokens[index + 1:tokens.index(')', index)])
        self._walk(tokens)

    def _walk(self, tokens):
        scopes = []      # 'own' (unnamed namespace), 'named' (namespace), 'other'
        statement = []
        for token in tokens:
            if token == '{':
                if 'namespace' in statement[:2]:
                    scopes.append('own' if statement[-1] == 'namespace' or (scopes and scopes[-1] == 'own') else 'named')
                elif statement[:1] == ['extern'] and len(statement) == 1:
                    scopes.append('named')
                else:
                    self._declare(statement, scopes)
                    scopes.append('other')
                statement = []
            elif token == '}':
                if scopes:
                    scopes.pop()
                statement = []
            elif token == ';':
                self._declare(statement, scopes)
                statement = []
            elif not scopes or scopes[-1] != 'other':
                statement.append(token)

    def _declare(self, statement, scopes):
        if not statement or (scopes and scopes[-1] == 'other'):
            return
        private = bool(scopes) and scopes[-1] == 'own'
        words = strip_templates(statement)
        private = private or any(word in words[:3] for word in ('static', 'constexpr', 'using', 'namespace'))
        private = private or ('const' in words[:3] and '(' not in words)  # `const char* name(Kind kind) {` is everybody's
        if not private or not words or words[0] == 'static_assert' or re.match('TEST|TYPED_TEST|INSTANTIATE_', words[0]):
            return
        if words[0] == 'using' and len(words) > 1 and words[1] == 'namespace':
            self.opens.add(''.join(words[2:]))
            return
        if words[0] == 'using' and '=' not in words:  # using a::b;
            self.uses.add((words[-1], ''.join(words[1:])))
            return
        name = declared_name(words)
        if name:
            self.own.add(name)


def strip_templates(statement):
    """The statement without template<...> before it and attributes."""
    words = list(statement)
    while words and words[0] == 'template':
        depth = 0
        for index, word in enumerate(words[1:], 1):
            depth += {'<': 1, '>': -1}.get(word, 0)
            if depth == 0:
                words = words[index + 1:]
                break
        else:
            return []
    return words


def declared_name(words):
    if words[0] in ('struct', 'class', 'union', 'enum'):
        rest = [word for word in words[1:] if word not in ('class', 'struct')]
        return rest[0] if rest else None
    if words[0] in ('using', 'namespace'):
        return words[1]
    depth = 0
    last = None
    for index, word in enumerate(words):
        if word == '<':
            depth += 1
        elif word == '>' and depth:
            depth -= 1
        elif depth == 0:
            if word in ('(', '=', '[', '{', ':') and last:
                break
            if (word[0].isalpha() or word[0] == '_') and word not in NOT_NAMES:
                last = word
    return last


def in_order(files):
    """The files so that none comes before one that it must come after, else in the order given; None: there is no such order."""
    waiting, result = list(files), []
    while waiting:
        first = next((one for one in waiting if not any(must_follow(one, other) for other in waiting if other is not one)), None)
        if first is None:
            return None
        waiting.remove(first)
        result.append(first)
    return result


@functools.cache
def must_follow(source, other):
    """Whether `other` would mean something else behind `source`: a name that cannot be replaced is the whole batch's from there on."""
    if source.opens - other.opens:
        return True
    ours, theirs = ({name for name, _ in uses} for uses in (source.uses - other.uses, other.uses - source.uses))
    if ours & other.words or comes_with_header(ours, source, other) or comes_with_header(theirs, other, source):
        return True
    return bool(source.own & source.fixed & other.words)


def comes_with_header(names, source, other):
    """Whether one of the names of `source` is in a header that `other` alone reads: headers come first whatever the order."""
    return any(names & headers[header][0] for header in other.headers - source.headers)


def clashes(source, batch):
    """The names of a file's own that occur in another of its batch."""
    others = [other for other in batch if other is not source]
    return sorted(name for name in source.own - source.fixed
                  if any(name in other.words or comes_with_header({name}, source, other) for other in others))


def batches(sources, lines_max):
    """First fit, in the order given: a file that changes moves no other, unless a name begins to clash."""
    result = []
    for source in sources:
        for index, batch in enumerate(result):
            if sum(other.lines for other in batch) + source.lines > lines_max:
                continue
            if ordered := in_order([*batch, source]):
                result[index] = ordered
                break
        else:
            result.append([source])
    return result


def text_of(batch):
    if len(batch) == 1:
        return f'#include "{batch[0].path}"\n'
    read = dict.fromkeys(include for source in batch for include in local_includes(source))
    lines = ['// Made by tools/batch_sources.py.', *read]
    for source in batch:
        names = clashes(source, batch)
        suffix = re.sub(r'\W', '_', source.path.stem)
        lines += [f'#define {name} {name}_of_{suffix}' for name in names]
        lines.append(f'#include "{source.path}"')
        lines += [f'#undef {name}' for name in names]
    return '\n'.join(lines) + '\n'


def local_includes(source):
    for include in source.includes:
        name = re.match(r'#\s*include\s*"([^"]+)"', include)
        beside = source.path.parent / name.group(1) if name else None
        yield f'#include "{beside}"' if beside and beside.exists() else include


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=pathlib.Path, required=True)
    parser.add_argument('--lines', type=int, default=8000, help='lines of a batch at most (default %(default)s)')
    parser.add_argument('files', nargs='+', type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    made = []
    for batch in batches([Source(path) for path in args.files], args.lines):
        if len(batch) == 1:
            made.append(batch[0].path)
            continue
        path = args.out / f'batch_{min(source.path.stem for source in batch)}.cc'
        text = text_of(batch)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        made.append(path)
    print('\n'.join(map(str, made)))


if __name__ == '__main__':
    sys.exit(main())
