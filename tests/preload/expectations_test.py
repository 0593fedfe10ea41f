#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the format of the expectations means, that mistakes in a file are found, and the programs' own
first lines. The programs themselves are run by the tests preload/expect/..."""

import pathlib
import re
import subprocess
import tempfile
import unittest

import expectations

HERE = pathlib.Path(__file__).resolve().parent
WORDS = {"programs": "P", "source": "S", "data": "D", "seed": "7"}
# What starts a thread, or has one of the driver's call the program.
STARTS = r"std::j?thread|std::async|pthread_create|LaunchHostFunc|AddCallback|OnceThisWaits|(helper|ahead|idle_workplace)[.]h"


class Format(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="expectations-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, *lines):
        path = self.folder / f"{name}.expect"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def read(self, name):
        return expectations.Reader(WORDS, self.folder).tests(name)

    def one(self, *lines):
        self.write("some/one", *lines)
        [test] = self.read("some/one").values()
        return test

    def commands(self, *lines):
        return [" ".join(command) for command in self.one(*lines).commands]

    def mistake(self, pattern, *lines):
        self.write("some/one", *lines)
        with self.assertRaisesRegex(expectations.Mistake, pattern):
            self.read("some/one")

    def test_one_thread_is_nothing_for_a_race_detector(self):
        self.write("some/one", "run x", "case alone A=1", "one-thread", "case several A=2")
        reader = expectations.Reader(WORDS, self.folder)
        self.assertEqual(reader.names(), ["some/one.alone", "some/one.several"])
        self.assertEqual(reader.names(of_threads=True), ["some/one.several"])

    def test_what_happens_has_a_name(self):
        self.assertEqual(self.one("run c", "happens fill cap").happens, {"fill", "cap"})
        self.mistake("happens NAME", "run c", "happens often")

    def test_words_and_comments(self):
        self.assertEqual(self.commands("# why", "run {programs}/a {seed} {data}/x  # so"), ["P/a 7 D/x"])

    def test_alternatives_are_runs(self):
        self.assertEqual(self.commands("run {programs}/a_{shared,static} {x,y}"),
                         ["P/a_shared x", "P/a_shared y", "P/a_static x", "P/a_static y"])

    def test_runs_are_done_once_under_each_environment(self):
        self.assertEqual(
            self.commands("under -", "under A={1,2} B=3", "run c", "run env D=4 c", "under E=5", "run c"),
            ["c", "env A=1 B=3 c", "env A=2 B=3 c", "env D=4 c", "env A=1 B=3 D=4 c",
             "env A=2 B=3 D=4 c", "env E=5 c"])

    def test_what_env_would_do(self):
        self.assertEqual(expectations.without_env(["c", "A=1"]), ({}, ["c", "A=1"]))
        self.assertEqual(expectations.without_env(["env", "A=1", "B=x=y", "A=2", "c", "C=3"]),
                         ({"A": "2", "B": "x=y"}, ["c", "C=3"]))
        self.assertEqual(expectations.without_env(["env", "-u", "A", "c"]), ({}, ["env", "-u", "A", "c"]))

    def test_cases_have_the_head_and_their_own(self):
        self.write("some/one", "env-with A=1", "under B={1,2}", "prints all", "case first A=2 C=3", "run x",
                   "case second", "under -", "run y", "prints own", "exit 3")
        first, second = self.read("some/one").values()
        self.assertEqual((first.name, second.name), ("some/one.first", "some/one.second"))
        self.assertEqual((first.env_with, second.env_with), ({"A": "2", "C": "3"}, {"A": "1"}))
        self.assertEqual(first.commands, [["env", "B=1", "x"], ["env", "B=2", "x"]])
        self.assertEqual(second.commands, [["y"]])
        self.assertEqual((first.prints, second.prints), (["all"], ["all", "own"]))
        self.assertEqual((first.exit, second.exit), (0, 3))

    def test_the_smallest_device_is_between_two_sizes(self):
        self.assertEqual(self.one("smallest-device 16 64", "run x").smallest_device, (16, 64, 0))
        self.assertEqual(self.one("smallest-device 16 64 4", "run x").smallest_device, (16, 64, 4))
        for wrong in ("64 16", "16", "15 64", "16 64 4 4", "0 64"):
            self.mistake("not understood", f"smallest-device {wrong}", "run x")

    def test_one_case_can_be_named(self):
        self.write("some/one", "run x", "case first A=1", "case second A=2")
        self.assertEqual(list(self.read("some/one.second")), ["some/one.second"])

    def test_runs_of_another(self):
        self.write("some/other", "prints other", "case first", "run {programs}/{a,b}", "case second", "run c")
        test = self.one("under -", "under A=1", "runs-of some/other.first", "prints own")
        self.assertEqual(test.commands, [["P/a"], ["env", "A=1", "P/a"], ["P/b"], ["env", "A=1", "P/b"]])
        self.assertEqual(test.prints, ["own"])
        self.mistake("has cases", "runs-of some/other")
        self.mistake("no case third", "runs-of some/other.third")
        self.mistake("no expectation some/othr; some/other\\?", "runs-of some/othr")
        self.mistake("takes its runs from here", "runs-of some/one")

    def test_parts_of_the_seeds_are_all_of_them(self):
        for seeds in (["1"], ["1", "2"], ["4", "7", "9"], ["1", "2", "3", "4"]):
            self.assertEqual(expectations.part_of(seeds, None), seeds)
            for parts in (2, 3):
                drawn = [expectations.part_of(seeds, f"{part}/{parts}") for part in range(1, parts + 1)]
                self.assertEqual(set(sum(drawn, [])), set(seeds))
                self.assertTrue(all(drawn))
                self.assertEqual(len(sum(drawn, [])), max(parts, len(seeds)))

    def test_halves_of_the_runs_are_all_of_them_and_each_has_every_program_and_environment(self):
        test = self.one("under A={1,2,3,4}", "run x", "run y", "run z")
        halves = [test.part_of_commands(f"{part}/2") for part in (1, 2)]
        self.assertCountEqual(halves[0] + halves[1], test.commands)
        for half in halves:
            self.assertEqual(len(half), 6)
            self.assertEqual({command[-1] for command in half}, {"x", "y", "z"})
            self.assertEqual({command[1] for command in half}, {"A=1", "A=2", "A=3", "A=4"})
        self.assertEqual(test.part_of_commands(None), test.commands)

    def test_one_run_is_in_both_halves_and_what_must_happen_is_whole(self):
        one = self.one("run x")
        drawn = self.one("seeds 1 2", "run x", "run y")
        happens = self.one("happens fill", "run x", "run y")
        for part in ("1/2", "2/2"):
            self.assertEqual(one.part_of_commands(part), [["x"]])
            self.assertEqual(len(drawn.part_of_commands(part)), 1)
            self.assertEqual(happens.part_of_commands(part), [["x"], ["y"]])

    def test_unknown_lines_are_found(self):
        self.mistake("one.expect:2: .*unknown line 'print'; 'prints'\\?", "run x", "print y")
        self.mistake("unknown line 'cases'", "run x", "cases y")
        self.mistake("unknown word {programz}", "run {programz}/x")
        self.mistake("unknown word {shared}", "run x_{shared}")

    def test_wrong_lines_are_found(self):
        for line in ("run", "runs-of", "under", "under A", "env A", "env-with =1", "calls f with 3", "calls f never =3",
                     "values f n with", "values f n never 3", "lookup f", "reports a.b", "reports a.b {", "prints",
                     "finds", "logs", "differs", "preload", "preload-behind", "driver-lacks", "exit", "exit x", "leaves", "seeds",
                     "report x", "own-output x"):
            with self.subTest(line):
                self.mistake("one.expect:2: not understood", "run x", line)

    def test_what_runs_nothing_is_found(self):
        self.mistake("some/one runs nothing", "prints x")
        self.mistake("some/one.second runs nothing", "case first", "run x", "case second", "prints x")
        self.mistake("runs nothing after its last 'under'", "run x", "under A=1")
        self.mistake("runs nothing after its last 'under'", "run x", "under A=1", "case first B=1")

    def test_wrong_cases_are_found(self):
        self.mistake("needs a name of its own", "run x", "case")
        self.mistake("needs a name of its own", "run x", "case A=1")
        self.mistake("needs a name of its own", "run x", "case first A=1", "case first A=2")
        self.mistake("case second is case first once more", "run x", "case first A=1", "case second A=1")
        self.mistake("one.expect:2: not understood", "run x", "case first A")


class Programs(unittest.TestCase):
    def test_where_one_thread_runs_no_source_starts_another(self):
        sources = {path.stem: path for path in (HERE / "programs").glob("*/*.c[cu]")}
        reader = expectations.Reader(WORDS)
        alone = [test for name in reader.names() for test in reader.tests(name).values() if test.one_thread]
        self.assertGreater(len(alone), 100)
        for test in alone:
            for program in set(re.findall(r"P/(\w+)_[a-z]+", " ".join(sum(test.commands, [])))):
                with self.subTest(test.name):
                    self.assertNotRegex(sources[program].read_text(encoding="utf-8"), STARTS)


class Tools(unittest.TestCase):
    def run_tool(self, tool, *arguments):
        return subprocess.run([HERE / tool, *arguments], capture_output=True, text=True, check=False)

    def test_the_runner_refuses_what_is_not_there(self):
        done = self.run_tool("run-pair", "--build", "/nonexistent", "--program", "pooling/vector_add")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("is not there; build it", done.stderr)

    def test_every_program_says_what_it_proves_and_is_run(self):
        done = self.run_tool("programs-table", "--check")
        self.assertEqual((done.stdout.strip(), done.stderr, done.returncode), ("", "", 0))


if __name__ == "__main__":
    unittest.main()
