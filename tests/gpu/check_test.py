#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which programs the check on a real GPU runs, where, and what it says of those it cannot compare."""

import contextlib
import io
import os
import pathlib
import time
import unittest
from unittest import mock

import check

HARMLESS = "libm.so.6"  # in place of Cistern


def compared(*scripts):
    """The rows of shell scripts, and what was printed."""
    runs = [((), ("sh", "-c", script)) for script in scripts]
    printed = io.StringIO()
    with mock.patch.object(check, "SLOW_S", 1), contextlib.redirect_stdout(printed):
        rows = check.compare_programs(runs, HARMLESS, time.monotonic() + 60)
    return rows, printed.getvalue()


class Chosen(unittest.TestCase):
    def test_no_run_is_of_a_simulated_device_or_a_capped_one(self):
        runs = check.programs(pathlib.Path("/build"))
        names = {setting.partition("=")[0] for settings, _ in runs for setting in settings}
        self.assertGreater(len(runs), 50)
        self.assertIn("FLAGS_allocator_strategy", names)
        self.assertEqual([name for name in names if check.sizes_device(name)], [])

    def test_latencies_of_the_simulated_device_leave_a_run_as_it_is(self):
        self.assertFalse(check.sizes_device("SIMCUDA_LATENCY"))
        self.assertTrue(check.sizes_device("SIMCUDA_MEMORY_MB"))
        self.assertTrue(check.sizes_device("CISTERN_GPU_LIMIT_1"))


class Run(unittest.TestCase):
    def test_each_run_has_a_new_directory_that_goes_with_it(self):
        first, second = (check.run(["sh", "-c", "ls; touch left; pwd"])["stdout"] for _ in range(2))
        self.assertNotEqual(first, second)
        for folder in (first, second):  # ls had nothing to say
            self.assertFalse(os.path.exists(folder.strip()))
            self.assertNotEqual(folder.strip(), os.getcwd())


class Compared(unittest.TestCase):
    def test_what_is_the_same_and_what_differs(self):
        rows, printed = compared("echo the same", 'echo "$LD_PRELOAD"')
        self.assertEqual([row["same"] for row in rows], [True, False])
        self.assertEqual([check.differs(row) for row in rows], [False, True])
        self.assertIn("2 of 2 runs of programs, 1 alike", printed)
        self.assertIn("FAIL", printed)

    def test_a_slow_program_is_not_run_with_cistern(self):
        rows, printed = compared("sleep 9000")  # if it were awaited, this would hang
        self.assertEqual(rows[0]["left_out"], "slow on this driver")
        self.assertFalse(check.differs(rows[0]))
        self.assertIn("1 not compared, slow on this driver: sh -c sleep 9000", printed)

    def test_a_program_that_a_signal_ends_without_cistern_is_named(self):
        rows, printed = compared("kill -SEGV $$", "exit 3")
        self.assertEqual((rows[0]["left_out"], rows[0]["status"]), ("the driver itself ends it", -11))
        self.assertTrue(rows[1]["same"])
        self.assertIn("1 not compared, the driver itself ends it: sh -c kill", printed)


if __name__ == "__main__":
    unittest.main()
