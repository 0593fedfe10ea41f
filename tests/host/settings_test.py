#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad settings under a bare LD_PRELOAD of libcistern.so: told once by the first program of a tree that uses CUDA or
allocates. BUILD_DIR names the build.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
BAD = {"FLAGS_initial_cpu_memory_in_mb": "many"}

NOTHING = "int main(void) { return 0; }"
THREADS = r"""
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void* work(void* none) { for (int i = 0; i < 1000; ++i) free(malloc(i * 50)); return none; }
int main(void) {
  pthread_t all[8];
  for (int i = 0; i < 8; ++i) pthread_create(&all[i], 0, work, 0);
  for (int i = 0; i < 8; ++i) pthread_join(all[i], 0);
  if (fork() == 0) { work(0); _exit(0); }
  int status = 1;
  wait(&status);
  return status;
}
"""
AFTER_A_FORK = r"""
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  int status = 1;
  if (fork() == 0) { free(malloc(10)); _exit(0); }
  wait(&status);
  return status;
}
"""
STATIC = r"""
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
  int status = 1;
  if (fork() == 0) { execlp("sort", "sort", "/dev/null", (char*)0); _exit(1); }
  wait(&status);
  return status;
}
"""
CUDA = BUILD / "programs" / "starts_lazy"


class Settings(unittest.TestCase):
    def run_one(self, *command, **settings):
        """Its lines on stderr, with Cistern."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("CISTERN_", "FLAGS_", "GE_", "SIMCUDA_", "LD_"))}
        clean |= {"LD_LIBRARY_PATH": f"{BUILD / 'sim'}:{BUILD / 'programs'}", "LD_PRELOAD": str(BUILD / "libcistern.so"),
                  "SIMCUDA_KERNELS": str(BUILD / "sim" / "libtest-kernels.so")}
        done = subprocess.run(command, env=clean | settings, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr.splitlines()

    def compiled(self, source, **settings):
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/program"
            subprocess.run(["cc", "-O0", "-x", "c", "-", "-o", program, "-lpthread"], input=source, text=True, check=True)
            return self.run_one(program, **settings)

    def told(self, lines):
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], '^cistern: error: .*FLAGS_initial_cpu_memory_in_mb.*many')

    def test_a_program_that_allocates_is_told_once_with_its_threads_and_children(self):
        self.told(self.compiled(THREADS, **BAD))

    def test_a_child_that_is_the_first_to_allocate_is_told(self):
        self.told(self.compiled(AFTER_A_FORK, **BAD))

    def test_a_program_that_does_neither_is_not_told(self):
        self.assertEqual(self.compiled(NOTHING, **BAD), [])

    def test_one_with_cuda_is_told_once(self):
        self.told(self.run_one(CUDA, "4", **BAD))

    def test_a_shell_and_all_that_it_starts_say_it_once(self):
        for script in ("sort /dev/null; sort /dev/null", "for i in 1 2 3 4 5 6 7 8 9 10; do sort /dev/null & done; wait",
                       "env sh -c 'sort /dev/null; (sort /dev/null); nice sort /dev/null'", f"{CUDA} 2; {CUDA} 2"):
            self.told(self.run_one("sh", "-c", script, **BAD))

    def test_make_says_it_once(self):
        with tempfile.TemporaryDirectory() as folder:
            rules = "all: 1 2 3 4 5 6 7 8\n1 2 3 4 5 6 7 8:\n\t@sort /dev/null; sh -c 'sort /dev/null'\n"
            (pathlib.Path(folder) / "Makefile").write_text(rules, encoding="utf-8")
            self.told(self.run_one("make", "-s", "-j8", "-C", folder, **BAD))

    def test_a_process_above_with_another_fault_or_none_does_not_say_it(self):
        other = "FLAGS_initial_cpu_memory_in_mb=more"
        lines = self.run_one("sh", "-c", f"{other} sort /dev/null; {other} sort /dev/null", **BAD)
        self.assertEqual([line.partition("value seen ")[2].split(";")[0] for line in lines], ['"many"', '"more"', '"more"'])
        self.told(self.run_one("sh", "-c", "FLAGS_initial_cpu_memory_in_mb=many exec sort /dev/null"))

    def test_a_static_program_above_does_not_say_it(self):
        with tempfile.TemporaryDirectory() as folder:
            program = f"{folder}/program"
            subprocess.run(["cc", "-static", "-x", "c", "-", "-o", program], input=STATIC, text=True, check=True)
            self.told(self.run_one(program, **BAD))

    def test_good_settings_and_none_at_all_say_nothing(self):
        self.assertEqual(self.compiled(THREADS), [])
        self.assertEqual(self.compiled(THREADS, FLAGS_initial_cpu_memory_in_mb="64", FLAGS_use_pinned_memory="false"), [])
        self.assertEqual(self.compiled(THREADS, CISTERN_POOL="off"), [])


if __name__ == "__main__":
    if not (BUILD / "libcistern.so").exists() or (BUILD / "libcistern.so").is_symlink():
        print(f"skipped: {BUILD / 'libcistern.so'} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
