#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reaches the program around its words: its environment, byte by byte, whatever the launcher
and the shell that it is written in do with theirs."""

import os
import re
import subprocess

import home

# Shows every entry as the kernel handed it over, which os.environ would not.
DUMP = ("cat", "/proc/self/environ")


class Environment(home.LauncherTest):
    def entries(self, *options, env):
        """The environment of a program that is run with `env` alone, in no order."""
        command = [home.LAUNCHER, "--home", self.home, "run", *options, "--", *DUMP]
        result = subprocess.run(command, env=env, capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, rb"^(cistern: warn: --set names no setting of .*\n)?\Z")
        return sorted(os.fsdecode(entry) for entry in result.stdout.split(b"\0")[:-1])

    def added(self):
        return ["CISTERN_LAUNCHER=", f"LD_PRELOAD={self.home}/libcistern.so"]

    def kept(self, env):
        """Asserts that a program gets exactly `env`, and what the launcher is for."""
        given = [f"{name}={value}" for name, value in env.items()]
        self.assertEqual(self.entries(env=env), sorted(given + self.added()))

    def test_variables_named_like_those_of_the_script(self):
        text = home.LAUNCHER.read_text(encoding="utf-8")
        names = set(re.findall(r"\b[a-z_]+\b", text))
        self.assertTrue(names >= {"environment", "home", "use_sim", "verbose"})
        self.kept({"PATH": os.environ["PATH"], **{name: f"mine {name}" for name in names}})

    def test_variables_that_a_shell_sets_or_cannot_hold(self):
        self.kept(
            {
                "PATH": os.environ["PATH"],
                "SHLVL": "7",
                "PWD": "/elsewhere",
                "OLDPWD": "/no/such",
                "_": "me",
                "UID": "12",
                "PPID": "1",
                "IFS": "x",
                "OPTIND": "4",
                "RANDOM": "3",
                "BASH_VERSION": "0",
                "not-a-name": "1",
                "BASH_FUNC_f%%": "() {  echo   f; }",
                "BYTES": "\udcff\x01\x7f\n'\"\\ tail\n",
            }
        )

    def test_options_of_the_shell(self):
        path = os.environ["PATH"]
        for options in ("braceexpand", "allexport:braceexpand", "posix"):
            self.kept({"PATH": path, "SHELLOPTS": options, "BASHOPTS": "sourcepath"})
        result = self.cistern(
            "run", "bash", "-c", "false; echo after $unset", env={"SHELLOPTS": "braceexpand"}
        )
        self.assertEqual((result.returncode, result.stdout), (0, "after\n"), result.stderr)

    def test_an_empty_environment(self):
        self.assertEqual(self.entries(env={}), self.added())

    def test_no_variable_twice_and_the_last_option_wins(self):
        got = self.entries(
            *("--set", "A=1", "--set", "A=2"),
            env={"A": "0", "LD_PRELOAD": "", "CISTERN_LAUNCHER": "X"},
        )
        self.assertEqual(
            got,
            ["A=2", "CISTERN_LAUNCHER=X,A,A", f"LD_PRELOAD={self.home}/libcistern.so"],
        )

    def test_one_that_fills_half_of_what_the_kernel_takes(self):
        bulk = {f"BULK_{i}": "x" * 100_000 for i in range(12)}
        self.assertEqual(len(self.entries(env=bulk)), 12 + len(self.added()))


class Path(home.LauncherTest):
    def run_with(self, path, *program):
        return subprocess.run(
            ["/bin/bash", home.LAUNCHER, "--home", self.home, "run", "--", *program],
            env={} if path is None else {"PATH": path},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_the_launcher_needs_nothing_from_it(self):
        for path in ("", "/no/such", None):
            result = self.run_with(path, "/bin/echo", "ran")
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "ran\n", ""))

    def test_without_folders_in_it_a_program_is_not_found(self):
        self.refused(self.run_with("/no/such", "true"), 127, '"true"')

    def test_an_empty_entry_is_the_current_folder(self):
        self.file("here", "#!/bin/sh\necho here\n")
        for path in ("", ":/no/such", "/no/such:", "/no::/such"):
            result = self.run_with(path, "here")
            self.assertEqual((result.returncode, result.stdout), (0, "here\n"), repr(path))


if __name__ == "__main__":
    home.main()
