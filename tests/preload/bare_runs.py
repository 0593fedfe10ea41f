# SPDX-License-Identifier: Apache-2.0
"""What programs did without Cistern, kept in a build folder, so that tests whose runs differ in Cistern's settings
alone, and builds that compare with this one, have a program run without Cistern once. With TEST_BARE_RUNS=kept in
the environment, as make test does; make soak runs each.

What is kept is of the programs and the simulated CUDA that are built now, and was as its test expects. What is of
an earlier build is removed."""

import json
import os
import pathlib
import re
import shutil
import zlib

import expectations

SETTING = re.compile(r"(CISTERN_\w+|FLAGS_\w+|GE_\w+)")


class Kept:
    def __init__(self, build, toolkit_lib=None):
        self.programs, self.sim = build / "programs", build / "sim"
        self.toolkit_lib = toolkit_lib
        self.built = state_of(self.programs, self.sim)  # all of it: a program may run others, or load them
        self.all = build / "bare"
        self.folder = self.all / f"{zlib.crc32(repr(self.built).encode()):08x}"

    def key(self, command, expected):
        """All that such a run depends on; None if that may be more than is known here."""
        changed, words = expectations.without_env(command)
        settings = expected.env | changed
        if pathlib.Path(words[0]).parent != self.programs or self.counts_arguments(expected):
            return None
        read_by = [words[0], *(self.programs / name for name in (*expected.preload, *expected.preload_behind))]
        read_by += [word for word in words[1:] if os.path.isfile(word)]  # it may run or load them
        images = [pathlib.Path(path).read_bytes() for path in read_by]
        # Without Cistern nobody reads its settings; a program that does has their names in it.
        settings = {name: value for name, value in settings.items()
                    if not SETTING.fullmatch(name) or any(name.encode() in image for image in images)}
        files = [(word, os.stat(word).st_mtime_ns) for word in words if os.path.isfile(word)]
        toolkit = expected.toolkit_runtime and [str(self.toolkit_lib), state_of(self.toolkit_lib)]
        return repr([self.built, words, files, sorted(settings.items()), expected.preload, expected.preload_behind,
                     sorted(expected.driver_lacks), toolkit])

    @staticmethod
    def counts_arguments(expected):
        """The trace is counted, but not kept."""
        return any(values.when == "without" for values in expected.values)

    def path(self, key):
        return self.folder / f"{zlib.crc32(key.encode()):08x}.json"

    def find(self, key):
        """What was kept under this key; None if nothing was, or under one that has the same path."""
        try:
            kept = json.loads(self.path(key).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return kept["fields"] if kept["key"] == key else None

    def keep(self, key, fields):
        if not self.folder.exists():
            self.begin()
        beside = self.path(key).with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps({"key": key, "fields": fields}), encoding="utf-8")
        beside.rename(self.path(key))  # a reader sees all of it or nothing

    def begin(self):
        """A folder for what is built now. Several tests may do this at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for other in set(self.all.iterdir()) - {self.folder}:
            if other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink(missing_ok=True)


def state_of(*folders):
    """Changes with any file of the folders."""
    files = sorted((entry.stat().st_mtime_ns, entry.path, entry.stat().st_size)
                   for folder in folders for entry in os.scandir(folder))
    return [len(files), files[-1:], zlib.crc32(repr(files).encode())]
