# SPDX-License-Identifier: Apache-2.0
"""A home for the launcher under test: the built cistern-config beside stand-ins for the objects.

The stand-ins are small libraries, so that these tests say nothing about the real objects, run in
sanitizer builds too, and have a "driver" that any program may load.
"""

import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LAUNCHER = ROOT / "scripts" / "cistern"
EMPTY_LIBRARY = "int cistern_stand_in;"
HOST_LIBRARY = """
void* __libc_malloc(unsigned long);
void* malloc(unsigned long bytes) { return __libc_malloc(bytes); }
"""
DRIVER = """
int cuInit(unsigned flags) { return (int)flags; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
"""
AUDIT = "unsigned la_version(unsigned version) { return version; }"
build_dir = None  # set by main()


def compile_library(path, source):
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True
    )


def elf(machine=62, bits=64, interpreter=None):
    """The bytes of an ELF program that has headers and nothing else."""
    text = b"" if interpreter is None else interpreter.encode() + b"\0"
    count = 0 if interpreter is None else 1
    ident = b"\x7fELF" + bytes([2 if bits == 64 else 1, 1, 1]) + bytes(9)
    if bits == 32:
        return ident + struct.pack("<HHIIIIIHHHHHH", 2, machine, 1, 0, 52, 0, 0, 52, 32, 0, 0, 0, 0)
    header = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 3, 4, 120, 0, 0, len(text), len(text), 1)
    return ident + header + (segment + text if count else b"")


class LauncherTest(unittest.TestCase):
    """Each test has `home`, as after a build, and `folder` for its files; all may read them."""

    @classmethod
    def setUpClass(cls):
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cistern-launcher-"))
        cls.shared.chmod(0o755)
        cls.home = cls.shared / "home"
        (cls.home / "sim").mkdir(parents=True)
        compile_library(cls.home / "libcistern.so", HOST_LIBRARY)
        compile_library(cls.home / "libcistern-device.so", EMPTY_LIBRARY)
        compile_library(cls.home / "sim" / "libcuda.so.1", DRIVER)
        shutil.copy2(build_dir / "cistern-config", cls.home)
        shutil.copy2(build_dir / "cistern-plan", cls.home)
        shutil.copy2(build_dir / "cistern-trace", cls.home)
        for path in (cls.home, *cls.home.rglob("*")):  # whatever the umask
            path.chmod(0o755)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.shared)

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.shared))
        self.folder.chmod(0o755)

    def file(self, name, content, mode=0o755):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return str(path)

    def cistern(self, *words, home=None, env=None, launcher=LAUNCHER, **more):
        """Runs the launcher; variables of this project in our own environment do not count."""
        clean = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("CISTERN_", "FLAGS_", "GE_", "LD_"))
        }
        clean.update(env or {})
        at = [] if home == "" else ["--home", str(home or self.home)]
        return subprocess.run(
            [str(launcher), *at, *words],
            env=clean,
            capture_output=True,
            text=True,
            check=False,
            **more,
        )

    def library(self, name, source, *options):
        """A library that may be read and not executed, as some packages have them."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", path, *options]
        subprocess.run(command, input=source, text=True, check=True)
        path.chmod(0o644)
        return str(path)

    def of_file(self, path, *options, works=True, **more):
        """What doctor says of a program or library, without what it says of the machine."""
        result = self.cistern("doctor", "--sim", *options, path, **more)
        self.assertEqual((result.returncode, result.stderr), (0 if works else 1, ""), result.stdout)
        return result.stdout[result.stdout.index("LD_PRELOAD"):]

    def refused(self, result, code, *parts):
        """Nothing ran, and one line says why, what was seen and what to do."""
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for part in ("cistern: error: ", "; value seen ", *parts):
            self.assertIn(part, result.stderr)
        self.assertRegex(result.stderr, "; (try|example): |; its first line asks for ")


def built():
    return pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()


def main():
    global build_dir
    build_dir = built()
    if not (build_dir / "cistern-config").exists():
        sys.exit(f"no cistern-config in {build_dir}; build first, or set BUILD_DIR")
    unittest.main(module="__main__")
