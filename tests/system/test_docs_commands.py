"""Every command that the documents show exists, with the options that they show."""

import functools
import pathlib
import re
import subprocess

import harness

CALL = re.compile(r"(?<![\w/.@-])(lockstep|lockstepd|lockstep-agent) +((?:'[^']*'|\"[^\"]*\"|[^|;#&>)`'\"])*)")
# What may stand before a command: nothing, a prompt, another command, variables, what starts commands.
BEFORE = re.compile(r"(^|[;&|($]|--|\b(srun|sudo|nice|command:)|\b[A-Z_]+=\S*)\s*$")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]+)")
ALWAYS = {"--help", "--version"}


def pages():
    return sorted([harness.ROOT / "README.md", *(harness.ROOT / "docs").rglob("*.md")])


def code_of(text):
    """(line number, text) of every piece of code in a page: blocks, and what stands between backquotes."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*```", line):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield number, line
        else:
            yield from ((number, piece) for piece in re.findall(r"`([^`]+)`", line))


def calls_in(text):
    """(line number, program, words, options) of every call of a program of ours."""
    for number, code in code_of(text):
        code = code.replace("\\|", "/")
        for match in CALL.finditer(code):
            if not BEFORE.search(code[:match.start()]):
                continue
            shown = re.sub(r"'[^']*'|\"[^\"]*\"", " ", match[2]).split(" -- ")[0].replace("[", " ").replace("]", " ")
            words = []
            for word in shown.split():
                if not re.fullmatch(r"[a-z]+(/[a-z]+)*", word):
                    break
                words.append(word)
            yield number, match[1], words, set(OPTION.findall(shown))


@functools.cache
def help_of(program, *words):
    done = subprocess.run([harness.BIN / program, *words, "--help"], capture_output=True, text=True, timeout=20)
    return done.stdout if done.returncode == 0 else ""


@functools.cache
def commands():
    return set(re.findall(r"^  ([a-z]+) ", help_of("lockstep"), re.M))


def wrong_in(program, words, options):
    if program == "lockstep":
        if not words:
            return ""
        if words[0] not in commands():
            return f"no command {words[0]}"
    known = ALWAYS | set(OPTION.findall(help_of(program, *words[:1] if program == "lockstep" or words else [])))
    if len(words) > 1:
        for word in words[1].split("/"):
            known |= set(OPTION.findall(help_of(program, words[0], word)))
    missing = sorted(options - known)
    return f"no option {missing[0]}" if missing else ""


def test_every_command_that_the_documents_show_exists():
    wrong, seen = [], 0
    for path in pages():
        for number, program, words, options in calls_in(path.read_text()):
            seen += 1
            problem = wrong_in(program, words, options)
            if problem:
                wrong.append(f"{path.relative_to(harness.ROOT)}:{number}: {program} {' '.join(words[:2])}: {problem}")
    assert seen > 300, "the documents are read"
    assert not wrong, "\n".join(wrong)


def test_commands_of_next_actions_exist():
    """What verdicts tell people to type."""
    wrong = []
    for path in sorted(pathlib.Path(harness.ROOT / "src" / "diagnosis").rglob("*.cc")):
        for command, rest in re.findall(r'"(?:[^"]*; )?lockstep ([a-z]+) ([^"]*)"', path.read_text()):
            problem = wrong_in("lockstep", [command], set(OPTION.findall(rest)))
            if problem and not path.name.endswith("_test.cc"):
                wrong.append(f"{path.relative_to(harness.ROOT)}: {command}: {problem}")
    assert not wrong, "\n".join(wrong)
