#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Another preloaded library wraps a function of the C library, and allocates when its wrapper is first called: nothing
that malloc does leads into the wrapper, whichever of the two objects comes first. BUILD_DIR names the build."""

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
SOURCE = ROOT / "tests" / "host" / "wrappers.c"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_"))}
WRAPPED = ("clock_gettime", "mmap", "munmap", "madvise", "mprotect", "sysconf", "getrlimit", "sched_getaffinity",
           "secure_getenv", "sysinfo", "readlink", "open", "read", "close", "fstat", "syscall")
POLICIES = {
    "plain": {},
    "off": {"CISTERN_POOL": "off"},
    "idle": {"FLAGS_free_idle_memory": "true", "CISTERN_IDLE_MS": "5"},
    "locked": {"FLAGS_use_pinned_memory": "true", "CISTERN_LOG": "error"},
    "jemalloc's own": {"CISTERN_MALLOC_CONF": "percpu_arena:percpu,background_thread:true"},
    "a file": {"CISTERN_CONFIG": None},
}


class Wrappers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.program = cls.folder / "program"
        cls.settings = cls.folder / "settings"
        cls.settings.write_text("CISTERN_GPU_LIMIT=1G\n", encoding="utf-8")
        subprocess.run(["cc", "-O1", SOURCE, "-o", cls.program, "-lpthread"], check=True)
        for name in WRAPPED:
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-w", f"-DWRAPPED={name}", SOURCE, "-o", cls.wrapper(name),
                            "-ldl"], check=True)

    @classmethod
    def wrapper(cls, name):
        return cls.folder / f"lib{name}.so"

    def ends_well(self, preload, env):
        env = {key: str(self.settings) if value is None else value for key, value in env.items()}
        done = subprocess.run([self.program], env=CLEAN | env | {"LD_PRELOAD": preload, "CISTERN_TEST_WORD": "1"},
                              capture_output=True, text=True, timeout=HANGS_S, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_the_wrappers_do_no_harm_to_the_c_library(self):
        for name in WRAPPED:
            with self.subTest(name):
                self.ends_well(str(self.wrapper(name)), {})

    def test_malloc_does_not_lead_into_one(self):
        for name in WRAPPED:
            for policy, env in POLICIES.items():
                for objects in ((self.wrapper(name), OBJECT), (OBJECT, self.wrapper(name))):
                    with self.subTest(name, policy=policy, wrapper_first=objects[1] == OBJECT):
                        self.ends_well(":".join(map(str, objects)), env)

    def test_nor_into_all_of_them(self):
        wrappers = [str(self.wrapper(name)) for name in WRAPPED]
        for policy, env in POLICIES.items():
            for objects in ([*wrappers, str(OBJECT)], [str(OBJECT), *wrappers]):
                with self.subTest(policy=policy, wrappers_first=objects[-1] == str(OBJECT)):
                    self.ends_well(":".join(objects), env)


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
