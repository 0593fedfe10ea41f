#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/policies counts, its workload, and a quick run of it on the built tree."""

import importlib.machinery
import importlib.util
import math
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


def load_policies():
    loader = importlib.machinery.SourceFileLoader("policies", str(HERE / "policies"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("policies", loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True  # the program would leave its bytecode beside itself
policies = load_policies()


def alloc(address, size, code=0):
    return f"cuMemAlloc_v2 dptr={address:#x} bytesize={size} -> {code} tid=1 stream=-\n"


def free(address, symbol="cuMemFree_v2", code=0):
    return f"{symbol} dptr={address:#x} -> {code} tid=1 stream=-\n"


def unit(symbol, handle, code=0):
    return f"{symbol} handle={handle}{f' size={2 * MIB}' if symbol == 'cuMemCreate' else ''} -> {code} tid=1 stream=-\n"


class Seen(unittest.TestCase):
    """Read from the trace of the simulated driver."""

    def test_pages_are_counted_once_however_many_blocks_share_them(self):
        page = 10 * replay.PAGE
        trace = alloc(page, 512) + alloc(page + 512, 512) + alloc(page + 1024, 512) + free(page)
        self.assertEqual(replay.from_trace(trace), (4, 3 * 512, replay.PAGE, 0))

    def test_a_page_is_taken_until_its_last_block_is_freed(self):
        page = 10 * replay.PAGE
        trace = alloc(page, 512) + alloc(page + 512, 512) + free(page)
        self.assertEqual(replay.from_trace(trace + alloc(0, 512)).taken_peak, 2 * replay.PAGE)
        self.assertEqual(replay.from_trace(trace + free(page + 512) + alloc(0, 512)).taken_peak, replay.PAGE)

    def test_a_block_that_ends_at_a_page_does_not_take_the_next(self):
        self.assertEqual(replay.from_trace(alloc(replay.PAGE, replay.PAGE)).taken_peak, replay.PAGE)

    def test_frees_in_stream_order_count(self):
        trace = alloc(replay.PAGE, 512) + free(replay.PAGE, "cuMemFreeAsync") + alloc(2 * replay.PAGE, 100)
        self.assertEqual(replay.from_trace(trace), (3, 512, replay.PAGE, 0))

    def test_refused_calls_count_as_calls_only(self):
        trace = alloc(replay.PAGE, 512) + alloc(0, 1 << 40, 2) + free(replay.PAGE, code=700)
        self.assertEqual(replay.from_trace(trace), (3, 512, replay.PAGE, 0))

    def test_a_unit_is_taken_from_its_creation_to_its_release_wherever_it_is_mapped(self):
        address = f"{10 * replay.PAGE:#x}"
        trace = (f"cuMemAddressReserve ptr={address} size={1 << 30} alignment=0 addr=0x0 -> 0 tid=1 stream=-\n"
                 + unit("cuMemCreate", 7) + unit("cuMemCreate", 8)
                 + f"cuMemMap ptr={address} size={2 * MIB} offset=0 handle=7 -> 0 tid=1 stream=-\n"
                 + f"cuMemSetAccess ptr={address} size={2 * MIB} count=1 -> 0 tid=1 stream=-\n"
                 + f"cuMemUnmap ptr={address} size={2 * MIB} -> 0 tid=1 stream=-\n")
        self.assertEqual(replay.from_trace(trace), (6, 4 * MIB, 2 * replay.PAGE, 0))
        trace += unit("cuMemRelease", 7) + unit("cuMemCreate", 9) + unit("cuMemCreate", 0, 2)
        self.assertEqual(replay.from_trace(trace), (9, 4 * MIB, 2 * replay.PAGE, 0))
        trace += alloc(20 * replay.PAGE, 512)
        self.assertEqual(replay.from_trace(trace), (10, 4 * MIB + 512, 3 * replay.PAGE, 0))

    def test_events_are_counted_and_other_calls_are_not(self):
        trace = ("cuCtxRecordEvent hCtx=0x1 hEvent=0x2 -> 0 tid=1 stream=-\n"
                 "cuEventRecord hEvent=0x2 -> 0 tid=1 stream=-\n"
                 "cuEventQuery hEvent=0x2 -> 0 tid=1 stream=-\n"
                 "cuMemAllocManaged dptr=0x200000 bytesize=100 -> 0 tid=1 stream=-\n")
        self.assertEqual(replay.from_trace(trace), (0, 0, 0, 2))


class ChangingSizes(unittest.TestCase):
    BOUND = 256 * MIB

    def setUp(self):
        lines = (line.split(",") for line in policies.changing_sizes(2000, self.BOUND))
        self.events = [(op, int(block), int(size)) for _, op, block, size, _ in lines]

    def test_the_live_bytes_come_near_the_bound_and_stay_below(self):
        live, peak = {}, 0
        for op, block, size in self.events:
            if op == "alloc":
                self.assertNotIn(block, live)
                live[block] = size
            else:
                self.assertEqual(live.pop(block), size)
            peak = max(peak, sum(live.values()))
        self.assertLessEqual(peak, self.BOUND)
        self.assertGreater(peak, 0.95 * self.BOUND)

    def test_each_doubling_has_a_quarter_of_the_sizes(self):
        sizes = [size for op, _, size in self.events if op == "alloc"]
        self.assertEqual(len(sizes), 2000)
        for exponent in range(4):
            count = sum(math.log2(size / MIB) // 1 == exponent for size in sizes)
            self.assertAlmostEqual(count / len(sizes), 0.25, delta=0.03)

    def test_it_is_the_same_each_time(self):
        self.assertEqual(list(policies.changing_sizes(50)), list(policies.changing_sizes(50)))
        self.assertNotEqual(list(policies.changing_sizes(50)), list(policies.changing_sizes(50, seed=2)))


class Failures(unittest.TestCase):
    def test_different_results_are_an_error(self):
        results = iter(f"checksum {n}" for n in range(100))
        seen = replay.Seen(1, 1, 1, 1)
        policies.replay = lambda *_: replay.Replay(next(results), 1, 1, 1, 1.0, 1.0, seen)
        self.addCleanup(setattr, policies, "replay", replay.replay)
        with self.assertRaisesRegex(SystemExit, "results differ"):
            policies.measure(BUILD, "events", policies.POLICIES, 1)

    @unittest.skipIf(SANITIZED, "a sanitizer's runtime would have to be preloaded first")
    def test_a_run_that_fails_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "there is no such file|no events"):
            replay.replay(BUILD, ("--sim",), replay.simulated(BUILD), "/nowhere/at/all")


@unittest.skipIf(SANITIZED, "a sanitizer's runtime would have to be preloaded first")
class QuickRun(unittest.TestCase):
    """On an idle device counts and bytes are the same on any machine."""

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([HERE / "policies", BUILD, "--quick", "--runs", "1"], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.text = done.stdout
        cls.tables = [cls.read(table) for table in re.split(r"^.* reserved +taken .*\n", done.stdout, flags=re.M)[1:]]

    @staticmethod
    def read(table):
        """{policy: [reserved, taken, calls, left, events, ms]}"""
        lines = table.split("\n\n")[0].splitlines()
        return {line[:30].strip(): [float(word.rstrip("%")) for word in line[30:].split()] for line in lines}

    def test_each_workload_is_played_on_an_idle_and_on_a_busy_device_under_each_policy(self):
        self.assertEqual(len(self.tables), 4)
        for table in self.tables:
            self.assertEqual(list(table), [*policies.POLICIES, policies.CAPPED])

    def test_without_cistern_each_call_is_the_drivers(self):
        for table, title in zip(self.tables[::2], ("A PyTorch training run", "Many changing sizes, 1 to 16 MiB")):
            allocations = int(re.search(rf"{re.escape(title)}: (\d+) allocations", self.text)[1])
            reserved, _, calls, left, events, _ = table[policies.BARE]
            self.assertEqual((reserved, calls, left, events), (1.0, 2 * (allocations + 1), 100.0, 0))

    def test_each_policy_does_what_it_is_for(self):
        trace, changing = self.tables[0], self.tables[2]
        reserved, taken, calls = range(3)
        live = [int(mib) for mib in re.findall(r"allocations, (\d+) MiB live at its peak", self.text)]
        for table, live_mib in zip((trace, changing), live, strict=True):
            bare, default = table[policies.BARE], table["default"]
            self.assertLess(default[calls], bare[calls])
            self.assertLess(table["auto_growth, 64 MiB chunks"][calls], default[calls] / 10)
            # Units move instead, and nothing but their rounding is more than what is live. A short run has
            # a part of a unit that no small request has filled yet.
            units = table["expandable memory"]
            self.assertLess(units[reserved], 1.2)
            self.assertEqual(units[reserved], units[taken])
            # Within a second the default may keep as much.
            self.assertLessEqual(table["idle memory kept"][calls], default[calls])
            # What is held back is not reused.
            self.assertGreater(table["garbage threshold of 1/4 GB"][reserved], default[reserved])
            cap = bare[taken] + 8 * policies.PAGE / MIB / live_mib
            self.assertLess(table[policies.CAPPED][taken], cap + 0.001)  # figures are rounded
            self.assertLess(table[policies.CAPPED][reserved], default[reserved])

    def test_pairs_are_timed_under_each_policy(self):
        for policy in [*list(policies.POLICIES)[1:], "capped at 2 GiB"]:
            self.assertRegex(self.text, rf"\n{re.escape(policy)} +\d+ +\d\.\d\d\n")


if __name__ == "__main__":
    unittest.main()
