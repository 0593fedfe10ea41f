#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/bench/in_flight.py works out, and a quick run of it on the built tree."""

import os
import pathlib
import unittest

import in_flight
import replay

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", replay.ROOT / "build" / "release")).resolve()
SANITIZED = "-fsanitize" in (BUILD / "CMakeCache.txt").read_text(encoding="utf-8")
MIB = replay.MIB


def result(out="same", ms=1.0, all_ms=10.0):
    return replay.Replay(out, 1, 1, 1, ms, all_ms, replay.Seen(1, 1, 1, 1))


class WorkedOut(unittest.TestCase):
    def test_the_smallest_number_that_suffices(self):
        for wanted in (11, 12, 63, 64):
            self.assertEqual(in_flight.smallest(10, 64, lambda number, wanted=wanted: number >= wanted), wanted)

    def test_an_event_is_allowed_each_100_us_and_each_8_MiB_freed(self):
        self.assertAlmostEqual(in_flight.allowed_events(result(all_ms=3), 16 * MIB), 32)

    def test_the_run_that_took_least_counts_with_all_its_figures(self):
        self.assertEqual(in_flight.best([result(ms=1, all_ms=9), result(ms=2, all_ms=8)]).ms, 2)

    def test_different_results_are_an_error(self):
        with self.assertRaisesRegex(SystemExit, "results differ"):
            in_flight.best([result("one"), result("another")])

    def test_what_may_be_reserved_is_the_design_s_bound(self):
        self.assertEqual(in_flight.allowed_bytes(0), (256 + 64) * MIB)
        self.assertEqual(in_flight.allowed_bytes(8000 * MIB), (8000 + 800 + 1000) * MIB)


@unittest.skipIf(SANITIZED, "a sanitizer's runtime would have to be preloaded first")
class QuickRun(unittest.TestCase):
    """Figures of work in flight depend on the machine: only those that cannot miss are judged."""

    @classmethod
    def setUpClass(cls):
        cls.figures = {figure: value for figure, value, _, _ in in_flight.rows(BUILD, in_flight.QUICK)}

    def test_each_state_of_the_device_has_its_figures(self):
        for state in ("idle device", "kernels of 20 us, never synchronised"):
            self.assertLess(self.figures[f"{state}: share of driver calls left"], 0.5)
            self.assertGreaterEqual(self.figures[f"{state}: peak reserved / peak live"], 1)
            self.assertGreater(self.figures[f"{state}: in calls, without"], 0)
            self.assertGreater(self.figures[f"{state}: in calls, with"], 0)
        self.assertGreater(self.figures["kernels of 20 us, never synchronised, no free waits: events / one each 100 us or 8 MiB"], 0)

    def test_the_smallest_device_is_found_for_the_driver_the_default_and_each_strategy(self):
        live = self.figures["smallest device, kernels of 20 us, driver alone"]
        self.assertEqual(live % in_flight.QUICK.step_mib, 0)
        self.assertGreaterEqual(self.figures["smallest device, default / driver alone"], 1)
        for strategy in in_flight.STRATEGIES:
            self.assertGreaterEqual(self.figures[f"smallest device, {strategy} / idle device"], 1)

    def test_threads_are_timed_and_their_memory_is_read(self):
        for name in ("one thread", "8 threads"):
            self.assertGreater(self.figures[f"{name}, time / driver alone's"], 0)
            self.assertGreater(self.figures[f"{name}, no free waits, whole blocks, peak reserved / live and what may wait or be idle"], 0.1)
        self.assertEqual(self.figures["one thread, processor time / one thread's"], 1)


if __name__ == "__main__":
    unittest.main()
