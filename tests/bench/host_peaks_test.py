#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/host_peaks.py works out, and a run of it on the built tree without the rest between its figures."""

import os
import pathlib
import sys
import unittest

import host_memory
import host_peaks
from host_memory import GLIBC, JEMALLOC, OURS

sys.path.append(str(host_memory.ROOT / "tests"))
from hangs import HANGS_S  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", host_memory.ROOT / "build" / "release")).resolve()


def values(c_library, theirs, ours, left=0):
    return {GLIBC: host_peaks.Held(c_library, 1, 0, 1), JEMALLOC: host_peaks.Held(theirs, 1, 0, 1),
            OURS: host_peaks.Held(ours, left + 10, 10, 1)}


class WorkedOut(unittest.TestCase):
    def test_the_goal_of_a_peak_is_jemallocs_or_the_c_librarys(self):
        self.assertAlmostEqual(host_peaks.peak_goal(values(1000, 1800, 1)), 1300)
        self.assertAlmostEqual(host_peaks.peak_goal(values(1000, 1010, 1)), 1111)
        self.assertAlmostEqual(host_peaks.peak_goal(values(1000, 500, 1)), 550)

    def test_what_is_left_is_what_is_above_the_live(self):
        peak, left = host_peaks.rows({"growth": values(1000, 1000, 1050, left=70)})
        self.assertEqual(peak[1:], (1050, "MiB", 1100))
        self.assertEqual(left[1:], (70, "MiB", 64))
        self.assertRegex(host_peaks.table({"growth": values(1000, 1000, 1050, left=70)}), "NOT REACHED$")
        self.assertRegex(host_peaks.table({"growth": values(1000, 1000, 1050, left=60)}), "ok$")


@unittest.skipIf(host_memory.reason_not_to(BUILD), host_memory.reason_not_to(BUILD) or "")
class Run(unittest.TestCase):
    """Memory does not depend on the machine's speed: the goals hold here, too, without any rest."""

    def test_programs_hold_no_more_than_the_goals(self):
        figures = host_peaks.measure(BUILD, 0, ("blocks", "growth", "purged"), only=(GLIBC, JEMALLOC, OURS), most_s=HANGS_S)
        for name, measured, unit, goal in host_peaks.rows(figures):
            with self.subTest(name):
                self.assertGreater(measured, 0)
                self.assertLessEqual(measured, goal, unit)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
