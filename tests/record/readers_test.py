#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cistern-trace and scripts/cistern_trace.py read the same from a recording, and refuse the same."""

import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import cistern_trace  # noqa: E402
from made_up import recording_of, varint  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
SOURCES = ["tests/record/write_recording.cc", "allocator/record/recorder.cc", "allocator/record/encoding.cc",
           "allocator/base/os.cc"]


def line_of(event):
    """As `cistern trace --events` begins it: up to the thread."""
    seconds, ns = divmod(event.time_ns, 10**9)
    line = f"{seconds}.{ns:09} {event.type} memory={event.memory}"
    if event.type in ("allocated", "freed", "obtained", "released"):
        line += f" address=0x{event.address:x}"
    if event.type in ("allocated", "obtained", "refused"):
        line += f" bytes={event.bytes}"
    if event.type == "refused":
        line += f" code={event.code}"
    if event.type in ("allocated", "obtained", "refused", "context-ended"):
        line += f" device={event.device} context=0x{event.context:x}"
    if event.stream:
        line += f" stream=0x{event.stream:x}"
    return line + f" thread={event.thread}"


class Read(unittest.TestCase):
    """What both make of recordings in a folder."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.at = pathlib.Path(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trace(self, path, *options):
        return subprocess.run([BUILD / "cistern-trace", path, *options], capture_output=True, text=True, check=False)

    def read_alike(self, path, events):
        recording = cistern_trace.read(path)
        self.assertEqual(len(recording.events), events)
        shown = self.trace(path, "--events").stdout.splitlines()
        for line, event in zip(shown, recording.events, strict=True):
            expected = line_of(event)
            if line[:len(expected)] != expected:  # a million times
                self.assertEqual(line, expected)


class Written(Read):
    """Recordings that a program of our own wrote."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build("write", *SOURCES)

    @classmethod
    def build(cls, name, *sources):
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-I.", *sources, "-pthread",
                        "-o", cls.at / name], cwd=ROOT, check=True)

    def written(self, seed, threads, events):
        path = self.at / f"{seed}.rec"
        subprocess.run([self.at / "write", str(seed), str(threads), str(events), path], check=True)
        return path


class Readers(Written):
    def refused_alike(self, data):
        path = self.at / "bad.rec"
        path.write_bytes(data)
        result = self.trace(path)
        try:
            cistern_trace.Recording(data)
        except cistern_trace.Refused as refused:
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (1, "", f"cistern: error: {path}: {refused}\n"))
        else:
            self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_events_are_the_same(self):
        for threads, events in ((1, 300), (64, 1600)):
            self.read_alike(self.written(threads, threads, events), threads * events)

    def test_damage_is_refused_alike(self):
        data = self.written(7, 2, 20).read_bytes()
        seed = random.randrange(2**32)
        print("seed", seed)
        choice = random.Random(seed)
        for _ in range(60):
            self.refused_alike(data[:choice.randrange(len(data))])
            flipped = bytearray(data)
            flipped[choice.choice((choice.randrange(64), choice.randrange(len(data))))] ^= 1 << choice.randrange(8)
            self.refused_alike(bytes(flipped))

    def test_what_is_written_is_bounded_by_the_recording(self):
        name = b"x" * 4096
        definitions = b"\1\1" + varint(len(name)) + name + b"".join(b"\2" + varint(i) + varint(i - 1) + b"\1" for i in range(1, 65))
        frees = b"\x0d\x40" + b"\2\0\0" * 20_000  # in the innermost range
        path = self.at / "wide.rec"
        path.write_bytes(recording_of((2, definitions), (1, frees)))
        result = self.trace(path, "--events")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1))
        self.assertIn("a thousand times the recording", result.stderr)
        self.assertEqual(len(result.stdout), (64 << 20) + 1000 * path.stat().st_size)

    def test_a_name_that_no_recorder_writes_is_refused(self):
        for size in (4096, 4097):
            self.refused_alike(recording_of((2, b"\1\1" + varint(size) + b"x" * size)))
        self.assertIn("bytes of a name 4097 of 4096", self.trace(self.at / "bad.rec").stderr)

    def test_the_csv_can_be_replayed(self):
        rows = self.trace(self.written(3, 4, 200), "--csv").stdout.splitlines()
        self.assertEqual(rows[0], "time_us,op,id,size,stream")
        live = {}
        for row in rows[1:]:
            _, op, block, size, _ = row.split(",")
            if op == "alloc":
                self.assertNotIn(block, live)
                live[block] = size
            else:
                self.assertEqual((op, live.pop(block)), ("free", size))

    def test_the_benchmarks_read_the_csv(self):
        self.build("read_csv", "tests/record/read_csv.cc")
        csv = self.at / "events.csv"
        csv.write_text(self.trace(self.written(5, 4, 200), "--csv").stdout, encoding="utf-8")
        rows = [row.split(",") for row in csv.read_text(encoding="utf-8").splitlines()[1:]]
        self.assertGreater(len(rows), 200)
        told = [f"{len(sizes)} {sum(sizes)}" for op in ("alloc", "free")
                for sizes in [[int(row[3]) for row in rows if row[1] == op]]]
        read = subprocess.run([self.at / "read_csv", csv], capture_output=True, text=True, check=True)
        self.assertEqual(read.stdout, " ".join(told) + "\n")

    def test_an_option_that_cannot_be_used_is_one_line(self):
        path = self.written(3, 1, 10)
        for options in (("--by", "colour"), ("--top",), ("--frobnicate",), ("--min-bytes", "many"), ("--from", "-1")):
            result = self.trace(path, *options)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1))


if __name__ == "__main__":
    unittest.main()
