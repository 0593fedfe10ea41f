#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `cistern trace` sums up of a recording, against sums of the events that scripts/cistern_trace.py reads."""

import collections
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import cistern_trace  # noqa: E402
import readers_test  # noqa: E402

WIDTHS = 11, 11, 7, 14, 14, 14


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


class Summary(readers_test.Written):
    def test_the_kinds_of_memory(self):
        path = self.written(3, 4, 200)
        expected = [line(f"device {device} {memory}", row[:3], [f"{number / 2**20:.1f} MiB" for number in row[3:]])
                    for (device, memory), row in Kinds(cistern_trace.read(path).events).rows.items() if row[0] + row[2]]
        self.assertGreater(len(expected), 10)
        shown = self.trace(path).stdout.splitlines()
        begin = shown.index(line("memory", ("allocations", "frees", "refused"), ("bytes", "peak live", "live at end")))
        kinds = shown[begin + 1:shown.index("", begin)]
        self.assertEqual(sorted(kind for kind in kinds if " chunks " not in kind), sorted(expected))


if __name__ == "__main__":
    unittest.main()
