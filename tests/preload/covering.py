#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes expect/random/random_pairs.expect: random programs in which every two features meet.

Usage: covering.py > expect/random/random_pairs.expect

A fault often needs two rare conditions at once. Each case is a row of a covering table: for every
two features there is a row that asks for both, for either one alone and for neither; for every
strategy and feature one that asks for it and one that does not. A row's `happens` line says what it
asks for. Most of that is bound to happen; how often the driver is asked for memory, and refuses to
take it back, depends on how threads take turns: so what happened is summed over all rows, and
happened_test.py judges the sum. covering_test.py checks that the file is what this writes, and
covers. (What was not asked for may happen, too: graphs that live come from captures.)
"""

import collections
import itertools
import random

STRATEGIES = {
    "on_demand": "",
    "legacy": "FLAGS_allocator_strategy=legacy FLAGS_initial_gpu_memory_in_mb=8 FLAGS_reallocate_gpu_memory_in_mb=4",
    "naive_best_fit": "FLAGS_allocator_strategy=naive_best_fit FLAGS_initial_gpu_memory_in_mb=8",
    "auto_growth": "FLAGS_allocator_strategy=auto_growth",
    "thread_local": "FLAGS_allocator_strategy=thread_local FLAGS_initial_gpu_memory_in_mb=8 "
                    "FLAGS_reallocate_gpu_memory_in_mb=4",
}

# What brings a feature about: settings of Cistern, arguments of the program, faults of the driver,
# a function that the driver lacks. `own`: the program may be told other things than without Cistern;
# `loses`: the driver keeps memory that was freed.
Feature = collections.namedtuple("Feature", "settings arguments fault lacks own loses",
                                 defaults=("", "", "", "", False, False))
FEATURES = {
    "garbage": Feature("FLAGS_eager_delete_tensor_gb=0.004 FLAGS_memory_fraction_of_eager_deletion=0.6"),
    "fill": Feature("FLAGS_init_allocated_mem=true"),
    "idle_release": Feature("FLAGS_free_idle_memory=true CISTERN_IDLE_MS=1", "rounds=8 rests=1"),
    # Stream-ordered memory that a program leaves to a reset stays charged, as the device's pool stays.
    "cap": Feature("FLAGS_gpu_memory_limit_mb=32", "stream_ordered=0", own=True),
    "scratch": Feature("FLAGS_limit_of_tmp_allocation=40000000 FLAGS_times_excess_than_required_tmp_allocation=4",
                       "scratch=5"),
    "graph": Feature(arguments="graphs=8"),
    "capture": Feature(arguments="captures=5"),
    "export": Feature(arguments="exports=2"),
    "context_end": Feature(arguments="contexts=6"),
    "stream_loss": Feature(arguments="losses=2"),
    "shortage": Feature(arguments="shortages=2", own=True),
    "refused_return": Feature(fault="cuMemFree:p0.2@{seed}=999,cuMemFreeAsync:p0.2@{seed}=999", own=True,
                              loses=True),
    "failed_call": Feature(fault="cuMemAlloc:5=999,cuMemAlloc:p0.03@{seed}=999", own=True),
    "old_driver": Feature(lacks="cuCtxRecordEvent"),
}
WITHOUT = {"captures": 0, "contexts": 0, "shortages": 0}  # what the program does if not told otherwise

HEAD = """\
# Written by tests/preload/covering.py: random programs in which every two features meet. What is read is
# what was written, whatever the driver refuses.
seeds 1 2
prints wrong words 0
leaves 0"""


def pairs_of(row):
    """Every two of a row's choices."""
    return set(itertools.combinations(sorted(row.items()), 2))


def columns():
    return {"strategy": list(STRATEGIES)} | {name: [False, True] for name in FEATURES}


def all_pairs():
    return {pair for one, other in itertools.combinations(sorted(columns().items()), 2)
            for pair in itertools.product(*([(name, choice) for choice in choices] for name, choices in (one, other)))}


def best_row(missing, draw):
    """Of some rows, each drawn choice by choice from where most is missing, the one with most of it."""
    def grown():
        row = {}
        names = list(columns())
        draw.shuffle(names)
        for name in names:
            choices = columns()[name]
            draw.shuffle(choices)
            row[name] = max(choices, key=lambda choice: len(pairs_of(row | {name: choice}) & missing))
        return row
    return max((grown() for _ in range(60)), key=lambda row: len(pairs_of(row) & missing))


def table():
    """Rows that cover every pair; the same ones every time."""
    draw, missing, rows = random.Random(12), all_pairs(), []
    while missing:
        rows.append(best_row(missing, draw))
        missing -= pairs_of(rows[-1])
    return rows


def lines_of(number, row):
    features = [name for name in FEATURES if row[name]]
    has = [FEATURES[name] for name in features]
    settings = " ".join(filter(None, [STRATEGIES[row["strategy"]], *(f.settings for f in has)]))
    told = [f.arguments for f in has if f.arguments]
    arguments = " ".join([f"{name}={value}" for name, value in WITHOUT.items()
                          if not any(argument.startswith(name) for argument in told)] + told)
    faults = ",".join(f.fault for f in has if f.fault)
    yield f"case row_{number:02} {settings}".rstrip()
    yield "happens " + " ".join([row["strategy"], *features])
    if faults:
        yield f"env SIMCUDA_FAIL={faults}"
    yield from (f"driver-lacks {f.lacks}" for f in has if f.lacks)
    if any(f.own for f in has):
        yield "own-output"
    if not any(f.loses for f in has):
        rounds = 8 if row["idle_release"] else 4
        yield f"prints all memory is free again: yes, {rounds} times"
    yield (f"run {{programs}}/random_work_lazy seed={{seed}} operations=2000 threads=3 slow=10 live_mb=24 "
           f"large=30 most_mb=8 {arguments}").rstrip()


def text():
    return "\n".join([HEAD] + [line for number, row in enumerate(table(), 1)
                               for line in ["", *lines_of(number, row)]]) + "\n"


if __name__ == "__main__":
    print(text(), end="")
