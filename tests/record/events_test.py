#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The events of a recording and all that they refer to, as allocator/record/FORMAT.md says: in `cistern trace --events`,
with --json, and in scripts/cistern_trace.py."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import unittest

import made_up
import written
from made_up import varint

TYPES = ("allocated", "freed", "refused", "obtained", "released", "context-ended", "synchronised")
MEMORIES = ("linear", "pitched", "managed", "pinned", "stream-ordered", "array", "physical")
STATES = ("thread", "device", "context", "stream", "site", "range", "phase")
CALLER, PLACE = {"thread", "range", "phase"}, {"device", "context"}
TOLD = {"allocated": {*STATES}, "freed": {*CALLER, "stream"}, "refused": {*STATES}, "obtained": CALLER | PLACE,
        "released": CALLER, "context-ended": CALLER | PLACE, "synchronised": CALLER}
NASTY = b"a\tb\n\r\0\x1b[2J\"\\\"} \xff\xc2\x9b\xe2\x80\xa8\xed\xa0\x80\xc3\xa9\xf0\x9f\x98\x80\xe2\x80\xae"


def zigzag(number):
    return varint(2 * number if number >= 0 else -2 * number - 1)


def name(number, text):
    return b"\1" + varint(number) + varint(len(text)) + text


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


class Events(written.Written):
    def made(self, *blocks):
        path = self.at / "made.rec"
        path.write_bytes(made_up.recording_of(*blocks))
        return path

    def listed(self, path):
        """The events, which are the same in the list."""
        events = written.read(path).events
        lines = written.trace(path, "--events").stdout.splitlines()
        for line, event in zip(lines, events, strict=True):
            self.assertTrue(line.startswith(line_of(event)), (line, event))
        return events

    def test_each_type_of_each_memory_has_what_the_format_says(self):
        state = dict(zip(STATES, (2**32 - 1, 3, 2**64 - 1, 2**63, 1, 1, 1)))
        contents = b"".join(bytes([8 + i]) + varint(value) for i, value in enumerate(state.values()))
        expected, time, address = [], 2**62, 0
        contents += bytes([7]) + zigzag(time)
        expected.append({"type": "synchronised", "memory": "linear", "time_ns": time})
        for kind, kind_name in enumerate(TYPES, 1):
            for memory, memory_name in enumerate(MEMORIES):
                event = {"type": kind_name, "memory": memory_name, "time_ns": (time := time + 1)}
                contents += bytes([kind + 16 * memory]) + zigzag(1)
                if kind in (1, 2, 4, 5):
                    event["address"] = new = 2**64 - 1 - address % 7 if address < 2**63 else 4096 * time % 2**40
                    contents += zigzag((new - address + 2**63) % 2**64 - 2**63)
                    address = new
                if kind in (1, 3, 4):
                    event["bytes"] = 2**64 - time % 9 - 1
                    contents += varint(event["bytes"])
                if kind == 3:
                    event["code"] = 2**32 - 1
                    contents += varint(2**32 - 1)
                expected.append(event)
        definitions = name(1, b"n") + b"\2\1\0\1" + b"\3\1\1" + b"\4\1\0"
        for event in expected:
            event |= {what: value for what, value in state.items() if what in TOLD[event["type"]]}
        events = self.listed(self.made((2, definitions), (1, contents)))
        self.assertEqual([{what: value for what, value in event._asdict().items() if value != 0} for event in events], expected)

    def test_each_block_begins_anew(self):
        path = self.made((1, b"\x08\7" + made_up.ALLOCATED + b"\x0a\x0a\1"), (1, made_up.FREED + b"\x0c\x0a"))
        self.assertEqual([(event.thread, event.time_ns, event.address) for event in self.listed(path)], [(7, 5, 5), (0, 6, 5)])

    def test_definitions_are_at_their_numbers_with_exact_names(self):
        texts = (b"", NASTY, b"x" * 4096, b"\xff" * 4096, "\u20ac\U0010ffff\u2066".encode())
        definitions = b"".join(name(number, text) for number, text in enumerate(texts, 1))
        definitions += b"\2\1\0\2" + b"\2\2\1\5" + b"\3\1\2" + b"\4\1\0" + b"\4\2\2\2\5\7\0" + b"\3\0" + varint(2**32 - 1) + varint(2**64 - 1)
        path = self.made((2, definitions), (1, b"\x0c\2\x0d\2\x0e\1" + made_up.ONE))
        recording = written.read(path)
        self.assertEqual([os.fsencode(text) for text in recording.names], [b"", *texts])
        self.assertEqual(list(recording.ranges), [(0, 0), (0, 2), (1, 5)])
        self.assertEqual(list(recording.phases), [0, 2])
        self.assertEqual(list(recording.sites), [[], [], [(2, 5, 7, 0), (3, 0, 2**32 - 1, 2**64 - 1)]])
        (event,) = recording.events
        self.assertEqual((event.site, event.range, event.phase), (2, 2, 1))
        lines = written.trace(path, "--json", "--events").stdout
        self.assertEqual(written.cistern_trace.shown(lines.replace("\n", "")), lines.replace("\n", ""))
        self.assertEqual(len(list(map(json.loads, lines.split("\n")[:-1]))), 1 + len(texts) + 2 + 1 + 2 + 1)

    def test_the_head(self):
        data = bytearray(made_up.recording_of((1, made_up.ONE)))
        struct.pack_into("<QQIIQ", data, 24, 2**64 - 1, 2**63, 2**32 - 1, 0, 2**40)
        texts = NASTY.replace(b"\0", b""), b"host\xfe", b"p" * 1023
        for at, text in zip((64, 1088, 1344), texts):
            data[at:at + len(text)] = text
        path = self.at / "head.rec"
        for flags in range(16):
            data[44] = flags
            path.write_bytes(data)
            head = written.read(path).head
            self.assertEqual(head[:6], (len(data), 2**64 - 1, 2**63, 2**32 - 1, flags, 2**40))
            self.assertEqual(tuple(map(os.fsencode, head[6:])), texts)

    def test_events_of_one_time(self):
        """Frees come first, but each thread's events stay in order."""
        one = b"\x08\1" + made_up.ONE + made_up.FREED + b"\0\0"
        two = b"\x08\2" + made_up.FREED + b"\0\x20" + made_up.ALLOCATED + b"\0\x40\1"
        events = self.listed(self.made((1, one), (1, two)))
        self.assertEqual([(event.thread, event.type) for event in events],
                         [(2, "freed"), (1, "allocated"), (2, "allocated"), (1, "freed")])

    def test_what_threads_recorded(self):
        for threads, count in ((1, 300), (64, 1600)):
            events = self.listed(self.written(threads, threads, count))
            self.assertEqual(len(events), threads * count)
            self.assertEqual([event.time_ns for event in events], sorted(event.time_ns for event in events))
            self.assertEqual({event.thread for event in events} - {0}, set(range(1, threads + 1)))

    def test_recordings_that_are_made_up(self):
        for what in made_up.MADE_UP:
            with self.subTest(what):
                path = self.at / "made-up.rec"
                path.write_bytes(made_up.made_up(what, 20_000))
                self.assertEqual(len(self.listed(path)), json.loads(written.trace(path, "--json").stdout)["events"])

    def test_only_what_is_selected(self):
        path = self.made((1, made_up.ONE + made_up.ALLOCATED + b"\0\2\x08"))
        shown = written.trace(path, "--events", "--json", "--min-bytes", "2").stdout.splitlines()[1:]
        self.assertEqual(list(map(json.loads, shown)), [{"event": "allocated", "memory": "linear", "address": 2, "bytes": 8}])


READ = "import cistern_trace; print(len(cistern_trace.read('a recording').events))"


class Places(written.Folder):
    """Where cistern_trace.py finds cistern-trace."""

    def setUp(self):
        (self.at / "a recording").write_bytes(made_up.recording_of((1, made_up.ONE)))

    def says(self, module, path=""):
        """What a program prints that has the module in this folder."""
        result = subprocess.run([sys.executable, "-c", READ], cwd=self.at, capture_output=True, text=True, check=False,
                                env={"PYTHONPATH": str(module), "PATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"})
        return result.stdout or result.stderr.splitlines()[-1]

    def copied(self, folder):
        (self.at / folder).mkdir(parents=True)
        shutil.copy(written.ROOT / "scripts/cistern_trace.py", self.at / folder)
        return self.at / folder

    def test_of_an_installation(self):
        subprocess.run(["cmake", "--install", written.BUILD, "--prefix", self.at / "prefix"], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.says(self.at / "prefix/lib/cistern"), "1\n")
        self.assertEqual(len(written.cistern_trace.read(self.at / "a recording", home=self.at / "prefix").events), 1)
        (self.at / "link").mkdir()
        (self.at / "link/cistern_trace.py").symlink_to(self.at / "prefix/lib/cistern/cistern_trace.py")
        self.assertEqual(self.says(self.at / "link"), "1\n")
        self.assertEqual(self.says(self.copied("elsewhere"), f"{self.at / 'prefix/bin'}:/usr/bin:/bin"), "1\n")

    def test_of_a_source_tree(self):
        module = self.copied("tree/scripts")
        (self.at / "tree/CMakeLists.txt").touch()
        (self.at / "tree/build").mkdir()
        (self.at / "tree/build/release").symlink_to(written.BUILD)
        self.assertEqual(self.says(module), "1\n")

    def test_without_one_there_is_one_line(self):
        for folder in ("alone", "beside/scripts", "empty/lib/cistern"):
            said = self.says(self.copied(folder))
            self.assertRegex(said, r'^cistern_trace.NoTool: cistern-trace not found; value seen "[^"]+"; allowed: .*; try: make, .*$')
        with self.assertRaisesRegex(written.cistern_trace.NoTool, 'value seen "/nowhere"'):
            written.cistern_trace.read(self.at / "a recording", home="/nowhere")

    def test_a_launcher_that_has_no_build(self):
        (self.at / "bin").mkdir()
        shutil.copy(written.ROOT / "scripts/cistern", self.at / "bin")
        said = self.says(self.copied("somewhere"), f"{self.at / 'bin'}:/usr/bin:/bin")
        self.assertRegex(said, "^cistern_trace.NoTool: no build of Cistern found; ")

    def test_files_that_cannot_be_read(self):
        with self.assertRaises(FileNotFoundError):
            written.read(self.at / "none")
        with self.assertRaisesRegex(written.cistern_trace.Refused, "a recording cannot be read: Is a directory; "):
            written.read(self.at)

    def test_a_file_of_any_name(self):
        here = pathlib.Path.cwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.at)
        for file in (b"--json", b"-h", b"a\nb\x1b[2J", b"\xff\xfe"):
            shutil.copy("a recording", file)
            for path in (file, os.fsdecode(file), pathlib.Path(os.fsdecode(file))):
                self.assertEqual(len(written.read(path).events), 1)


if __name__ == "__main__":
    unittest.main()
