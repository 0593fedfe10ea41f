#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that start: many at once, after a fork, by exec. Each that used CUDA and ended in order
leaves its own report; no other does."""

import life

FORKS = 60  # of forks.cc; every other child ends by _exit


class Starts(life.Life):
    def reports_of(self, *command):
        process = self.run_both(*command)
        reports, logs = self.left(process.folder)
        self.nothing_shared_left([process.pid, *reports])
        return process, reports, logs

    def allocations(self, report):
        return sum(device["allocations"] for device in report["devices"])

    def test_64_threads_at_once(self):
        process, reports, _ = self.reports_of(self.program("starts_lazy"), "64")
        self.assertEqual(process.stdout_text, "64 threads: 0 wrong\n")
        self.assertEqual(list(reports), [process.pid])
        self.assertEqual(self.allocations(reports[process.pid]), 64 * 100)

    def all_at_once(self, count, preload):
        running = [self.start((self.program("starts_lazy"), "2"), preload) for _ in range(count)]
        for process in running:
            self.assertEqual(self.finish(process), (0, "2 threads: 0 wrong\n", ""))
        return running

    def test_many_processes_at_once(self):
        count = 8 if life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1") else 64  # it sees one at a time
        self.all_at_once(count, False)
        running = self.all_at_once(count, True)
        for process in running:
            reports, _ = self.left(process.folder)
            self.assertEqual(list(reports), [process.pid])
            self.assertEqual(self.allocations(reports[process.pid]), 2 * 100)
        self.nothing_shared_left([process.pid for process in running])

    def test_one_that_waits_for_its_driver_holds_up_no_other(self):
        waits = self.start((self.program("starts_lazy"), "2"), True, SIMCUDA_LATENCY="cuDevicePrimaryCtxRetain=1000000000us")
        try:
            self.all_at_once(8, True)
            self.assertIsNone(waits.poll())
        finally:
            waits.kill()
            waits.communicate()

    def test_exec_after_cuda_is_a_new_life(self):
        process, reports, _ = self.reports_of(self.program("starts_lazy"), "3", "exec")
        self.assertEqual(list(reports), [process.pid])
        self.assertEqual(self.allocations(reports[process.pid]), 2 * 100)

    def test_a_program_started_by_one_with_cuda(self):
        process, reports, _ = self.reports_of(self.program("starts_lazy"), "3", "fork")
        self.assertEqual(len(reports), 2)
        self.assertEqual(self.allocations(reports.pop(process.pid)), 3 * 100)
        self.assertEqual(self.allocations(reports.popitem()[1]), 2 * 100)

    def test_a_bad_setting_is_said_and_ends_the_program_before_main_if_it_is_to(self):
        bare = self.finish(self.start((self.program("starts_lazy"), "2"), False))
        for wanted, end in (("inactive", bare[:2]), ("abort", (78, ""))):
            process = self.start((self.program("starts_lazy"), "2"), True, CISTERN_LOG="loud", CISTERN_ON_ERROR=wanted)
            *ended, said = self.finish(process)
            self.assertEqual(tuple(ended), end)
            self.assertRegex(said, r"^cistern: error: [^\n]*CISTERN_LOG[^\n]*loud[^\n]*\n$")
            self.assertEqual(self.left(process.folder), ({}, set()))

    def test_children_forked_before_the_first_call(self):
        process, reports, logs = self.reports_of(self.program("forks_lazy"), "before")
        self.assertEqual(len(reports), FORKS // 2 + 1)
        for report in reports.values():
            self.assertEqual(self.allocations(report), 100)
        self.assertEqual(len(logs), FORKS + 1, "each writes its own log")

    def test_children_without_cuda(self):
        process, reports, _ = self.reports_of(self.program("forks_lazy"), "never")
        self.assertEqual(list(reports), [process.pid])

    def test_children_forked_after_it(self):
        process, reports, logs = self.reports_of(self.program("forks_lazy"), "after")
        self.assertEqual(list(reports), [process.pid])
        self.assertIn(process.pid, logs)


if __name__ == "__main__":
    life.main()
