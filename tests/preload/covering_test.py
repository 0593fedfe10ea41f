#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random programs' covering table: the file is what covering.py writes, and its `happens` lines say
by themselves that every two features meet in some case."""

import itertools
import unittest

import covering
import expectations
import happenings

NAME = "random/random_pairs"


class Covering(unittest.TestCase):
    def setUp(self):
        self.path = expectations.FOLDER / f"{NAME}.expect"
        words = {"programs": "P", "source": "S", "data": "D", "seed": "1"}
        self.rows = [sum(test.happens, []) for test in expectations.Reader(words).tests(NAME).values()]

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
        self.assertEqual(set(happenings.HAPPENINGS), {*covering.STRATEGIES, *covering.FEATURES})


if __name__ == "__main__":
    unittest.main()
