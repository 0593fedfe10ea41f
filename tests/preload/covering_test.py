#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random programs' covering table: the file is what covering.py writes, and its `happens` lines say
by themselves that every two features meet in some case. What happens in the rows is summed up as it should be."""

import itertools
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import covering
import expectations
import happenings

NAME = "random/random_pairs"


class Covering(unittest.TestCase):
    def setUp(self):
        self.path = expectations.FOLDER / f"{NAME}.expect"
        words = {"programs": "P", "source": "S", "data": "D", "seed": "1"}
        self.rows = [sorted(test.happens) for test in expectations.Reader(words).tests(NAME).values()]

    def test_the_file_is_what_is_written(self):
        self.assertEqual(self.path.read_text(encoding="utf-8"), covering.text())

    def test_every_two_features_meet(self):
        met = {frozenset(pair) for row in self.rows for pair in itertools.combinations(row, 2)}
        features = list(covering.FEATURES)
        wanted = {frozenset(pair) for pair in itertools.combinations(features, 2)}
        wanted |= {frozenset(pair) for pair in itertools.product(covering.STRATEGIES, features)}
        self.assertEqual(wanted - met, set())

    def test_every_feature_is_also_asked_for_without_every_other(self):
        alone = {(one, other) for row in self.rows for one in row
                 for other in covering.FEATURES if other not in row}
        names = [*covering.STRATEGIES, *covering.FEATURES]
        wanted = {(one, other) for one, other in itertools.product(names, covering.FEATURES) if one != other}
        self.assertEqual(wanted - alone, set())

    def test_whatever_is_said_to_happen_is_looked_for(self):
        self.assertEqual(set(happenings.HAPPENINGS), {*covering.STRATEGIES, *covering.FEATURES, "graphs_apart"})


class Sum(unittest.TestCase):
    WANTED = {"one": {"fill", "cap"}, "other": {"cap", "graph"}}

    def test_what_happens_in_one_row_counts_for_all(self):
        self.assertEqual(happenings.sum_up(self.WANTED, {"one": {"fill"}, "other": {"cap", "graph"}}), (set(), set()))

    def test_what_no_row_shows_is_found(self):
        self.assertEqual(happenings.sum_up(self.WANTED, {"one": {"fill"}, "other": {"graph"}}), ({"cap"}, set()))

    def test_rows_that_were_not_run_leave_open_what_they_ask_for(self):
        self.assertEqual(happenings.sum_up(self.WANTED, {"one": set()}), ({"fill"}, {"cap", "graph"}))
        self.assertEqual(happenings.sum_up(self.WANTED, {"one": {"cap"}}), ({"fill"}, {"graph"}))
        self.assertEqual(happenings.sum_up(self.WANTED, {}), (set(), {"fill", "cap", "graph"}))

    def test_notes_of_another_object_or_of_other_wants_do_not_count(self):
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            library = build / "object"
            library.write_text("1")
            notes = happenings.Notes(build, library)
            self.assertIsNone(notes.read("a/b.c", {"fill"}))
            notes.write("a/b.c", {"fill", "cap"}, {"fill"})
            self.assertEqual(notes.read("a/b.c", {"fill", "cap"}), {"fill"})
            self.assertIsNone(notes.read("a/b.c", {"fill"}))
            library.write_text("another")
            self.assertIsNone(happenings.Notes(build, library).read("a/b.c", {"fill", "cap"}))

    def test_runs_of_a_test_add_up_in_a_folder_that_somebody_names(self):
        with tempfile.TemporaryDirectory() as name, unittest.mock.patch.dict(os.environ, HAPPENED_DIR=f"{name}/notes"):
            library = pathlib.Path(name) / "object"
            library.write_text("1")
            notes = happenings.Notes(pathlib.Path(name), library)
            notes.write("a/b.c", {"fill", "cap"}, {"fill"})
            notes.write("a/b.c", {"fill", "cap"}, {"cap"})
            self.assertEqual(notes.read("a/b.c", {"fill", "cap"}), {"fill", "cap"})
            self.assertEqual([path.parent.name for path in pathlib.Path(name).rglob("*.json")], ["notes"])


if __name__ == "__main__":
    unittest.main()
