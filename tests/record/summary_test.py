#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `cistern trace` sums up of a recording, against sums of the events that scripts/cistern_trace.py reads."""

import collections
import datetime
import fnmatch
import json
import unittest

import written
from written import cistern_trace

WIDTHS = 11, 11, 7, 14, 14, 14
FLAGS = {"ended": cistern_trace.ENDED, "has_sites": cistern_trace.HAS_SITES, "pooled": cistern_trace.POOLED,
         "cut_short": cistern_trace.CUT_SHORT}
FLAGS_AT = 44  # in the file


def key_space(memory):
    return memory if memory in ("array", "physical") else "addresses"


class Kinds:
    """Of each kind of memory of a device: allocations, frees, refused, bytes, most live, live."""

    def __init__(self, events):
        self.rows, self.live = collections.defaultdict(lambda: [0] * 6), {}
        for event in events:
            key = key_space(event.memory), event.address
            if event.type == "refused":
                self.rows[event.device, event.memory][2] += 1
            elif event.type == "allocated":
                self.end(key)
                self.begin(key, event)
            elif event.type == "freed":
                block = self.end(key)
                if block:
                    self.rows[block.device, block.memory][1] += 1
            elif event.type == "context-ended":
                for of, block in list(self.live.items()):
                    if block.context == event.context and block.memory not in ("stream-ordered", "physical"):
                        self.end(of)

    def begin(self, key, event):
        row = self.rows[event.device, event.memory]
        row[0] += 1
        row[3] += event.bytes
        row[5] += event.bytes
        row[4] = max(row[4], row[5])
        self.live[key] = event

    def end(self, key):
        block = self.live.pop(key, None)
        if block:
            self.rows[block.device, block.memory][5] -= block.bytes
        return block


def line(first, counts, bytes_of):
    columns = zip([*counts, *bytes_of], WIDTHS, strict=True)
    return f"{first:26}" + "".join(f" {text:>{width}}" for text, width in columns)


def path_of(recording, number):
    """Of a range: the names from the outermost to its own."""
    names = []
    while number:
        names.insert(0, recording.names[recording.ranges[number].name])
        number = recording.ranges[number].parent
    return "/".join(names)


class Summary(written.Written):
    def test_the_kinds_of_memory(self):
        path = self.written(3, 4, 200)
        expected = [line(f"device {device} {memory}", row[:3], [f"{number / 2**20:.1f} MiB" for number in row[3:]])
                    for (device, memory), row in Kinds(written.read(path).events).rows.items() if row[0] + row[2]]
        self.assertGreater(len(expected), 10)
        shown = written.trace(path).stdout.splitlines()
        begin = shown.index(line("memory", ("allocations", "frees", "refused"), ("bytes", "peak live", "live at end")))
        kinds = shown[begin + 1:shown.index("", begin)]
        self.assertEqual(sorted(kind for kind in kinds if " chunks " not in kind), sorted(expected))

    def test_when_it_began(self):
        path = self.written(3, 1, 10)
        seconds = written.read(path).head.began_unix_ns // 10**9
        began = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
        self.assertIn(f"\nbegan       {began:%Y-%m-%d %H:%M:%S} UTC, ", written.trace(path).stdout)

    def test_the_json_tells_each_flag_of_the_head_and_the_paths_of_ranges(self):
        path = self.written(3, 2, 200)
        data = bytearray(path.read_bytes())
        for flags in (0, *FLAGS.values()):
            data[FLAGS_AT] = flags
            path.write_bytes(data)
            told = json.loads(written.trace(path, "--json").stdout)
            self.assertEqual([told[name] for name in FLAGS], [flag == flags for flag in FLAGS.values()])
        recording = written.read(path)
        names = {row["number"]: row["name"] for row in told["ranges"] if row["number"] != 0}
        self.assertEqual(names, {number: path_of(recording, number) for number in names})
        self.assertGreater(len(names), 5)

    def test_a_glob_selects_what_was_allocated_where_it_fits(self):
        path = self.written(3, 2, 200)
        recording = written.read(path)
        texts = {"range": lambda event: [path_of(recording, event.range)],
                 "phase": lambda event: [recording.names[recording.phases[event.phase]]],
                 "site": lambda event: [recording.names[name] for frame in recording.sites[event.site]
                                        for name in (frame.file, frame.function)]}
        for what, texts_of in texts.items():
            glob = "/lib/*[1-5].so"
            chosen = [event.bytes for event in recording.events
                      if event.type == "allocated" and any(fnmatch.fnmatchcase(text, glob) for text in texts_of(event))]
            told = json.loads(written.trace(path, "--json", f"--{what}", glob).stdout)["memory"]
            with self.subTest(what):
                self.assertEqual((sum(row["allocations"] for row in told), sum(row["bytes"] for row in told)),
                                 (len(chosen), sum(chosen)))


if __name__ == "__main__":
    unittest.main()
