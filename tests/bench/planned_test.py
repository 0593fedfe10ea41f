#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A quick run of tests/bench/planned.py on the built tree: the plan that it writes is followed to the last pair."""

import os
import pathlib
import unittest

import planned

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
SANITIZED = "-fsanitize" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")


@unittest.skipIf(SANITIZED, "a sanitizer's runtime would have to be preloaded first")
class QuickRun(unittest.TestCase):
    def test_each_pair_is_served_at_its_place(self):
        rows = list(planned.rows(BUILD, planned.QUICK))
        self.assertEqual(len(rows), len(planned.QUICK.work_us) * len(planned.PLACES) * 3)
        for figure, value, unit, _ in rows:
            if unit == "ns":
                self.assertGreater(value, 0, figure)
            else:
                self.assertEqual(value, 0, figure)


if __name__ == "__main__":
    unittest.main()
