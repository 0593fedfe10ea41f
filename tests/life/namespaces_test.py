#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes in user namespaces share blocks with those of their own user alone, whatever its id is there, and
not where they cannot tell who that is. A namespace with one user mapped is what containers without root have."""

import os
import pathlib
import subprocess
import sys

import life
from hangs import HANGS_S

HANDLE_DIGITS = 128
HERE, UNMAPPED, AS_ROOT = (), ("unshare", "--user"), ("unshare", "--user", "--map-root-user")
AS_ANOTHER = ("unshare", "--user", "--map-user=4711")
OTHER = 65_432  # another user, where there may be one
# The descriptors of units are Cistern's to send. The handle of a chunk the simulated driver opens by a file in
# /proc, which the kernel refuses where a debugger would be refused: see the last test.
UNITS = {"GE_USE_STATIC_MEMORY": "3"}


def overflow_user():
    return ("unshare", "--user", "--map-user=" + pathlib.Path("/proc/sys/kernel/overflowuid").read_text(encoding="utf-8").strip())


def can(*command):
    try:
        return subprocess.run((*command, "true"), capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class Namespaces(life.Life):
    def setUp(self):
        super().setUp()
        self.folder.chmod(0o777)  # for logs of two users

    def begin(self, *command, preload=True, user=None, **more):
        as_user = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        environment = self.environment(preload, CISTERN_LOG="warn", **more)
        process = subprocess.Popen(command, env=environment, cwd=self.folder, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **as_user)
        self.addCleanup(lambda: process.stdout.closed or process.communicate())
        self.addCleanup(process.kill)
        return process

    def opened(self, owner, importer, of_owner=None, of_importer=None, **more):
        """What an importer there prints."""
        owns = self.begin(*owner, self.program("ipc_taken_lazy"), "own", "65536", user=of_owner, **more)
        handle = next(line.strip() for line in owns.stdout if len(line) == HANDLE_DIGITS + 1)
        opens = self.begin(*importer, self.program("ipc_taken_lazy"), "open", handle, user=of_importer, **more)
        out, _ = opens.communicate(timeout=HANGS_S)
        owns.communicate(timeout=HANGS_S)
        return out

    def log(self):
        """What was said since this was asked."""
        logs = list(self.folder.glob("log.*"))
        text = "".join(path.read_text(encoding="utf-8") for path in logs)
        for path in logs:
            path.unlink()
        return text

    def test_an_importer_that_may_be_anybody_opens_nothing(self):
        for where in (UNMAPPED, overflow_user()):
            for more in ({}, UNITS):
                with self.subTest(where=where, more=more):
                    self.assertNotIn("holds 77\n", self.opened(HERE, where, **more))
                    self.assertIn("that process is another user's", self.log())

    def test_an_owner_that_may_be_anybody_gives_no_handle(self):
        for where in (UNMAPPED, overflow_user()):
            for more in ({}, UNITS):
                with self.subTest(where=where, more=more):
                    self.assertNotIn("holds 77\n", self.opened(where, HERE, **more))

    def test_outside_of_them_it_is_opened(self):
        for more in ({}, UNITS):
            self.assertIn("holds 77\n", self.opened(HERE, HERE, **more))

    def test_a_user_is_the_same_under_each_id(self):
        for owner in (HERE, AS_ROOT, AS_ANOTHER):
            for importer in (HERE, AS_ROOT, AS_ANOTHER):
                with self.subTest(owner=owner, importer=importer):
                    self.assertIn("holds 77\n", self.opened(owner, importer, **UNITS))
                    self.assertEqual(self.log(), "")

    def test_another_user_under_the_same_id_is_refused(self):
        if os.getuid() != 0:
            self.skipTest("only root can be two users")
        reaches = subprocess.run((*AS_ROOT, "test", "-x", self.program("ipc_taken_lazy")), user=OTHER, group=OTHER,
                                 extra_groups=[], capture_output=True, check=False)
        if reaches.returncode != 0:
            self.skipTest("another user makes no user namespace, or cannot reach this folder")
        for of_owner, of_importer in ((None, OTHER), (OTHER, None)):
            for owner in (HERE, AS_ROOT):
                for importer in (HERE, AS_ROOT):
                    with self.subTest(of_owner=of_owner, owner=owner, importer=importer):
                        out = self.opened(owner, importer, of_owner, of_importer, **UNITS)
                        self.assertNotIn("holds 77\n", out)
                        self.assertIn("that process is another user's", self.log())

    def test_the_drivers_handle_opens_where_it_does_without_cistern(self):
        for owner in (HERE, AS_ROOT):
            for importer in (HERE, AS_ROOT):
                with self.subTest(owner=owner, importer=importer):
                    alone = self.opened(owner, importer, preload=False)
                    self.assertIn("cuIpcOpenMemHandle", alone)
                    self.assertEqual(self.opened(owner, importer), alone)
                    self.assertNotIn("another user", self.log())


if __name__ == "__main__":
    if not can(*UNMAPPED):
        print("skipped: this system makes no user namespace")
        sys.exit(77)
    life.main()
