#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""However a process ends, it ends as without Cistern: same status, same output. An orderly end
leaves a report, any other none; logs are whole lines; nothing else is left."""

import signal
import time

import life

ORDERLY = {"exit": 6, "other thread": 5, "pthread_exit": 0, "library": 6, "closed library": 6}
SUDDEN = {"_exit": 3, "quick_exit": 4, "abort": -signal.SIGABRT, "SIGTERM": -signal.SIGTERM,
          "SIGKILL": -signal.SIGKILL}


class Endings(life.Life):
    def end(self, way, status):
        process = self.run_both(self.program("endings_lazy"), way,
                                SIMCUDA_LATENCY="cuMemsetD8Async=20ms")
        self.assertEqual(process.returncode, status, way)
        self.nothing_shared_left([process.pid])
        reports, logs = self.left(process.folder)
        self.assertLessEqual(logs, {process.pid}, way)
        return process, reports

    def test_an_orderly_end_leaves_one_report(self):
        for way, status in ORDERLY.items():
            process, reports = self.end(way, status)
            self.assertEqual(list(reports), [process.pid], way)
            self.assertGreater(reports[process.pid]["devices"][0]["allocations"], 100, way)

    def test_a_sudden_end_leaves_no_report(self):
        for way, status in SUDDEN.items():
            self.assertEqual(self.end(way, status)[1], {}, way)

    def test_killed_from_outside_at_any_moment(self):
        for delay_ms in (0, 1, 2, 5, 10, 20, 50, 100):
            for number in (signal.SIGKILL, signal.SIGTERM):
                process = self.start((self.program("endings_lazy"), "never"), True)
                time.sleep(delay_ms / 1000)  # any moment will do
                process.send_signal(number)
                self.finish(process)
                self.assertEqual(process.returncode, -number)
                self.nothing_shared_left([process.pid])
                self.assertEqual(self.left(process.folder)[0], {})


if __name__ == "__main__":
    life.main()
