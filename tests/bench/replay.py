# SPDX-License-Identifier: Apache-2.0
"""Replays allocations under `cistern run`, for scripts/demo and the measurements of this folder.

The program that replays is an unmodified CUDA program, tests/preload/programs/pooling/replay.cu. What it asks
of the simulated driver is read from that driver's trace.
"""

import collections
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "data" / "torch-transformer-train.events.csv"
MIB = 1 << 20
PAGE = 2 * MIB  # a driver takes device memory in units of this
# The simulated driver answers in a microsecond. A real one needs tens to hundreds for these two, and
# that matters: memory that is about to become reusable is worth waiting as long as the call it saves.
LATENCY = "cuMemAlloc_v2=60us,cuMemFree_v2=40us"

# What the driver saw: its calls that allocate or free, the most bytes asked of it at a time, what the
# pages with any of those bytes in them make up at most, and the events recorded.
Seen = collections.namedtuple("Seen", "calls reserved_peak taken_peak events")
# The third frees without waiting for the device: pools return memory so when it runs short.
ALLOCATES, *FREES = "cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeAsync"
Replay = collections.namedtuple("Replay", "out allocations frees live_peak ms all_ms seen")


def pages_of(address, size):
    return range(address // PAGE, (address + size + PAGE - 1) // PAGE)


def from_trace(text):
    sizes, users = {}, collections.Counter()  # by address, and by page
    calls = reserved = reserved_peak = pages = pages_peak = 0
    for symbol, arguments, result in re.findall(r"^(cuMem\w+) (.*) -> (\d+)", text, re.M):
        if symbol != ALLOCATES and symbol not in FREES:
            continue
        calls += 1
        fields = dict(re.findall(r"(\w+)=(\w+)", arguments))
        if result != "0":
            continue
        address = int(fields["dptr"], 16)
        change = 1 if symbol == ALLOCATES else -1
        size = sizes.setdefault(address, int(fields["bytesize"])) if change == 1 else sizes.pop(address)
        reserved += change * size
        for page in pages_of(address, size):
            pages += change * (users[page] == (change == -1))
            users[page] += change
        reserved_peak = max(reserved_peak, reserved)
        pages_peak = max(pages_peak, pages)
    events = len(re.findall(r"^cu(?:Ctx|Event)Record", text, re.M))
    return Seen(calls, reserved_peak, pages_peak * PAGE, events)


def sleep_exactly():
    """Has this process and those it starts wake from sleep when asked to, not up to 50 us later."""
    set_timer_slack = 29
    ctypes.CDLL(None).prctl(set_timer_slack, 1)


def simulated(build, latency=LATENCY):
    """The environment of a program on the simulated device."""
    return {"SIMCUDA_KERNELS": str(build / "sim" / "libtest-kernels.so"), "SIMCUDA_LATENCY": latency}


def attempt(build, options, command, env):
    """Runs a command under `cistern run OPTIONS`, to whatever end."""
    words = [ROOT / "scripts" / "cistern", "--home", build, "run", *options, "--", *command]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                          env=os.environ | env)


def cistern(build, options, command, env):
    """The same; ends the process where that fails."""
    done = attempt(build, options, command, env)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(done.args)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def replay(build, options=(), env=None, events=RECORDED, words=()):
    """Replays `events`; `words` are further arguments of the program. On a GPU nothing is `seen`."""
    command = [build / "programs" / "replay_static", events, "--time", *words]
    with tempfile.NamedTemporaryFile("r") as trace:
        done = cistern(build, options, command, (env or {}) | {"SIMCUDA_TRACE": trace.name})
        seen = from_trace(trace.read())
    ms, all_ms = map(float, re.search(r"in cudaMalloc and cudaFree ([\d.]+) ms, in all ([\d.]+) ms", done.stderr).groups())
    numbers = map(int, re.search(r"allocations (\d+), frees (\d+), peak live bytes (\d+)", done.stdout).groups())
    return Replay(done.stdout, *numbers, ms, all_ms, seen)
