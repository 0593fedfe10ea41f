#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which mutants a change chooses, which tests are tried first, and what becomes of a failing one."""

import importlib.machinery
import importlib.util
import math
import os
import pathlib
import subprocess
import tempfile
import time
import types
import unittest

import catalogue
import change
import trial
import work_tree

HERE = pathlib.Path(__file__).resolve().parent


def load_run():
    loader = importlib.machinery.SourceFileLoader("run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
    loader.exec_module(module)
    return module


def mutant(name, function="f", subject="subject"):
    return catalogue.Mutant(name, function, "old();", "", subject, "")


def a_test(name, command=("true",), limit_s=math.inf, skipped=None):
    kind = next(kind for prefix, kind in trial.KINDS.items() if name.startswith(prefix))
    return trial.Test(name, list(command), "/", {}, limit_s, skipped, *kind)


class InFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")


class Changes(InFolder):
    def setUp(self):
        super().setUp()
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("shim/a.cc", "int one() {\n  old();\n}\n\nint two() {\n  old();\n}\n")
        self.write("shim/b.cc", "int three() {\n  old();\n}\n" + "// long\n" * 20)
        self.commit()

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *words],
                       cwd=self.folder, check=True)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "one")

    def chosen(self, base=None):
        mutants = [mutant(name, name) for name in ("one", "two", "three")]
        sources = catalogue.Sources(self.folder, folders=["shim"])
        touched = change.touched_lines(self.folder, base or change.base_of(self.folder))
        return [[m.name for m in some] for some in change.touched_mutants(mutants, sources, touched)]

    def test_functions_that_were_touched_come_before_others_of_their_files(self):
        self.write("shim/a.cc", "int one() {\n  old();\n}\n\nint two() {\n  old();\n  more();\n}\n")
        self.assertEqual(self.chosen(), [["two"], ["one"]])

    def test_a_line_taken_out_touches_its_function(self):
        self.write("shim/a.cc", "int one() {\n  old();\n  gone();\n}\n\nint two() {\n  old();\n}\n")
        self.commit()
        self.write("shim/a.cc", "int one() {\n  old();\n}\n\nint two() {\n  old();\n}\n")
        self.assertEqual(self.chosen(), [["one"], ["two"]])

    def test_a_file_that_moved_is_not_touched_and_a_new_one_is(self):
        (self.folder / "shim/b.cc").rename(self.folder / "shim/c.cc")
        self.git("add", "-A")
        self.assertEqual(self.chosen(), [[], []])
        self.git("reset", "--quiet")
        self.assertEqual(self.chosen(), [["three"], []])

    def test_without_uncommitted_changes_it_is_the_last_commit(self):
        self.write("shim/b.cc", "int three() {\n  old();\n  more();\n}\n")
        self.commit()
        self.assertEqual(change.base_of(self.folder), "HEAD~1")
        self.assertEqual(self.chosen(), [["three"], []])

    def test_on_a_branch_it_is_all_since_the_branch_began(self):
        self.git("checkout", "--quiet", "-b", "mine")
        for more in ("", "  more();\n"):
            self.write("shim/b.cc", "int three() {\n  new();\n  old();\n" + more + "}\n")
            self.commit()
        self.assertEqual(self.chosen(), [["three"], []])
        self.assertEqual(self.chosen("HEAD"), [[], []])

    def test_an_unknown_revision_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no-such"):
            self.chosen("no-such")


class Order(InFolder):
    def order(self, of, path, caught_by):
        memory = trial.Memory(self.folder / "memory.json")
        memory.caught_by, memory.seconds = caught_by, {"preload/quick": 0.1, "preload/slow": 5}
        names = ["unit:other", "unit:a fill ends", "preload/slow", "preload/quick", "preload/filled_late"]
        mutants = [of, mutant("neighbour", "f", "fills")]
        lists = trial.phases(of, path, mutants, [a_test(name) for name in names], memory)
        return [[test.name for test in some] for some in lists]

    def test_the_likely_ones_come_first_and_the_slow_ones_last(self):
        self.assertEqual(self.order(mutant("filling_forgotten", "g", "fills"), "x.cc", {}), [
            ["unit:a fill ends"], ["preload/filled_late"], ["unit:other"], ["preload/quick", "preload/slow"]])

    def test_what_caught_it_last_is_first_of_all(self):
        order = self.order(mutant("filling_forgotten", "g", "fills"), "x.cc", {"filling_forgotten": "preload/slow"})
        self.assertEqual(order[0], ["preload/slow"])

    def test_what_caught_a_neighbour_is_likely(self):
        order = self.order(mutant("filling_forgotten", "g", "fills"), "x.cc", {"neighbour": "preload/slow"})
        self.assertEqual(order[1], ["preload/slow", "preload/filled_late"])

    def test_for_a_header_the_unit_tests_come_second(self):
        order = self.order(mutant("filling_forgotten", "g", "fills"), "x.h", {})
        self.assertEqual(order[:2], [["preload/filled_late"], ["unit:a fill ends"]])


class Running(InFolder):
    def setUp(self):
        super().setUp()
        self.memory = trial.Memory(self.folder / "memory.json")
        self.runner = trial.Runner(types.SimpleNamespace(log=self.folder / "log"), self.memory)

    def test_a_failure_ends_the_others(self):
        # If it did not, this would hang.
        failure = self.runner.first_failure([a_test("unit:long", ("sleep", "9000")), a_test("unit:bad", ("false",))])
        self.assertEqual((failure.test.name, failure.status), ("unit:bad", "failed"))

    def test_what_passes_or_is_skipped_is_no_failure(self):
        tests = [a_test("unit:good"), a_test("unit:skipped", ("sh", "-c", "exit 77"), skipped=77)]
        self.assertIsNone(self.runner.first_failure(tests))
        self.assertIn("unit:good", self.memory.seconds)
        self.assertEqual(self.runner.first_failure([a_test("unit:77", ("sh", "-c", "exit 77"))]).status, "failed")

    def test_one_that_hangs_is_told_as_such(self):
        failure = self.runner.first_failure([a_test("unit:hangs", ("sleep", "60"), limit_s=0.1)])
        self.assertEqual(failure.status, "timeout")

    def test_no_longer_than_the_time_given(self):
        self.runner.deadline = time.monotonic() + 0.1
        with self.assertRaises(trial.OutOfTime):
            self.runner.first_failure([a_test("unit:long", ("sleep", "60"))])

    @unittest.skipUnless("BUILD_DIR" in os.environ, "BUILD_DIR names no build")
    def test_every_test_of_the_build_is_understood(self):
        self.assertGreater(len(list(trial.read_tests(os.environ["BUILD_DIR"]))), 100)

    def test_a_slow_test_may_take_longer_than_others(self):
        self.memory.seconds = {"unit:slow": 30, "unit:fast": 1}
        limits = [self.memory.limit_s(a_test(name)) for name in ("unit:slow", "unit:fast", "unit:new")]
        self.assertEqual(limits, [300, trial.LEAST_LIMIT_S, trial.UNKNOWN_LIMIT_S])


class Summary(unittest.TestCase):
    def status(self, verdicts, untried=(), broken=()):
        chosen = [*verdicts, *map(mutant, untried)]
        lines, status = load_run().summary(chosen, verdicts, set(broken))
        return "\n".join(lines), status

    def caught(self, why="failed"):
        return trial.Verdict("caught", a_test("unit:x"), why)

    def test_all_caught_is_success(self):
        self.assertEqual(self.status({mutant("a"): self.caught()}), ("mutants: 1 of 1 caught", 0))

    def test_everything_else_is_not(self):
        for verdict in (trial.Verdict("survived", None, ""), trial.Verdict("impossible", None, "why")):
            self.assertEqual(self.status({mutant("a"): self.caught(), mutant("b"): verdict})[1], 1)

    def test_a_test_that_fails_without_a_mutant_catches_nothing(self):
        text, status = self.status({mutant("a"): self.caught()}, broken=["unit:x"])
        self.assertIn("unit:x fails without any mutant", text)
        self.assertEqual(status, 1)

    def test_what_was_not_tried_is_named(self):
        text, status = self.status({mutant("a"): self.caught()}, untried=["b", "c"])
        self.assertIn("NOT TRIED: 2 of 3; try them: tests/mutation/run b c", text)
        self.assertEqual(status, 3)

    def test_timeouts_are_counted(self):
        self.assertIn("1 of them by a timeout", self.status({mutant("a"): self.caught("timeout")})[0])


class Mirror(InFolder):
    def test_a_build_folder_becomes_what_it_was(self):
        clean, built = self.folder / "clean", self.folder / "built"
        for name in ("built/same", "built/changed", "built/deep/gone"):
            self.write(name, "text")
        work_tree.mirror(built, clean)
        before = work_tree.stamp(built / "changed")
        self.write("built/changed", "other text")
        self.write("built/new", "text")
        (built / "deep" / "gone").unlink()
        work_tree.mirror(clean, built)
        self.assertEqual(sorted(work_tree.files_of(built)), ["changed", "deep/gone", "same"])
        self.assertEqual(work_tree.stamp(built / "changed"), before)
        self.assertEqual((built / "changed").read_text(encoding="utf-8"), "text")


if __name__ == "__main__":
    unittest.main()
