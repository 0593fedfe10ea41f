#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a real driver for facts, runs programs without and with Cistern, compares, times, writes one JSON.

Exit status 1 when a program's output or status differs, or when Cistern does not see what a library hands over.
A program that is slow without Cistern, or that the driver itself ends by a signal, is not compared, but named.
parts.py has the parts that run programs of this folder; here are the programs of tests/preload.
"""

import argparse
import collections
import concurrent.futures
import datetime
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "preload"))
import expectations
import parts
from running import alike, differs, run

SECONDS = 480  # ten minutes with the build; programs that are not begun by then are left out
FRAMEWORKS_END = 0.6  # of that time: the programs of tests/preload have the rest
FIRST = ("reclaim/", "in_flight/", "order/", "pooling/")  # of these programs: they are about frees
SLOW_S = 8  # without Cistern: such a program would take an hour with all its settings
BESIDE = min(12, os.cpu_count() or 1)  # programs at a time; what differs then counts only if it does alone, too
RESULTS = TESTS / "gpu" / "results"


def sizes_device(name):
    """Whether the variable makes a device small, refuse a call or come in numbers."""
    return (name.startswith("SIMCUDA_") and name != "SIMCUDA_LATENCY"
            or name.startswith("CISTERN_GPU_LIMIT"))


def for_any_device(test):
    """Whether the test says the same of a real GPU: not of one that lacks a function or is like no
    other, and not that Cistern changes what it prints."""
    return not (any(map(sizes_device, [*test.env, *test.env_with])) or test.driver_lacks
                or test.smallest_device or test.exit_with is not None or test.differs
                or test.own_output or test.logs or test.preload or test.host)


def programs(build):
    """The runs of tests/preload/expect with programs built here: (settings, command)."""
    words = {"programs": str(build / "programs"), "data": str(TESTS / "data"), "seed": "1",
             "source": str(TESTS / "preload" / "programs")}
    reader = expectations.Reader(words)
    runs = {}
    for name in sorted(reader.names(), key=lambda test: not test.startswith(FIRST)):
        [test] = reader.tests(name).values()
        for command in test.commands if for_any_device(test) else []:
            command = list(command)
            settings = [f"{name}={value}" for name, value in test.env_with.items()]
            if command[0] == "env":
                split = next(i for i, word in enumerate(command[1:], 1) if "=" not in word)
                settings += command[1:split]
                command = command[split:]
            if any(sizes_device(setting.partition("=")[0]) for setting in settings):
                continue
            ours = [word for word in command if words["programs"] in word or words["source"] in word]
            if ours and all(map(os.path.exists, ours)):  # some are not built for a real driver
                runs[tuple(settings), tuple(command)] = None
    return list(runs)


def toolkit_libraries(build):
    """Where the shared runtime is that the programs were linked with."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return os.path.dirname(re.search(r"^CUDA_cudart_LIBRARY:\w+=(.+)$", cache, re.MULTILINE)[1])


def gpu_facts():
    fields = ("name", "driver_version", "memory.total", "compute_cap")
    row = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
                         check=True, capture_output=True, text=True).stdout.splitlines()[0]
    return dict(zip(fields, (value.strip() for value in row.split(","))))


def revision():
    """What is checked out; "unknown" where there is no git, or no repository."""
    if not shutil.which("git"):
        return "unknown"
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def not_yet_compared(runs, result):
    """Runs that an earlier result lacks come first: several checks of ten minutes compare more programs."""
    known = {row["program"] for row in json.loads(result.read_text("utf-8")).get("programs", [])}
    return sorted(runs, key=lambda run: named(*run) in known)


def named(settings, command):
    return " ".join([*settings, *map(os.path.basename, command)])


def why_left_out(bare):
    """Why a program cannot be compared on this driver, or None."""
    if bare["status"] == "timeout" or bare["seconds"] > SLOW_S:
        return "slow on this driver"
    return "the driver itself ends it" if bare["status"] < 0 else None


def compare(settings, command, bare, preload):
    """One row: same output and status without and with."""
    bare = bare(command)
    row = {"program": named(settings, command), "status": bare["status"], "bare_seconds": bare["seconds"]}
    if reason := why_left_out(bare):
        return row | {"left_out": reason}
    pooled = run(command, preload, settings)
    row |= {"same": alike(bare, pooled), "cistern_seconds": pooled["seconds"]}
    return row if row["same"] else row | {"bare": bare, "cistern": pooled}


def compare_programs(runs, preload, until):
    """Several at a time, then those that differ alone. What is not begun by `until` is left out."""
    run_bare = functools.partial(run, timeout_s=SLOW_S)
    bare = functools.lru_cache(maxsize=None)(run_bare)

    def beside(which):
        return compare(*which, bare, preload) if time.monotonic() < until else None

    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        rows = list(pool.map(beside, runs))
    for i, row in enumerate(rows):
        if row and differs(row):  # however late: what differs beside others proves nothing
            rows[i] = row = compare(*runs[i], run_bare, preload)
        if row and differs(row):
            print(f"FAIL {row['program']}: status {row['status']} without, "
                  f"{row['cistern']['status']} with")
    done = [row for row in rows if row]
    left_out = collections.defaultdict(list)
    for row in done:
        if "left_out" in row:
            left_out[row["left_out"]].append(row["program"])
    alike_runs = sum(row.get("same", False) for row in done)
    print(f"{len(done)} of {len(runs)} runs of programs, {alike_runs} alike")
    for reason, names in left_out.items():
        print(f"{len(names)} not compared, {reason}: {'; '.join(names)}")
    return done


def as_json(value, levels=2, margin="\n "):
    """One line for each fact, size, program or other row of a part."""
    if not levels or not value or not isinstance(value, (list, dict)):
        return json.dumps(value)
    inner = [as_json(one, levels - 1, margin + " ") for one in (value.values() if isinstance(value, dict) else value)]
    if isinstance(value, dict):
        inner = [f"{json.dumps(name)}: {text}" for name, text in zip(value, inner)]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + margin + ("," + margin).join(inner) + margin[:-1] + end


def failures(result):
    """The programs of all parts that differ. Parts that only tell figures are no lists of rows."""
    rows = [row for part in result.values() if isinstance(part, list) for row in part]
    return [row["program"] for row in rows if differs(row)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("result", type=pathlib.Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no program begins after these")
    parser.add_argument("--only", metavar="PART", nargs="+", help="these parts, in place of all")
    parser.add_argument("--after", metavar="RESULT", type=pathlib.Path,
                        help="programs of tests/preload that this result has come last")
    args = parser.parse_args()
    start = time.monotonic()
    build = args.build.resolve()
    folder, preload = build / "programs",  str(build / "libcistern-device.so")
    facts = gpu_facts()
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (
        toolkit_libraries(build), str(folder), os.environ.get("LD_LIBRARY_PATH"))))
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    slug = re.sub(r"[^a-z0-9]+", "-", facts["name"].lower()).strip("-")
    path = args.result or RESULTS / f"{slug}-{date[:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"date": date, "revision": revision(), "gpu": facts}
    todo = {"facts": lambda: parts.driver_facts(folder),
            "pairs": lambda: parts.time_pairs(folder / "gpu_pairs", preload),
            "relies": lambda: parts.relies(folder, preload),
            "endings": lambda: parts.endings(folder, preload),
            "libraries": lambda: parts.libraries(folder, preload),
            "kept": lambda: parts.kept(folder, preload),
            "frameworks": lambda: parts.frameworks(preload, start + FRAMEWORKS_END * args.seconds),
            "programs": lambda: compare_programs(
                not_yet_compared(programs(build), args.after) if args.after else programs(build),
                preload, start + args.seconds)}
    if args.only and not todo.keys() >= set(args.only):
        parser.error(f"--only {' '.join(args.only)}; allowed: {', '.join(todo)}")
    for name in args.only or todo:
        result[name] = todo[name]()
        path.write_text(as_json(result) + "\n", encoding="utf-8")
    print(f"gpu-check: written to {path}")
    sys.exit(1 if failures(result) else 0)


if __name__ == "__main__":
    main()
