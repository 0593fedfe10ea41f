#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program did without Cistern is taken for another run only where nothing of it can differ, and no test
fails for what was kept."""

import collections
import pathlib
import tempfile
import unittest

import bare_runs
import expectations
import pairs

WORDS = {"programs": "P", "source": "S", "data": "D", "seed": "7"}


def printed(text, status=0):
    return pairs.Outcome(status, text, "", "cuInit flags=0 -> 0\n", collections.Counter(cuInit=1), "", "", "")


class Built(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bare-runs-")
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        for name in ("programs", "sim", "toolkit", "other toolkit"):
            (self.build / name).mkdir()
        self.program = self.build / "programs" / "some_lazy"
        self.program.write_bytes(b"\x7fELF reads CISTERN_LOG_FILE\0")

    def expected(self, *lines):
        test = expectations.Expectations("some/one", WORDS, None)
        for line in lines:
            test.read(line)
        return test

    def key(self, command, *lines, toolkit="toolkit"):
        words = [str(self.program) if word == "P" else word for word in command.split()]
        return bare_runs.Kept(self.build, self.build / toolkit).key(words, self.expected(*lines))


class Keys(Built):
    def test_a_setting_that_the_program_does_not_read_is_none_of_a_run_without_cistern(self):
        plain = self.key("P 1")
        self.assertEqual(self.key("env FLAGS_allocator_strategy=legacy GE_USE_STATIC_MEMORY=2 P 1"), plain)
        self.assertEqual(self.key("P 1", "env CISTERN_IDLE_MS=3", "env-with SIMCUDA_FAIL=x", "report"), plain)
        for other in ("P 2", "P 1 1", "env REFUSE=mmap:1 P 1", "env CISTERN_LOG_FILE=x P 1"):
            self.assertNotEqual(self.key(other), plain, other)
        for line in ("env CISTERN_LOG_FILE=x", "env SIMCUDA_MEMORY_MB=8", "preload some_lazy",
                     "preload-behind some_lazy", "driver-lacks cuInit", "toolkit-runtime"):
            self.assertNotEqual(self.key("P 1", line), plain, line)

    def test_nothing_is_kept_where_it_may_depend_on_more(self):
        self.assertIsNone(self.key("/bin/sh -c P"))
        self.assertIsNone(self.key("env -u HOME P"))
        self.assertIsNone(self.key("P", "values cuMemAlloc_v2 bytes without 5"))

    def test_what_was_built_since_is_run_again(self):
        kept, before = bare_runs.Kept(self.build), self.key("P")
        kept.keep(before, {"status": 0})
        self.assertEqual(bare_runs.Kept(self.build).find(self.key("P")), {"status": 0})
        (self.build / "programs" / "another").write_bytes(b"")
        self.assertIsNone(kept.find(self.key("P")))

    def test_the_runtime_of_another_toolkit_is_run_again(self):
        with_it = self.key("P", "toolkit-runtime")
        self.assertEqual(self.key("P", "toolkit-runtime"), with_it)
        self.assertNotEqual(self.key("P", "toolkit-runtime", toolkit="other toolkit"), with_it)
        self.assertEqual(self.key("P", toolkit="other toolkit"), self.key("P"))
        (self.build / "toolkit" / "libcudart.so").write_bytes(b"newer")
        self.assertNotEqual(self.key("P", "toolkit-runtime"), with_it)

    def test_what_an_earlier_build_kept_is_removed(self):
        (self.build / "bare").mkdir()
        (self.build / "bare" / "1234abcd.json").write_text("{}")  # one folder for all builds, once
        for built in range(3):
            self.program.write_bytes(b"\x7fELF" + bytes(built))
            kept = bare_runs.Kept(self.build)
            for command in ("P 1", "P 2"):
                kept.keep(self.key(command), {"status": built})
            self.assertEqual(kept.find(self.key("P 1")), {"status": built})
        self.assertEqual([path.parent for path in (self.build / "bare").rglob("*.json")], [kept.folder] * 2)
        self.assertEqual(list((self.build / "bare").iterdir()), [kept.folder])

    def test_two_runs_of_one_path_are_not_taken_for_each_other(self):
        kept = bare_runs.Kept(self.build)
        kept.path = lambda key: kept.folder / "one.json"
        kept.keep("this", {"status": 0})
        self.assertEqual(kept.find("this"), {"status": 0})
        self.assertIsNone(kept.find("that"))


class Comparisons(Built):
    def setUp(self):
        super().setUp()
        self.runs = []
        self.says = {False: printed("fine\n"), True: printed("fine\n")}
        self.runner = collections.namedtuple("Fake", "kept bare for_bare_runs run words")(
            bare_runs.Kept(self.build), False, None, self.run_once, {})

    def run_once(self, command, expected, preload):
        self.runs.append(preload)
        return self.says[preload]

    def findings(self, *lines):
        self.runs.clear()
        return pairs.compare(self.runner, [str(self.program)], self.expected(*lines))[0]

    def test_the_program_runs_alone_once(self):
        calls = "calls cuInit without =1"
        self.assertEqual((self.findings(calls), self.runs), ([], [False, True]))
        self.assertEqual((self.findings(calls), self.runs), ([], [True]))

    def test_what_was_kept_does_not_make_a_test_fail(self):
        self.findings()
        self.says = {False: printed("other\n"), True: printed("other\n")}
        self.assertEqual((self.findings(), self.runs), ([], [True, False]))

    def test_what_was_kept_does_not_make_a_test_pass(self):
        self.findings()
        self.says[True] = printed("other\n")
        self.assertIn("stdout differs", self.findings()[0])
        self.assertIn("does not print", self.findings("prints this")[0])

    def test_what_is_not_as_expected_is_not_kept(self):
        self.says[False] = printed("fine\n", status=3)
        for _ in range(2):
            self.assertTrue(self.findings())
            self.assertEqual(self.runs[0], False)


if __name__ == "__main__":
    unittest.main()
