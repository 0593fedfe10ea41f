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
# Calls for physical units take what they took for 2 to 20 MiB on an H100 (tests/gpu/results).
LATENCY = ("cuMemAlloc_v2=60us,cuMemFree_v2=40us,"
           "cuMemCreate=20us,cuMemMap=2us,cuMemSetAccess=45us,cuMemUnmap=27us,cuMemRelease=24us")

# What the driver saw: its calls that allocate or free, or move units; the most bytes asked of it at a
# time, what the pages with any of those bytes in them make up at most, and the events recorded.
Seen = collections.namedtuple("Seen", "calls reserved_peak taken_peak events")
# The third frees without waiting for the device: pools return memory so when it runs short.
ALLOCATES, *FREES = "cuMemAlloc_v2", "cuMemFree_v2", "cuMemFreeAsync"
# Units are whole pages. They are taken from the first of these to the second, wherever they are mapped.
CREATES, RELEASES = "cuMemCreate", "cuMemRelease"
MOVES = "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemAddressReserve", "cuMemAddressFree"
COUNTED = {ALLOCATES, *FREES, CREATES, RELEASES, *MOVES}
Replay = collections.namedtuple("Replay", "out allocations frees live_peak ms all_ms seen")


def pages_of(address, size):
    return range(address // PAGE, (address + size + PAGE - 1) // PAGE)


class Held:
    """Bytes asked of the driver, and the pages with any of them in."""

    def __init__(self):
        self.reserved = self.reserved_peak = self.pages = self.pages_peak = 0
        self.blocks, self.units = {}, {}  # bytes by address, and by handle
        self.users = collections.Counter()  # by page

    def change(self, symbol, fields):
        if symbol in (CREATES, RELEASES):
            self._change_units(symbol == CREATES, fields)
        elif symbol not in MOVES:
            self._change_blocks(symbol == ALLOCATES, fields)
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        self.pages_peak = max(self.pages_peak, self.pages)

    def _change_units(self, more, fields):
        handle = fields["handle"]
        size = self.units.setdefault(handle, int(fields["size"])) if more else self.units.pop(handle)
        self.reserved += size if more else -size
        self.pages += size // PAGE if more else -(size // PAGE)

    def _change_blocks(self, more, fields):
        address = int(fields["dptr"], 16)
        size = self.blocks.setdefault(address, int(fields["bytesize"])) if more else self.blocks.pop(address)
        change = 1 if more else -1
        self.reserved += change * size
        for page in pages_of(address, size):
            self.pages += change * (self.users[page] == (not more))
            self.users[page] += change


def from_trace(text):
    held, calls = Held(), 0
    for symbol, arguments, result in re.findall(r"^(cuMem\w+) (.*) -> (\d+)", text, re.M):
        if symbol not in COUNTED:
            continue
        calls += 1
        if result == "0":
            held.change(symbol, dict(re.findall(r"(\w+)=(\w+)", arguments)))
    events = len(re.findall(r"^cu(?:Ctx|Event)Record", text, re.M))
    return Seen(calls, held.reserved_peak, held.pages_peak * PAGE, events)


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


def random_sizes(least, most, allocations, bound, seed=1):
    """Lines of events: each size anew between the two, uniform in its logarithm; before the live bytes would
    pass the bound, blocks drawn at random are freed."""
    state = seed
    live, total = [], 0

    def draw():  # Knuth's MMIX generator: the same numbers in every version of Python
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (state >> 11) / (1 << 53)

    for block in range(allocations):
        size = int(least * (most / least) ** draw())
        while total + size > bound:
            at = int(draw() * len(live))
            live[at], live[-1] = live[-1], live[at]
            freed, freed_size = live.pop()
            total -= freed_size
            yield f"0,free,{freed},{freed_size},0"
        live.append((block, size))
        total += size
        yield f"0,alloc,{block},{size},0"


def replay(build, options=(), env=None, events=RECORDED, words=()):
    """Replays `events`; `words` are further arguments of the program. On a GPU nothing is `seen`."""
    command = [build / "programs" / "replay_static", events, "--time", *words]
    with tempfile.NamedTemporaryFile("r") as trace:
        done = cistern(build, options, command, (env or {}) | {"SIMCUDA_TRACE": trace.name})
        seen = from_trace(trace.read())
    ms, all_ms = map(float, re.search(r"in cudaMalloc and cudaFree ([\d.]+) ms, in all ([\d.]+) ms", done.stderr).groups())
    numbers = map(int, re.search(r"allocations (\d+), frees (\d+), peak live bytes (\d+)", done.stdout).groups())
    return Replay(done.stdout, *numbers, ms, all_ms, seen)
