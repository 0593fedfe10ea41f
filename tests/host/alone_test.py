#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Under libcistern.so a program of one thread stays one, so that it can set up a sandbox, and its freed memory comes back
all the same. BUILD_DIR names the build."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBJECT = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve() / "libcistern.so"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_"))}


class Alone(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.program = f"{folder.name}/program"
        subprocess.run(["cc", "-O1", "-fno-builtin", "-o", cls.program, ROOT / "tests" / "host" / "alone.c"], check=True)

    def run_it(self, **env):
        done = subprocess.run([self.program], env=CLEAN | env, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_a_sandbox_can_be_made_whatever_is_set(self):
        alone = self.run_it().replace("stays 1", "stays 0")
        self.assertIn("tasks 1", alone)
        for settings in ({}, {"FLAGS_free_idle_memory": "true"}, {"FLAGS_free_idle_memory": "true", "CISTERN_IDLE_MS": "1"},
                         {"FLAGS_free_idle_memory": "true", "FLAGS_use_pinned_memory": "true", "CISTERN_LOG": "error"}):
            said = self.run_it(LD_PRELOAD=str(OBJECT), **settings)
            self.assertEqual(said if settings else said.replace("stays 1", "stays 0"), alone, settings)


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
