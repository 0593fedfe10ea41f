#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/side_by_side reads and tells, its workloads, and a quick run without the network."""

import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

import replay

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", replay.ROOT / "build" / "release")).resolve()
SANITIZED = "-fsanitize" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
MIB = replay.MIB


def load():
    loader = importlib.machinery.SourceFileLoader("side_by_side", str(HERE / "side_by_side"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("side_by_side", loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True  # the program would leave its bytecode beside itself
side_by_side = load()
Figures = side_by_side.Figures


def row(default, kept=Figures(900, 0, 9.0, 1), **others):
    names = {"torch": "PyTorch's", "arena": "RMM's arena", "ordered": "stream-ordered, 0"}
    figures = {names[key]: value for key, value in others.items()}
    return {side_by_side.BARE: Figures(100, 0, 1.0, 9)} | figures | {"default": default, "idle memory kept": kept}


class Read(unittest.TestCase):
    def test_the_loop_s_line(self):
        said = side_by_side.read("pairs 7 ns 12.5 live 4096 held 8192 ms 3.5 damaged 0\n")
        self.assertEqual(said, (7, 12.5, 4096, 8192, 3.5))

    def test_damaged_memory_ends_it(self):
        with self.assertRaisesRegex(SystemExit, "damaged 1"):
            side_by_side.read("pairs 7 ns 12.5 live 4096 held 0 ms 3.5 damaged 1\n")

    def test_memory_is_told_by_the_trace_but_the_driver_s_pool_by_itself(self):
        said = side_by_side.Said(1, 5.0, 2 * MIB, 6 * MIB, 2.5)
        plain = "cuMemAlloc_v2 dptr=0x200000 bytesize=2097152 -> 0 tid=1 stream=-\n"
        ordered = ("cuMemAllocAsync dptr=0x200000 bytesize=2097152 -> 0 tid=1 stream=legacy\n"
                   "cuMemFreeAsync dptr=0x200000 -> 0 tid=1 stream=legacy\n")
        self.assertEqual(side_by_side.figures(said, plain, "torch"), (5.0, 2.5, 1.0, 1))
        self.assertEqual(side_by_side.figures(said, ordered, "stream_ordered"), (5.0, 2.5, 3.0, 2))


class Told(unittest.TestCase):
    def test_who_is_ahead_in_both(self):
        ours = row(Figures(10, 0, 1.1, 1), torch=Figures(20, 0, 1.2, 3))
        self.assertEqual(side_by_side.verdict(ours), "ahead in both: default")

    def test_each_of_the_two_may_be_led_by_another_policy(self):
        ours = row(Figures(30, 0, 1.1, 1), kept=Figures(10, 0, 1.9, 1), torch=Figures(20, 0, 1.2, 3))
        self.assertEqual(side_by_side.verdict(ours),
                         "none ahead in both; ahead in time: idle memory kept; in memory: default")

    def test_nobody_is_ahead(self):
        ours = row(Figures(30, 0, 1.3, 1), torch=Figures(20, 0, 1.2, 3))
        self.assertEqual(side_by_side.verdict(ours), "none ahead in both; ahead in time: none; in memory: none")

    def test_the_simulator_s_own_time_is_not_compared_but_its_memory_is(self):
        ours = row(Figures(10, 0, 1.1, 1), torch=Figures(20, 0, 1.2, 3), ordered=Figures(1, 0, 1.0, 3))
        self.assertEqual(side_by_side.verdict(ours), "none ahead in both; ahead in time: default; in memory: none")

    def test_an_arena_that_was_told_its_size_is_named_apart(self):
        ours = row(Figures(10, 0, 1.1, 1), torch=Figures(20, 0, 1.2, 3), arena=Figures(5, 0, 1.0, 1))
        self.assertEqual(side_by_side.verdict(ours), "ahead in both: default; not of RMM's arena in time and memory")

    def test_a_table_has_a_line_for_each_and_marks_the_simulator_s_time(self):
        lines = list(side_by_side.table("a run", "idle", row(Figures(10, 0, 1.1, 1), ordered=Figures(7, 0, 1, 2))))
        self.assertEqual(lines[0], "a run, idle")
        self.assertEqual(len(lines), 2 + 4 + 1)
        self.assertRegex(lines[3], r"^stream-ordered, 0 +7\* +0\.0 +1\.000 +2$")


class Workloads(unittest.TestCase):
    def test_sizes_and_live_bytes_stay_in_their_bounds(self):
        for title, least, most, bound in (("up to 64 KiB", 512, 64 << 10, 64 * MIB),
                                          ("4 to 64 MiB", 4 * MIB, 64 * MIB, 4096 * MIB)):
            live, sizes = 0, []
            for line in side_by_side.workloads(False)[title]:
                _, op, _, size, _ = line.split(",")
                live += int(size) if op == "alloc" else -int(size)
                sizes.append(int(size))
                self.assertLessEqual(live, bound)
            self.assertTrue(least <= min(sizes) and max(sizes) <= most)

    def test_the_last_allocated_is_freed_first(self):
        lines = list(side_by_side.last_freed_first(pairs=2, live=1, size=4))
        self.assertEqual(lines, ["0,alloc,0,4,0", "0,alloc,1,4,0", "0,free,1,4,0", "0,alloc,2,4,0", "0,free,2,4,0"])


@unittest.skipIf(SANITIZED, "measures an optimised build")
class Runs(unittest.TestCase):
    def test_what_needs_no_package(self):
        done = subprocess.run([HERE / "side_by_side", BUILD, "--quick", "--only", "stream-ordered, max;default"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"^default +\d+ +\d+\.\d +\d+\.\d{3} +\d+$", done.stdout, re.M)),
                         len(side_by_side.workloads(True)) * len(side_by_side.STATES))
        self.assertIn("nothing to compare", done.stdout)

    def test_a_name_that_is_none(self):
        done = subprocess.run([HERE / "side_by_side", BUILD, "--only", "other"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--only other", done.stderr)


if __name__ == "__main__":
    unittest.main()
