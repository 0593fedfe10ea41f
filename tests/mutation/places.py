# SPDX-License-Identifier: Apache-2.0
"""What is known of the place that a one-line change is in: its function, the tests that reach it, the object files that
it is compiled into, and, ahead of the trials, whether it compiles."""

import collections
import concurrent.futures
import itertools
import json
import pathlib
import shlex
import shutil
import subprocess
import tempfile

import catalogue
import cpp_source
import reach

COPIED = ("allocator", "shim", "config", "tests")
UNCOMPILABLE = "no bug: does not compile"
AHEAD = 16  # so many are compiled before their turn


def changed_text(root, drawn):
    """The file, with the line that a change puts there."""
    lines = (root / drawn.path).read_text(encoding="utf-8").splitlines(keepends=True)
    lines[drawn.line - 1] = drawn.text
    return "".join(lines)


class Places:
    """Has a copy of the tree: no change is planted there while others are compiled ahead."""

    def __init__(self, tree, measured):
        self.root, self.reach = tree.home / "ahead", measured
        shutil.rmtree(self.root, ignore_errors=True)
        for folder in COPIED:
            shutil.copytree(tree.folder / folder, self.root / folder)
        self.sources = catalogue.Sources(self.root)
        commands = (tree.build_folder / "compile_commands.json").read_text(encoding="utf-8")
        commands = json.loads(commands.replace(f"{tree.folder}/", f"{self.root}/").replace(
            f"-I{tree.folder} ", f"-I{self.root} "))
        self.commands, self.source_of = {}, {}  # by object file
        for entry in commands:
            words = shlex.split(entry["command"])
            output = words[words.index("-o") + 1]
            self.commands[output], self.source_of[output] = words[:words.index("-o")], entry["file"]
        self.not_measured = [output for output, source in self.source_of.items() if reach.OURS.search(f"/{output}")
                             and (output not in measured.objects or
                                  not measured.holds(self.root, pathlib.Path(source).relative_to(self.root)))]

    def function(self, drawn):
        """The definition around it; None outside of all."""
        text = self.sources.texts[drawn.path]
        return next((d for d in reversed(self.sources.definitions) if d.path == drawn.path and
                     cpp_source.line_of(text, d.start) <= drawn.line <= cpp_source.line_of(text, d.end)), None)

    def lines(self, drawn):
        """Its line or, if that makes no code of its own, those of the function."""
        text, function = self.sources.texts[drawn.path], self.function(drawn)
        if function is None or drawn.line in self.reach.lines.get(drawn.path, {}):
            return [drawn.line]
        return range(cpp_source.line_of(text, function.start), cpp_source.line_of(text, function.end) + 1)

    def tests(self, drawn, tests):
        return self.reach.tests_of(self.root, drawn.path, self.lines(drawn), tests)

    def objects(self, drawn):
        """Those to compile anew; none where only the build can tell: code that runs while compiling leaves no trace.
        Those that were not measured are, too, if they are made of the file itself, or it is a header."""
        function = self.function(drawn)
        if function is None or "constexpr" in self.sources.text_of(function):
            return []
        known = self.reach.objects_of(self.root, drawn.path, self.lines(drawn))
        if not known:
            return []
        return sorted({*known, *(output for output in self.not_measured if drawn.path.endswith(".h")
                                 or self.source_of[output] == str(self.root / drawn.path))})

    def compiles(self, drawn):
        """Whether one object file that it is in does."""
        own = [output for output, source in self.source_of.items() if source == str(self.root / drawn.path)]
        output = next(iter(own or self.reach.objects_of(self.root, drawn.path, self.lines(drawn))), None)
        if output is None:
            return True  # the build will tell
        compiler, *words = self.commands[output]
        with tempfile.TemporaryDirectory() as overlay:
            changed = pathlib.Path(overlay, drawn.path)
            changed.parent.mkdir(parents=True)
            changed.write_text(changed_text(self.root, drawn), encoding="utf-8")
            source = changed if own else self.source_of[output]
            done = subprocess.run([compiler, "-I", overlay, *words, "-fsyntax-only", str(source)], check=False,
                                  capture_output=True, cwd=self.root)
        return done.returncode == 0


def checked_ahead(drawn, places, store):
    """Each mutant with what is known of it, which is more often than not that it does not compile."""
    drawn, waiting = iter(drawn), collections.deque()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            while True:
                for one in itertools.islice(drawn, AHEAD - len(waiting)):
                    verdict = store.verdict(one)
                    waiting.append((one, verdict, None if verdict else pool.submit(places.compiles, one)))
                if not waiting:
                    return
                one, verdict, compiles = waiting.popleft()
                yield one, verdict or (None if compiles.result() else UNCOMPILABLE)
        finally:
            pool.shutdown(cancel_futures=True)
