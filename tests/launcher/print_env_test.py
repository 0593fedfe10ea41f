#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`--print-env`: whatever the values and the folder are called, the eval of any POSIX shell gives the
variables their values and runs nothing. And homes that LD_PRELOAD cannot hold, which are refused."""

import os
import shutil
import subprocess

import home

VALUES = (
    *("", " ", "a  b", "it's", "'", "''", '"', "\\", "\\'", "a\\", "*", "~", "#x", "!x", "-n", "%q%s", "a=b", "$HOME", "${x", "&"),
    *("$(touch mark)", "`touch mark`", "'; touch mark; '", "\n touch mark\n", "'\ntouch mark\n'", "$'\\ntouch mark\\n'"),
    *("\n", "a\n", "\na\n\n", "\t\r\x01\x1b\x7f", "\u009b2J", "\u00e9\u202e", b"\xff\x9b\xc3'\xe2\x82"),
)
FOLDERS = ("it's", 'q"q', "$(touch${IFS}mark)", "`touch${IFS}mark`", "'&&touch${IFS}mark&&'", "new\nline", "end\n", "back\\slash", "&", "-n", "*", "$HOME")


class PrintEnv(home.LauncherTest):
    def printed(self, *options, at=None):
        command = [home.LAUNCHER, "--home", at or self.home, "run", *options, "--print-env"]
        result = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, rb"^(cistern: warn: --set names no setting of .*\n)?\Z")
        return result.stdout

    def evaluated(self, shell, text):
        """The environment after the eval of the text, in a folder where nothing may appear."""
        folder = self.folder / "empty"
        folder.mkdir(exist_ok=True)
        result = subprocess.run(
            [*shell, "-c", 'eval "$0" || exit; exec env -0', text],
            env={"PATH": os.environ["PATH"]}, cwd=folder, capture_output=True, check=False)
        self.assertEqual((result.returncode, result.stderr, list(folder.iterdir())), (0, b"", []), text)
        return dict(entry.split(b"=", 1) for entry in result.stdout.split(b"\0")[:-1])

    def check(self, *shell):
        if shutil.which(shell[0]) is None:
            self.skipTest(f"there is no {shell[0]} on this machine")
        values = {b"V%d" % i: os.fsencode(value) for i, value in enumerate(VALUES)}
        options = [word for name, value in values.items() for word in (b"--set", name + b"=" + value)]
        got = self.evaluated(shell, self.printed(*options))
        for name, value in values.items():
            self.assertEqual(got[name], value)
        for name in FOLDERS:
            at = self.folder / name / "home"
            shutil.copytree(self.home, at)
            got = self.evaluated(shell, self.printed("--sim", at=at))
            self.assertEqual(got[b"LD_PRELOAD"], os.fsencode(at / "libcistern.so"))
            self.assertEqual(got[b"LD_LIBRARY_PATH"], os.fsencode(at / "sim"))

    def test_in_dash(self):
        self.check("dash")

    def test_in_bash(self):
        self.check("bash")

    def test_in_bash_as_sh(self):
        self.check("bash", "--posix")

    def test_in_busybox(self):
        self.check("busybox", "sh")

    def test_the_settings_in_force_are_quoted_as_well(self):
        values = [os.fsencode(value) for value in VALUES if value and "%" not in str(value)]
        for value in values:
            env = {"PATH": os.environ["PATH"], "CISTERN_LOG_FILE": value}
            printed = subprocess.run([self.home / "cistern-config", "print-env"], env=env, capture_output=True, check=True)
            for shell in (["dash"], ["bash"], ["busybox", "sh"]):
                if shutil.which(shell[0]):
                    self.assertEqual(self.evaluated(shell, printed.stdout)[b"CISTERN_LOG_FILE"], value)


class Home(home.LauncherTest):
    def at(self, name):
        path = self.folder / name
        shutil.copytree(self.home, path)
        return path

    def test_one_whose_name_ends_with_a_newline_is_not_another_one(self):
        self.at("same")
        shutil.rmtree(self.folder / "same" / "sim")
        path = self.at("same\n")
        shown = self.cistern("run", "sh", "-c", 'printf "%s" "$LD_PRELOAD"', home=path)
        self.assertEqual(shown.stdout, f"{path}/libcistern.so")

    def test_one_that_the_loader_would_read_as_another_path_is_refused(self):
        """The loader drops such a preload with a line at most, and the program would run without."""
        started = self.folder / "started"
        for name in ("$ORIGIN", "${ORIGIN}", "x$LIB", "${LIB}x", "$PLATFORM", "a/${PLATFORM}/b", "a b", "a:b", "tab\t"):
            path = self.at(name)
            for words in (("run",), ("run", "--host", "off"), ("run", "--sim"), ("run", "--anyway")):
                self.refused(self.cistern(*words, "--", "touch", started, home=path), 2, "LD_PRELOAD cannot hold", "libcistern")
            self.refused(self.cistern("run", "--print-env", home=path), 2, "LD_PRELOAD cannot hold")
            result = self.cistern("doctor", "--sim", home=path)
            self.assertEqual(result.returncode, 1)
            self.assertRegex(result.stdout, "object +LD_PRELOAD cannot hold")
        self.assertFalse(started.exists())

    def test_a_dollar_that_the_loader_leaves_alone_is_none(self):
        path = self.at("$HOME-$5-$")
        shown = self.cistern("run", "sh", "-c", "grep -c libcistern.so /proc/self/maps", home=path)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""), shown.stdout)

    def test_a_simulated_cuda_where_the_loader_would_not_look_is_refused(self):
        path = self.at("a;b")
        for command in ("run", "doctor"):
            self.refused(self.cistern(command, "--sim", "true", home=path), 2, "LD_LIBRARY_PATH cannot hold", "a;b/sim")
        self.assertEqual(self.cistern("run", "true", home=path).returncode, 0)


if __name__ == "__main__":
    home.main()
