#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Source lines that `cistern trace` tells, from the debug information that a compiler writes, of each version, and from
damaged ones."""

import os
import pathlib
import random
import re
import subprocess
import tempfile
import unittest

import written
from hostile_symbols_test import recording_naming

# Each NAME is a place in the code; LINES has the line of code.c that is to be told of it.
HEADER = """static inline void inside(void) {
  MARK(in_header);
}
"""
SOURCE = """#define MARK(name) asm volatile(".globl " #name "\\n" #name ": nop\\nnop")
#include "inside.h"
#define UNUSED __attribute__((used, section(".text.unused")))
void UNUSED unused(void) { MARK(left_out); }
void __attribute__((noinline)) in_lines(void) {
  MARK(first);


  inside();
  MARK(last);
}
int main(void) { in_lines(); MARK(in_main); }
"""
LINES = {"first": 6, "in_header": 9, "last": 10, "in_main": 12}


class Lines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "src").mkdir()
        (self.folder / "src/code.c").write_text(SOURCE)
        (self.folder / "src/inside.h").write_text(HEADER)

    def built(self, *options):
        program = self.folder / "program"
        subprocess.run([os.environ.get("CC", "cc"), *options, "src/code.c", "-o", program], check=True, cwd=self.folder)
        return program

    def places(self, program):
        """By name: what is told of it."""
        symbols = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
        return {name: self.place(program, int(re.search(rf"(\w+) \w {name}$", symbols, re.M)[1], 16)) for name in LINES}

    def place(self, program, address):
        recording = self.folder / "recording"
        recording.write_bytes(recording_naming([program], at=address))
        result = subprocess.run([written.BUILD / "cistern-trace", recording, "--events"], capture_output=True, check=True, text=True)
        self.assertEqual(result.stderr, "")
        return re.search(r'stack="(.*)"', result.stdout)[1]

    def test_each_version_of_the_table_and_each_optimisation(self):
        for version in ("2", "3", "4", "5"):
            for options in (["-O0"], ["-O2"], ["-O2", "-ffunction-sections", "-Wl,--gc-sections"]):
                with self.subTest(version=version, options=options):
                    told = self.places(self.built(f"-gdwarf-{version}", *options))
                    for name, text in told.items():
                        function = "main" if name == "in_main" else "in_lines"
                        if name == "in_header" and options == ["-O0"]:
                            self.assertRegex(text, r"^inside\+0x[0-9a-f]+ \(program, src/inside.h:2\)$")
                        else:
                            self.assertRegex(text, rf"^{function}\+0x[0-9a-f]+ \(program, src/code.c:{LINES[name]}\)$")

    def test_what_cannot_be_read_has_no_line(self):
        for options in (["-g0"], ["-g", "-gz=zlib"]):
            with self.subTest(options=options):
                for text in self.places(self.built("-O2", *options)).values():
                    self.assertRegex(text, r"^(main|in_lines)\+0x[0-9a-f]+ \(program\)$")

    def test_damaged_tables_end_with_the_names_of_functions(self):
        """Whatever stands in the table."""
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))
        chance = random.Random(seed)
        for version in ("4", "5"):
            program = self.built(f"-gdwarf-{version}", "-O2", "-no-pie")
            sections = subprocess.run(["readelf", "-SW", program], check=True, capture_output=True, text=True).stdout
            begin, size = (int(number, 16) for number in re.search(r"\.debug_line +PROGBITS +\w+ (\w+) (\w+)", sections).groups())
            good = program.read_bytes()
            symbols = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
            address = int(re.search(r"(\w+) \w last", symbols)[1], 16)
            for round_ in range(60):
                with self.subTest(version=version, seed=seed, round=round_):
                    data = bytearray(good)
                    for _ in range(chance.randrange(1, 20)):
                        data[begin + chance.randrange(size)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
                    program.write_bytes(data)
                    self.assertRegex(self.place(program, address), r"^in_lines\+0x[0-9a-f]+ \(program(, .*)?\)$")


if __name__ == "__main__":
    unittest.main()
