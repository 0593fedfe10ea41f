#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/programs.py works out, and a quick run of it on the built tree."""

import os
import pathlib
import unittest

import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
SANITIZED = "-fsanitize" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")


class WorkedOut(unittest.TestCase):
    def test_what_a_run_takes_beyond_so_many_of_the_driver_alone(self):
        took = programs.Took(time=3, processor_time=1), programs.Took(time=5, processor_time=4)
        for clock, factor, seconds in (("time", 1.5, 0.5), ("processor time", 2, 2), ("time", 4, -7)):
            self.assertEqual(programs.beyond(*took, programs.Ceiling("", "", clock, factor, 0)), seconds)

    def test_the_least_of_each_clock_counts(self):
        self.assertEqual(programs.least([programs.Took(3, 2), programs.Took(4, 1)]), programs.Took(3, 1))

    def test_the_quarters_of_updated_graphs_are_compared(self):
        said = "processor time of the first quarter 0.500 s, of the last 1.250 s\n"
        self.assertEqual(programs.last_by_first(said), 2.5)

    def test_all_that_is_measured_is_a_test(self):
        reader = programs.expectations.Reader({"programs": "", "source": "", "data": "", "seed": "1"})
        for name in {ceiling.test for ceiling in programs.CEILINGS} | set(programs.UPDATED_GRAPHS):
            self.assertEqual(list(reader.tests(name)), [name])


@unittest.skipIf(SANITIZED, "what a sanitizer takes says nothing")
class QuickRun(unittest.TestCase):
    """The figures depend on the machine: only that they are there is judged."""

    def test_each_has_its_figure_and_goal(self):
        chosen = [c for c in programs.CEILINGS if c.test in ("life/slow_open.naps", "in_flight/calm.old_driver")]
        figures = list(programs.rows(BUILD, chosen, programs.UPDATED_GRAPHS[3:], runs=1))
        self.assertEqual([(unit, goal) for _, _, unit, goal in figures],
                         [("s", 0.5), ("s", 0.5), ("s", 5), ("s", 0.3), ("", 4)])


if __name__ == "__main__":
    unittest.main()
