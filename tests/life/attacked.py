# SPDX-License-Identifier: Apache-2.0
"""An owner and an importer (ipc_attacked.cc) while strangers attack (strangers.py), for so many rounds
of theirs and seconds: all are served, and nothing is left."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import life
import strangers

STRANGERS, USER = 3, 65_432  # attackers; their user, where there may be another one


class Attacked(life.Life):
    def start_strangers(self):
        user = [str(USER)] if os.getuid() == 0 else []
        for _ in range(STRANGERS):
            yield self.begin([sys.executable, pathlib.Path(__file__).with_name("strangers.py"), *user])

    def begin(self, command, **more):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, **more)
        self.addCleanup(lambda: process.stdout.closed or process.communicate())
        self.addCleanup(process.kill)
        return process

    def start_owner(self):
        environment = self.environment(True, CISTERN_LOG="warn")
        owner = self.begin([self.program("ipc_attacked_lazy"), "figures"], env=environment, cwd=self.folder, text=True,
                           stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        while owner.stdout.readline() not in ("ready\n", ""):
            pass
        return owner

    def let_attack(self, rounds):
        for stranger in list(self.start_strangers()):
            for _ in range(rounds):
                self.assertEqual(stranger.stdout.readline(), b"round\n")

    def attack(self, rounds, seconds):
        """What the owner says of the machine."""
        owner = self.start_owner()
        begin = time.monotonic()
        if rounds:
            self.let_attack(rounds)
        time.sleep(max(0, begin + seconds - time.monotonic()))  # the soak's minute; else the rounds alone count
        return self.end(owner)

    @contextlib.contextmanager
    def stopped(self):
        """An owner that receives nothing meanwhile."""
        owner = self.start_owner()
        owner.stdin.write("s")
        owner.stdin.flush()
        _, status = os.waitpid(owner.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status), status)
        yield strangers.names(owner.pid)
        owner.send_signal(signal.SIGCONT)
        self.end(owner)

    def end(self, owner):
        out, err = owner.communicate(timeout=life.HANGS_S)
        self.assertEqual(owner.returncode, 0, err)
        self.assertIn("wrong: 0, descriptors left: 0, MiB left: few\n", out)
        return err
