#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which lines a run reaches, read from a small program, and which tests and object files that leaves for a mutant."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import catalogue
import packages
import reach

HERE = pathlib.Path(__file__).resolve().parent
HEADER = """\
inline int twice(int x) {
  if (x > 3) {
    return 2 * x;
  }
  return x + x;
}
inline int unused(int x) { return x; }
"""
SOURCE = """\
#include "allocator/twice.h"

int never(int x) {
  return x + 1;
}

int main(int argc, char**) {
  return twice(argc) > 4 ? argc
                         : never(
                             argc);
}
"""


class OfAProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.root = pathlib.Path(cls.scratch.name).resolve()
        (cls.root / "allocator").mkdir()
        (cls.root / "allocator/twice.h").write_text(HEADER, encoding="utf-8")
        (cls.root / "allocator/main.cc").write_text(SOURCE, encoding="utf-8")
        cls.program, made = cls.root / "program", cls.root / "CMakeFiles/unit_tests.dir/main.cc.o"
        made.parent.mkdir(parents=True)
        cls.run_there("cc", "-O1", "-fPIC", "-c", str(HERE / "reached.c"), "-o", "reached.o")
        cls.run_there("c++", "-O0", "-g1", "-fsanitize-coverage=trace-pc", f"-I{cls.root}", "-c",
                      str(cls.root / "allocator/main.cc"), "-o", str(made))
        cls.run_there("c++", str(made), "reached.o", "-o", "program")

    @classmethod
    def run_there(cls, *command):
        subprocess.run(command, check=True, cwd=cls.root)

    def reached(self, *arguments):
        module = reach.Module(self.program, self.root)
        with tempfile.TemporaryDirectory(dir=self.root) as notes:
            module.make_notes(pathlib.Path(notes))
            subprocess.run([self.program, *arguments], check=False, env={**os.environ, "REACH_MAPS": notes})
            return module.reached(pathlib.Path(notes))

    def test_lines_that_ran_are_told(self):
        few = self.reached()
        self.assertLessEqual({("allocator/twice.h", 2), ("allocator/twice.h", 5), ("allocator/main.cc", 4),
                              ("allocator/main.cc", 9)}, few)
        self.assertNotIn(("allocator/twice.h", 3), few)
        many = self.reached("2", "3", "4")
        self.assertIn(("allocator/twice.h", 3), many)
        self.assertFalse({("allocator/twice.h", 5), ("allocator/main.cc", 4), ("allocator/main.cc", 9)} & many)

    def test_a_process_that_is_told_no_folder_notes_nothing(self):
        subprocess.run([self.program], check=False, env={})
        subprocess.run([self.program], check=False, env={"REACH_MAPS": str(self.root / "none")})
        self.assertFalse((self.root / "none").exists())

    def test_an_object_file_has_the_lines_that_it_is_compiled_from(self):
        objects, compiled = reach.lines_of_objects(self.root, self.root)
        self.assertEqual(["CMakeFiles/unit_tests.dir/main.cc.o"], objects)
        self.assertEqual([0], compiled["allocator/twice.h"][3])
        self.assertNotIn(7, compiled["allocator/twice.h"])  # nobody calls it


class WhatIsKnown(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        (self.root / "a.cc").write_text("1\n2\n", encoding="utf-8")
        known = {"files": {"a.cc": reach.state_of(self.root / "a.cc")}, "tests": ["first", "second"],
                 "objects": ["a.o", "b.o"], "lines": {"a.cc": {1: "2", 2: "0"}}, "compiled": {"a.cc": {1: [1]}}}
        (self.root / "reach.json").write_text(json.dumps(known), encoding="utf-8")
        self.reach = reach.Reach(self.root / "reach.json")

    def names(self, path, *lines):
        tests = [types.SimpleNamespace(name=name) for name in ("first", "second", "new")]
        return [test.name for test in self.reach.tests_of(self.root, path, lines, tests)]

    def test_only_tests_that_reach_a_line_are_left(self):
        self.assertNotIn("first", self.names("a.cc", 1))
        self.assertIn("second", self.names("a.cc", 1))

    def test_a_test_that_is_not_known_reaches_everything(self):
        self.assertEqual(["second", "new"], self.names("a.cc", 1))
        self.assertEqual(["new"], self.names("a.cc", 2))

    def test_nothing_is_left_out_where_a_line_or_a_file_is_not_known(self):
        everything = ["first", "second", "new"]
        self.assertEqual(everything, self.names("a.cc", 3))
        self.assertEqual(everything, self.names("b.cc", 1))
        self.assertEqual(["b.o"], self.reach.objects_of(self.root, "a.cc", [1]))
        (self.root / "a.cc").write_text("1\n3\n", encoding="utf-8")
        self.assertEqual(everything, self.names("a.cc", 1))
        self.assertEqual([], self.reach.objects_of(self.root, "a.cc", [1]))


if __name__ == "__main__":
    try:
        packages.make_importable(catalogue.ROOT / "build/mutants")
    except packages.Missing as why:
        print(f"skipped: a package is not to be had: {why}")
        sys.exit(77)
    unittest.main()
