#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/host_memory.py works out, and a quick run of it on the built tree."""

import os
import pathlib
import sys
import unittest

import host_memory

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", host_memory.ROOT / "build" / "release")).resolve()
GLIBC, JEMALLOC, OURS = host_memory.GLIBC, host_memory.JEMALLOC, host_memory.OURS
PAIR = next(iter(host_memory.PAIRS))
START = "start of true, least"


class WorkedOut(unittest.TestCase):
    FIGURES = {PAIR: {GLIBC: 30.0, JEMALLOC: 10.0, OURS: 11.0}, START: {GLIBC: 1.0, JEMALLOC: 2.5, OURS: 1.5}}

    def test_pairs_are_compared_with_libjemalloc2_and_starts_with_none_preloaded(self):
        pair, start = host_memory.rows(self.FIGURES)
        self.assertEqual(pair[1:], (1.1, "", 1.02))
        self.assertEqual(start[1:], (0.5, "ms", 0.9))

    def test_the_table_tells_which_goal_is_not_reached(self):
        _, pair, start = host_memory.table(self.FIGURES).splitlines()
        self.assertRegex(pair, r"30.0 \(3.00\).*11.0 \(1.10\).*1.02  NOT REACHED$")
        self.assertRegex(start, r"1.00 \(\+0.00\).*1.50 \(\+0.50\).*\+0.9  ok$")

    def test_a_library_that_is_not_installed_is_not_found(self):
        self.assertIsNone(host_memory.find("libno_such_allocator.so.2"))

    def test_settings_of_the_user_reach_no_run(self):
        os.environ["CISTERN_POOL"] = "off"
        self.addCleanup(os.environ.pop, "CISTERN_POOL")
        self.assertNotIn("CISTERN_POOL", host_memory.environment("object"))


@unittest.skipIf(host_memory.reason_not_to(BUILD), host_memory.reason_not_to(BUILD) or "")
class QuickRun(unittest.TestCase):
    """Times depend on the machine: it is only judged that there are some, of all that is installed."""

    def test_each_figure_is_measured_for_each_allocator(self):
        among, _ = host_memory.allocators(BUILD)
        figures = host_memory.measure(BUILD, host_memory.QUICK)
        self.assertLessEqual(host_memory.PAIRS.keys(), figures.keys())
        for figure, values in figures.items():
            self.assertEqual(values.keys(), among.keys(), figure)
            self.assertGreater(min(values.values()), 0, figure)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
