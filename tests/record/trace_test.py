#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cistern trace` refuses what is no whole recording, with the reason; its output is bounded, and others can read it."""

import random
import subprocess
import unittest

import written
from made_up import recording_of, varint

HEAD = 4096
# What one flipped bit of the head may lead to: "" where the file can still be read. Bytes from, to.
FLIPS = ((0, 8, "no recording; byte 0: "), (8, 12, "a recording of another version; byte 8: "),
         (12, 16, "a damaged recording; byte 12: a head of "),
         (16, 24, "|a truncated recording; |a recording of more than 8 GiB; byte 16: |a damaged recording; "),
         (24, 44, ""), (44, 48, "|a damaged recording; byte 44: flags "), (48, 2368, ""),
         (2368, HEAD, "a damaged recording; byte 2368: the rest of the head is not zero; "))


class Trace(written.Written):
    def refused(self, data, reasons):
        """One of the reasons, with `|` between them; "" is none."""
        path = self.at / "bad.rec"
        path.write_bytes(data)
        result = written.trace(path)
        if (result.returncode, result.stderr) == (0, ""):
            self.assertIn("", reasons.split("|"))
            return
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, rf"^cistern: error: {path}: [^\n]*; byte \d+: [^\n]*; try: [^\n]+\n$")
        reason = result.stderr.partition(f"{path}: ")[2]
        self.assertTrue(any(part and reason.startswith(part) for part in reasons.split("|")), (reason, reasons))
        with self.assertRaises(written.cistern_trace.Refused) as refused:
            written.read(path)
        self.assertEqual(f"cistern: error: {refused.exception}\n", result.stderr)

    def test_damage_is_refused_with_its_reason(self):
        data = self.written(7, 2, 20).read_bytes()
        seed = random.randrange(2**32)
        print("seed", seed)
        choice = random.Random(seed)
        for _ in range(60):
            size = choice.randrange(len(data))
            self.refused(data[:size], f"a truncated recording; byte {size}: the file ends " if size >= 8 else "no recording; byte 0: ")
            at = choice.choice((choice.randrange(64), choice.randrange(len(data))))
            flipped = bytearray(data)
            flipped[at] ^= 1 << choice.randrange(8)
            reasons = [reasons for begin, end, reasons in FLIPS if begin <= at < end] or ["a damaged recording; byte "]
            with self.subTest(at=at):
                self.refused(bytes(flipped), reasons[0])

    def test_a_name_that_no_recorder_writes_is_refused(self):
        self.refused(recording_of((2, b"\1\1" + varint(4096) + b"x" * 4096)), "")
        self.refused(recording_of((2, b"\1\1" + varint(4097) + b"x" * 4097)),
                     f"a damaged recording; byte {HEAD + 16}: bytes of a name 4097 of 4096; ")

    def test_what_is_written_is_bounded_by_the_recording(self):
        name = b"x" * 4096
        definitions = b"\1\1" + varint(len(name)) + name + b"".join(b"\2" + varint(i) + varint(i - 1) + b"\1" for i in range(1, 65))
        frees = b"\x0d\x40" + b"\2\0\0" * 20_000  # in the innermost range
        path = self.at / "wide.rec"
        path.write_bytes(recording_of((2, definitions), (1, frees)))
        result = written.trace(path, "--events")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1))
        self.assertIn("a thousand times the recording", result.stderr)
        self.assertEqual(len(result.stdout), (64 << 20) + 1000 * path.stat().st_size)

    def test_the_csv_can_be_replayed(self):
        rows = written.trace(self.written(3, 4, 200), "--csv").stdout.splitlines()
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
        csv.write_text(written.trace(self.written(5, 4, 200), "--csv").stdout, encoding="utf-8")
        rows = [row.split(",") for row in csv.read_text(encoding="utf-8").splitlines()[1:]]
        self.assertGreater(len(rows), 200)
        told = [f"{len(sizes)} {sum(sizes)}" for op in ("alloc", "free")
                for sizes in [[int(row[3]) for row in rows if row[1] == op]]]
        read = subprocess.run([self.at / "read_csv", csv], capture_output=True, text=True, check=True)
        self.assertEqual(read.stdout, " ".join(told) + "\n")

    def test_an_option_that_cannot_be_used_is_one_line(self):
        path = self.written(3, 1, 10)
        for options in (("--by", "colour"), ("--top",), ("--frobnicate",), ("--min-bytes", "many"), ("--from", "-1")):
            result = written.trace(path, *options)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1))


if __name__ == "__main__":
    unittest.main()
