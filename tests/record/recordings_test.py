#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What real processes record: every kind of memory, the same with the pools and without; also on many threads, of a
process that is killed, that forks, or whose file cannot be written. BUILD_DIR names the build.
"""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.path.insert(0, str(ROOT / "tests" / "life"))
import cistern_trace  # noqa: E402
from life import sanitizer_runtimes  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
RUNTIMES = sanitizer_runtimes(BUILD / "sim" / "libcuda.so.1")
SANITIZED = bool(RUNTIMES)


def without_chunks(events):
    return [e for e in events if e.type not in ("obtained", "released", "synchronised")]


def what_of(event):
    return event.type, event.memory, event.bytes, event.code


class Recordings(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-record-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, program, *arguments, **settings):
        objects = [*sanitizer_runtimes(BUILD / "sim" / "libcuda.so.1"), str(BUILD / "libcistern-device.so")]
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("CISTERN_", "FLAGS_", "GE_", "SIMCUDA_", "LD_"))}
        environment |= {"LD_LIBRARY_PATH": f"{BUILD / 'sim'}:{BUILD / 'programs'}", "LD_PRELOAD": ":".join(objects),
                        "ASAN_OPTIONS": "detect_leaks=0", "CISTERN_RECORD": "recording"} | settings
        return subprocess.Popen([BUILD / "programs" / program, *map(str, arguments)], env=environment, cwd=self.folder,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_it(self, program, *arguments, err="", **settings):
        process = self.start(program, *arguments, **settings)
        out, said = process.communicate()
        self.assertEqual(process.returncode, 0, said)
        self.assertRegex(said, f"^{err}$")
        return out

    def read(self, name="recording"):
        return cistern_trace.read(self.folder / name, home=BUILD)

    def await_allocations(self, count):
        """Until so many are in the file; if they never are, this hangs."""
        while True:
            with contextlib.suppress(OSError, cistern_trace.Refused):  # it is not there, or not whole yet
                if sum(event.type == "allocated" for event in self.read().events) >= count:
                    return
            time.sleep(0.05)

    def consistent(self, recording):
        """No block is allocated where one lives; the bytes that live at the end, by memory."""
        live = {}
        for event in recording.events:
            key = (event.memory if event.memory in ("array", "physical") else "", event.address)
            if event.type == "allocated":
                self.assertNotIn(key, live)
                live[key] = event
            elif event.type == "freed":
                self.assertIn(key, live)
                del live[key]
            elif event.type == "context-ended":
                live = {k: e for k, e in live.items() if e.context != event.context or
                        e.memory in ("stream-ordered", "physical")}
        sums = collections.Counter()
        for event in live.values():
            sums[event.memory] += event.bytes
        return sums

    def test_the_same_is_recorded_with_the_pools_and_without(self):
        seen = []
        for pool in ("on", "off"):
            out = self.run_it("recorded_lazy", CISTERN_POOL=pool, CISTERN_RECORD=f"recording.{pool}")
            recording = self.read(f"recording.{pool}")
            seen.append((out, [what_of(e) for e in without_chunks(recording.events)], self.consistent(recording)))
            chunks = [e for e in recording.events if e.type == "obtained"]
            self.assertEqual(bool(chunks), pool == "on")
        self.assertEqual(seen[0], seen[1])
        kinds = {"linear", "pitched", "managed", "pinned", "stream-ordered", "array", "physical"}
        self.assertEqual({memory for _, memory, _, _ in seen[0][1]}, kinds)
        self.assertIn(("refused", "linear", 1 << 45, 2), seen[0][1])
        self.assertEqual(seen[0][2]["linear"], 4 << 20)
        self.assertEqual(seen[0][2]["pinned"], 4 << 20)
        self.assertNotIn("managed", seen[0][2])

    def test_a_free_is_as_old_as_its_call(self):
        self.run_it("recorded_lazy", CISTERN_POOL="off", SIMCUDA_LATENCY="cuMemFree=30ms")
        events = without_chunks(self.read().events)
        took = [after.time_ns - event.time_ns for event, after in zip(events, events[1:])
                if (event.type, event.memory) == ("freed", "linear")]  # by cuMemFree
        self.assertGreater(len(took), 2)
        self.assertGreaterEqual(min(took), 30_000_000)

    def test_physical_memory_lives_until_nothing_holds_it(self):
        for settings in ({}, {"CISTERN_POOL": "off"}, {"CISTERN_GPU_LIMIT": "1G"}):
            with self.subTest(settings):
                self.run_it("held_physical_lazy", **settings)
                recording = self.read()
                self.assertEqual(self.consistent(recording)["physical"], 40 << 20)
                mib, told = {}, []
                for event in without_chunks(recording.events):
                    if event.type == "allocated":
                        mib[event.memory, event.address] = event.bytes >> 20
                    told.append((event.type, event.memory, mib.get((event.memory, event.address), 0)))
                self.assertEqual(told, [
                    ("allocated", "physical", 8), ("allocated", "linear", 1),
                    ("allocated", "physical", 16), ("freed", "physical", 16), ("allocated", "linear", 2),
                    ("allocated", "linear", 3), ("freed", "physical", 8), ("allocated", "linear", 4),
                    ("refused", "physical", 0), ("allocated", "linear", 5),
                    ("allocated", "physical", 24), ("allocated", "linear", 6), ("allocated", "physical", 16)])
                (self.folder / "recording").unlink()

    def test_64_threads(self):
        self.run_it("steady_lazy", 64, 200, CISTERN_SITES="stacks")
        recording = self.read()
        self.assertEqual(self.consistent(recording), {})
        counts = collections.Counter(event.type for event in recording.events)
        self.assertEqual((counts["allocated"], counts["freed"]), (64 * 200, 64 * 200))
        self.assertEqual(len({e.thread for e in recording.events if e.type == "freed"}), 64)
        self.assertEqual(recording.head.flags & 1, 1)
        self.assertEqual(recording.head.lost, 0)

    def test_a_process_that_is_killed_leaves_what_it_had_written(self):
        process = self.start("steady_lazy", 3, 0)
        self.await_allocations(1001)
        process.send_signal(signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)
        process.communicate()
        recording = self.read()
        self.assertEqual(recording.head.flags & 1, 0)
        self.assertGreater(len(recording.events), 1000)
        self.assertEqual({e.thread for e in recording.events if e.type == "allocated"} - {0},
                         {e.thread for e in recording.events if e.type == "freed"} - {0})

    def test_what_few_calls_recorded_is_written_within_a_second(self):
        objects = [*RUNTIMES, str(BUILD / "programs" / "libtestclock.so"), str(BUILD / "libcistern-device.so")]
        process = self.start("recorded_waits_lazy", LD_PRELOAD=":".join(objects))
        self.assertEqual(process.stdout.readline(), "waits\n")
        process.kill()
        process.communicate()
        self.assertEqual(len([e for e in self.read().events if e.type == "allocated"]), 1)

    def test_a_forked_child_records_nothing(self):
        out = self.run_it("steady_lazy", 4, 2000, "fork")
        self.assertEqual(out, "child 0\nfailed 0\n")
        self.assertEqual(os.listdir(self.folder), ["recording"])
        recording = self.read()
        self.assertEqual(self.consistent(recording), {})
        self.assertEqual(recording.head.flags & 1, 1)

    def test_a_file_that_cannot_grow_ends_early_and_can_be_read(self):
        said = (r"cistern: warn: the recording recording cannot be written further: File too large; "
                r"the part written so far can be read\n")
        self.assertEqual(self.run_it("steady_lazy", 2, 20000, 200_000, err=said), "failed 0\n")
        recording = self.read()
        self.assertEqual(recording.head.flags & 9, 8)
        self.assertGreater(recording.head.lost, 0)
        self.assertGreater(len(recording.events), 1000)
        self.assertLessEqual((self.folder / "recording").stat().st_size, 200_000)

    @unittest.skipIf("tsan" in "".join(RUNTIMES), "under tsan the device's own threads have attributes, too")
    def test_without_a_background_thread_the_calls_write(self):
        objects = [*RUNTIMES, str(BUILD / "libcistern-device.so"),
                   str(BUILD / "programs" / "libno_threads.so")]
        process = self.start("steady_lazy", 3, 0, LD_PRELOAD=":".join(objects), CISTERN_LOG="info")
        self.await_allocations(1001)
        process.kill()
        self.assertIn("the background thread could not be started", process.communicate()[1])
        recording = self.read()
        self.assertEqual(recording.head.flags & 1, 0)
        self.assertGreater(len(recording.events), 1000)

    def test_a_pipe_is_not_written(self):
        os.mkfifo(self.folder / "pipe")
        reader = os.open(self.folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.run_it("steady_lazy", 1, 10, CISTERN_RECORD="pipe",
                    err=r"cistern: warn: the recording pipe exists already; [^\n]*\n")
        own = f"/proc/{os.getpid()}/fd/{reader}"
        self.run_it("steady_lazy", 1, 10, CISTERN_RECORD=own,
                    err=f"cistern: warn: nothing is recorded: {own} cannot be written: Illegal seek; [^\n]*\n")
        self.assertEqual(os.read(reader, 1), b"")

    def test_a_file_that_is_there_stays(self):
        (self.folder / "recording").write_text("precious")
        process = self.start("recorded_lazy")
        _, said = process.communicate()
        self.assertRegex(said, r"^cistern: warn: the recording recording exists already; .*\n$")
        self.assertEqual((self.folder / "recording").read_text(), "precious")
        self.assertTrue(self.read(f"recording.{process.pid}").events)

    def test_a_folder_that_is_not_there(self):
        said = r"cistern: warn: nothing is recorded: no/where cannot be written: No such file or directory; .*\n"
        self.run_it("steady_lazy", 1, 10, err=said, CISTERN_RECORD="no/where")

    def test_a_process_that_uses_no_cuda_leaves_no_file(self):
        self.start(shutil.which("true")).communicate()
        self.assertEqual(os.listdir(self.folder), [])


class Launcher(unittest.TestCase):
    @unittest.skipIf(SANITIZED, "the launcher's object is that of no sanitizer")
    def test_record_and_trace(self):
        with tempfile.TemporaryDirectory(prefix="cistern-record-") as folder:
            cistern = [ROOT / "scripts" / "cistern", "--home", BUILD]
            recorded = subprocess.run(
                [*cistern, "record", "--host", "off", "--sites", "stacks", "-o", "it", "--sim", "--",
                 BUILD / "programs" / "recorded_lazy"], cwd=folder, capture_output=True, text=True, check=True)
            self.assertEqual(recorded.stderr, "")
            shown = subprocess.run([*cistern, "trace", "it"], cwd=folder, capture_output=True, text=True, check=True)
            self.assertIn("kinds::pitched", shown.stdout)
            csv = subprocess.run([*cistern, "trace", "--csv", "it"], cwd=folder, capture_output=True, text=True, check=True)
            self.assertRegex(csv.stdout, re.compile(r"^time_us,op,id,size,stream\n\d+,alloc,\d+,4194304,\d+\n"))

    @unittest.skipIf(SANITIZED, "the launcher's object is that of no sanitizer")
    def test_a_pipe_is_refused(self):
        with tempfile.TemporaryDirectory(prefix="cistern-record-") as folder:
            os.mkfifo(pathlib.Path(folder) / "pipe")
            refused = subprocess.run([ROOT / "scripts" / "cistern", "--home", BUILD, "record", "-o", "pipe", "--", "true"],
                                     cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual((refused.returncode, refused.stdout), (2, ""))
            self.assertRegex(refused.stderr, r'^cistern: error: a recording needs a regular file; value seen "[^"\n]*pipe"; .*\n$')


if __name__ == "__main__":
    unittest.main()
