#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ordinary user's limit on locked memory (ulimit -l) under libcistern.so: never passed, half of it left to the program
where no setting says that memory is to be locked, and what was refused is said once. Skipped where nobody can be an
ordinary user. BUILD_DIR names the build.
"""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
NOBODY = 65534
LIMIT_KB = 8192
PINNED, CHUNK = {"FLAGS_use_pinned_memory": "true"}, {"FLAGS_initial_cpu_memory_in_mb": "64"}
LINE = re.compile(r"cistern: warn: host memory: locked (\d+) of (\d+) KiB, limit (\d+); the rest stays unlocked\n")


def as_nobody(folder, limit_kb, settings, *command):
    """The command by a user without privileges; root becomes one."""
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("CISTERN_", "FLAGS_", "GE_", "LD_"))}
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    limits = (limit_kb << 10, limit_kb << 10)
    return subprocess.run(command, env=environment | settings, cwd=folder, capture_output=True, text=True, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, limits), **user)


class Memlock(unittest.TestCase):
    """The parts lie where any user may read them."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-memlock-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)
        for part in (BUILD / "libcistern.so", BUILD / "programs" / "host_memlock_lazy"):
            pathlib.Path(shutil.copy(part, self.folder)).chmod(0o755)

    def locks(self, limit_kb, **settings):
        """kB: by malloc, by the program beside it; and stderr."""
        preload = {"LD_PRELOAD": str(self.folder / "libcistern.so"), "CISTERN_LOG": "warn"}
        done = as_nobody(self.folder, limit_kb, preload | settings, self.folder / "host_memlock_lazy", "40")
        self.assertEqual(done.returncode, 0, done.stderr)
        failed, locked, own = (int(line.split()[1]) for line in done.stdout.splitlines())
        self.assertEqual(failed, 0)
        self.assertLessEqual(locked + own, limit_kb)
        return locked, own, done.stderr

    def said_once(self, err, locked, limit_kb):
        match = LINE.fullmatch(err)
        self.assertTrue(match, err)
        said, wanted, limit = map(int, match.groups())
        self.assertEqual((said, limit), (locked, limit_kb))
        self.assertLess(said, wanted)

    def test_asked_to_lock_it_locks_up_to_the_limit(self):
        locked, own, err = self.locks(LIMIT_KB, **PINNED)
        self.assertLessEqual(locked, LIMIT_KB)
        self.assertGreater(locked, LIMIT_KB // 2)
        self.said_once(err, locked, LIMIT_KB)

    def test_all_that_may_be_locked_is_also_where_a_whole_chunk_is_locked_at_once(self):
        for eager in ({}, {"CISTERN_PIN_EAGER": "true"}):
            for settings, share in ((PINNED, 1), (CHUNK, 2)):
                with self.subTest(settings=settings | eager):
                    locked, _, _ = self.locks(LIMIT_KB, **settings, **eager)
                    self.assertGreater(locked, LIMIT_KB // share - 256)

    def test_only_a_chunk_flag_leaves_half_to_the_program(self):
        locked, own, err = self.locks(LIMIT_KB, **CHUNK)
        self.assertEqual(locked, LIMIT_KB // 2)
        self.assertEqual(own, LIMIT_KB // 2)
        self.said_once(err, locked, LIMIT_KB)

    def test_at_once_it_locks_no_more(self):
        for settings in (PINNED | CHUNK, CHUNK):
            locked, own, err = self.locks(LIMIT_KB, CISTERN_PIN_EAGER="1", **settings)
            self.assertGreater(locked, 0)
            self.said_once(err, locked, LIMIT_KB)

    def test_where_nothing_may_be_locked_the_program_goes_on(self):
        for settings in (PINNED, CHUNK, PINNED | {"CISTERN_PIN_EAGER": "1"}):
            locked, own, err = self.locks(0, **settings)
            self.assertEqual((locked, own), (0, 0))
            self.said_once(err, 0, 0)

    def test_nothing_asked_nothing_locked_nothing_said(self):
        for settings in ({}, {"FLAGS_use_pinned_memory": "false"} | CHUNK):
            self.assertEqual(self.locks(LIMIT_KB, **settings), (0, LIMIT_KB, ""))


def why_not():
    if not (BUILD / "libcistern.so").exists() or (BUILD / "libcistern.so").is_symlink():
        return f"{BUILD / 'libcistern.so'} does not serve malloc in this build"
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard != resource.RLIM_INFINITY and hard < LIMIT_KB << 10:
        return f"the hard limit on locked memory is below {LIMIT_KB} KiB"
    try:
        rights = as_nobody("/", LIMIT_KB, {}, "grep", "CapEff", "/proc/self/status")
    except (OSError, subprocess.SubprocessError) as error:
        return f"nobody can be an ordinary user here: {error}"
    if int(rights.stdout.split()[1], 16) != 0:
        return f"an ordinary user has privileges here: {rights.stdout.strip()}"
    return None


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()
