#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libcistern.so beside other allocators and tools: programs do the same beside them, whichever comes first. What a machine
lacks is left out and named. BUILD_DIR names the build."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from hangs import HANGS_S  # noqa: E402

OBJECT = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve() / "libcistern.so"
SOURCE = ROOT / "tests" / "host" / "neighbours.cc"
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_"))}
ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libmimalloc.so.2", "libmimalloc.so")
POLICIES = ({}, {"CISTERN_POOL": "off"}, {"FLAGS_init_allocated_mem": "true"})
WELL = "4 refused, 0 wrong\n"
INSIDE = """
#include <pthread.h>
#include <stdlib.h>
static void* work(void* x) { for (int i = 1; i < 3000; ++i) free(malloc(i * 97)); return x; }
__attribute__((constructor)) static void begin(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, work, 0) == 0) pthread_detach(thread);
  setenv("CUDA_INJECTION64_PATH", "/nowhere", 1);
}
"""
PROXY = """
#include <dlfcn.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) { if (dlopen(getenv("TOOL"), RTLD_NOW | RTLD_LOCAL) == 0) abort(); }
"""
TAME = "0 refused, 0 wrong\n"


def installed(library):
    """Its path, by the compiler; None where it is not on this machine."""
    path = subprocess.run(["c++", f"-print-file-name={library}"], check=True, capture_output=True, text=True).stdout.strip()
    return path if pathlib.Path(path).is_absolute() else None


def build(*words):
    subprocess.run(["c++", "-std=c++17", "-O1", "-w", "-fno-builtin", *words], check=True)


class Neighbours(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.plain, cls.own = cls.folder / "plain", cls.folder / "own"
        build(SOURCE, "-o", cls.plain)
        build("-DOWN_MALLOC", "-rdynamic", SOURCE, "-o", cls.own)

    def run_it(self, program, *preload, tool=(), how="all", **env):
        if preload:
            env["LD_PRELOAD"] = ":".join(map(str, preload))
        done = subprocess.run([*tool, program, "tame" if tool else how], env=CLEAN | env, capture_output=True, text=True, timeout=HANGS_S, check=False)
        self.assertEqual((done.returncode, done.stderr if not tool else ""), (0, ""), done.stderr)
        return done.stdout

    def beside_each(self, compare):
        for name in ALLOCATORS:
            with self.subTest(name):
                path = installed(name)
                if path is None:
                    self.skipTest(f"{name} is not on this machine")
                compare(path)

    def test_operators_do_what_the_runtimes_do(self):
        for env in POLICIES:
            with self.subTest(env):
                self.assertEqual(self.run_it(self.plain, OBJECT, **env), WELL)

    def test_a_program_linked_with_another_malloc(self):
        def compare(path):
            program = self.folder / "linked"
            build("-Wl,--no-as-needed", SOURCE, "-o", program, path)
            for env in POLICIES:
                self.assertEqual(self.run_it(program, OBJECT, **env), WELL, env)
        self.beside_each(compare)

    def test_another_malloc_preloaded_before_or_behind(self):
        def compare(path):
            for preload in ((path,), (path, OBJECT), (OBJECT, path)):
                for env in POLICIES:
                    self.assertEqual(self.run_it(self.plain, *preload, how="beside", **env), TAME, (preload, env))
        self.beside_each(compare)

    def test_a_program_with_a_malloc_of_its_own_gets_no_block_of_ours(self):
        for env in POLICIES:
            with self.subTest(env):
                self.assertEqual(self.run_it(self.own, OBJECT, **env), WELL)

    def test_a_librarys_own_operators_are_called_as_ever(self):
        library, program = self.folder / "liboperators.so", self.folder / "counted"
        build("-DOWN_OPERATORS", "-shared", "-fPIC", SOURCE, "-o", library)
        build("-DCOUNTED", SOURCE, "-o", program, library, "-Wl,-rpath,$ORIGIN")
        alone = self.run_it(program)
        self.assertNotIn(" 0 taken", " " + alone)
        self.assertEqual(self.run_it(program, OBJECT), alone)
        for preload in ((library, OBJECT), (OBJECT, library)):
            self.assertEqual(self.run_it(program, *preload), alone)

    def launched(self, program, *options, how="all", **env):
        command = [ROOT / "scripts" / "cistern", "--home", OBJECT.parent, "run", *options, program, how]
        done = subprocess.run(command, env=CLEAN | env, capture_output=True, text=True, timeout=HANGS_S, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), options)
        return done.stdout

    def test_beside_libraries_for_audit(self):
        library = self.folder / "libaudit.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True, text=True,
                       input="unsigned la_version(unsigned version) { return version; }")
        for env in POLICIES:
            self.assertEqual(self.launched(self.plain, LD_AUDIT=str(library), **env), WELL)

    def test_programs_with_a_sanitizer(self):
        for sanitizer in ("address", "thread"):
            with self.subTest(sanitizer):
                program = self.folder / sanitizer
                try:
                    build(f"-fsanitize={sanitizer}", SOURCE, "-o", program)
                    subprocess.run([program, "tame"], check=True, capture_output=True)
                except subprocess.CalledProcessError:
                    self.skipTest(f"no program runs here with the {sanitizer} sanitizer")
                for host in ("on", "off"):
                    options = ("--host", host)
                    self.assertEqual(self.launched(program, *options, how="tame", ASAN_OPTIONS="detect_leaks=0"), TAME)

    def test_a_tool_that_injects_libraries_of_its_own(self):
        """As nsys does: its preloaded proxy opens the rest for itself, which has threads and memory."""
        inside, proxy = self.folder / "libinside.so", self.folder / "libproxy.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", inside, "-lpthread"], check=True, text=True, input=INSIDE)
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", proxy], check=True, text=True, input=PROXY)
        for preload in ((proxy, OBJECT), (OBJECT, proxy)):
            for env in POLICIES:
                self.assertEqual(self.run_it(self.plain, *preload, TOOL=str(inside), **env), WELL)

    def test_under_tools(self):
        for tool in (("strace", "-f", "-o", "/dev/null"), ("gdb", "-q", "-batch", "-ex", "run tame", "-ex", "quit"),
                     ("valgrind", "-q", "--error-exitcode=9")):
            with self.subTest(tool[0]):
                if shutil.which(tool[0]) is None:
                    self.skipTest(f"{tool[0]} is not on this machine")
                if tool[0] == "gdb":
                    words = (*tool[:3], "-iex", "set debuginfod enabled off", "-ex", f"set environment LD_PRELOAD {OBJECT}", *tool[3:])
                    self.assertIn(TAME, self.run_it(self.plain, tool=words))
                else:
                    start = ("env", f"LD_PRELOAD={OBJECT}") if tool[0] == "strace" else ()
                    preload = () if start else (OBJECT,)
                    self.assertEqual(self.run_it(self.plain, *preload, tool=(*tool, *start)), TAME)


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
