#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Call sites in the report and in `cistern trace` name who asked, not the functions that allocate for others: with the
runtime linked in or not, by source line where debug information is there, by addresses where no symbols are."""

import json
import os
import re
import shutil
import subprocess
import unittest

import recordings_test

BUILD = recordings_test.BUILD
MIB = 1 << 20
ASKERS = {"by_runtime()": 2 * MIB, "by_operator_new()": 3 * MIB, "by_c10()": 4 * MIB,
          "by_rmm(rmm::mr::resource&, unsigned long)": 5 * MIB}


class Wrappers(unittest.TestCase):
    setUp, start, run_it = (getattr(recordings_test.Recordings, name) for name in ("setUp", "start", "run_it"))

    def record(self, program):
        """Of each call site: its bytes a block, as the report and as the recording have it."""
        shutil.copy(BUILD / "programs" / program, self.folder)
        self.run_it(self.folder / program, CISTERN_SITES="stacks", CISTERN_REPORT="json", CISTERN_REPORT_FILE="report")
        report = json.loads((self.folder / "report").read_text())["holders"][0]["sites"]["bytes"]
        os.remove(self.folder / "report")
        return self.sizes(report), self.sizes(self.traced())

    def traced(self):
        result = subprocess.run([BUILD / "cistern-trace", self.folder / "recording", "--json"], capture_output=True, check=True)
        os.remove(self.folder / "recording")
        return json.loads(result.stdout)["sites"]

    def sizes(self, rows):
        return {row["name"]: row["bytes"] // row["allocations"] for row in rows}

    def test_who_asked_is_named_and_where(self):
        for kind in ("shared", "static"):
            reported, traced = self.record(f"behind_wrappers_{kind}")
            with self.subTest(kind):
                self.assertEqual({re.sub(r"\+0x.*", "", name): size for name, size in reported.items()}, ASKERS)
                self.assertEqual({re.sub(r"\+0x.*", "", name): size for name, size in traced.items()}, ASKERS)
                source = (recordings_test.ROOT / "tests/preload/programs/sites/behind_wrappers.cu").read_text().splitlines()
                for name in traced:
                    self.assertIn("behind_wrappers.cu:", name)
                    line = int(re.search(r"\.cu:(\d+)\)$", name)[1])
                    function = name.partition("(")[0]
                    begin = next(i for i, text in enumerate(source, 1) if f"NOINLINE void {function}(" in text)
                    self.assertIn(line, range(begin + 1, source.index("}", begin) + 1), f"{name} begins on line {begin}")

    def test_a_program_without_symbols_is_told_of_by_addresses_of_the_callers_too(self):
        stripped = self.folder / "stripped"
        subprocess.run(["strip", "-o", stripped, BUILD / "programs" / "behind_wrappers_static"], check=True)
        self.run_it(stripped, CISTERN_SITES="stacks", CISTERN_REPORT="json", CISTERN_REPORT_FILE="report")
        report = json.loads((self.folder / "report").read_text())["holders"][0]["sites"]["bytes"]
        self.assertEqual(set(self.sizes(report).values()), set(ASKERS.values()))
        for name in self.sizes(report):
            self.assertRegex(name, r"^0x[0-9a-f]+ \(stripped\) from 0x[0-9a-f]+ \(stripped\) from 0x[0-9a-f]+ \(stripped\)$")
        traced = self.sizes(self.traced())
        self.assertEqual(set(traced.values()), set(ASKERS.values()))
        for name in traced:
            self.assertRegex(name, r"^stripped\+0x[0-9a-f]+ from stripped\+0x[0-9a-f]+ from stripped\+0x[0-9a-f]+$")


if __name__ == "__main__":
    unittest.main()
