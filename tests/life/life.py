# SPDX-License-Identifier: Apache-2.0
"""Runs programs of tests/preload without and with Cistern, each in a folder of its own, and looks at
what they leave behind: reports and logs by process id, and nothing else."""

import functools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests"))
from hangs import HANGS_S  # noqa: E402

SETTINGS = ("CISTERN_", "FLAGS_", "GE_")
FOREIGN = (*SETTINGS, "SIMCUDA_", "LD_")
LOG_LINE = re.compile(r"cistern: (error|warn|info|debug): .+")
build_dir = None  # set by main()


@functools.cache
def sanitizer_runtimes(library):
    """A sanitizer's runtime has to be the first object of a process that loads it late."""
    needed = subprocess.run(("readelf", "--wide", "-d", library), check=True, capture_output=True,
                            text=True).stdout
    return tuple(re.findall(r"\[(lib[at]san\.so\S*)\]", needed))


def part(items):
    """This build's share of them (TEST_RUNS=1/2: half). Together, the builds take all. They are mixed, in the same order
    everywhere, so that no share is a setting's or a program's alone."""
    number, parts = map(int, (os.environ.get("TEST_RUNS") or "1/1").split("/"))
    mixed = list(items)
    random.Random(1).shuffle(mixed)
    return mixed[number - 1::parts]


class Life(unittest.TestCase):
    preloaded = "libcistern-device.so"
    beside = ()  # libraries of the test programs that are preloaded, too
    ends_alone = {}  # of runs without Cistern

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cistern-life-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def program(self, name):
        return str(build_dir / "programs" / name)

    def environment(self, preload, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        objects = [*sanitizer_runtimes(build_dir / "sim" / "libcuda.so.1")]
        env["LD_LIBRARY_PATH"] = f"{build_dir / 'sim'}:{build_dir / 'programs'}"
        env["SIMCUDA_KERNELS"] = str(build_dir / "sim" / "libtest-kernels.so")
        env["ASAN_OPTIONS"] = "detect_leaks=0"  # the programs leak on purpose
        if preload:
            objects += (str(build_dir / "programs" / name) for name in self.beside)
            objects.append(str(build_dir / self.preloaded))
            env |= {"CISTERN_REPORT": "json", "CISTERN_REPORT_FILE": "report.%p",
                    "CISTERN_LOG": "debug", "CISTERN_LOG_FILE": "log.%p"}
        if objects:
            env["LD_PRELOAD"] = ":".join(objects)
        return env | more

    def start(self, command, preload, **more):
        """A process in a fresh folder, which is its attribute `folder`."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        process = subprocess.Popen(command, env=self.environment(preload, **more), cwd=folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.folder = folder
        return process

    @staticmethod
    def serves_malloc():
        """Whether libcistern.so is more than the device object in this build."""
        return not (build_dir / "libcistern.so").is_symlink()

    def finish(self, process):
        """Its status, stdout and stderr, once it has ended."""
        try:
            out, err = process.communicate(timeout=HANGS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"{process.args} still runs after {HANGS_S} s")
        return process.returncode, out.decode(), err.decode()

    def alone(self, command, more):
        """How it ends without Cistern. That is run once for all of Cistern's settings: only a program that has their
        names in it could read them."""
        image = pathlib.Path(command[0]).read_bytes()
        key = (command, *sorted((name, value) for name, value in more.items()
                                if not name.startswith(SETTINGS) or name.encode() in image))
        if key not in self.ends_alone:
            bare = self.start(command, False, **more)
            end = self.finish(bare)
            self.assertEqual(end[2], "", command)
            self.assertEqual(os.listdir(bare.folder), [])
            self.ends_alone[key] = end
        return self.ends_alone[key]

    def run_both(self, *command, **more):
        """Runs it both ways; it must print and end alike. The process with Cistern, ended."""
        bare_end = self.alone(command, more)
        pooled = self.start(command, True, **more)
        self.assertEqual(self.finish(pooled), bare_end, command)
        pooled.stdout_text = bare_end[1]
        return pooled

    def left(self, folder):
        """(reports by process id, pids with a log); anything else in the folder is a finding."""
        reports, logs = {}, set()
        for path in sorted(folder.iterdir()):
            kind, _, pid = path.name.partition(".")
            self.assertIn(kind, ("report", "log"), f"left behind: {path.name}")
            text = path.read_text(encoding="utf-8")
            if kind == "report":
                reports[int(pid)] = json.loads(text)
                self.assertEqual(reports[int(pid)]["pid"], int(pid))
            else:
                logs.add(int(pid))
                for line in text.splitlines():
                    self.assertRegex(line, LOG_LINE)
        return reports, logs

    def nothing_shared_left(self, pids):
        """No shared memory and no socket that names one of these processes."""
        lines = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
        sockets = [line.split(maxsplit=7)[-1] for line in lines]  # before the name there are other numbers
        for name in [*os.listdir("/dev/shm"), *sockets]:
            if "cistern" in name.lower():
                self.assertFalse({str(pid) for pid in pids} & set(numbers_in(name)), name)


def numbers_in(name):
    """Decimal numbers, but no parts of a hexadecimal one."""
    return re.findall(r"(?<![0-9a-f])[0-9]+(?![0-9a-f])", name)


def main():
    global build_dir, tools_dir
    build_dir = pathlib.Path(os.environ.get("BUILD_DIR", ROOT / "build" / "release")).resolve()
    if not (build_dir / "libcistern-device.so").exists():
        sys.exit(f"no libcistern-device.so in {build_dir}; build first, or set BUILD_DIR")
    # The planner is not what is tested here, and takes ten times as long under a sanitizer.
    tools_dir = pathlib.Path(os.environ.get("TEST_BARE_BUILD", build_dir)).resolve()
    unittest.main(module="__main__")
