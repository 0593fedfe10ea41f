#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cistern plan`: what it prints, writes, draws, and shows on a terminal."""

import csv
import itertools
import os
import pty
import re
import subprocess
import xml.etree.ElementTree

import home


def pieces_until_closed(terminal):
    """What was written to it, which may come in several pieces."""
    try:
        while piece := terminal.read(1 << 16):
            yield piece
    except OSError:  # EIO: the other end is closed
        pass


class Plan(home.LauncherTest):
    TABLE = "id,lower,upper,size\na,0,2,4\nb,1,3,4\nc,2,4,4\n"

    def test_a_plan_is_written_and_summed_up(self):
        table = self.file("lives.csv", self.TABLE)
        out = self.folder / "plan.csv"
        result = self.cistern("plan", table, "-o", out, "--svg", self.folder / "plan.svg")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("planned      8 bytes, 0.000 % above the lower bound", result.stdout)
        self.assertEqual(out.read_text().splitlines()[0], "id,lower,upper,size,offset")
        self.assertEqual(len(self.rectangles()), 3)

    def rectangles(self):
        """(left, right, top, bottom) of each block, in the order of the table."""
        root = xml.etree.ElementTree.parse(self.folder / "plan.svg").getroot()
        all_of = [[float(element.get(name)) for name in ("x", "y", "width", "height")]
                  for element in root.iter() if element.tag.endswith("}rect") and element.get("stroke")]
        return [(x, x + width, y, y + height) for x, y, width, height in all_of]

    def test_the_picture_has_lifetimes_over_addresses_and_the_lower_bound(self):
        table = self.file("lives.csv", "id,lower,upper,size\na,0,2,4\nb,2,4,4\nc,4,5,2\nd,1,3,1\n")
        out, height = self.folder / "out.csv", 800
        said = self.cistern("plan", table, "-o", out, "--svg", self.folder / "plan.svg", "--level", "0").stdout
        planned, bound = (int(re.search(rf"{name} +(\d+) bytes", said)[1]) for name in ("planned", "lower bound"))
        self.assertEqual((planned, bound), (7, 5))
        up = height / planned
        with out.open(newline="", encoding="utf-8") as file:
            blocks = [{name: int(row[name]) for name in ("lower", "upper", "size", "offset")} for row in csv.DictReader(file)]
        drawn = self.rectangles()
        self.assertEqual(len(drawn), len(blocks))
        for block, (_, _, top, bottom) in zip(blocks, drawn):
            self.assertAlmostEqual(bottom, height - block["offset"] * up, delta=0.02)
            self.assertAlmostEqual(top, bottom - block["size"] * up, delta=0.02)
        for (one, here), (other, there) in itertools.combinations(zip(blocks, drawn), 2):
            together = one["lower"] < other["upper"] and other["lower"] < one["upper"]
            self.assertEqual(here[0] + 0.02 < there[1] and there[0] + 0.02 < here[1], together)
        text = (self.folder / "plan.svg").read_text(encoding="utf-8")
        self.assertIn(f"<path d=\"M0 {height - bound * up:.2f}H", text)
        self.assertIn("lower bound 5 bytes</text>", text)

    def test_a_terminal_is_shown_how_far_the_search_is(self):
        # At most 6 bytes live, and 7 is the least that a plan takes.
        lives = ((0, 2, 3), (0, 3, 3), (4, 7, 3), (2, 6, 1), (6, 8, 3), (2, 4, 2), (7, 8, 3), (3, 6, 2), (3, 4, 1))
        rows = "".join(f"{i},{lower},{upper},{size}\n" for i, (lower, upper, size) in enumerate(lives))
        table, (ours, terminal) = self.file("lives.csv", "id,lower,upper,size\n" + rows), pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as shown:
            with os.fdopen(terminal, "wb", buffering=0) as end:
                done = subprocess.run((self.home / "cistern-plan", table), stdout=subprocess.DEVNULL, stderr=end, check=False)
            text = b"".join(pieces_until_closed(shown)).decode()
        self.assertEqual(done.returncode, 0)
        self.assertRegex(text, r"\A(\r\x1b\[K[a-z, ]+: \d+ bytes, \d+\.\d\d % above the lower bound)+\r\x1b\[K\Z")
        self.assertIn(": 7 bytes, 16.67 % above", text)

    def test_a_plan_begins_with_the_last_one(self):
        table, last = self.file("lives.csv", self.TABLE), self.folder / "last.plan"
        self.assertEqual(self.cistern("plan", table, "-o", last).returncode, 0)
        self.assertIn("last plan", self.cistern("plan", table, "--last", last).stdout)
        result = self.cistern("plan", table, "--last", table)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1))

    def test_the_log_tells_whose_memory_is_taken_over(self):
        table = self.file("lives.csv", self.TABLE)
        said = self.cistern("plan", table, "--print-log").stdout
        self.assertIn("reuse 1: 4 bytes for c; of a block of 4 bytes of a; 4 saved\n", said)
        self.assertIn("1 of 3 requests take over another's memory; 12 bytes requested, 8 planned, 4 saved\n", said)

    def test_what_is_skipped_takes_over_no_memory_and_leaves_none(self):
        table, out = self.file("lives.csv", self.TABLE), self.folder / "out.csv"
        for words in (("--skip", "a,none"), ("--skip", "c,none"), ("--skip-sizes", "4")):
            said = self.cistern("plan", table, "-o", out, "--print-log", *words).stdout
            self.assertIn("reuse        0 of 3", said)
            self.assertIn("planned      12 bytes, 0.000 %", said)
            self.assertIn("kept apart   ", said)
        self.assertIn("kept apart   4 bytes: 3 requests\n", said)
        self.assertIn("kept apart   none: 0 requests\n", self.cistern("plan", table, "--skip", "a,none").stdout)

    def test_level_0_reuses_memory_of_the_same_size_alone(self):
        table = self.file("lives.csv", "id,lower,upper,size\na,0,2,4\nb,2,4,4\nc,4,5,2\n")
        self.assertIn("planned      4 bytes", self.cistern("plan", table).stdout)
        said = self.cistern("plan", table, "--level", "0", "--print-log").stdout
        self.assertIn("1 of 3 requests take over", said)
        self.assertIn("planned      6 bytes, 50.000 % above", said)

    def test_the_training_run_is_planned_at_its_lower_bound(self):
        trace = home.ROOT / "tests" / "data" / "torch-transformer-train.events.csv"
        result = self.cistern("plan", trace, "--steps", "10000000")
        self.assertIn("planned      1999716864 bytes, 0.000 % above the lower bound", result.stdout)

    def test_what_cannot_be_planned_is_one_line(self):
        other = self.file("other", "text")
        result = self.cistern("plan", other)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertRegex(result.stderr, "^cistern: error: .*: .*; value seen .*; allowed: .*; try: .*\n$")
        self.assertEqual(self.cistern("plan", other + ".none").returncode, 1)
        for words in (("--seconds", "-1"), ("--alignment", "3"), ("--memory", "tape"), ("--colour", "x"), ("--steps",),
                      ("--level", "2"), ("--skip", "a,"), ("--skip-sizes", "big"), ("--level", "0", "--last", other)):
            result = self.cistern("plan", other, *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1))
        self.refused(self.cistern("plan"), 2, "no recording given")
        self.assertIn("options of plan", self.cistern("plan", "--help").stdout)


if __name__ == "__main__":
    home.main()
