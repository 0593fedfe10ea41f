# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's own driver libraries and runtimes on a machine without a GPU, without and with Cistern.

BUILD_DIR names the build, CUDA_INCLUDE and CUDA_LIB the toolkit. Without the libraries (fetch.py) nothing can be
said, nor about an object that is built with a sanitizer: status 77 and a line with the reason.
"""

import collections
import concurrent.futures
import ctypes
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import fetch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path += [str(HERE.parent / "life"), str(HERE.parent / "preload")]

import life  # noqa: E402

# What a run with Cistern is told; the results must be the same under each.
SETTINGS = (
    {},
    {"CISTERN_POOL": "off"},
    {"CISTERN_GPU_LIMIT": "1G", "FLAGS_allocator_strategy": "auto_growth", "CISTERN_FREE_SYNC": "true",
     "FLAGS_alloc_fill_value": "7", "FLAGS_free_idle_memory": "true"},
)

HAVE_STATIC = ("the toolkit's", "cudart-12", "cudart-13")  # of the runtimes; the wheel of 11 has a shared one only

Runtime = collections.namedtuple("Runtime", "name include libraries static")
build_dir = None  # these are set by main()
drivers = {}  # the folder of each libcuda.so.1, by what the file is really called
runtimes = []


def only(folder, pattern):
    """The one file below the folder that is called so; None if there is none."""
    return next(iter(sorted(folder.rglob(pattern))), None)


def find_libraries(folder):
    for package in fetch.DRIVERS:
        library = only(folder / package, "libcuda.so.1")
        if library is not None:
            drivers[library.resolve().name] = library.parent
        elif (folder / package).exists():
            sys.exit(f"{folder / package} holds no libcuda.so.1; remove it, so that it is fetched again")
    toolkit = pathlib.Path(os.environ["CUDA_LIB"])
    runtimes.append(Runtime("the toolkit's", os.environ["CUDA_INCLUDE"], toolkit, only(toolkit, "libcudart_static.a")))
    for name in fetch.RUNTIMES:
        library = only(folder / name, "libcudart.so.*")
        if library is not None:
            include = only(folder / name, "cuda_runtime_api.h").parent
            runtimes.append(Runtime(name, include, library.parent, only(folder / name, "libcudart_static.a")))
        elif (folder / name).exists():
            sys.exit(f"{folder / name} holds no libcudart.so; remove it, so that it is fetched again")
    for runtime in runtimes:
        if runtime.name in HAVE_STATIC and runtime.static is None:
            sys.exit(f"{runtime.name} runtime has no libcudart_static.a")


def what_is_there():
    kinds = [f"{r.name} {'shared and static' if r.static else 'shared'}" for r in runtimes]
    return f"run on {', '.join(drivers)} with the runtimes {', '.join(kinds)}"


def exports(library):
    """The driver functions that a library exports, by name: how far into it each is."""
    listed = subprocess.run(("nm", "-D", "--defined-only", library), check=True, capture_output=True, text=True).stdout
    return {name: int(address, 16) for address, name in re.findall(r"^(\w+) [TWi] (cu[A-Z]\w*)$", listed, re.MULTILINE)}


def shared_names(symbols):
    """What cuGetProcAddress is asked for: names without the ending of a version or variant."""
    return sorted({re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", symbol) for symbol in symbols})


def compile_all(commands):
    """Compiler commands without the compiler, side by side."""
    def compile_one(words):
        done = subprocess.run(("g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", *map(str, words)),
                              capture_output=True, text=True, check=False)
        return done.stderr if done.returncode != 0 else ""

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = "".join(pool.map(compile_one, commands))
    if errors:
        sys.exit(errors)


class DriverTest(unittest.TestCase):
    """Runs programs, each in an empty folder, and compares what they did without and with the object."""

    @classmethod
    def setUpClass(cls):
        cls.object = build_dir / "libcistern-device.so"
        cls.hooks = exports(cls.object)
        table = (ROOT / "shim" / "pass-list.txt").read_text(encoding="utf-8")
        cls.passed = set(re.findall(r"^(cu\w+) (?!taken for unknown)", table, re.MULTILINE))
        cls.shared = pathlib.Path(tempfile.mkdtemp(prefix="cistern-drivers-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)

    def environment(self, libraries, preload, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(life.FOREIGN)}
        env |= {"LD_LIBRARY_PATH": ":".join(map(str, libraries)), "LD_PRELOAD": ":".join(map(str, preload))}
        return env | more

    def run_one(self, command, libraries, preload=(), **more):
        """Its exit status, what it printed on stdout and stderr, and the files it left."""
        with tempfile.TemporaryDirectory(dir=self.shared) as folder:
            done = subprocess.run(tuple(map(str, command)), env=self.environment(libraries, preload, **more),
                                  cwd=folder, capture_output=True, text=True, timeout=life.HANGS_S,
                                  stdin=subprocess.DEVNULL, check=False)
            left = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
        return done.returncode, done.stdout, done.stderr, left

    def assert_alike(self, bare, pooled, what):
        for name, one, other in zip(("exit status", "stdout", "stderr", "files"), bare, pooled):
            if one != other and isinstance(one, str):
                one, other = "", "\n".join(difflib.unified_diff(one.splitlines(), other.splitlines(), "without", "with",
                                                                lineterm="", n=0))
            self.assertEqual(one, other, f"{what}: {name}")

    def rerouted(self, line, library):
        """What a line about a look-up without Cistern may be with it: several, if several hooks have one function."""
        route, name, *_, place = line.split(" ")
        if not place.startswith("libcuda.so.1+"):
            return [line]
        if route.startswith("dl") and name == "cuGetExportTable":  # asked by anybody but NVIDIA's runtime
            return [line.replace(place, "a trampoline")]
        offset = int(place.partition("+")[2], 16)
        names = [name] if route.startswith("dl") else [n for n, address in library.items() if address == offset]
        self.assertTrue(names, f"{line}: the answer is no export of the driver")
        hooked = [self.hooks[n] for n in names if n in self.hooks]
        if not hooked and not self.passed.intersection(names):
            return [line.replace(place, "a trampoline")]
        return [line.replace(place, f"{self.object.name}+{hook:x}") for hook in hooked] or [line]

    def with_trampolines(self, line):
        """The same line, where the answer is code of the object, but no hook."""
        head, _, place = line.rpartition(" ")
        name, _, offset = place.partition("+")
        ours = name == self.object.name and int(offset, 16) not in self.hooks.values()
        return f"{head} a trampoline" if ours else line

    def assert_rerouted(self, bare, pooled, library, least, what):
        """Look-ups of hooked functions got the hook, of unknown ones a trampoline, the others the same as without; and
        at least so many hooks."""
        pooled = [self.with_trampolines(line) for line in pooled]
        self.assertEqual(len(bare), len(pooled), what)
        wrong = [f"{one}: {other}" for one, other in zip(bare, pooled) if other not in self.rerouted(one, library)]
        self.assertFalse(wrong, "\n".join([f"{what}: without: with", *wrong[:20]]))
        hooks = {line.split(" ")[-1] for line in pooled if f" {self.object.name}+" in line}
        self.assertGreaterEqual(len(hooks), least, what)


def forbid_device_files():
    """The driver creates /dev/nvidiactl where it may: no program started from here may."""
    drop_from_bounding_set, make_nodes = 24, 27  # PR_CAPBSET_DROP, CAP_MKNOD
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(drop_from_bounding_set, make_nodes, 0, 0, 0) != 0:
        skip("the driver would create device files as root, which cannot be forbidden here")


def note(text):
    """For the end of `make test` (fetch.py --tell)."""
    folder = build_dir / "drivers"
    folder.mkdir(exist_ok=True)
    (folder / "stage").write_text(text, encoding="utf-8")


def skip(reason):
    note(f"skipped: {reason}")
    print(f"skipped: {reason}")
    sys.exit(77)


def main():
    global build_dir
    build_dir = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
    if not (build_dir / "libcistern-device.so").exists():
        sys.exit(f"no libcistern-device.so in {build_dir}; build first, or set BUILD_DIR")
    if os.environ.get("TEST_DRIVERS") == "off":
        skip("TEST_DRIVERS=off")
    if life.sanitizer_runtimes(build_dir / "libcistern-device.so"):
        skip("a sanitizer does not know NVIDIA's own libraries; the other presets run these tests")
    if pathlib.Path("/proc/driver/nvidia").exists() or shutil.which("nvidia-modprobe"):
        skip("this machine has an NVIDIA driver of its own; make gpu-check tests with that")
    missing = fetch.obtain(build_dir / "drivers")
    for name, why in missing.items():
        print(f"without {name}: {why}")
    find_libraries(build_dir / "drivers")
    if not drivers:
        skip("no driver library of NVIDIA's can be had")
    forbid_device_files()
    note(what_is_there())
    unittest.main(module="__main__")
