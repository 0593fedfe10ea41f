# SPDX-License-Identifier: Apache-2.0
"""Instructions of one operation, counted by callgrind and held against what baseline.json records.

Times depend on the machine and its load, instruction counts on the compiler alone: they show a
slower path on any machine. What the pools do by the clock would depend on the machine, too: it stands while they are
counted. A count that another compiler or build kind recorded is not judged.
"""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import planned

BASELINE = pathlib.Path(__file__).with_name("baseline.json")
ALLOWED = 1.05  # times the recorded count

POOL_FIGURES = {
    "pair, last freed first, 1000 live": ("last_freed_first/1000", 1000, 11000),
    "pair, random order, 1000 live": ("random_order/1000", 1000, 11000),
    "pair of 512 bytes": ("size/512", 1000, 11000),
    "pair of 4 MiB, whole chunks": ("size/4194304", 1000, 11000),
    "pair from a plan, 1000 live": ("planned/0", 1000, 11000),
    "pair of 4 MiB from a plan": ("planned/4194304", 1000, 11000),
    "pair under legacy, 1000 live": ("legacy/1000", 1000, 11000),
    "pair under naive_best_fit, 1000 live": ("naive_best_fit/1000", 1000, 11000),
    "pair under auto_growth, 1000 live": ("auto_growth/1000", 1000, 11000),
    "pair under thread_local, 1000 live": ("thread_local/1000", 1000, 11000),
    "RMM's random workload, n = 10000, an operation": ("rmm_random/10000", 1, 2),
    "training trace, an operation": ("training_trace", 1, 2),
}
CALLS_FIGURES = {
    "pair through the object above an empty hook": ("pair/1000", 1000, 11000),
    "submission through the object above an empty hook": ("submit", 1000, 11000),
}
# Pairs through the object, without work in between and with it. Of the latter the calls alone are counted: an
# iteration is many pairs.
PLANNED_PAIRS = {"pair": (("pair_beside/1000", 1000, 11000), 1, ()),
                 "pair with work between": ((f"used_pairs/{planned.BYTES}", 20, 120), planned.PAIRS, ("cuMemAlloc_v2", "cuMemFree_v2"))}
PLANNED_FIGURES = {f"{pair}, {label}, {way}": (pair, free_sync, way == planned.PLAN_WAY) for pair in PLANNED_PAIRS
                   for free_sync, label in planned.PLACES.items() for way in planned.WAYS}
# A request that a plan serves costs no more than one that the pool has: on any compiler. With work between, what there is
# to wait for depends on the device's thread, and counts differ by a few in a hundred.
AT_MOST = {"pair from a plan, 1000 live": ("pair, last freed first, 1000 live", 1),
           "pair of 4 MiB from a plan": ("pair of 4 MiB, whole chunks", 1)} | {
               f"{pair}, {label}, {planned.PLAN_WAY}": (f"{pair}, {label}, {planned.POOL_WAY}", ALLOWED if within else 1)
               for pair, (_, _, within) in PLANNED_PAIRS.items() for label in planned.PLACES.values()}


def available():
    return shutil.which("valgrind") is not None


def compiler_of(build):
    """What the counts depend on: compiler, architecture and kind of build."""
    found = next((build / "CMakeFiles").glob("*/CMakeCXXCompiler.cmake")).read_text()
    kind = re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    name, version = (re.search(rf'set\(CMAKE_CXX_COMPILER_{key} "(.*)"\)', found)[1]
                     for key in ("ID", "VERSION"))
    return f"{name} {version}, {platform.machine()}, {kind[1]}"


def count(build, root, program, benchmark, preload=None, within=(), **env):
    """Instructions and operations of one benchmark, with start and end of the program; only those within some functions."""
    environment = os.environ | {"LD_LIBRARY_PATH": str(build / "sim")} | env
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
             *(f"--toggle-collect={function}" for function in within), build / program,
             f"--benchmark_filter=^{benchmark}(/manual_time)?$", f"--benchmark_out={result.name}"],
            cwd=root, env=environment, capture_output=True, text=True)
        collected = re.search(r"Collected : (\d+)", done.stderr)
        if done.returncode != 0 or not collected:
            sys.exit(f"bench: error: callgrind of {program} {benchmark}: {done.stderr[-500:]}")
        row = json.load(result)["benchmarks"][0]
    return int(collected[1]), row.get("operations", row["iterations"])


def per_operation(build, root, program, benchmark, short, long, preload=None, within=(), **env):
    """The difference of two lengths leaves start and end of the program out."""
    (less, few), (more, many) = (
        count(build, root, program, f"counted/{benchmark}/iterations:{n}", preload, within, **env)
        for n in (short, long))
    return (more - less) / (many - few)


def measure(build, root):
    """{figure: instructions}"""
    measured = {}
    for figure, benchmark in POOL_FIGURES.items():
        print(f"bench: counting: {figure} ...", file=sys.stderr)
        measured[figure] = per_operation(build, root, "pool_bench", *benchmark, build / "programs/libtestclock.so",
                                         TEST_CLOCK="stopped")
    for figure, benchmark in CALLS_FIGURES.items():
        print(f"bench: counting: {figure} ...", file=sys.stderr)
        ours, empty = (per_operation(build, root, "calls_bench", *benchmark, build / library)
                       for library in ("libcistern-device.so", "libempty_hook.so"))
        measured[figure] = ours - empty
    with planned.plan_file() as plan:
        for figure, (pair, free_sync, from_plan) in PLANNED_FIGURES.items():
            print(f"bench: counting: {figure} ...", file=sys.stderr)
            benchmark, pairs, within = PLANNED_PAIRS[pair]
            settings = planned.settings(free_sync, plan if from_plan else None)
            measured[figure] = per_operation(build, root, "calls_bench", *benchmark, build / "libcistern-device.so",
                                             within, **settings) / pairs
    return {figure: round(value, 1) for figure, value in measured.items()}


def record(measured, compiler, path=BASELINE):
    path.write_text(json.dumps({"compiler": compiler, "instructions": measured}, indent=2) + "\n")


def compare(measured, compiler, path=BASELINE):
    """Rows (figure, measured, recorded or None, verdict); only the verdict WORSE is a failure."""
    baseline = json.loads(path.read_text())
    rows = []
    for figure, value in measured.items():
        recorded = baseline["instructions"].get(figure)
        if recorded is None:
            verdict = "not recorded"
        elif compiler != baseline["compiler"]:
            verdict = f"not judged: recorded with {baseline['compiler']}"
        else:
            verdict = "WORSE" if value > recorded * ALLOWED else "ok"
        rows.append((figure, value, recorded, verdict))
    return rows + above_the_pool(measured)


def above_the_pool(measured):
    """The same rows, for what a plan serves at more than the pool's instructions."""
    return [(f"{figure}: beside the pool's", measured[figure], measured[pool], "WORSE")
            for figure, (pool, times) in AT_MOST.items()
            if figure in measured and measured[figure] > measured[pool] * times]


def show(rows):
    """The table, and the line that explains a failure; True when nothing is worse."""
    width = max(len(row[0]) for row in rows)
    print(f"\n{'instructions':<{width}}  {'measured':>9}  {'recorded':>9}  {'change':>8}")
    for figure, value, recorded, verdict in rows:
        change = "" if recorded is None else f"{100 * (value / recorded - 1):+.1f} %"
        print(f"{figure:<{width}}  {value:>9.1f}  {recorded or '':>9}  {change:>8}  {verdict}")
    worse = sum(row[3] == "WORSE" for row in rows)
    if worse:
        print(f"bench: error: {worse} of {len(rows)} instruction counts are WORSE: more than "
              f"{100 * (ALLOWED - 1):.0f} % above tests/bench/baseline.json, or from a plan above the pool's; if that is meant, record "
              "new ones: tests/bench/run BUILD --record")
    return worse == 0
