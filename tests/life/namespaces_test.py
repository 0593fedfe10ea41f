#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes in user namespaces share blocks with those of their own user alone, and not where they cannot tell
who that is."""

import subprocess
import sys

import life
from hangs import HANGS_S

HANDLE_DIGITS = 128
UNMAPPED = ("unshare", "--user")


def can(*command):
    try:
        return subprocess.run((*command, "true"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Namespaces(life.Life):
    def begin(self, *command):
        process = subprocess.Popen(command, env=self.environment(True, CISTERN_LOG="warn"), cwd=self.folder, text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: process.stdout.closed or process.communicate())
        self.addCleanup(process.kill)
        return process

    def owner(self, *where):
        return self.begin(*where, self.program("ipc_taken_lazy"), "own", "65536")

    def log(self):
        return "".join(path.read_text(encoding="utf-8") for path in self.folder.glob("log.*"))

    def opened(self, owner, *where):
        """What an importer there prints."""
        handle = next(line.strip() for line in owner.stdout if len(line) == HANDLE_DIGITS + 1)
        out, _ = self.begin(*where, self.program("ipc_taken_lazy"), "open", handle).communicate(timeout=HANGS_S)
        owner.communicate(timeout=HANGS_S)
        return out

    def test_an_importer_that_may_be_anybody_opens_nothing(self):
        self.assertNotIn("holds 77\n", self.opened(self.owner(), *UNMAPPED))
        self.assertIn("that process is another user's", self.log())

    def test_an_owner_that_may_be_anybody_gives_no_handle(self):
        self.assertNotIn("holds 77\n", self.opened(self.owner(*UNMAPPED)))

    def test_outside_of_them_it_is_opened(self):
        self.assertIn("holds 77\n", self.opened(self.owner()))


if __name__ == "__main__":
    if not can(*UNMAPPED):
        print("skipped: this system makes no user namespace")
        sys.exit(77)
    life.main()
