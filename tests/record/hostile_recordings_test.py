#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recordings that somebody made up (made_up.py): the memory of `cistern trace` and of scripts/cistern_trace.py goes by
their size. What is measured is the most that was resident, beyond that of a recording with nothing in it."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import made_up
import written

READ = "import sys; sys.path.insert(0, sys.argv[1]); import cistern_trace; sum(1 for _ in cistern_trace.read(*sys.argv[2:]).events)"
SHORT, LONG = 200_000, 500_000  # bytes
TIMES, PYTHONS_TIMES = 32, 40  # shim/SECURITY.md
ALWAYS = 4 << 20  # whatever the recording is, beyond that of an empty one
WORDY = ("long stacks", "long paths")  # their output is a thousand times the recording
FEW = ("synchronisations", "blocks that nobody frees", "a thread for each block", "frames", "a range for each block")


class Memory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name, "recording")

    def most_resident(self, *command):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, command)
        return used.ru_maxrss << 10

    def bounded(self, names, size, times, always, *command):
        self.path.write_bytes(made_up.recording_of())
        empty = self.most_resident(*command)
        for name in names:
            with self.subTest(name, command=command[-1]):
                self.path.write_bytes(made_up.made_up(name, size))
                more = self.most_resident(*command) - empty
                self.assertLess(more, times * self.path.stat().st_size + always)

    def trace(self, names, size, *options):
        self.bounded(names, size, TIMES, ALWAYS, written.BUILD / "cistern-trace", self.path, *options)

    def test_of_the_summary(self):
        self.trace(made_up.MADE_UP, LONG)

    def test_of_the_json(self):
        self.trace([name for name in made_up.MADE_UP if name not in WORDY], LONG, "--json")
        self.trace(made_up.MADE_UP, LONG, "--events", "--json")

    def test_of_lists_of_lines(self):
        self.trace(("a thread for each block", "a site for each block"), LONG, "--folded", "calls", "--by", "thread")
        self.trace(("blocks that nobody frees", "blocks at one address"), LONG, "--csv")
        self.trace(WORDY, SHORT, "--folded", "calls")
        self.trace(["long paths"], SHORT, "--range", "*")

    def test_in_python(self):
        self.bounded(FEW, LONG, PYTHONS_TIMES, ALWAYS, sys.executable, "-c", READ, written.ROOT / "scripts", self.path, written.BUILD)


if __name__ == "__main__":
    unittest.main()
