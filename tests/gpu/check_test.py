#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which programs the check on a real GPU runs, where, and what it says of those it cannot compare.

The programs of tests/gpu run on the simulated CUDA here, so that what they print is understood before a GPU is at hand.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest
from unittest import mock

import check
import launches
import parts
import running

sys.path.append(str(check.TESTS))
from hangs import HANGS_S  # noqa: E402

HARMLESS = "libm.so.6"  # in place of Cistern
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", check.TESTS.parent / "build" / "release")).resolve()
RUNTIME = next((re.search(r"[0-9]+$", str(path))[0] for path in BUILD.glob("sim/libcudart.so.??")), "13")
PROGRAMS, CISTERN = BUILD / "programs", BUILD / "libcistern-device.so"


def compared(*scripts):
    """The rows of shell scripts, and what was printed."""
    runs = [((), ("sh", "-c", script)) for script in scripts]
    printed = io.StringIO()
    with mock.patch.object(check, "SLOW_S", 1), contextlib.redirect_stdout(printed):
        rows = check.compare_programs(runs, HARMLESS, time.monotonic() + 60)
    return rows, printed.getvalue()


class Chosen(unittest.TestCase):
    def test_programs_of_an_earlier_result_come_last(self):
        runs = [((), ("/build/one",)), (("A=1",), ("/build/one",)), ((), ("/build/two",))]
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder, "result.json")
            result.write_text(json.dumps({"programs": [{"program": "one"}]}), encoding="utf-8")
            self.assertEqual(check.not_yet_compared(runs, result), [runs[1], runs[2], runs[0]])

    def test_a_result_has_a_line_for_each_fact_and_each_row(self):
        result = {"date": "today", "facts": {"a": 1, "b": [2]}, "kept": {}, "programs": [{"program": "one", "status": 0}]}
        text = check.as_json(result)
        self.assertEqual(json.loads(text), result)
        self.assertIn('\n  "b": [2]\n', text)
        self.assertIn('\n  {"program": "one", "status": 0}\n', text)

    def test_no_run_is_of_a_simulated_device_or_a_capped_one(self):
        with mock.patch("os.path.exists", return_value=True):
            runs = check.programs(pathlib.Path("/build"))
        names = {setting.partition("=")[0] for settings, _ in runs for setting in settings}
        self.assertGreater(len(runs), 50)
        self.assertIn("FLAGS_allocator_strategy", names)
        self.assertEqual([name for name in names if check.sizes_device(name)], [])

    def test_programs_that_were_not_built_are_left_out(self):
        runs = check.programs(pathlib.Path("/build"))
        self.assertEqual([command for _, command in runs if command[0].startswith("/build")], [])

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


def silent(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        return call(*arguments), printed.getvalue()


@unittest.skipUnless((PROGRAMS / "gpu_relies").exists() and CISTERN.exists(),
                     "the programs of tests/gpu are not built: make tests")
class Simulated(unittest.TestCase):
    def setUp(self):
        sim = BUILD / "sim"
        self.use(mock.patch.dict(os.environ, SIMCUDA_KERNELS=str(sim / "libtest-kernels.so"),
                                 LD_LIBRARY_PATH=str(sim), SIMCUDA_DEVICES="2",
                                 GPU_CHECK_LIMIT_S=str(HANGS_S)))
        self.use(mock.patch.object(running, "TIMEOUT_S", HANGS_S))

    def use(self, patch):
        patch.start()
        self.addCleanup(patch.stop)

    def nothing_runs_before_the_host_waits(self):
        self.use(mock.patch.dict(os.environ, SIMCUDA_SCHEDULE="seed:3"))

    def test_each_group_of_facts_is_told(self):
        told, _ = silent(parts.driver_facts, PROGRAMS, ("virtual",))  # the bandwidth of a processor
        self.assertNotIn("failed", told)
        for fact, value in {"waits.cuMemFree_4KiB": 1, "devices": 2, "meanwhile.launch.code": 0,
                            "parameters.cuKernelGetParamInfo.code_0": 0, "plain_free_async.code": 0,
                            "pinned.free_again.code": 1, "reset.taken_mib": 768}.items():
            self.assertEqual(told[fact], value, fact)
        for fact in ("waits.cuMemMap", "pending.cuMemFree.global.capture_code",
                     "waits_contexts.cuMemFreeHost.work_of_other",
                     "waits_devices.cuMemFree.worker_reaches_memory", "attribute.PAGEABLE_MEMORY_ACCESS",
                     "costs.cuCtxRecordEvent_us.busy.streams_16", "costs.cuStreamWaitEvent_us.pending",
                     "events.launch_us"):
            self.assertIn(fact, told)

    def test_a_group_that_fails_keeps_what_it_told(self):
        with mock.patch.dict(os.environ, SIMCUDA_FAIL="cuModuleUnload=999"):
            told, printed = silent(parts.driver_facts, PROGRAMS, ("virtual", "captures", "pinned"))
        self.assertEqual(list(told["failed"]), ["own"])
        self.assertEqual(told["waits.cuMemFree_4KiB"], 1)
        self.assertIn("facts of own end early, status 1", printed)

    def test_programs_that_rely_on_a_free(self):
        self.nothing_runs_before_the_host_waits()
        rows, printed = silent(parts.relies, PROGRAMS, str(CISTERN))
        self.assertGreaterEqual(len(rows), 9)
        self.assertEqual(check.failures({"relies": rows}), [])
        self.assertNotIn("in 0 of", printed)
        less = [row for row in rows if "in 4 of 4" not in row["with CISTERN_FREE_SYNC=false"]]
        self.assertNotEqual(less, [])  # else nothing had to be waited for

    def test_a_free_that_does_not_wait_is_noticed(self):
        self.nothing_runs_before_the_host_waits()
        with mock.patch.dict(os.environ, CISTERN_FREE_SYNC="false"):
            rows, printed = silent(parts.relies, PROGRAMS, str(CISTERN))
        for program in (failures := check.failures({"relies": rows})):
            self.assertIn(f"FAIL {program}", printed)
        self.assertNotEqual(failures, [])

    def test_endings(self):
        rows, _ = silent(parts.endings, PROGRAMS, str(CISTERN))
        self.assertEqual(check.failures({"endings": rows}), [])
        self.assertIn("printed by the device", rows[0]["cistern"]["stdout"])
        with mock.patch.dict(os.environ, SIMCUDA_LOSE="0:cuLaunchKernel@1:719"):
            rows, _ = silent(parts.endings, PROGRAMS, str(CISTERN))
        told = {row["program"]: row for row in rows}["gpu_endings trapping_told"]
        self.assertIn("then: 719", told["cistern"]["stdout"])
        self.assertTrue(told["same"])

    def test_what_a_library_hands_over_is_seen(self):
        row, _ = silent(parts.library, (PROGRAMS / "gpu_libraries", "own"), str(CISTERN))
        self.assertEqual((row["same"], row["seen"]["operations"], row["seen"]["unseen"]), (True, 20, 0))

    def test_what_a_runtime_hands_over_is_seen(self):
        row, _ = silent(parts.library, (PROGRAMS / "gpu_libraries", f"cudart{RUNTIME}"), str(CISTERN))
        self.assertEqual((row["same"], row["seen"]["operations"], row["seen"]["unseen"]), (True, 80, 0))

    def transformed(self, how):
        """By a stand-in for cuFFT that copies like that."""
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "libcufft.so.12").symlink_to(PROGRAMS / "libstand_in_fft.so")
            path = f"{folder}:{PROGRAMS}:{os.environ['LD_LIBRARY_PATH']}"
            with mock.patch.dict(os.environ, LD_LIBRARY_PATH=path, STAND_IN_COPIES=how):
                return silent(parts.library, (PROGRAMS / "gpu_libraries", "cufft"), str(CISTERN))

    def test_a_library_that_passes_no_hook_is_noticed_and_keeps_its_order(self):
        self.nothing_runs_before_the_host_waits()
        row, printed = self.transformed("told")
        self.assertEqual((row["same"], row["seen"]["unseen"]), (True, 20))
        self.assertIn("so frees wait: the program calls cuGetExportTable", printed)
        self.assertIn("in 20 of 20 rounds", row["cistern"]["stdout"])

    def test_a_library_that_is_neither_counted_nor_noticed_fails_the_check(self):
        self.nothing_runs_before_the_host_waits()
        row, printed = self.transformed("hidden")
        self.assertEqual((row["seen"]["unseen"], row["seen"]["same"]), (20, False))
        self.assertEqual(check.failures({"libraries": [row]}), ["cufft"])
        self.assertIn("FAIL cufft: 20 of 20 operations unseen", printed)
        self.assertNotEqual(row["bare"]["stdout"], row["cistern"]["stdout"])  # as its order shows, too

    def test_the_same_library_is_counted_if_its_work_passes_a_hook(self):
        row, _ = self.transformed("plainly")
        self.assertEqual((row["same"], row["seen"]["unseen"], row["seen"]["operations"]), (True, 0, 20))

    def test_loops_of_large_blocks(self):
        self.use(mock.patch.dict(os.environ, GPU_CHECK_SECOND_MS="1"))
        told, _ = silent(parts.kept, PROGRAMS, str(CISTERN))
        self.assertEqual(told["driver"]["mib_at_once"], 0)
        for kind in ("", "_pool_1_mib", "_pool_256_mib"):
            self.assertIn("mib_after_3_s", told["cistern" + kind])

    def test_pairs(self):
        rows, printed = silent(parts.time_pairs, PROGRAMS / "gpu_pairs", str(CISTERN), "1024")
        self.assertEqual([row["bytes"] for row in rows], [512, 1024])
        self.assertEqual(set(rows[0]["driver"]), set(rows[0]["cistern"]))
        self.assertIn("1024 bytes, ns without and with: idle ", printed)

    def test_pairs_that_fail_fail_the_check(self):
        with mock.patch.dict(os.environ, SIMCUDA_FAIL="cuMemHostAlloc=2"):
            rows, _ = silent(parts.time_pairs, PROGRAMS / "gpu_pairs", str(CISTERN), "512")
        self.assertEqual(check.failures({"pairs": rows}), ["gpu_pairs"])


class Judged(unittest.TestCase):
    """By what a library's program and Cistern's report say."""

    def library(self, at_once, order="there", waited_for_all=None, **report):
        def run(command, preload=None, **_):
            mode = command[-1]
            frees = {"at_once": at_once.get(mode, 0), "waited_for_all": waited_for_all or {}}
            reported = {"frees": frees} | report
            printed = {"order": order if preload else "there"}.get(mode, "operations: 20")
            return {"status": 0, "stdout": printed, "stderr": "", "seconds": 0, "report": reported}

        with mock.patch.object(parts, "run", run):
            return silent(parts.library, ("program", "cublas"), HARMLESS)

    def test_operations_after_which_a_free_had_nothing_to_wait_for_were_not_seen(self):
        row, printed = self.library({"idle": 25, "busy": 8})
        self.assertEqual((row["same"], row["seen"]["unseen"]), (False, 3))
        self.assertIn("FAIL cublas: 3 of 20 operations unseen", printed)
        self.assertTrue(self.library({"idle": 25, "busy": 5})[0]["same"])

    def test_work_that_came_too_early_fails(self):
        self.assertFalse(self.library({"idle": 25, "busy": 5}, order="not there")[0]["same"])

    def test_operations_that_are_not_counted_are_noticed_or_the_check_fails(self):
        waits = {"waited_for_all": {"careful": {"waits": 20, "ns": 0}}}
        row, printed = self.library({}, unseen_work="a decoder", **waits)
        self.assertEqual((row["same"], row["seen"]["noticed"]), (True, "a decoder"))
        self.assertIn("ok   cublas: 20 of 20 operations unseen, so frees wait: a decoder", printed)
        self.assertFalse(self.library({}, unseen_work="a decoder", order="not there", **waits)[0]["same"])
        self.assertFalse(self.library({}, **waits)[0]["same"])  # nothing says why

    def test_a_reason_does_not_count_if_a_free_did_not_wait(self):
        waits = {"waited_for_all": {"careful": {"waits": 19, "ns": 0}, "several_threads": {"waits": 25, "ns": 0}}}
        row, printed = self.library({"idle": 5, "busy": 5}, unseen_work="a decoder", **waits)
        self.assertEqual((row["same"], "noticed" in row["seen"]), (False, False))
        self.assertIn("FAIL cublas: 20 of 20 operations unseen", printed)

    def test_frees_of_a_careful_process_are_the_drivers(self):
        self.assertTrue(self.library({}, careful="a function that no table knows")[0]["same"])

    def test_what_is_not_installed_is_skipped(self):
        def run(*_):
            return {"status": 77, "stdout": "no such", "stderr": ""}

        with mock.patch.object(parts, "run", run):
            row, printed = silent(parts.library, ("program", "cudnn"), HARMLESS)
        self.assertEqual(row["left_out"], "not here")
        self.assertIn("skip cudnn: no such", printed)

    def test_a_framework_prints_what_a_library_does(self):
        work = mock.Mock(**{"arrived.return_value": True, "operations.return_value": {"copy": None}})
        with mock.patch.object(launches, "Memory"), mock.patch.dict(launches.FRAMEWORKS, fake=lambda: work):
            printed = [silent(launches.main, "fake", mode)[1] for mode in ("order", "idle", "busy")]
        self.assertEqual(printed[0], "copy: the input was there in 20 of 20 rounds\n")
        self.assertEqual(printed[1:], ["operations: 20\n"] * 2)

    def test_frameworks_that_are_not_installed_end_as_skipped(self):
        for name in launches.FRAMEWORKS:
            with mock.patch.dict(sys.modules, dict.fromkeys(("torch", "triton", "cupy"))):
                self.assertEqual(silent(launches.main, name, "order")[0], running.SKIPPED)


class Compared(unittest.TestCase):
    def test_what_is_the_same_and_what_differs(self):
        rows, printed = compared("echo the same", 'echo "$LD_PRELOAD"')
        self.assertEqual([row["same"] for row in rows], [True, False])
        self.assertEqual([running.differs(row) for row in rows], [False, True])
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
