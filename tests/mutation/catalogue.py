# SPDX-License-Identifier: Apache-2.0
"""The mutants of the folder mutants/ and the sources they are planted in.

A mutant names a function, not a file: it is found wherever the function is. Its old text is compared
token by token, so that neither indentation nor line breaks nor comments matter. What cannot be
planted is explained by CannotPlant, so that whoever changed the source can mend the entry.
"""

import collections
import difflib
import pathlib
import re

import cpp_source

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("allocator", "shim", "config")
HEAD = re.compile(r"(\w+) in (\S.*)")

# `subject` is the name of the file it stands in, `where` that file and its line.
Mutant = collections.namedtuple("Mutant", "name function old new subject where")
# The text of `path` from `start` to `end` is replaced by the new one; `definition` surrounds it.
Planting = collections.namedtuple("Planting", "path start end definition")


class CannotPlant(Exception):
    """The function is not found, or the old text does not stand in it exactly once."""


def read_mutants(folder=ROOT / "tests" / "mutation" / "mutants"):
    mutants = [mutant for path in sorted(folder.glob("*.mutants")) for mutant in read_file(path)]
    twice = [name for name, count in collections.Counter(m.name for m in mutants).items() if count > 1]
    if twice:
        raise ValueError(f"mutants of the same name: {', '.join(twice)}")
    return mutants


def read_file(path):
    """Entries are separated by empty lines: `NAME in FUNCTION`, then `- old`, then `+ new` if any."""
    entry = []
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        line = line.rstrip()
        if line and not line.startswith("#"):
            entry.append((number, line))
        elif entry:
            yield read_entry(path, entry)
            entry = []


def read_entry(path, entry):
    number, first = entry[0]
    head, kinds = HEAD.fullmatch(first), [line[:2].strip() for _, line in entry[1:]]
    if not head or not re.fullmatch(r"-+\+*", "".join(kinds)) or "" in kinds:
        raise ValueError(f"{path}:{number}: not understood; an entry is `NAME in FUNCTION`, a line or "
                         "more `- old text`, and as many `+ new text` as wanted")
    old, new = (" ".join(line[2:] for _, line in entry[1:] if line[0] == sign) for sign in "-+")
    return Mutant(head[1], head[2], old, new, path.stem, f"{path.name}:{number}")


class Sources:
    """The texts of the tree's C++ files and all their definitions."""

    def __init__(self, root=ROOT, folders=FOLDERS):
        self.root, self.texts, self.definitions, self.by_name = root, {}, [], collections.defaultdict(list)
        for folder in folders:
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in (".h", ".cc"):
                    name = str(path.relative_to(root))
                    self.texts[name] = path.read_text(encoding="utf-8")
                    self.definitions += cpp_source.definitions(self.texts[name], name)
        for definition in self.definitions:
            for name in definition.names():
                self.by_name[name].append(definition)

    def text_of(self, definition):
        return self.texts[definition.path][definition.start:definition.end]

    def lines_of(self, definition):
        text = self.texts[definition.path]
        return range(cpp_source.line_of(text, definition.start), cpp_source.line_of(text, definition.end) + 1)

    def place_of(self, definition):
        return f"{definition.path}:{self.lines_of(definition).start}"

    def named(self, name):
        return self.by_name.get(name, [])

    def find(self, mutant):
        """Where a mutant goes: overloads and functions of that name in other files are told apart by
        the old text, which may stand in one of them only."""
        candidates = self.named(mutant.function)
        if not candidates:
            raise CannotPlant(f"there is no {mutant.function}{self.alike(mutant.function)}")
        hits = [Planting(d.path, d.start + start, d.start + end, d) for d in candidates
                for start, end in cpp_source.occurrences(self.text_of(d), mutant.old)]
        if not hits:
            places = ", ".join(map(self.place_of, candidates))
            raise CannotPlant(f"`{mutant.old}` does not stand in {mutant.function} ({places})"
                              f"{self.elsewhere(mutant, candidates)}")
        if len(hits) > 1:
            places = ", ".join(f"{hit.path}:{cpp_source.line_of(self.texts[hit.path], hit.start)}" for hit in hits)
            raise CannotPlant(f"`{mutant.old}` stands {len(hits)} times in {mutant.function} ({places}); "
                              "give more of its surroundings, or more of the function's name")
        return hits[0]

    def planted(self, mutant):
        """Path and new text of the file that a mutant changes."""
        path, start, end, _ = self.find(mutant)
        text = self.texts[path]
        return path, text[:start] + mutant.new + text[end:]

    def alike(self, function):
        """What somebody who renamed or moved the function may look for."""
        last = function.rpartition("::")[2]
        names = {d.short_name for d in self.definitions}
        same = [name for name in names if name.rpartition("::")[2] == last]
        names = difflib.get_close_matches(function, same or names, 3, 0 if same else 0.7)
        return f"; there is {', '.join(names)}" if names else ""

    def elsewhere(self, mutant, candidates):
        others = [d for d in self.definitions if cpp_source.occurrences(self.text_of(d), mutant.old)]
        if 0 < len(others) <= 3:
            return "; it stands in " + ", ".join(f"{d.short_name} ({self.place_of(d)})" for d in others)
        wanted = [token.text for token in cpp_source.tokens_of(mutant.old)]
        nearest = max((self.nearest_line(d, wanted) for d in candidates), default=(0, ""))
        return f"; nearest is `{nearest[1]}`" if nearest[0] > 0.5 else ""

    def nearest_line(self, definition, wanted):
        def likeness(line):
            return difflib.SequenceMatcher(None, wanted, [t.text for t in cpp_source.tokens_of(line)]).ratio()
        lines = [line.strip() for line in self.text_of(definition).splitlines() if line.strip()]
        return max((likeness(line), line) for line in lines)
