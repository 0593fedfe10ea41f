# SPDX-License-Identifier: Apache-2.0
"""Reads expect/*/*.expect: what to run and what to expect. README.md describes the format.

A file holds one test, or one for each of its cases; a test is called FOLDER/FILE or FOLDER/FILE.CASE.
What cannot be understood raises a Mistake that names the file and the line.
"""

import collections
import difflib
import json
import pathlib
import re
import shlex
import zlib

import happenings

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "expect"

Call = collections.namedtuple("Call", "symbol when relation count")
Devices = collections.namedtuple("Devices", "low high spare")
Values = collections.namedtuple("Values", "symbol argument when wanted")


class Mistake(Exception):
    """One line for a person: where, and what is wrong there."""


def text(rest):
    if not rest:
        raise ValueError("nothing follows the first word")
    return rest


def call(rest):
    match = re.fullmatch(r"(\S+) (without|with) (=|<=|>=)(\d+)", rest)
    if not match:
        raise ValueError("expected: calls SYMBOL without|with =|<=|>=N")
    return Call(match[1], match[2], match[3], int(match[4]))


def values(rest):
    symbol, argument, when, *wanted = rest.split()
    if when not in ("without", "with") or not wanted:
        raise ValueError("expected: values SYMBOL ARGUMENT without|with VALUE...")
    return Values(symbol, argument, when, wanted)


def devices(rest):
    low, high, *spare = map(int, rest.split())
    if not 0 < low < high or len(spare) > 1 or low % 2 or high % 2:
        raise ValueError("expected: smallest-device LOW HIGH [SPARE], in MiB; the first two even")
    return Devices(low, high, *(spare or [0]))


def lookup(rest):
    asked, symbol = rest.split(" -> ")
    return asked, symbol


def reported(rest):
    path, value = rest.split(maxsplit=1)
    return path, json.loads(value)


MANY = {"calls": call, "differs": text, "driver-lacks": text, "finds": text,
        "logs": text, "lookup": lookup, "preload": text, "preload-behind": text,
        "prints": text, "reports": reported, "values": values}
ONE = {"exit": int, "exit-with": int, "leaves": int, "smallest-device": devices,
       "seeds": lambda rest: text(rest).split()}
FLAGS = ("host", "one-thread", "own-output", "report", "toolkit-runtime")


def attribute(kind):
    return kind.replace("-", "_")


def assignment(word):
    name, equals, value = word.partition("=")
    if not equals or not re.fullmatch(r"\w+", name):
        raise ValueError(f"expected NAME=VALUE, not '{word}'")
    return name, value


def without_env(command):
    """What `env` would set, and what it would run: in its stead, because it would be one more process with all that is
    preloaded."""
    words, settings = list(command), {}
    if words[0] == "env" and not words[1].startswith("-"):
        del words[0]
        while "=" in words[0]:
            name, _, settings[name] = words.pop(0).partition("=")
    return settings, words


def alternatives(line):
    """The line once for each choice of its {one,other} parts, as the shell would write them."""
    match = re.search(r"\{([^{}\s]*,[^{}\s]*)\}", line)
    if not match:
        return [line]
    return [whole for part in match[1].split(",")
            for whole in alternatives(line[:match.start()] + part + line[match.end():])]


def with_words(line, words):
    """The line with its {word} parts replaced."""
    def known(match):
        if match[1] not in words:
            raise ValueError(f"unknown word {match[0]}; known are {', '.join(sorted(words))}")
        return words[match[1]]
    return re.sub(r"\{(\w+)\}", known, line)


class Expectations:
    """What one test runs, and what it expects of each run."""

    def __init__(self, name, words, runs_of):
        self.name, self.words, self.runs_of = name, words, runs_of
        self.commands, self.env, self.env_with = [], {}, {}
        self.turns = []           # of each command, how many programs and environments come before it
        self.programs = 0
        self.environments = [[]]  # of the runs that follow
        self.adding = False       # the next 'under' adds to them
        self.unused = False       # no run has followed them
        for kind in MANY:
            setattr(self, attribute(kind), [])
        self.exit, self.exit_with, self.leaves, self.seeds = 0, None, None, ["1"]
        self.smallest_device = None
        self.happens, self.happened = set(), set()
        self.host = self.one_thread = self.own_output = self.report = self.toolkit_runtime = False

    def read(self, line):
        kind, _, rest = line.partition(" ")
        rest = rest.strip()
        if kind == "run":
            for alternative in alternatives(rest):
                self.run(shlex.split(with_words(alternative, self.words)))
        elif kind == "runs-of":
            for command in self.runs_of(text(rest)):
                self.run(command)
        elif kind == "under":
            self.under(with_words(text(rest), self.words))
        elif kind in ("env", "env-with"):
            name, value = assignment(with_words(rest, self.words))
            (self.env if kind == "env" else self.env_with)[name] = value
        elif kind == "happens":
            self.happens |= happenings.happening(rest)
        elif kind in MANY:
            getattr(self, attribute(kind)).append(MANY[kind](with_words(rest, self.words)))
        elif kind in ONE:
            setattr(self, attribute(kind), ONE[kind](rest))
        elif kind in FLAGS:
            if rest:
                raise ValueError(f"nothing may follow '{kind}'")
            setattr(self, attribute(kind), True)
        else:
            known = ["case", "env", "env-with", "run", "runs-of", "under", "happens", *MANY, *ONE, *FLAGS]
            near = difflib.get_close_matches(kind, known, 1)
            raise ValueError(f"unknown line '{kind}'" + (f"; '{near[0]}'?" if near else ""))

    def run(self, command):
        self.adding = self.unused = False
        if not command:
            raise ValueError("no command")
        for turn, environment in enumerate(self.environments, self.programs):
            plain = command[1:] if command[0] == "env" else command
            changed = environment or command[0] == "env"
            self.commands.append(["env", *environment, *plain] if changed else command)
            self.turns.append(turn)
        self.programs += 1

    def part_of_commands(self, which):
        """Every other command, "1/2" or "2/2", so that each program and each environment gets its share. What
        must happen in the sum of all runs is whole: it has its part by TEST_SEEDS."""
        if not which or self.happens:
            return self.commands
        part, parts = (int(word) for word in which.split("/"))
        first = part - 1 + zlib.crc32(self.name.encode())
        chosen = [command for command, turn in zip(self.commands, self.turns) if (turn + first) % parts == 0]
        return chosen or [self.commands[first % len(self.commands)]]

    def under(self, rest):
        """Lines that follow each other add up; the first one after a run or a case begins anew."""
        if not self.adding:
            self.environments = []
        self.adding = self.unused = True
        for alternative in alternatives(rest):
            words = [] if alternative == "-" else shlex.split(alternative)
            for word in words:
                assignment(word)
            self.environments.append(words)


def part_of(seeds, which):
    """The `which`-th of so many parts, "1/2": together they are all, and none is empty."""
    if not which:
        return seeds
    part, parts = (int(word) for word in which.split("/"))
    return seeds[part - 1::parts] or [seeds[(part - 1) % len(seeds)]]


class Reader:
    """Reads files, each once, with the folders and the seed that stand for {programs} and so on."""

    def __init__(self, words, folder=FOLDER):
        self.words, self.folder = words, folder
        self.being_read, self.were_read = [], {}

    def names(self, of_threads=False):
        """All tests there are, or those in which a race detector can see anything."""
        return [name for path in sorted(self.folder.rglob("*.expect"))
                for name, test in self.read(self.file_name(path)).items()
                if not (of_threads and test.one_thread)]

    def tests(self, name):
        """The tests of this name by their full names: one, or all cases of a file."""
        file, _, case = name.partition(".")
        if not (self.folder / f"{file}.expect").is_file():
            files = [self.file_name(path) for path in self.folder.rglob("*.expect")]
            near = difflib.get_close_matches(file, files, 1, 0.4)
            raise Mistake(f"no expectation {name}" + (f"; {near[0]}?" if near else ""))
        tests = self.read(file)
        if case and name not in tests:
            raise Mistake(f"no case {case} in {file}; there are: {', '.join(tests)}")
        return {name: tests[name]} if case else tests

    def file_name(self, path):
        return str(path.relative_to(self.folder).with_suffix(""))

    def runs_of(self, name):
        if name.partition(".")[0] in self.being_read:
            raise ValueError(f"{name} takes its runs from here")
        tests = self.tests(name)
        if len(tests) > 1:
            raise ValueError(f"{name} has cases, one has to be named: {', '.join(tests)}")
        return next(iter(tests.values())).commands

    def read(self, file):
        if file not in self.were_read:
            self.were_read[file] = self.read_now(file)
        return self.were_read[file]

    def read_now(self, file):
        path = self.folder / f"{file}.expect"
        head, cases = self.sections(path)
        tests = {}
        self.being_read.append(file)
        for name, lines in cases.items():
            test = Expectations(file + (f".{name}" if name else ""), self.words, self.runs_of)
            self.read_lines(path, test, head)
            test.adding = False
            self.read_lines(path, test, lines)
            if not test.commands:
                raise Mistake(f"{path}: {test.name} runs nothing")
            if test.unused:
                raise Mistake(f"{path}: {test.name} runs nothing after its last 'under'")
            tests[test.name] = test
        self.being_read.pop()
        return tests

    @staticmethod
    def read_lines(path, test, lines):
        for number, line in lines:
            try:
                test.read(line)
            except ValueError as error:
                raise Mistake(f"{path}:{number}: not understood: {line} ({error})") from error

    @staticmethod
    def sections(path):
        """The numbered lines before the first case, and those of each case by its name."""
        head, cases = [], {}
        lines = head
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            line = line.partition("#")[0].strip()
            if re.match(r"case\b(?!-)", line):
                _, name, *settings = (line + " ").split(" ")
                if not re.fullmatch(r"\w+", name) or name in cases:
                    raise Mistake(f"{path}:{number}: a case needs a name of its own: {line}")
                lines = cases[name] = [(number, f"env-with {word}") for word in settings if word]
            elif line:
                lines.append((number, line))
        bodies = {}
        for name, lines in cases.items():
            same = bodies.setdefault(tuple(line for _, line in lines), name)
            if same != name:
                raise Mistake(f"{path}: case {name} is case {same} once more")
        return head, cases or {"": []}
