#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How instruction counts are judged against recorded ones; counts nothing itself."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import instructions


class Judged(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "baseline.json"
        instructions.record({"a pair": 200.0}, "GNU 12, x86_64", self.path)

    def judge(self, measured, compiler="GNU 12, x86_64"):
        rows = instructions.compare(measured, compiler, self.path)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            passed = instructions.show(rows)
        return rows[0][3], passed, text.getvalue()

    def test_as_many_as_recorded_pass(self):
        verdict, passed, text = self.judge({"a pair": 200.0})
        self.assertEqual((verdict, passed), ("ok", True))
        self.assertNotIn("error", text)

    def test_up_to_five_percent_more_pass(self):
        self.assertEqual(self.judge({"a pair": 209.9})[:2], ("ok", True))

    def test_more_than_five_percent_more_fail_and_say_how_to_record(self):
        verdict, passed, text = self.judge({"a pair": 211.0})
        self.assertEqual((verdict, passed), ("WORSE", False))
        self.assertIn("+5.5 %", text)
        self.assertIn("tests/bench/run BUILD --record", text.splitlines()[-1])

    def test_far_fewer_pass(self):
        self.assertEqual(self.judge({"a pair": 100.0})[:2], ("ok", True))

    def test_counts_of_another_compiler_are_shown_and_not_judged(self):
        verdict, passed, text = self.judge({"a pair": 400.0}, "GNU 14, x86_64")
        self.assertEqual((verdict, passed),
                         ("not judged: recorded with GNU 12, x86_64", True))
        self.assertIn("+100.0 %", text)

    def test_a_figure_never_recorded_is_shown_and_not_judged(self):
        self.assertEqual(self.judge({"a new figure": 1e9})[:2], ("not recorded", True))

    def test_a_plan_that_costs_more_than_the_pool_fails_with_any_compiler(self):
        for figure, (pool, times) in instructions.AT_MOST.items():
            for measured, passes in ((200.0 * times, True), (200.0 * times + 0.1, False)):
                with self.subTest(figure=figure, measured=measured):
                    rows = instructions.compare({pool: 200.0, figure: measured}, "GNU 14, x86_64", self.path)
                    with contextlib.redirect_stdout(io.StringIO()):
                        self.assertEqual(instructions.show(rows), passes)

    def test_the_recorded_figures_are_the_ones_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = pathlib.Path(folder) / "empty.json"
            instructions.record({}, "", empty)
            figures = dict.fromkeys([*instructions.POOL_FIGURES, *instructions.CALLS_FIGURES,
                                     *instructions.PLANNED_FIGURES], 1.0)
            missing = [row[0] for row in instructions.compare(figures, "") if row[2] is None]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
