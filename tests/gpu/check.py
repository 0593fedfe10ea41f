#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every program without and with Cistern on a real GPU, compares, times, writes one JSON.

Usage: check.py BUILD_DIR [RESULT.json]. Exit status 1 when a program's output or status differs.
"""

import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "preload"))
import expectations

TIMEOUT_S = 120
RESULTS = TESTS / "gpu" / "results"


def programs(build):
    """The commands of tests/preload/expect that start a program built here.

    Not those about a cap: there the run without Cistern is on a device of another size.
    """
    words = {"programs": str(build / "programs"), "data": str(TESTS / "data"), "seed": "1",
             "source": str(TESTS / "preload" / "programs")}
    reader = expectations.Reader(words)
    for name in reader.names():
        [test] = reader.tests(name).values()
        settings = " ".join([*test.env, *test.env_with, *map(" ".join, test.commands)])
        if "CISTERN_GPU_LIMIT" not in settings:
            for command in test.commands:
                if any(words[place] in word for word in command for place in ("programs", "source")):
                    yield command


def toolkit_libraries(build):
    """Where the shared runtime is that the programs were linked with."""
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    return os.path.dirname(re.search(r"^CUDA_cudart_LIBRARY:\w+=(.+)$", cache, re.MULTILINE)[1])


def run(command, preload=None):
    env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if preload:
        env["LD_PRELOAD"] = preload
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=TIMEOUT_S,
                              check=False)
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
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def compare_programs(commands, preload):
    """Same output and status without and with, as far as the program promises the same output."""
    rows = []
    for command in commands:
        name = " ".join(os.path.basename(word) for word in command)
        bare, pooled = run(command), run(command, preload)
        same = all(bare[key] == pooled[key] for key in ("status", "stdout", "stderr"))
        row = {"program": name, "same": same, "status": bare["status"],
               "bare_seconds": bare["seconds"], "cistern_seconds": pooled["seconds"]}
        if not same:
            row |= {"bare": bare, "cistern": pooled}
        rows.append(row)
        print(f"{'ok  ' if same else 'FAIL'} {name}: status {bare['status']}, "
              f"{bare['seconds']} s without, {pooled['seconds']} s with")
    return rows


def time_pairs(program, preload):
    runs = [run([program], which) for which in (None, preload)]
    for done in runs:
        if done["status"] != 0:
            sys.exit(f"gpu-check: error: {program} failed, status {done['status']}: {done['stderr']}")
    bare, pooled = (json.loads(done["stdout"]) for done in runs)
    rows = []
    print(f"{'bytes':>12} {'idle: driver':>13} {'cistern':>10} {'in flight: driver':>18} {'cistern':>10}  ns")
    for a, b in zip(bare, pooled):
        rows.append({"bytes": a["bytes"], "driver": {k: a[k] for k in ("idle_ns", "in_flight_ns")},
                     "cistern": {k: b[k] for k in ("idle_ns", "in_flight_ns")},
                     "idle_ratio": round(a["idle_ns"] / b["idle_ns"], 1)})
        print(f"{a['bytes']:>12} {a['idle_ns']:>13} {b['idle_ns']:>10} {a['in_flight_ns']:>18} {b['in_flight_ns']:>10}")
    return rows


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    preload = str(build / "libcistern-device.so")
    facts = gpu_facts()
    os.environ["LD_LIBRARY_PATH"] = f"{toolkit_libraries(build)}:{build / 'programs'}"
    result = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "revision": revision(), "gpu": facts,
        "programs": compare_programs(programs(build), preload),
        "pairs": time_pairs(str(build / "programs" / "gpu_pairs"), preload),
    }
    slug = re.sub(r"[^a-z0-9]+", "-", facts["name"].lower()).strip("-")
    path = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else RESULTS / f"{slug}-{result['date'][:10]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"gpu-check: written to {path}")
    sys.exit(0 if all(row["same"] for row in result["programs"]) else 1)


if __name__ == "__main__":
    main()
