#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pools that tests/bench/fragmenting preloads keep the program's data and take what their rules say."""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys
import tempfile
import unittest

from replay import MIB

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", HERE.parents[1] / "build" / "release")).resolve()
SANITIZED = "-fsanitize" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")


def load():
    loader = importlib.machinery.SourceFileLoader("fragmenting", str(HERE / "fragmenting"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fragmenting", loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True  # the program would leave its bytecode beside itself
fragmenting = load()


@unittest.skipIf(SANITIZED, "a sanitizer's runtime would have to be preloaded first")
class OtherPools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (BUILD / "fragmenting").mkdir(exist_ok=True)
        fragmenting.make(BUILD, BUILD / "fragmenting")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_data_stays_whole_and_memory_comes_in_the_pool_s_steps(self):
        for name, kernels_us in (("train", 0), ("serve", 20)):
            loop = fragmenting.Loop(BUILD, name, kernels_us, self.folder)
            for way, step in (("caching, as PyTorch's", 2 * MIB), ("cudaMallocAsync", 32 * MIB)):
                with self.subTest(loop=name, way=way):
                    taken, live = loop.reserved(way)
                    self.assertGreaterEqual(taken, live)
                    self.assertEqual(taken % step, 0)
                    self.assertEqual(loop.run(way, fragmenting.LARGE_MB).stdout, "damaged words 0\n")

    def test_a_card_without_room_ends_the_loop(self):
        loop = fragmenting.Loop(BUILD, "train", 0, self.folder)
        for way in fragmenting.OTHERS:
            with self.subTest(way=way):
                self.assertFalse(loop.completes(way, 64))


if __name__ == "__main__":
    unittest.main()
