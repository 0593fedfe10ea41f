#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What files a recording may name, and whatever stands in them: `cistern trace` opens regular files alone, and ends
with the names that it could find in bounded time and memory."""

import os
import pathlib
import resource
import struct
import subprocess
import tempfile
import threading
import unittest

import made_up
import written

AT = 0x1000  # where each function of the made-up files begins
ONE_STEP = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def bomb(levels):
    """The mangled name of a function whose last parameter's name has 2^levels parts: each is two of the one before."""
    def earlier(number):
        return f"S{ONE_STEP[number // 36].replace('0', '')}{ONE_STEP[number % 36]}_"
    return "_Z1f1AIbbE" + "".join(f"S_I{earlier(i)}{earlier(i)}E" for i in range(levels))


def library(name, size=0):
    """An ELF file with one function of that name."""
    strings = b"\0" + os.fsencode(name) + b"\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 2, 0, 1, AT, 0x100)
    at = 64 + 3 * 64
    header = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 0)
    table = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, at, len(symbols), 2, 0, 8, 24)
    texts = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at + len(symbols), len(strings), 0, 0, 1, 0)
    return (header + bytes(64) + table + texts + symbols + strings).ljust(size, b"\0")


def recording_naming(paths, at=AT + 4):
    """A block for each path, allocated by a function of it."""
    names = b"".join(b"\1" + made_up.varint(i) + made_up.varint(len(path)) + path for i, path in enumerate(map(os.fsencode, paths), 1))
    numbers = range(1, len(paths) + 1)
    sites = b"".join(b"\4" + made_up.varint(i) + b"\1" + made_up.varint(i) + b"\0\0" + made_up.varint(at) for i in numbers)
    events = b"".join(made_up.SITE + made_up.varint(i) + made_up.ONE for i in numbers)
    return made_up.recording_of((made_up.DEFINITIONS, names + sites), (made_up.EVENTS, events))


class Symbols(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def library(self, file, name):
        path = self.folder / file
        path.write_bytes(library(name))
        return path

    def names_in(self, *paths):
        """What each block's function is called."""
        recording = self.folder / "recording"
        recording.write_bytes(recording_naming(paths))

        def limit():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        result = subprocess.run([written.BUILD / "cistern-trace", recording, "--events"], capture_output=True, check=True,
                                text=True, preexec_fn=limit)
        self.assertEqual(result.stderr, "")
        return [line.partition('stack="')[2].removesuffix('"') for line in result.stdout.splitlines()]

    def test_a_function_has_its_name(self):
        self.assertEqual(self.names_in(self.library("a", "plain"), self.library("b", "_Z5clearPvm")),
                         ["plain+0x4 (a)", "clear(void*, unsigned long)+0x4 (b)"])

    def test_nothing_but_files_is_opened(self):
        """Who writes to a pipe waits until somebody opens it."""
        pipe, good = self.folder / "pipe", self.library("good", "good")
        os.mkfifo(pipe)
        opened = threading.Event()

        def write():
            os.close(os.open(pipe, os.O_WRONLY))
            opened.set()

        writer = threading.Thread(target=write)
        writer.start()
        (self.folder / "link").symlink_to(pipe)
        strange = [pipe, self.folder / "link", "/dev/zero", "/dev/tty", "/dev/fd/0", "/proc/self/mem", "/proc/kmsg", self.folder, "/none", good]
        self.assertEqual(self.names_in(*strange), [f"{os.path.basename(path)}+0x1004" for path in strange[:-1]] + ["good+0x4 (good)"])
        self.assertFalse(opened.is_set())
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        writer.join()

    def test_a_name_that_stands_for_terabytes(self):
        """It is given up; what comes after it has its name."""
        self.assertEqual(self.names_in(self.library("b", bomb(3)))[0][:37], "f(A<bool, bool>, A<A<bool, bool>, A<b")
        paths = [self.library("bomb", bomb(40)), self.library("good", "good")]
        self.assertEqual(self.names_in(*paths), ["bomb+0x1004", "good+0x4 (good)"])

    def test_names_that_are_long(self):
        """Such a name may be cut; what it stands for is not shown if it is longer than that."""
        for name in ("x" * 100_000, bomb(8), "_Z" + "N1a" * 30_000 + "1fEv", "_Z" + "P" * 30_000):
            (text,) = self.names_in(self.library("a", name))
            self.assertTrue(name.startswith(text.partition("+")[0]), text)
            self.assertLess(len(text), 4200)

    def test_control_characters(self):
        self.assertEqual(self.names_in(self.library("a", b"x\x1b[2J\n\xc2\x9b\xff")), ["x\ufffd[2J\ufffd\ufffd\ufffd+0x4 (a)"])

    def test_files_that_fail_again_and_again(self):
        """The last ones are not asked for: trace does not wait for each of them."""
        paths = [self.library(f"bomb{i}", bomb(40)) for i in range(5)] + [self.library("good", "good")]
        self.assertEqual(self.names_in(*paths)[-1], "good+0x1004")


if __name__ == "__main__":
    unittest.main()
