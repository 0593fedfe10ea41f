#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The simulated driver exports what the toolkit's headers declare, and finds it under the versions they state.

A missing entry point stops a program where the loader or the program looks it up, also one that would never
have called it. The headers for OpenGL, EGL and VDPAU include headers of graphics libraries, which need not be
installed: names can be read without their types, so empty files stand in for them.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

TABLE = pathlib.Path(__file__).resolve().parents[1] / "driver" / "table" / "calls.def"
DRIVER = pathlib.Path(os.environ["BUILD_DIR"]) / "sim" / "libcuda.so.1"
INCLUDE = pathlib.Path(os.environ["CUDA_INCLUDE"].split(";")[0])
HEADERS = ("cuda.h", "cudaProfiler.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")  # some packages have only the first
GRAPHICS = ("GL/gl.h", "EGL/egl.h", "EGL/eglext.h", "vdpau/vdpau.h")
NEWEST = 13050  # the driver that is simulated
KINDS = {"": ("kAny", "kLegacy"), "_ptds": ("kPtds",), "_ptsz": ("kPtsz",)}


def preprocessed(header):
    """What the driver itself would see: each version of a function by its own name."""
    with tempfile.TemporaryDirectory() as folder:
        for name in GRAPHICS:
            path = pathlib.Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        command = ["g++", "-E", "-P", "-x", "c++", "-D__CUDA_API_VERSION_INTERNAL", f"-I{folder}", f"-I{INCLUDE}",
                   INCLUDE / header]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def here(headers):
    return [header for header in headers if (INCLUDE / header).exists()]


def declared(header):
    return set(re.findall(r"CUresult\s+(?:CUDAAPI\s+)?(cu[A-Z]\w*)\s*\(", preprocessed(header)))


def exported():
    lines = subprocess.run(["nm", "-D", "--defined-only", DRIVER], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in lines.splitlines()}


def typed(header):
    """(name, version, variant) of each type of an entry point."""
    types = preprocessed(header)
    return {(name, int(version), variant or "")
            for name, version, variant in re.findall(r"\*\s*PFN_(\w+?)_v(\d+)(_pt[ds][sz])?\)", types)}


def rows():
    """{(name, version, kind)} of the simulator's table."""
    lines = re.findall(r"^(?:CALL|NEWER|UNSUPPORTED)\(\w+, (\w+), (\d+), (\w+)", TABLE.read_text(encoding="utf-8"), re.M)
    return {(name, int(version), kind) for name, version, kind in lines}


class Exports(unittest.TestCase):
    def test_each_function_that_a_header_declares_is_exported(self):
        if int(re.search(r"#define CUDA_VERSION (\d+)", (INCLUDE / "cuda.h").read_text(encoding="utf-8"))[1]) > NEWEST:
            self.skipTest("a newer toolkit declares what the simulated driver need not have")
        for header in here(HEADERS):
            names = declared(header)
            self.assertGreater(len(names), 1, header)
            self.assertEqual(names - exported(), set(), header)

    def test_each_typed_entry_point_has_its_row(self):
        for header in here(header.replace(".h", "Typedefs.h") for header in HEADERS):
            types = typed(header)
            self.assertGreater(len(types), 1, header)
            for name, version, variant in types:
                if version > NEWEST or "WGL" in name:  # of Windows
                    continue
                found = {kind for kind in KINDS[variant] if (name, version, kind) in rows()}
                self.assertTrue(found, f"{header}: no row of calls.def for {name}, {version}, {variant or 'as it is'}")

    def test_what_is_exported_beside_the_simulators_own_is_in_the_table(self):
        table = re.findall(r"^(?:CALL|NEWER|OWN|UNSUPPORTED)\((\w+)", TABLE.read_text(encoding="utf-8"), re.M)
        self.assertEqual({name for name in exported() if not name.startswith(("simcuda_", "cuUnknownMany"))}, set(table))


if __name__ == "__main__":
    unittest.main()
