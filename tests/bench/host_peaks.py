# SPDX-License-Identifier: Apache-2.0
"""How much memory programs hold under libcistern.so with nothing set, beside other allocators.

The programs are those of host_peaks.c. Each is run once under each allocator, all allocators at the same time: memory
does not depend on what else the machine does, and most of the time is the rest before the second figure.

`measure(build)` returns {program: {allocator: Held}}; `rows(figures)` yields (figure, measured, unit, goal or None), for
tests/bench/run; `table(figures)` is the text that tests/bench/host prints.
"""

import collections
import signal
import subprocess

import host_memory
from host_memory import GLIBC, JEMALLOC, OURS

SOURCE = host_memory.ROOT / "tests" / "bench" / "host_peaks.c"
REST_S = 12
MOST_S = 90
LEFT_GOAL_MIB = 64  # above what is live, after the rest

PROGRAMS = {
    "blocks": "800 MiB in blocks of 300 KiB, freed",
    "growth": "one block grows to 1 GiB in steps of 1 MiB",
    "large": "blocks of 16 to 256 MiB, 480 MiB live at most",
    "heap": "600 MiB in blocks of 16 B to 512 KiB, nearly all freed",
    "table": "a table of 64 MiB, rewritten",
    "purged": "400 MiB in blocks to 64 KiB, freed, and a purge",
}

Held = collections.namedtuple("Held", "peak after live ms")  # MiB


def compiled(build):
    program = build / "bench" / "host_peaks"
    program.parent.mkdir(exist_ok=True)
    subprocess.run(["cc", "-O2", "-fno-builtin", SOURCE, "-o", program], check=True)
    return program


def said_by(run, most_s):
    """Nothing where it takes longer: some allocators copy a block each time it grows."""
    try:
        return run.communicate(timeout=most_s)[0]
    except subprocess.TimeoutExpired:
        run.kill()
        run.communicate()
        return ""


def held(text):
    peak, after, live, ms = text.split()
    return Held(int(peak) / 1024, int(after) / 1024, int(live) / 1024, float(ms))


def measure(build, rest_s=REST_S, programs=tuple(PROGRAMS), only=None, most_s=MOST_S):
    program = compiled(build)
    among, _ = host_memory.allocators(build)
    among = {name: path for name, path in among.items() if only is None or name in only}
    figures = {}
    for name in programs:
        runs = {allocator: subprocess.Popen([program, name, str(rest_s)], env=host_memory.environment(path),
                                            stdout=subprocess.PIPE, text=True) for allocator, path in among.items()}
        said = {allocator: said_by(run, most_s + rest_s) for allocator, run in runs.items()}
        for allocator, run in runs.items():
            if run.returncode not in (0, -signal.SIGKILL):
                raise SystemExit(f"bench: error: host_peaks {name} ended with {run.returncode} under {allocator}")
        figures[name] = {allocator: held(text) if text else None for allocator, text in said.items()}
    return figures


def peak_goal(values):
    """MiB: 1.1 times libjemalloc2's peak, or, where that is above the C library's, 1.3 times that one's if it is less."""
    theirs, c_library = 1.1 * values[JEMALLOC].peak, 1.3 * values[GLIBC].peak
    return min(theirs, c_library) if values[JEMALLOC].peak > values[GLIBC].peak else theirs


def rows(figures):
    for name, values in figures.items():
        ours = values[OURS]
        yield f"malloc, {PROGRAMS[name]}: most memory", ours.peak, "MiB", round(peak_goal(values))
        yield f"malloc, {PROGRAMS[name]}: {REST_S} s later, above what is live", ours.after - ours.live, "MiB", LEFT_GOAL_MIB


def table(figures):
    names = list(next(iter(figures.values())))
    width = max(map(len, PROGRAMS.values()))
    lines = [f"{'most memory / left later, MiB; ms':<{width}}  " + "  ".join(f"{name:>18}" for name in names)]
    for program, values in figures.items():
        cells = [(f"{v.peak:.0f} / {v.after:.0f}; {v.ms:.0f}" if v else f"over {MOST_S} s").rjust(18) for v in values.values()]
        ours = values[OURS]
        met = ours.peak <= peak_goal(values) and ours.after - ours.live <= LEFT_GOAL_MIB
        lines.append(f"{PROGRAMS[program]:<{width}}  " + "  ".join(cells) + f"  {'ok' if met else 'NOT REACHED'}")
    return "\n".join(lines)
