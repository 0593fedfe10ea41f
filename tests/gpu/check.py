#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every program without and with Cistern on a real GPU, compares, times, writes one JSON.

Exit status 1 when a program's output or status differs. A program that is slow without Cistern, or that the
driver itself ends by a signal, is not compared, but named.
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
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "preload"))
import expectations
import workloads

TIMEOUT_S = 60
SLOW_S = 12  # without Cistern: such a program would take an hour with all its settings
BESIDE = 6  # programs at a time; what differs then counts only if it does alone, too
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
    for name in reader.names():
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
            if any(words[place] in word for word in command for place in ("programs", "source")):
                runs[tuple(settings), tuple(command)] = None
    return list(runs)


def toolkit_libraries(build):
    """Where the shared runtime is that the programs were linked with."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return os.path.dirname(re.search(r"^CUDA_cudart_LIBRARY:\w+=(.+)$", cache, re.MULTILINE)[1])


def run(command, preload=None, settings=(), timeout_s=TIMEOUT_S):
    """In a new directory, which goes with what the program leaves there."""
    env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if preload:
        env |= dict(setting.split("=", 1) for setting in settings) | {"LD_PRELOAD": preload}
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder,
                                  timeout=timeout_s, check=False, errors="replace")
            status, out, err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            status, out, err = "timeout", "", ""
    return {"status": status, "stdout": out, "stderr": err,
            "seconds": round(time.monotonic() - start, 3)}


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


def alike(one, other):
    return all(one[key] == other[key] for key in ("status", "stdout", "stderr"))


def why_left_out(bare):
    """Why a program cannot be compared on this driver, or None."""
    if bare["status"] == "timeout" or bare["seconds"] > SLOW_S:
        return "slow on this driver"
    return "the driver itself ends it" if bare["status"] < 0 else None


def compare(settings, command, bare, preload):
    """One row: same output and status without and with."""
    bare = bare(command)
    row = {"program": " ".join([*settings, *map(os.path.basename, command)]),
           "status": bare["status"], "bare_seconds": bare["seconds"]}
    if reason := why_left_out(bare):
        return row | {"left_out": reason}
    pooled = run(command, preload, settings)
    row |= {"same": alike(bare, pooled), "cistern_seconds": pooled["seconds"]}
    return row if row["same"] else row | {"bare": bare, "cistern": pooled}


def differs(row):
    return not row.get("same", True)


def compare_programs(runs, preload, until):
    """Several at a time, then those that differ alone. What is not begun by `until` is left out."""
    run_bare = functools.partial(run, timeout_s=SLOW_S)
    bare = functools.lru_cache(maxsize=None)(run_bare)

    def beside(which):
        return compare(*which, bare, preload) if time.monotonic() < until else None

    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        rows = list(pool.map(beside, runs))
    for i, row in enumerate(rows):
        if row and differs(row) and time.monotonic() < until:
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


def driver_facts(program):
    done = run([program])
    print(done["stdout"], done["stderr"])
    return json.loads(done["stdout"]) if done["status"] == 0 else done


def time_pairs(program, preload):
    runs = [run([program], which) for which in (None, preload)]
    for done in runs:
        if done["status"] != 0:
            sys.exit(f"gpu-check: error: {program} failed, status {done['status']}: {done['stderr']}")
    bare, pooled = (json.loads(done["stdout"]) for done in runs)
    rows = []
    for a, b in zip(bare, pooled):
        rows.append({"bytes": a.pop("bytes"), "driver": a, "cistern": b,
                     "idle_ratio": round(a["idle_ns"] / b["idle_ns"], 1)})
        print(f"{b.pop('bytes'):>12} bytes, ns without and with: "
              + ", ".join(f"{what[:-3]} {a[what]:.0f} {b[what]:.0f}" for what in a))
    return rows


def frameworks(preload, until):
    """The same work by PyTorch, CuPy and Numba, where they are installed."""
    rows = []
    for name, settings in workloads.NAMES.items():
        if time.monotonic() > until:
            break
        command = [sys.executable, workloads.__file__, name]
        bare, pooled = run(command), run(command, preload, settings)
        answers = [done["stdout"].partition(";")[2] for done in (bare, pooled)]
        same = answers[0] == answers[1] and bare["status"] == pooled["status"]
        rows.append({"program": name, "settings": settings, "same": same, "bare": bare,
                     "cistern": pooled})
        print(f"{'ok  ' if same else 'FAIL'} {name}: status {bare['status']}, "
              f"{bare['stdout'].strip()} / {pooled['stdout'].strip()}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("result", type=pathlib.Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=3600, help="no program begins after these")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    build = args.build.resolve()
    preload = str(build / "libcistern-device.so")
    facts = gpu_facts()
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, (
        toolkit_libraries(build), str(build / "programs"), os.environ.get("LD_LIBRARY_PATH"))))
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    slug = re.sub(r"[^a-z0-9]+", "-", facts["name"].lower()).strip("-")
    path = args.result or RESULTS / f"{slug}-{date[:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"date": date, "revision": revision(), "gpu": facts}
    parts = {"facts": lambda: driver_facts(str(build / "programs" / "gpu_facts")),
             "pairs": lambda: time_pairs(str(build / "programs" / "gpu_pairs"), preload),
             "frameworks": lambda: frameworks(preload, until),
             "programs": lambda: compare_programs(programs(build), preload, until)}
    for name, part in parts.items():
        result[name] = part()
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"gpu-check: written to {path}")
    sys.exit(1 if any(differs(row) for part in ("programs", "frameworks") for row in result[part]) else 0)


if __name__ == "__main__":
    main()
