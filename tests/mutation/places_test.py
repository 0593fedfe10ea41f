#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which function, tests and object files a one-line change has to do with, and whether it compiles."""

import collections
import json
import pathlib
import tempfile
import types
import unittest

import places
import reach

HEADER = """\
#pragma once
inline constexpr int kLimit = 3;
inline int twice(int x) {
  return x +
         x;
}
constexpr int thrice(int x) { return 3 * x; }
"""
SOURCE = '#include "allocator/twice.h"\n\nint of_three() {\n  return twice(3);\n}\n'
OBJECT = "CMakeFiles/cistern_allocator.dir/allocator/of_three.cc.o"
Drawn = collections.namedtuple("Drawn", "path line text")


class OfAChange(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        home = pathlib.Path(scratch.name).resolve()
        folder, build = home / "tree", home / "tree/build"
        for name in (*places.COPIED, "build"):
            (folder / name).mkdir(parents=True)
        (folder / "allocator/twice.h").write_text(HEADER, encoding="utf-8")
        (folder / "allocator/of_three.cc").write_text(SOURCE, encoding="utf-8")
        (build / "compile_commands.json").write_text(json.dumps([{
            "directory": str(build), "file": f"{folder}/allocator/of_three.cc",
            "command": f"c++ -I{folder} -std=c++20 -o {OBJECT} -c {folder}/allocator/of_three.cc"}]), encoding="utf-8")
        files = ("allocator/twice.h", "allocator/of_three.cc")
        known = {"files": {name: reach.state_of(folder / name) for name in files},
                 "tests": ["first", "second"], "objects": [OBJECT], "compiled": {"allocator/twice.h": {4: [0]}},
                 "lines": {"allocator/twice.h": {4: "2"}}}
        (home / "reach.json").write_text(json.dumps(known), encoding="utf-8")
        self.tree = types.SimpleNamespace(home=home, folder=folder, build_folder=build)
        self.measured = reach.Reach(home / "reach.json")
        self.places = places.Places(self.tree, self.measured)

    def test_a_line_is_of_the_function_around_it(self):
        self.assertEqual("twice", self.places.function(Drawn("allocator/twice.h", 5, "")).name)
        self.assertIsNone(self.places.function(Drawn("allocator/twice.h", 1, "")))

    def test_a_line_without_code_of_its_own_has_its_function_s_tests_and_objects(self):
        change = Drawn("allocator/twice.h", 5, "         0;\n")
        tests = [types.SimpleNamespace(name=name) for name in ("first", "second")]
        self.assertEqual(["second"], [test.name for test in self.places.tests(change, tests)])
        self.assertEqual([OBJECT], self.places.objects(change))

    def test_a_source_that_was_not_measured_may_have_the_header_s_line(self):
        (self.tree.folder / "allocator/of_three.cc").write_text(SOURCE + "// changed\n", encoding="utf-8")
        self.measured.compiled["allocator/twice.h"][4] = [1]
        self.measured.objects.append("other.o")
        again = places.Places(self.tree, self.measured)
        self.assertEqual([OBJECT, "other.o"], again.objects(Drawn("allocator/twice.h", 5, "         0;\n")))

    def test_a_source_may_be_compiled_for_more_than_was_measured(self):
        self.measured.compiled["allocator/of_three.cc"] = {4: [1]}
        self.measured.objects[:] = ["other.o", "measured.o"]
        again = places.Places(self.tree, self.measured)
        self.assertEqual([OBJECT, "measured.o"], again.objects(Drawn("allocator/of_three.cc", 4, "  return 4;\n")))
        self.measured.compiled["allocator/of_three.cc"] = {}
        self.assertEqual([], again.objects(Drawn("allocator/of_three.cc", 4, "  return 4;\n")))

    def test_of_code_that_runs_while_compiling_the_build_finds_the_objects(self):
        for line in (1, 2, 7):
            self.assertEqual([], self.places.objects(Drawn("allocator/twice.h", line, "")))

    def test_what_compiles_is_told_of_sources_and_headers(self):
        for path, line, good, bad in (("allocator/of_three.cc", 4, "  return twice(4);\n", "  return twice(4;\n"),
                                      ("allocator/twice.h", 4, "  return x -\n", "  return x x\n")):
            self.assertTrue(self.places.compiles(Drawn(path, line, good)))
            self.assertFalse(self.places.compiles(Drawn(path, line, bad)))

    def test_where_no_object_is_known_the_build_will_tell(self):
        self.assertTrue(self.places.compiles(Drawn("allocator/twice.h", 1, "nonsense\n")))

    def test_only_what_is_not_known_is_compiled_ahead_and_the_order_stays(self):
        bad, good = Drawn("allocator/of_three.cc", 4, "(\n"), Drawn("allocator/of_three.cc", 4, "  return 4;\n")
        store = types.SimpleNamespace(verdict=lambda one: "SURVIVED" if one.line == 1 else None)
        wanted = [(bad, "no bug: does not compile"), (good, None), (Drawn("allocator/twice.h", 1, "(\n"), "SURVIVED")]
        for length in (len(wanted), 2 * places.AHEAD):
            drawn = [one for one, _ in wanted * length][:length]
            self.assertEqual((wanted * length)[:length], list(places.checked_ahead(drawn, self.places, store)))


if __name__ == "__main__":
    unittest.main()
