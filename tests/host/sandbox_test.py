#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that lock themselves up with a seccomp filter: under libcistern.so malloc asks nothing of the system after main
begins but what every malloc needs. BUILD_DIR names the build."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from hangs import HANGS_S  # noqa: E402

OBJECT = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve() / "libcistern.so"
SOURCE = ROOT / "tests" / "host" / "sandbox.c"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_"))}
NO_FILTERS = 250
POLICIES = {
    "plain": {},
    "off": {"CISTERN_POOL": "off"},
    "small chunks": {"FLAGS_initial_cpu_memory_in_mb": "8"},
    "filled": {"FLAGS_init_allocated_mem": "true"},
}


class Sandbox(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.program = pathlib.Path(folder.name) / "sandbox"
        subprocess.run(["cc", "-O1", SOURCE, "-o", cls.program, "-lpthread"], check=True)

    def call_made(self, *words, **env):
        done = subprocess.run([self.program, *words], env=CLEAN | env, timeout=HANGS_S, check=False)
        if done.returncode == NO_FILTERS:
            self.skipTest("this machine lets no process filter its system calls")
        return done.returncode

    def test_malloc_makes_no_other_system_call_after_main_begins(self):
        for policy, env in POLICIES.items():
            for words in ((), ("threads",)):
                with self.subTest(policy, words=words):
                    self.assertEqual(self.call_made(*words, LD_PRELOAD=str(OBJECT), **env), 0)


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
