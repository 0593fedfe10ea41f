# SPDX-License-Identifier: Apache-2.0
"""What malloc takes under libcistern.so, beside the C library's and other allocators, in one run.

Allocators take turns, so that all meet the same load. Single-threaded work is measured in processor time, which
other work on the machine changes least; a figure is the median of several runs, and a ratio is to libjemalloc2's.

`measure(build, plan)` returns {figure: {allocator: value}}; `rows(figures)` yields (figure, measured, unit, goal or
None), for tests/bench/run; `table(figures)` is the text that tests/bench/host prints.
"""

import collections
import ctypes.util
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "bench" / "host_bench.c"
GLIBC, JEMALLOC, OURS = "glibc", "libjemalloc2", "libcistern"
OTHERS = {JEMALLOC: "libjemalloc.so.2", "mimalloc": "libmimalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4"}
BARE = "-"  # no object
SMALL, MIDDLE, LARGE = "16 B to 2 KiB", "4 to 64 KiB", "256 KiB to 4 MiB"

Plan = collections.namedtuple("Plan", "runs starts share")
PLAN = Plan(runs=9, starts=300, share=1)
QUICK = Plan(runs=1, starts=5, share=0.01)  # the share of the work

# The words of host_bench, and how much of libjemalloc2's time it may take.
Pairs = collections.namedtuple("Pairs", "order low high live pairs threads goal")
SIZES = {SMALL: (16, 2048), MIDDLE: (4096, 65536), LARGE: (256 << 10, 4 << 20)}
PAIRS = {
    f"{SMALL}, last freed first": Pairs("lifo", *SIZES[SMALL], 100, 2000000, 1, 1.02),
    f"{SMALL}, random": Pairs("random", *SIZES[SMALL], 4096, 1000000, 1, 1.02),
    f"{MIDDLE}, last freed first": Pairs("lifo", *SIZES[MIDDLE], 20, 100000, 1, 0.5),
    f"{MIDDLE}, random": Pairs("random", *SIZES[MIDDLE], 256, 300000, 1, 0.5),
    f"{LARGE}, last freed first": Pairs("lifo", *SIZES[LARGE], 8, 30000, 1, 1.0),
    f"{LARGE}, random": Pairs("random", *SIZES[LARGE], 32, 30000, 1, 1.0),
    f"{SMALL}, random, 2 threads": Pairs("random", *SIZES[SMALL], 4096, 1000000, 2, None),
    f"{MIDDLE}, random, 2 threads": Pairs("random", *SIZES[MIDDLE], 256, 200000, 2, None),
    f"{SMALL}, freed by the other of 2 threads": Pairs("handed", *SIZES[SMALL], 4096, 300000, 2, None),
    f"{MIDDLE}, freed by the other of 2 threads": Pairs("handed", *SIZES[MIDDLE], 256, 100000, 2, None),
}

# Programs that people run, on one thread; SIZE is the size of the work, ROOT this repository.
PROGRAM_GOAL = 1.05
PROGRAMS = {
    "python3: dictionaries and strings": (["python3", "-S", "-c", """
d = {}
for i in range(SIZE):
    d[f"key {i * 7919 % 50021}"] = [i, str(i) * (i % 7), (i, i + 1)]
print(len(d), sum(len(" ".join(map(str, v))) for v in d.values()))"""], 150000),
    "perl: a hash of strings": (["perl", "-e", """
my %h; $h{$_ * 7919 % 50021} .= "x$_ " for 1..SIZE; my $n = 0;
$n += scalar(split / /, $h{$_}) for sort keys %h; print "$n\\n";"""], 300000),
    "sqlite3: a table in memory": (["sqlite3", ":memory:", """
create table t(a integer primary key, b text); create index x on t(b);
with recursive n(i) as (select 1 union all select i + 1 from n where i < SIZE) insert into t select i, hex(i * 7919) from n;
select count(*), max(b) from t where b like '%3%'; delete from t where a % 3 = 0; select sum(length(b)) from t;"""], 60000),
    "c++ -O2: a source of this repository": (["c++", "-std=c++20", "-O2", "-IROOT", "-S", "-o", "/dev/null",
                                              "ROOT/allocator/host/system.cc"], 1),
}

START_GOAL_MS = 0.9
RESIDENT_GOAL_KIB = 2560


def reason_not_to(build):
    """Why nothing can be measured here, or None."""
    built = build / "libcistern.so"
    if not built.exists() or built.is_symlink():  # another name of libcistern-device.so
        return f"{built} does not serve malloc"
    if find(OTHERS[JEMALLOC]) is None:
        return f"{OTHERS[JEMALLOC]}, which is compared with, is not installed; to install it: apt-get install libjemalloc2"
    return None


def find(library):
    """Where the loader would find it; None where it is not installed."""
    name = ctypes.util.find_library(library.split(".so")[0].removeprefix("lib"))
    if name is None:
        return None
    folders = [pathlib.Path(folder) for folder in ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")]
    triplet = getattr(sys.implementation, "_multiarch", "")
    for folder in [folder / triplet for folder in folders] + folders:
        if (folder / library).exists():
            return str(folder / library)
    return None


def allocators(build):
    """{name: object to preload}, in the order of the table, and the names of those that are not installed."""
    found = {GLIBC: BARE} | {name: find(library) for name, library in OTHERS.items()} | {OURS: str(build / "libcistern.so")}
    return {name: path for name, path in found.items() if path}, [name for name, path in found.items() if not path]


def environment(path):
    clean = {key: value for key, value in os.environ.items()
             if not key.startswith(("CISTERN_", "FLAGS_", "LD_", "MALLOC_", "MIMALLOC_", "TCMALLOC_"))}
    return clean | ({} if path == BARE else {"LD_PRELOAD": path})


def compiled(build):
    program = build / "bench" / "host_bench"
    program.parent.mkdir(exist_ok=True)
    subprocess.run(["cc", "-O2", "-fno-builtin", "-pthread", SOURCE, "-o", program], check=True)
    return program


def said(command, path):
    return subprocess.run(command, env=environment(path), check=True, capture_output=True, text=True).stdout


def pair_ns(program, pairs, path, plan):
    words = pairs._replace(pairs=max(int(pairs.pairs * plan.share), pairs.live))
    return float(said([program, "pairs", *map(str, words[:-1])], path))


def processor_s(command, path):
    """Processor time of a program and those it started."""
    process = subprocess.Popen(command, env=environment(path), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"bench: error: {command[0]} ended with {process.returncode} under {path}")
    return usage.ru_utime + usage.ru_stime


def program_command(name, plan):
    words, size = PROGRAMS[name]
    return [word.replace("SIZE", str(max(int(size * plan.share), 1))).replace("ROOT", str(ROOT)) for word in words]


def medians(runs, among, once):
    taken = {name: [] for name in among}
    for _ in range(runs):
        for name, path in among.items():
            taken[name].append(once(path))
    return {name: statistics.median(values) for name, values in taken.items()}


def start_ms(program, among, plan):
    """{allocator: ms of each start of `true`}."""
    lines = said([program, "start", str(plan.starts), *among.values()], BARE).splitlines()
    return dict(zip(among, zip(*([float(value) for value in line.split()] for line in lines))))


def resident_kib(program, path):
    return float(said([program, "resident"], path).split()[1])


def measure(build, plan=PLAN):
    among, missing = allocators(build)
    for name in missing:
        print(f"bench: {OTHERS[name]} is not installed: left out", file=sys.stderr)
    program = compiled(build)
    figures = {}
    for name, pairs in PAIRS.items():
        figures[name] = medians(plan.runs, among, lambda path, pairs=pairs: pair_ns(program, pairs, path, plan))
    for name in PROGRAMS:
        command = program_command(name, plan)
        if shutil.which(command[0]) is None:
            print(f"bench: {command[0]} is not installed: left out", file=sys.stderr)
            continue
        figures[name] = medians(plan.runs, among, lambda path, command=command: processor_s(command, path))
    starts = start_ms(program, among, plan)
    figures["start of true, least"] = {name: min(times) for name, times in starts.items()}
    figures["start of true, median"] = {name: statistics.median(times) for name, times in starts.items()}
    figures["memory of a start"] = medians(plan.runs, among, lambda path: resident_kib(program, path))
    return figures


def unit_of(figure):
    return "ns" if figure in PAIRS else "s" if figure in PROGRAMS else "KiB" if figure.startswith("memory") else "ms"


def relative(figure, values, name):
    """What is compared with the goal: a start with one without preload, all else with libjemalloc2's."""
    if unit_of(figure) in ("ms", "KiB"):
        return values[name] - values[GLIBC]
    return values[name] / values[JEMALLOC]


def goal_of(figure):
    if figure in PAIRS:
        return PAIRS[figure].goal
    return {"s": PROGRAM_GOAL, "ms": START_GOAL_MS, "KiB": RESIDENT_GOAL_KIB}[unit_of(figure)]


def rows(figures):
    for figure, values in figures.items():
        unit = unit_of(figure)
        more = unit in ("ms", "KiB")
        yield (f"malloc, {figure}, {'more than without' if more else 'time / libjemalloc2'}",
               relative(figure, values, OURS), unit if more else "", goal_of(figure))


def table(figures):
    names = list(next(iter(figures.values())))
    width = max(map(len, figures))
    lines = [f"{'':<{width}}  {'':>3}  " + "  ".join(f"{name:>17}" for name in names) + f"  {'goal':>7}"]
    for figure, values in figures.items():
        unit, goal = unit_of(figure), goal_of(figure)
        more = unit in ("ms", "KiB")
        digits = 0 if unit == "KiB" else 3 if unit == "s" else 2 if unit == "ms" else 1
        cells = []
        for name in names:
            beside = relative(figure, values, name)
            beside = f"{beside:+.{digits}f}" if more else f"{beside:.2f}"
            cells.append(f"{values[name]:.{digits}f} ({beside})".rjust(17))
        met = "" if goal is None else "ok" if relative(figure, values, OURS) <= goal else "NOT REACHED"
        shown = "" if goal is None else f"{'+' if more else ''}{goal}"
        lines.append(f"{figure:<{width}}  {unit:>3}  " + "  ".join(cells) + f"  {shown:>7}  {met}".rstrip())
    return "\n".join(lines)
