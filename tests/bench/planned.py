# SPDX-License-Identifier: Apache-2.0
"""What a pair costs that is served from a plan, beside one that the pool serves: calls_bench.cc's used_pairs.

The simulated device is idle, or each block is filled by work of so many microseconds before its free. The ways take
turns; of each the least counts. `rows(build, plan)` yields (figure, measured, unit, goal or None), for tests/bench/run.
"""

import collections
import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

Plan = collections.namedtuple("Plan", "work_us runs")
PLAN = Plan(work_us=(0, 20, 100), runs=7)
QUICK = Plan(work_us=(0, 20), runs=1)

LIVE, PAIRS, BYTES = 1000, 65, 4096  # as in calls_bench.cc; the first pair is around the others
PLACES = {"auto": "default", "false": "no free waits"}
WAYS = POOL_WAY, PLAN_WAY = "the pool's", "from a plan"

# A plan, as allocator/plan/FORMAT.md has it.
HEAD = struct.Struct("<8sIIIIQQQQQQQ")
REQUEST = struct.Struct("<QQIIII")
ITERATION, ALIGNMENT = 2, 512
APART = 32 << 10  # the chunk of all places is a page of the driver's: the simulated one looks long for what is smaller


def checksum(words):
    value = 0xcbf29ce484222325
    for word in words:
        value = (value ^ word) * 0x100000001b3 % (1 << 64)
    return value


def plan_of_pairs(before, sizes):
    """Behind `before` requests, over and over one of each size. The first lives until the others were there, each of
    which is freed before the next. Places have APART bytes each, or as many as the largest takes."""
    apart = max(APART, *sizes)
    requests, end = [], 0
    for number, size in enumerate(sizes):
        life = (2 * number - 1, 2 * number) if number else (0, 2 * len(sizes) - 1)
        requests.append(REQUEST.pack(size, end, *life, 0, 0))
        end += apart
    body = b"".join(requests)
    fields = (b"CISTPLN\n", 1, HEAD.size, 0, ITERATION, len(sizes), 2 * len(sizes), end - apart + sizes[-1], max(sizes),
              ALIGNMENT, before)
    summed = HEAD.pack(*fields, 0)[:-8] + body
    return HEAD.pack(*fields, checksum(word for word, in struct.iter_unpack("<Q", summed))) + body


@contextlib.contextmanager
def plan_file(size=BYTES):
    """The plan that calls_bench's pairs of a size follow, behind its blocks that stay."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "pairs.plan"
        file.write_bytes(plan_of_pairs(LIVE, [size] * PAIRS))
        yield file


def settings(free_sync, plan):
    return {"CISTERN_FREE_SYNC": free_sync, "CISTERN_PLAN": str(plan or "off")}


def run(build, folder, free_sync, plan, work_us):
    """Nanoseconds of a pair in its calls, and what the report has of the plan; None: there is none."""
    result, report = folder / "result.json", folder / "report.json"
    env = os.environ | settings(free_sync, plan) | {
        "LD_LIBRARY_PATH": str(build / "sim"), "LD_PRELOAD": str(build / "libcistern-device.so"),
        "CISTERN_REPORT": "json", "CISTERN_REPORT_FILE": str(report)}
    if work_us:
        env["SIMCUDA_LATENCY"] = f"cuMemsetD32Async={work_us}us"
    done = subprocess.run([build / "calls_bench", "--benchmark_filter=^used_pairs", f"--benchmark_out={result}",
                           "--benchmark_out_format=json"], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench: error: used_pairs: status {done.returncode}\n{done.stderr[-500:]}")
    row = json.loads(result.read_text())["benchmarks"][0]
    said = json.loads(report.read_text())["devices"][0]
    report.unlink()
    return row["real_time"], said.get("plan")


def rows(build, plan=PLAN):
    with plan_file() as file:
        for work_us in plan.work_us:
            state = f"work of {work_us} us" if work_us else "idle device"
            for free_sync, label in PLACES.items():
                took, served = {None: [], file: []}, []
                for _ in range(plan.runs):
                    for way, times in took.items():
                        ns, said = run(build, file.parent, free_sync, way, work_us)
                        times.append(ns)
                        if said:
                            served.append(said["served"] / (said["served"] + said["occupied"]))
                for way, times in zip(WAYS, took.values()):
                    yield f"pairs, {state}, {label}: {way}", min(times), "ns", None
                yield f"pairs, {state}, {label}: not at their place", 1 - min(served), "", 0


def main():
    for figure, value, unit, _ in rows(pathlib.Path(sys.argv[1]).resolve()):
        print(f"{figure:<55}{value:>10.3f} {unit}", flush=True)


if __name__ == "__main__":
    main()
