#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/plans reads of cistern plan, and its random tables."""

import importlib.machinery
import importlib.util
import io
import os
import pathlib
import sys
import unittest

import replay

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", replay.ROOT / "build" / "release")).resolve()
SANITIZED = "-fsanitize" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")


def load():
    loader = importlib.machinery.SourceFileLoader("plans", str(HERE / "plans"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("plans", loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True  # the program would leave its bytecode beside itself
plans = load()


class Tables(unittest.TestCase):
    def test_about_so_many_of_a_random_table_live_at_a_time(self):
        out = io.StringIO()
        plans.random_table(2000, 100, out)
        rows = [tuple(map(int, line.split(","))) for line in out.getvalue().splitlines()[1:]]
        self.assertEqual(len(rows), 2000)
        live = sum(begin <= 2000 < end for _, begin, end, _ in rows)
        self.assertTrue(70 < live < 130, live)
        self.assertTrue(all(512 <= size < 64 << 20 for *_, size in rows))


@unittest.skipIf(SANITIZED, "a sanitizer's runtime would have to be preloaded first")
class Planner(unittest.TestCase):
    def test_the_training_run_is_planned_at_its_lower_bound(self):
        case = plans.CASES[plans.TRAINING]
        text, took, _ = plans.run(BUILD, plans.make(BUILD), plans.RECORDED, case.seconds)
        seen = plans.read(text)
        self.assertEqual((seen["requests"], seen["bytes"]), (2162, seen["lower_bound"]))
        self.assertTrue(plans.reached(case, seen))
        self.assertGreater(took, 0)


if __name__ == "__main__":
    unittest.main()
