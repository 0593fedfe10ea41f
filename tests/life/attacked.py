# SPDX-License-Identifier: Apache-2.0
"""An owner and an importer (ipc_attacked.cc) while others attack, all at once: strangers (strangers.py),
processes that have the handle or take the socket's name (holders.py), forks of the importer, and the owner's
program, which closes Cistern's sockets. It goes on for so many rounds and seconds: all are served, and nothing
is left."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import holders
import life
import strangers

STRANGERS, USER = 3, 65_432  # attackers; their user, where there may be another one
CLOSES_S = 4  # the owner's program closes sockets so often; Cistern notices it within a second
HERE, *NAMESPACES = "here", "unmapped", "as_root"


class Attacked(life.Life):
    first = ()  # a command that starts the owner

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)  # others may read the handle

    @staticmethod
    def others():
        """The words that make an attacker another user, where it can be one."""
        return [str(USER)] if os.getuid() == 0 else []

    def python(self, name, *words):
        return self.begin([sys.executable, pathlib.Path(__file__).with_name(name), *words])

    def start_strangers(self):
        for _ in range(STRANGERS):
            yield self.python("strangers.py", *self.others())

    def start_holders(self):
        handle = self.folder / "handle"
        for namespace in (HERE, *(NAMESPACES if holders.can_unshare() else ())):
            for way in ("silent", "wrong"):
                yield self.python("holders.py", way, handle, namespace)
            if os.getuid() == 0 and (namespace == HERE or holders.can_unshare(USER)):
                yield self.python("holders.py", "refused", handle, namespace, str(USER))
        yield self.python("holders.py", "taker", handle, HERE, *self.others())

    def begin(self, command, **more):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, **more)
        self.addCleanup(lambda: process.stdout.closed or process.communicate())
        self.addCleanup(process.kill)
        return process

    def start_owner(self, word="figures"):
        environment = self.environment(True, CISTERN_LOG="warn")
        owner = self.begin([*self.first, self.program("ipc_attacked_lazy"), word], env=environment, cwd=self.folder, text=True,
                           stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        while owner.stdout.readline() not in ("ready\n", ""):
            pass
        return owner

    def tell(self, owner, byte):
        owner.stdin.write(byte)
        owner.stdin.flush()

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

    def attack_in_all_ways(self, rounds, seconds):
        """The same with everybody at once; an attacker that ended by itself was told what it may not know."""
        owner = self.start_owner("forks")
        begin = time.monotonic()
        attackers = [*self.start_strangers(), *self.start_holders()]
        done = 0
        while done < rounds or time.monotonic() < begin + seconds:
            self.tell(owner, "cn"[done % 2])
            for attacker in attackers:
                self.assertIn(attacker.stdout.readline(), (b"round\n", b"there is no socket\n"), attacker.args)
            done += 1
            time.sleep(max(0, min(begin + done * CLOSES_S, begin + seconds) - time.monotonic()))
        for attacker in attackers:  # while one of them lives, the owner has a line for it
            self.assertIsNone(attacker.poll(), attacker.args)
            attacker.kill()
        return self.end(owner)

    @contextlib.contextmanager
    def stopped(self):
        """An owner that receives nothing meanwhile."""
        owner = self.start_owner()
        self.tell(owner, "s")
        _, status = os.waitpid(owner.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status), status)
        yield strangers.names(owner.pid)
        owner.send_signal(signal.SIGCONT)
        self.end(owner)

    def end(self, owner):
        out, err = owner.communicate(timeout=life.HANGS_S)
        self.assertEqual(owner.returncode, 0, out + err)
        self.assertIn("wrong: 0, descriptors left: 0, MiB left: few\n", out)
        return err
