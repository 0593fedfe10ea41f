#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python frames of recorded stacks are those that Python itself tells, under each CPython that is known and to be
had here; of others one warning says that they are not known. BUILD_DIR names the build.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "life")]
import cistern_trace  # noqa: E402
from life import sanitizer_runtimes  # noqa: E402

BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
KNOWN = ("3.11", "3.12", "3.13")
UNKNOWN = ("3.9", "3.10", "3.14", "3.15")
PLACES = ("/usr/bin", "/usr/local/bin", os.path.expanduser("~/.pyenv/versions/{}.*/bin"))


def interpreters(version):
    """The files of this version that are here; what pyenv lays on the PATH are scripts."""
    found = [path for place in PLACES for path in glob.glob(f"{place.format(version)}/python{version}")]
    return sorted({os.path.realpath(path) for path in found})


class PythonFrames(unittest.TestCase):
    def recorded(self, interpreter):
        """What the program says, its recording, and what it complains of."""
        with tempfile.TemporaryDirectory(prefix="cistern-python-") as folder:
            environment = {name: value for name, value in os.environ.items()
                           if not name.startswith(("CISTERN_", "FLAGS_", "SIMCUDA_", "LD_", "PYTHON"))}
            objects = [*sanitizer_runtimes(BUILD / "sim" / "libcuda.so.1"), str(BUILD / "libcistern-device.so")]
            environment |= {"LD_LIBRARY_PATH": str(BUILD / "sim"), "LD_PRELOAD": ":".join(objects),
                            "ASAN_OPTIONS": "detect_leaks=0", "CISTERN_RECORD": "recording", "CISTERN_SITES": "stacks"}
            done = subprocess.run([interpreter, ROOT / "tests/record/python_stacks.py"], cwd=folder, env=environment,
                                  capture_output=True, text=True, check=True)
            return done.stdout, cistern_trace.read(pathlib.Path(folder) / "recording", home=BUILD), done.stderr

    def python_frames(self, recording):
        """By the bytes of an allocation, which no other has."""
        names = recording.names
        return {event.bytes: [(names[f.function], names[f.file], f.line) for f in recording.sites[event.site]
                              if f.function]
                for event in recording.events if event.type == "allocated"}

    def test_frames_are_those_that_python_tells(self):
        for version in KNOWN:
            if not interpreters(version):
                print(f"tests/record: without CPython {version}: it is not in {', '.join(PLACES)}")
            for interpreter in interpreters(version):
                with self.subTest(interpreter):
                    out, recording, said = self.recorded(interpreter)
                    self.assertEqual(said, "")
                    seen = self.python_frames(recording)
                    told = {size: list(map(tuple, frames)) for size, frames in map(json.loads, out.splitlines())}
                    self.assertGreater(len(told), 70)
                    self.assertEqual(set(seen), set(told))
                    for size, frames in told.items():
                        self.assertEqual(seen[size], frames[:len(seen[size])])
                        self.assertGreaterEqual(len(seen[size]), min(len(frames), 40))

    def test_of_a_version_that_is_not_known_one_warning_says_so(self):
        for version in UNKNOWN:
            for interpreter in interpreters(version)[:1]:
                with self.subTest(interpreter):
                    _, recording, said = self.recorded(interpreter)
                    self.assertRegex(said, r"^cistern: warn: call stacks lack Python functions: "
                                     rf"this is CPython {version}\.\S+; 3.11, 3.12 and 3.13 are known\n$")
                    self.assertEqual(set(map(len, self.python_frames(recording).values())), {0})


if __name__ == "__main__":
    unittest.main()
