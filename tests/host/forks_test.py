#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forks under libcistern.so: handlers of other libraries may allocate, whenever they were registered, go with their
library, and are registered without a wait; a process may end while its threads fork. BUILD_DIR names the build."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from hangs import HANGS_S  # noqa: E402

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
        cls.other = library.with_name("libother.so")
        limit = f"-DHANGS_S={HANGS_S}"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-DLIBRARY", limit, SOURCE, "-o", library, "-lpthread"], check=True)
        subprocess.run(["cc", "-O1", "-rdynamic", limit, SOURCE, "-o", cls.program, library, "-Wl,-rpath,$ORIGIN", "-lpthread",
                        "-ldl"], check=True)
        shutil.copy(library, cls.other)

    def run_it(self, *arguments, **env):
        """What it prints. It ends all that it started, but for children that hang: these are ended here."""
        process = subprocess.Popen([self.program, *arguments], env=CLEAN | {"LD_PRELOAD": str(OBJECT)} | env,
                                   stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            return process.communicate(timeout=HANGS_S)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def test_a_handler_that_was_registered_before_anybody_allocated_may_allocate(self):
        for env in ({}, {"CISTERN_POOL": "off"}, {"FLAGS_init_allocated_mem": "true"}):
            with self.subTest(env):
                self.assertEqual(self.run_it("children", **env),
                                 "50 of 50 children; noticed before 50, in the parent 50, here 0\n")

    def test_handlers_of_a_library_go_with_it(self):
        self.assertEqual(self.run_it("unload", str(self.other)), "forked: 1\n")

    def test_to_register_a_handler_waits_for_no_library_that_is_being_loaded(self):
        self.assertEqual(self.run_it("loads", str(self.other)), "loaded\n")

    def test_a_process_ends_while_its_threads_fork(self):
        self.assertEqual(self.run_it("exits", str(PROCESSES), NO_HANDLERS="1"), "not well: 0\n")


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
