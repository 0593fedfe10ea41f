# SPDX-License-Identifier: Apache-2.0
"""What is left of the driver's calls, and how much memory it takes, while kernels are in flight.

Unmodified programs run without and with Cistern on the simulated device, in turns, so that both meet the
same load. PLAN holds all parameters; QUICK is the short version that in_flight_test.py runs.

`rows(build, plan)` yields (figure, measured, unit, goal or None), for tests/bench/run.
"""

import collections
import json
import os
import pathlib
import re
import sys
import tempfile

from replay import LATENCY, MIB, RECORDED, attempt, cistern, replay, simulated, sleep_exactly

Plan = collections.namedtuple("Plan", "events kernels_us sync_every runs sizes_us step_mib threads operations")
NEVER = 10 ** 9  # events: more than there are
PLAN = Plan(events=None,  # of the recorded run; None: all
            kernels_us=(5, 20, 100), sync_every=(NEVER, 200, 10), runs=3,
            sizes_us=20, step_mib=8,  # the kernels while the smallest device is looked for, and how exactly
            threads=(1, 8, 32, 128), operations=6400)
QUICK = Plan(events=400, kernels_us=(20,), sync_every=(NEVER,), runs=1, sizes_us=20, step_mib=64, threads=(1, 8),
             operations=320)

OFF = ("--pool", "off")
DEFAULT = ()  # the frees wait for the device, as the driver's do
NO_WAIT = ("--free-sync", "false")  # what was freed waits
CALLS_TAKE = f"{LATENCY},cuMemFreeAsync=40us"
# As in pool_bench.cc: chunks that suit the recorded run.
STRATEGIES = {
    "legacy": ("--initial-gpu-memory-in-mb", "1024", "--reallocate-gpu-memory-in-mb", "8"),
    "naive_best_fit": ("--initial-gpu-memory-in-mb", "148", "--reallocate-gpu-memory-in-mb", "148"),
    "auto_growth": ("--auto-growth-chunk-size-in-mb", "9"),
    "thread_local": ("--initial-gpu-memory-in-mb", "1024", "--reallocate-gpu-memory-in-mb", "8"),
}
EVENT_EVERY_MS, EVENT_EVERY_MIB = 0.1, 8
CORES = 2


def latency(kernel_us):
    return f"{CALLS_TAKE},cuLaunchKernel={kernel_us}us" if kernel_us else CALLS_TAKE


def name_of(sync_every):
    return "never synchronised" if sync_every == NEVER else f"synchronised every {sync_every} events"


def best(results):
    """What took least of several: load can only make a run longer, and what is in flight longer with it."""
    if len({result.out for result in results}) != 1:
        sys.exit(f"error: the program's results differ: {[result.out for result in results]}")
    return min(results, key=lambda result: result.all_ms)


def each_way(build, events, kernel_us, sync_every, runs):
    """Without Cistern; with it, by default, and where no free waits."""
    words = ("--sync-every", str(sync_every))
    ways = {OFF: [], DEFAULT: [], NO_WAIT: []}
    for _ in range(runs):
        for options, results in ways.items():
            results.append(replay(build, ("--sim", *options), simulated(build, latency(kernel_us)), events, words))
    if len({results[0].out for results in ways.values()}) != 1:
        sys.exit(f"error: the program's results differ: {[results[0].out for results in ways.values()]}")
    return [best(results) for results in ways.values()]


def allowed_events(pooled, freed_bytes):
    return pooled.all_ms / EVENT_EVERY_MS + freed_bytes / MIB / EVENT_EVERY_MIB


def trace_rows(build, events, freed_bytes, plan):
    states = [(0, 1)] + [(us, every) for us in plan.kernels_us for every in plan.sync_every]
    for kernel_us, sync_every in states:
        bare, pooled, no_wait = each_way(build, events, kernel_us, sync_every, plan.runs)
        state = f"kernels of {kernel_us} us, {name_of(sync_every)}" if kernel_us else "idle device"
        yield f"{state}: share of driver calls left", pooled.seen.calls / bare.seen.calls, "", 0.1
        yield f"{state}: peak reserved / peak live", pooled.seen.reserved_peak / pooled.live_peak, "", 1.07
        yield f"{state}: in calls, without", bare.ms, "ms", None
        yield f"{state}: in calls, with", pooled.ms, "ms", None
        if not kernel_us:
            continue
        yield f"{state}, no free waits: share of driver calls left", no_wait.seen.calls / bare.seen.calls, "", 0.15
        reserved = no_wait.seen.reserved_peak / no_wait.live_peak
        yield f"{state}, no free waits: peak reserved / peak live", reserved, "", 1.15
        yield (f"{state}, no free waits: events / one each 100 us or 8 MiB",
               no_wait.seen.events / allowed_events(no_wait, freed_bytes), "", 1)
        yield f"{state}, no free waits: in calls", no_wait.ms, "ms", None


def smallest(low, high, suffices):
    """The least number that suffices, above `low`, which does not; `high` does."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def smallest_device(build, events, options, kernel_us, live_mib, plan):
    """MiB of the smallest simulated device on which the replay completes, to a step."""
    words = ("--sync-every", str(NEVER if kernel_us else 1))
    command = [build / "programs" / "replay_static", events, *words]

    def suffices(steps):
        env = simulated(build, latency(kernel_us)) | {"SIMCUDA_MEMORY_MB": str(steps * plan.step_mib)}
        return attempt(build, ("--sim", *options), command, env).returncode == 0

    low, high = live_mib // plan.step_mib, 2 * live_mib // plan.step_mib + 1
    return smallest(low, high, suffices) * plan.step_mib


def smallest_rows(build, events, live_mib, plan):
    def size(options, kernel_us):
        return smallest_device(build, events, options, kernel_us, live_mib, plan)

    busy = plan.sizes_us
    alone = size(OFF, busy)
    yield f"smallest device, kernels of {busy} us, driver alone", alone, "MiB", None
    yield "smallest device, default / driver alone", size((), busy) / alone, "", 1
    for strategy, chunks in STRATEGIES.items():
        options = ("--allocator-strategy", strategy, *chunks)
        yield f"smallest device, {strategy} / idle device", size(options, busy) / size(options, 0), "", 1.05


def bounded_bytes(live):
    """What the program holds, and what may wait for work in flight."""
    return live + max(256 * MIB, live // 10)


def allowed_bytes(live):
    """And what the default keeps idle."""
    return bounded_bytes(live) + max(64 * MIB, live // 8)


def limit_cores():
    """Has this process and those it starts run on two cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


Threads = collections.namedtuple("Threads", "ms cpu_ms live_peak held_peak reserved_peak")


def with_threads(build, threads, options, plan, words=()):
    command = [build / "programs" / "busy_threads_static", str(threads), str(plan.operations), "--time", *words]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        done = cistern(build, ("--sim", "--report", "json", "--report-file", report, *options), command,
                       simulated(build, latency(plan.sizes_us)))
        device = json.loads(report.read_text())["devices"][0] if report.exists() else collections.defaultdict(int)
    ms, cpu_ms, live = re.search(r"took ([\d.]+) ms, of processors ([\d.]+) ms, peak live bytes (\d+)",
                                 done.stderr).groups()
    return Threads(float(ms), float(cpu_ms), int(live), device["live_and_waiting_peak_bytes"],
                   device["reserved_peak_bytes"])


def thread_rows(build, plan):
    one = None
    for threads in plan.threads:
        bare, pooled = [], []
        for _ in range(plan.runs):
            bare.append(with_threads(build, threads, OFF, plan))
            pooled.append(with_threads(build, threads, (), plan))
        ms, bare_ms = (min(result.ms for result in results) for results in (pooled, bare))
        cpu, bare_cpu = (min(result.cpu_ms for result in results) for results in (pooled, bare))
        one = one or cpu
        name = f"{threads} threads" if threads > 1 else "one thread"
        yield f"{name}, time / driver alone's", ms / bare_ms, "", 1
        yield f"{name}, processor time / one thread's", cpu / one, "", 2
        yield f"{name}, processor time, driver alone", bare_cpu, "ms", None
        whole = with_threads(build, threads, NO_WAIT, plan, ("--whole",))  # no slab that a waiting block keeps
        yield (f"{name}, no free waits, whole blocks, peak of live and waiting / live and what may wait",
               whole.held_peak / bounded_bytes(whole.live_peak), "", 1)
        yield (f"{name}, no free waits, whole blocks, peak reserved / live and what may wait or be idle",
               whole.reserved_peak / allowed_bytes(whole.live_peak), "", None)


def rows(build, plan=PLAN):
    sleep_exactly()
    limit_cores()
    header, *lines = RECORDED.read_text(encoding="ascii").splitlines()
    lines = lines[:plan.events]
    freed = sum(int(line.split(",")[3]) for line in lines if ",alloc," in line)  # in the end, all of it
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as events:
        events.write("\n".join([header, *lines]) + "\n")
        events.flush()
        yield from trace_rows(build, events.name, freed, plan)
        live = replay(build, ("--sim", *OFF), simulated(build), events.name).live_peak
        yield from smallest_rows(build, events.name, live // MIB, plan)
    yield from thread_rows(build, plan)
