#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed header: programs in C and C++ that mark their phases, with and without Cistern."""

import pathlib
import re
import subprocess
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "life"))
import life  # noqa: E402

PROGRAM = """
#include "cistern.h"
#include <pthread.h>
#include <stddef.h>
static void* thread(void* name) {
  cistern_graph_begin((const char*)name);
  cistern_graph_end();
  cistern_graph_end();
  cistern_graph_begin("dies inside");
  return NULL;
}
int main(void) {
  pthread_t other;
  char name[] = "thread";
  cistern_graph_end();
  cistern_graph_begin("outer");
  cistern_graph_begin(NULL);
  if (pthread_create(&other, NULL, thread, name) != 0) return 1;
  pthread_join(other, NULL);
  cistern_graph_end();
  cistern_graph_end();
  return 0;
}
"""
EXPECTED = ["+outer", "+", "+thread", "-thread", "+dies inside", "-dies inside", "-", "-outer"]
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", f"-I{life.ROOT}/shim/nvtx")


class Markers(life.Life):
    def build(self, compiler, *options):
        source = self.folder / ("program.c" if compiler == "cc" else "program.cc")
        source.write_text(PROGRAM, encoding="utf-8")
        program = self.folder / "program"
        subprocess.run((compiler, *options, *STRICT, source, "-o", program), check=True)
        return program

    def phases(self, program, **more):
        process = self.start((program,), True, CISTERN_GRAPH_RANGE="step*", **more)
        self.assertEqual(self.finish(process), (0, "", ""))
        log = "".join(path.read_text(encoding="utf-8") for path in process.folder.glob("log.*"))
        return [("+" if kind == "began" else "-") + name
                for kind, name in re.findall(r"phase \d+ (began|ended): (.*)", log)]

    def check(self, compiler, *options):
        program = self.build(compiler, *options)
        self.assertEqual(self.finish(self.start((program,), False)), (0, "", ""))
        self.assertEqual(self.phases(program), EXPECTED)

    def test_c(self):
        self.check("cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-fPIE", "-pie")
        self.check("cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O2", "-fPIE", "-pie")

    def test_cpp(self):
        self.check("c++", "-std=c++11", "-O2", "-fPIE", "-pie")

    def test_at_a_fixed_address(self):
        self.check("cc", "-O2", "-fPIE", "-no-pie")

    def test_with_the_object_that_serves_malloc(self):
        self.preloaded = "libcistern.so"
        self.assertEqual(self.phases(self.build("cc", "-O2")), EXPECTED)

    def test_python(self):
        program = self.folder / "program.py"
        program.write_text(
            "import ctypes\ncistern = ctypes.CDLL(None)\n"
            "cistern.cistern_graph_begin(b'step')\ncistern.cistern_graph_end()\n", encoding="utf-8")
        process = self.start((sys.executable, program), True, CISTERN_GRAPH_RANGE="step*")
        self.assertEqual(self.finish(process), (0, "", ""))
        log = (process.folder / f"log.{process.pid}").read_text(encoding="utf-8")
        self.assertIn("phase 2 began: step\n", log)

    def test_without_a_use_for_phases_they_do_nothing(self):
        program = self.build("cc")
        process = self.start((program,), True)
        self.assertEqual(self.finish(process), (0, "", ""))
        log = (process.folder / f"log.{process.pid}").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len(log), 1)
        self.assertIn("it used no CUDA", log[0])


if __name__ == "__main__":
    life.main()
