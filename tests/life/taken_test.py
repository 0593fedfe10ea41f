#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An importer ends between its question and the answer, and another process takes its address (taker.py):
it gets no descriptor and no handle, in chunks and in units, be it of the same user or of another one."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import life
from hangs import HANGS_S

HANDLE_DIGITS = 128
USER = 65_432  # another one, where there may be one
OF_THE_BLOCK = 24  # where in an answer that begins which is of the block (shim/ipc/protocol.h)
WAYS = ({}, {"FLAGS_allocator_strategy": "auto_growth"}, {"GE_USE_STATIC_MEMORY": "3"}, {"GE_USE_STATIC_MEMORY": "4"})


def address_of(process):
    """The name, in hexadecimal digits, of a socket that the kernel named; None: it has none yet."""
    try:
        files = {os.readlink(path) for path in pathlib.Path(f"/proc/{process}/fd").iterdir()}
    except OSError:
        return None
    for line in pathlib.Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        if len(fields) == 8 and f"socket:[{fields[6]}]" in files and fields[7].startswith("@"):
            return (b"\0" + fields[7][1:].encode()).hex()
    return None


class Taken(life.Life):
    def begin(self, *command, preload=True, **more):
        environment = self.environment(preload, CISTERN_LOG="warn", **more)
        process = subprocess.Popen(command, env=environment, cwd=self.folder, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: process.stdout.closed or process.communicate())
        self.addCleanup(process.kill)
        return process

    def ended(self, process):
        out, err = process.communicate(timeout=HANGS_S)
        self.assertEqual(process.returncode, 0, out + err)
        return out

    def comes_true(self, look):
        end = time.monotonic() + HANGS_S
        while not (value := look()):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)
        return value

    def importer(self, handle, more):
        return self.begin(self.program("ipc_taken_lazy"), "open", handle, **more)

    def asked(self, owner, handle, more):
        """The address of an importer that ended while the owner was stopped, once it had asked, mostly."""
        owner.send_signal(signal.SIGSTOP)
        os.waitpid(owner.pid, os.WUNTRACED)
        importer = self.importer(handle, more)
        address = self.comes_true(lambda: address_of(importer.pid))
        importer.kill()
        importer.wait()
        return address

    def taken(self, user, more):
        """What the taker heard: descriptors and bytes of each message."""
        owner = self.begin(self.program("ipc_taken_lazy"), "own", str(64 << 10), **more)
        handle = next(line.strip() for line in owner.stdout if len(line) == HANDLE_DIGITS + 1)
        address = self.asked(owner, handle, more)
        taker = self.begin(sys.executable, str(pathlib.Path(__file__).with_name("taker.py")), address, *user, preload=False)
        self.assertEqual(taker.stdout.readline(), "bound\n")
        owner.send_signal(signal.SIGCONT)
        heard = []
        for _ in range(2):  # its second look is after what the owner might say to what it said
            # The questions of others come after the one of the importer that is no more.
            self.assertIn("holds 77\n", self.ended(self.importer(handle, more)))
            taker.stdin.write("\n")
            taker.stdin.flush()
            heard += iter(taker.stdout.readline, "heard\n")
        self.ended(taker)
        self.ended(owner)
        return [(int(files), bytes.fromhex(data)) for files, data in map(str.split, heard)]

    def test_the_taker_of_an_address_gets_nothing(self):
        users = [[]] + ([[str(USER)]] if os.getuid() == 0 else [])
        for more in WAYS:
            for user in users:
                with self.subTest(more=more, user=user):
                    for files, data in self.comes_true(lambda: self.taken(user, more)):
                        self.assertEqual(files, 0)
                        self.assertFalse(any(data[OF_THE_BLOCK:]), data.hex())


if __name__ == "__main__":
    life.main()
