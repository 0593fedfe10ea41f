#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forks under libcistern.so: handlers of other libraries may allocate, whenever they were registered, and a process may
end while its threads fork. BUILD_DIR names the build."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBJECT = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve() / "libcistern.so"
SOURCE = ROOT / "tests" / "host" / "forks.c"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_"))}
PROCESSES = 300  # of 100 one or two would not end well


class Forks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        library, cls.program = (pathlib.Path(folder.name) / name for name in ("libnotices.so", "forks"))
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-DLIBRARY", SOURCE, "-o", library], check=True)
        subprocess.run(["cc", "-O1", SOURCE, "-o", cls.program, library, "-Wl,-rpath,$ORIGIN"], check=True)

    def run_it(self, *arguments, **env):
        return subprocess.run([self.program, *arguments], env=CLEAN | {"LD_PRELOAD": str(OBJECT)} | env, check=True,
                              capture_output=True, text=True).stdout

    def test_a_handler_that_was_registered_before_anybody_allocated_may_allocate(self):
        for env in ({}, {"CISTERN_POOL": "off"}, {"FLAGS_init_allocated_mem": "true"}):
            with self.subTest(env):
                self.assertEqual(self.run_it("children", **env), "50 of 50 children, forks noticed: 1\n")

    def test_a_process_ends_while_its_threads_fork(self):
        self.assertEqual(self.run_it("exits", str(PROCESSES)), "not well: 0\n")


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
