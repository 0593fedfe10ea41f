#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/TRAPS.md has each trap once, and every test that it names exists."""

import pathlib
import re
import subprocess
import unittest

TESTS = pathlib.Path(__file__).resolve().parents[1]
TRAPS = [f"T{i}" for i in range(1, 106)]
ROW = re.compile(r"\| (T\d+) \| (.+) \| (.+) \|")
WITHOUT = re.compile(r"\*(?:Reason|GPU)\*: .{15,}")


def known_tests():
    """Whether there is a test of this name."""
    pairs = subprocess.run((TESTS / "preload" / "run-pair", "--list"), check=True, capture_output=True, text=True).stdout.split()
    units = set()
    for path in (TESTS / "unit").rglob("*_test.cc"):
        units |= set(re.findall(r'TEST_CASE\(\s*"([^"]+)"', path.read_text(encoding="utf-8")))

    def exists(name):
        if name.startswith("unit: "):
            return name[len("unit: "):] in units
        file, _, function = name.partition(" ")
        if file.endswith(("_test.py", "_test.sh")):
            path = TESTS / file
            return path.is_file() and (not function or f"    def {function}(self)" in path.read_text(encoding="utf-8"))
        return name in pairs
    return exists


def findings(page, exists):
    rows = [match.groups() for line in page.splitlines() if (match := ROW.fullmatch(line))]
    numbers = [number for number, _, _ in rows]
    found = [f"{number}: {numbers.count(number)} lines, one is needed" for number in TRAPS if numbers.count(number) != 1]
    found += [f"{number}: there is no such trap" for number in numbers if number not in TRAPS]
    for number, _, answer in rows:
        names = re.findall(r"`([^`]+)`", answer)
        found += [f"{number}: there is no test {name}" for name in names if not exists(name)]
        if not names and not WITHOUT.search(answer):
            found.append(f"{number}: neither a test nor a reason: {answer}")
    return found


class Traps(unittest.TestCase):
    def test_each_has_a_test_or_a_reason(self):
        self.assertEqual(findings((TESTS / "TRAPS.md").read_text(encoding="utf-8"), known_tests()), [])

    def test_what_is_wrong_is_found(self):
        page = "".join(f"| {number} | it fails | `a/b` |\n" for number in TRAPS)
        exists = {"a/b"}.__contains__
        self.assertEqual(findings(page, exists), [])
        for old, new in (("| T7 | it fails | `a/b` |\n", ""), ("| T7 |", "| T8 |"), ("| T7 |", "| T107 |"), ("`a/b`", "`a/c`"),
                         ("`a/b`", "none yet"), ("`a/b`", "*GPU*: later")):
            self.assertNotEqual(findings(page.replace(old, new, 1), exists), [], new)

    def test_tests_are_known_by_file_function_case_and_unit(self):
        exists = known_tests()
        for there in ("lookup/next_chain", "lookup/next_hook.first", "hygiene/traps_test.py",
                      "hygiene/traps_test.py test_what_is_wrong_is_found", "unit: nothing set: the pool is on and nobody is told anything"):
            self.assertTrue(exists(there), there)
        for gone in ("lookup/next_chain.first", "lookup/next_hook", "hygiene/trap_test.py", "hygiene/traps_test.py test_nothing", "unit: none"):
            self.assertFalse(exists(gone), gone)


if __name__ == "__main__":
    unittest.main()
