# SPDX-License-Identifier: Apache-2.0
"""Runs a program without and with Cistern on the simulated CUDA, for run-pair and the benchmarks."""

import collections
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import expectations
import happenings
import judging

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from hangs import HANGS_S  # noqa: E402

PAGE_MB = 2  # a driver takes device memory in units of this
FOREIGN_SETTINGS = ("CISTERN_", "FLAGS_", "GE_", "SIMCUDA_", "LD_")

Outcome = collections.namedtuple("Outcome", "status stdout stderr trace calls log report races")


@functools.cache
def readelf(*arguments):
    return subprocess.run(("readelf", "--wide", *arguments), check=True, capture_output=True,
                          text=True).stdout


def sanitizer_runtimes(library):
    """A sanitizer's runtime has to be the first object of a process that loads it late."""
    return re.findall(r"\[(lib[at]san\.so\S*)\]", readelf("-d", library))


def exported_calls(library):
    return set(re.findall(r"\bFUNC\s+GLOBAL\s+DEFAULT\s+\d+\s+(cu[A-Z]\w*)",
                          readelf("--dyn-syms", library)))


class Runner:
    def __init__(self, build, library=None, toolkit_lib=None, bare=False):
        build = pathlib.Path(build).resolve()
        self.build = build
        self.sim = build / "sim"
        self.programs = build / "programs"
        self.object = pathlib.Path(library or build / "libcistern-device.so").resolve()
        self.host_object = self.object.with_name("libcistern.so")
        self.toolkit_lib = toolkit_lib
        self.bare = bare
        self.for_bare_runs = None  # a Runner of another build
        self.kept = None           # bare_runs.Kept
        self.driver = self.sim / "libcuda.so.1"
        for needed in (self.driver,) if self.bare else (self.driver, self.object):
            if not needed.exists():
                sys.exit(f"run-pair: error: {needed} is not there; build it: make")
        self.words = {"programs": str(self.programs), "data": str(HERE.parent / "data"),
                      "source": str(HERE / "programs")}

    def older_driver(self, lacks, folder):
        """A folder with a driver in which these symbols have other names, for every look-up."""
        image = self.driver.read_bytes()
        for symbol in lacks:
            name = b"\0" + symbol.encode() + b"\0"
            if name not in image:
                sys.exit(f"run-pair: error: {self.driver} has no {symbol} that it could lack")
            image = image.replace(name, name.replace(b"cu", b"no", 1))
        older = folder / "driver"
        older.mkdir()
        (older / self.driver.name).write_bytes(image)
        return older

    def words_for(self, seed):
        return self.words | {"seed": seed}

    def environment(self, expected, preload, folder):
        env = {name: value for name, value in os.environ.items()
               if not name.startswith(FOREIGN_SETTINGS)}
        libraries = [self.sim, self.programs]
        if expected.driver_lacks:
            libraries.insert(0, self.older_driver(expected.driver_lacks, folder))
        if expected.toolkit_runtime:
            if not self.toolkit_lib:
                sys.exit("run-pair: error: this program wants --toolkit-lib DIR")
            libraries.insert(0, self.toolkit_lib)
        env["LD_LIBRARY_PATH"] = ":".join(map(str, libraries))
        env["SIMCUDA_KERNELS"] = str(self.sim / "libtest-kernels.so")
        env["SIMCUDA_TRACE"] = str(folder / "trace")
        # The simulated device watches every access: a block reused before earlier work was ordered.
        env["SIMCUDA_RACES"] = "report"
        env["SIMCUDA_RACES_FILE"] = str(folder / "races")
        env["ASAN_OPTIONS"] = "detect_leaks=0"  # the programs leak on purpose
        env |= expected.env
        objects = sanitizer_runtimes(self.driver)
        objects += [str(self.programs / name) for name in expected.preload]
        if preload:
            objects.append(str(self.host_object if expected.host else self.object))
            env |= expected.env_with
            if expected.report or expected.reports or expected.happens or expected.leaves is not None:
                env |= {"CISTERN_REPORT": "json", "CISTERN_REPORT_FILE": str(folder / "report")}
            if expected.lookup or expected.logs:
                level = "debug" if expected.lookup else "info"
                env |= {"CISTERN_LOG": level, "CISTERN_LOG_FILE": str(folder / "log")}
        objects += [str(self.programs / name) for name in expected.preload_behind]
        if objects:
            env["LD_PRELOAD"] = ":".join(objects)
        return env

    def run(self, command, expected, preload):
        with tempfile.TemporaryDirectory(prefix="run-pair-") as name:
            folder = pathlib.Path(name)
            settings, words = expectations.without_env(command)
            try:
                done = subprocess.run(words, env=self.environment(expected, preload, folder) | settings, cwd=folder,
                                      capture_output=True, timeout=HANGS_S, check=False)
                result = (done.returncode, done.stdout, done.stderr)
            except subprocess.TimeoutExpired as hangs:
                sys.exit(f"FAIL: {shlex.join(command)} {'with' if preload else 'without'} Cistern hangs: "
                         f"still running after {HANGS_S} s\n{(hangs.stdout or b'').decode('utf-8', 'replace')}")
            trace, log, report, races = (read_text(folder / leaf)
                                         for leaf in ("trace", "log", "report", "races"))
        calls = collections.Counter(line.split(" ", 1)[0] for line in trace.splitlines())
        texts = [text.decode("utf-8", "replace") for text in result[1:]]
        return Outcome(result[0], *texts, trace, calls, log, report, races)


def read_text(path):
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def memory_mb(runner, command, expected):
    """The least memory, in MiB and in steps of the driver's pages, with which all is as expected without Cistern."""
    def suffices(size):
        expected.env["SIMCUDA_MEMORY_MB"] = str(size)
        return not list(judging.judge_run(run_alone(runner, command, expected)[0], expected, "without"))

    low, high, spare = expected.smallest_device
    if suffices(low) or not suffices(high):
        raise expectations.Mistake(f"{shlex.join(command)}: the smallest device is not between {low} and {high} MiB")
    while high - low > PAGE_MB:
        middle = (low + high) // 2 // PAGE_MB * PAGE_MB
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high + spare


def run_alone(runner, command, expected):
    """The run without Cistern, in the build for such runs if there is one, and whether it had been made before."""
    if runner.for_bare_runs and not runner.bare:
        own, runner = runner.words, runner.for_bare_runs
        command = [word.replace(own["programs"], runner.words["programs"]) for word in command]
    key = runner.kept and runner.kept.key(command, expected)
    fields = key and runner.kept.find(key)
    if fields:
        return Outcome(**fields | {"calls": collections.Counter(fields["calls"])}), True
    bare = runner.run(command, expected, preload=False)
    if key and not list(judging.judge_run(bare, expected, "without")):
        runner.kept.keep(key, bare._replace(trace="")._asdict())
    return bare, False


def compare(runner, command, expected):
    bare, was_kept = run_alone(runner, command, expected)
    if runner.bare:
        return [f"without: {text}" for text in judging.judge_run(bare, expected, "without")], bare
    pooled = runner.run(command, expected, preload=True)
    findings = judging.judge(bare, pooled, expected, lambda: exported_calls(runner.object))
    try:
        expected.happened |= happenings.seen(pooled, expected.happens)
    except (ValueError, KeyError) as error:
        findings.append(f"the report cannot be read, so nobody knows what happened: {error!r}\n{pooled.report}")
    # A program may do less under a sanitizer: then what it does without Cistern there counts. Nor does a test fail
    # for what was kept.
    if findings and (runner.for_bare_runs or was_kept):
        bare = runner.run(command, expected, preload=False)
        findings = judging.judge(bare, pooled, expected, lambda: exported_calls(runner.object))
    return findings, bare


def run_and_tell(runner, command, expected):
    """True if there is nothing to complain about."""
    if expected.smallest_device:
        size = memory_mb(runner, command, expected)
        print(f"on a device of {size} MiB:")
        expected.env["SIMCUDA_MEMORY_MB"] = str(size)
    findings, bare = compare(runner, command, expected)
    print(f"{'FAIL' if findings else 'ok'}: {shlex.join(command)}", flush=True)
    for finding in findings:
        print(f"  {finding}")
    if findings:
        print(f"  stdout without:\n{bare.stdout}", end="")
    return not findings
