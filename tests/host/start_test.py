#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the start of a process takes under libcistern.so, and that from its first allocation on all blocks come from the
pool of host memory, whoever asks: other libraries' constructors, and threads of theirs. BUILD_DIR names the build."""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBJECT = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve() / "libcistern.so"
SOURCE = ROOT / "tests" / "host" / "start.c"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_"))}
MOST_KIB = 2560  # more than without
PR_SET_THP_DISABLE = 41


def output(*command, **env):
    return subprocess.run(command, env=CLEAN | env, check=True, capture_output=True, text=True).stdout


def build(folder):
    """The program, which finds its library beside itself."""
    library, program = folder / "libearly.so", folder / "start"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-DLIBRARY", SOURCE, "-o", library], check=True)
    subprocess.run(["cc", "-O1", SOURCE, "-o", program, library, "-Wl,-rpath,$ORIGIN"], check=True)
    return program


class Pooled(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = build(pathlib.Path(cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def blocks(self, **env):
        return output(self.program, LD_PRELOAD=str(OBJECT), **env)

    def test_every_block_of_constructors_and_threads_comes_from_the_pool(self):
        self.assertEqual(self.blocks(), "constructor: 6 of 6 threads, own 1\nmain: 6 of 6 threads, own 1\n")

    def test_none_does_where_the_pool_is_off_or_jemalloc_keeps_what_it_has(self):
        for env in ({"CISTERN_POOL": "off"}, {"CISTERN_MALLOC_CONF": "retain:true"}):
            self.assertEqual(self.blocks(**env), "constructor: 0 of 6 threads, own 0\nmain: 0 of 6 threads, own 0\n", env)


class Taken(unittest.TestCase):
    @staticmethod
    def most_resident_kib(**env):
        """The most memory that a process had that does little but say so."""
        runs = (output("grep", "VmHWM", "/proc/self/status", **env) for _ in range(5))
        return min(int(run.split()[1]) for run in runs)

    def test_the_memory_of_a_start(self):
        ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # or one page may be 2 MiB; inherited
        more = self.most_resident_kib(LD_PRELOAD=str(OBJECT)) - self.most_resident_kib()
        self.assertLessEqual(more, MOST_KIB)


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
