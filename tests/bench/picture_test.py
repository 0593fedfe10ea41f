#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's picture is what tests/bench/picture draws of the newest results from a GPU."""

import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class Picture(unittest.TestCase):
    def test_it_shows_the_newest_results(self):
        results = sorted((HERE.parent / "gpu" / "results").glob("*.json"), key=lambda path: path.stem[-len("2026-01-01"):])
        drawn = subprocess.run([sys.executable, HERE / "picture", results[-1]], check=True, capture_output=True, text=True).stdout
        self.assertEqual(drawn, (HERE / "pairs.svg").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
