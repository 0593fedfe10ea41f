#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs under libcistern.so: Python's own test suite and redis end as without it, a thousand forks end well, and what a
loader holds an idle period after its load is near what is live. `make soak`; BUILD_DIR names the build. What a machine
lacks is left out and named.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
OBJECT = BUILD / "libcistern.so"
PROGRAMS = BUILD / "programs"
IDLE = {"FLAGS_free_idle_memory": "true", "CISTERN_IDLE_MS": "100"}
POLICIES = ({}, IDLE | {"FLAGS_use_pinned_memory": "true", "FLAGS_initial_cpu_memory_in_mb": "64"})
OF_PYTHON = ("dict", "list", "bytes", "re", "threading", "subprocess", "mmap", "gc", "json", "pickle", "sqlite3", "set",
             "unicode", "zlib", "array", "memoryview", "weakref", "generators", "thread", "queue", "concurrent_futures",
             "multiprocessing_fork", "os", "posix", "signal", "faulthandler", "mailbox")
OPERATIONS = int(os.environ.get("SOAK_HOST_OPERATIONS", 10**8))
OTHERS = {"glibc": "", "libjemalloc2": "libjemalloc.so.2"}


def run(command, preload, settings=None, folder=None, seconds=1800):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("CISTERN_", "FLAGS_", "GE_", "LD_"))}
    environment |= {"CISTERN_LOG": "error", "LD_LIBRARY_PATH": f"{BUILD / 'sim'}:{PROGRAMS}"} | (settings or {})
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=seconds,
                          check=False, stdin=subprocess.DEVNULL)


class Suites(unittest.TestCase):
    def test_of_python(self):
        """Its verdict on each part, and how many tests ran."""
        interpreter = sys.executable
        for part in OF_PYTHON:
            if subprocess.run([interpreter, "-c", f"import test.test_{part}"], capture_output=True).returncode != 0:
                print(f"left out: this Python has no test_{part}", flush=True)
                continue
            with self.subTest(part=part):
                ends = []
                for preload, settings in ((None, {}), *((OBJECT, policy) for policy in POLICIES)):
                    with tempfile.TemporaryDirectory() as folder:
                        done = run([interpreter, "-m", "test", "--randseed", "1", f"test_{part}"], preload, settings, folder)
                    ends.append((done.returncode, re.findall(r"^(?:Total tests|Result):.*", done.stdout, re.M),
                                 re.findall(r"^(?:FAIL|ERROR): .*", done.stdout, re.M)))
                self.assertEqual(ends[1:], ends[:1] * len(POLICIES))


REDIS = """
redis-server --port 0 --unixsocket $PWD/socket --save "" --daemonize no --logfile log & server=$!
until redis-cli -s socket ping > /dev/null 2>&1; do sleep 0.05; done
redis-benchmark -s socket -n 100000 -r 20000 -q -t set,get,lpush,lpop,hset,zadd > /dev/null; echo $?
redis-cli -s socket dbsize | grep -c .; kill $server; wait $server; echo $?"""


class Server(unittest.TestCase):
    @unittest.skipUnless(shutil.which("redis-benchmark"), "left out: no redis-benchmark")
    def test_of_redis(self):
        ends = []
        for preload, settings in ((None, {}), *((OBJECT, policy) for policy in POLICIES)):
            with tempfile.TemporaryDirectory() as folder:
                done = run(["bash", "-c", REDIS], preload, settings, folder, seconds=300)
            ends.append((done.returncode, done.stdout, done.stderr))
        self.assertEqual(ends[1:], ends[:1] * len(POLICIES))


class Programs(unittest.TestCase):
    def same(self, *command):
        """What it prints, with each policy as without."""
        bare = run(command, None)
        for settings in POLICIES:
            done = run(command, OBJECT, settings)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (bare.returncode, bare.stdout, bare.stderr))
        return bare.stdout

    def test_a_thousand_forks(self):
        self.assertEqual(self.same(PROGRAMS / "host_forks_lazy", "1000"), "0 of 1000 children did not end well\n")

    def test_a_thousand_children_of_each_other_kind(self):
        for way in ("spawn", "vfork", "clone"):
            self.assertEqual(self.same(PROGRAMS / "host_children_lazy", way, "250"),
                             "0 of 1000 children did not end well\n")

    def test_interrupted_calls_and_blocks_handed_over(self):
        self.same(PROGRAMS / "host_signals_lazy", "100000")
        self.same(PROGRAMS / "host_handover_lazy", "128", "20", "5000")
        self.same(PROGRAMS / "host_dlclose_lazy", "20000")

    def test_a_loader_holds_little_more_than_what_is_live(self):
        command = (PROGRAMS / "host_idle_lazy", "loader", str(OPERATIONS))
        for name, library in OTHERS.items():
            done = run(command, library, {"SAY": "1"})
            print(f"{name}: {' '.join(done.stdout.split())}{done.stderr}", flush=True)
        done = run(command, OBJECT, {"SAY": "1"} | IDLE)
        print(f"Cistern: {' '.join(done.stdout.split())}{done.stderr}", flush=True)
        self.assertEqual(done.stdout.splitlines()[0], "at most 1.2 times what is live")


if __name__ == "__main__":
    if not OBJECT.exists() or OBJECT.is_symlink():
        print(f"skipped: {OBJECT} does not serve malloc in this build")
        sys.exit(77)
    unittest.main()
