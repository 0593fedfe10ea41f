#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page for people who used memory_optimize: its commands print what it shows, with the program that it shows."""

import os
import re
import subprocess

import life

PAGE = life.ROOT / "config" / "MEMORY_OPTIMIZE.md"
# The time a plan takes, the memory it takes for that, and where in a function a call is.
VARIES = re.compile(r"(?<=in )\d+\.\d\d(?= s with)|(?<=with )\d+\.\d(?= MiB)|(?<=\+0x)[0-9a-f]+")


def indented(text):
    """The lines that the page shows as they are."""
    return [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]


def shown(text):
    """(command, what it prints) of the page, in their order; and what is set before."""
    commands, settings, name = [], [], None
    for line in indented(text):
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        elif re.match(r"[A-Z]=", line):
            settings.append(line)
        elif commands:
            commands[-1][1].append(line)
    return commands, settings


def fixed(lines):
    return [VARIES.sub("N", line) for line in lines]


class Page(life.Life):
    def setUp(self):
        super().setUp()
        (self.folder / "build").mkdir()
        (self.folder / "build" / "release").symlink_to(life.build_dir)
        (self.folder / "scripts").symlink_to(life.ROOT / "scripts")

    def printed(self, command, settings):
        env = {k: v for k, v in os.environ.items() if not k.startswith(life.FOREIGN)}
        at_home = command.replace("scripts/cistern", "scripts/cistern --home build/release", 1)
        script = "\n".join(("set -o pipefail", *settings, at_home))
        done = subprocess.run(("bash", "-c", script), cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout.splitlines()

    def test_its_commands_print_what_it_shows(self):
        if life.sanitizer_runtimes(life.build_dir / "sim" / "libcuda.so.1"):
            self.skipTest("the launcher puts no sanitizer's runtime before the object")
        commands, settings = shown(PAGE.read_text(encoding="utf-8"))
        self.assertEqual(len(commands), 7)
        for command, lines in commands:
            self.assertEqual(fixed(self.printed(command, settings)), fixed(lines), command)
            self.assertTrue(lines, command)

    def test_its_settings_change_no_result(self):
        for settings in ({"CISTERN_MEMORY_OPTIMIZE": "0"}, {"CISTERN_MEMORY_OPTIMIZE": "1"}, {"CISTERN_PLAN": "auto"},
                         {"CISTERN_SKIP_OPT_SET": "fc", "CISTERN_SKIP_GRADS": "true"}):
            self.run_both(self.program("memory_optimize_shared"), **settings)


if __name__ == "__main__":
    life.main()
