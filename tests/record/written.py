# SPDX-License-Identifier: Apache-2.0
"""Recordings that the recorder wrote for a test, and `cistern trace` of them. BUILD_DIR names the build."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import cistern_trace  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
SOURCES = ["tests/record/write_recording.cc", "allocator/record/recorder.cc", "allocator/record/event.cc",
           "allocator/base/os.cc"]


def read(path):
    return cistern_trace.read(path, home=BUILD)


def trace(path, *options):
    return subprocess.run([BUILD / "cistern-trace", path, *options], capture_output=True, text=True, check=False)


class Folder(unittest.TestCase):
    """`at`: a folder for recordings."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.at = pathlib.Path(folder.name)


class Written(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.build("write", *SOURCES)

    @classmethod
    def build(cls, name, *sources):
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-I.", *sources, "-pthread",
                        "-o", cls.at / name], cwd=ROOT, check=True)

    def written(self, seed, threads, events):
        path = self.at / f"{seed}.rec"
        subprocess.run([self.at / "write", str(seed), str(threads), str(events), path], check=True)
        return path
