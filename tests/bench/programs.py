# SPDX-License-Identifier: Apache-2.0
"""What programs of tests/preload take with Cistern beyond what they take without, on the simulated device.

The tests themselves judge nothing by the clock. Here the same programs run without and with Cistern in turns, so that
both meet the same load, and what took least counts. CEILINGS holds all that is measured.

`rows(build, ceilings, runs)` yields (figure, measured, unit, goal), for tests/bench/run.
"""

import collections
import pathlib
import re
import resource
import sys
import time

PRELOAD = pathlib.Path(__file__).resolve().parents[1] / "preload"
sys.path.append(str(PRELOAD))
import expectations  # noqa: E402
import pairs  # noqa: E402

# The run with Cistern takes no more than `factor` times what the one without takes, and `seconds`.
Ceiling = collections.namedtuple("Ceiling", "what test clock factor seconds")
CALM = tuple(Ceiling(f"threads under short kernels, {case}", f"in_flight/calm.{case}", clock, factor, 0.5)
             for case in ("few", "many", "old_driver", "strategies") for clock, factor in (("time", 1.5), ("processor time", 2)))
TOLD_FREE = tuple(Ceiling(f"free memory told beside threads, {case}", f"pooling/told_free.{case}", "time", 4, 10)
                  for case in ("default", "naive_best_fit", "auto_growth", "late", "refused"))
CEILINGS = (*CALM, *TOLD_FREE,
            Ceiling("out of memory after a stream was lost", "order/old_driver.short_after_a_loss", "time", 1, 3),
            Ceiling("waits for the thread that opens the log", "life/slow_open.naps", "time", 1, 5),
            Ceiling("waits for the thread that opens the log", "life/slow_open.naps", "processor time", 1, 0.3),
            Ceiling("a cancelled thread opens the log", "life/slow_open.cancelled", "time", 1, 10))
UPDATED_GRAPHS = ("captures/graph_updates.one", "captures/graph_updates.lru", "captures/graph_updates.beside",
                  "captures/graph_updates.kept")
RUNS = 3
Took = collections.namedtuple("Took", "time processor_time")


def processor_s():
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(runner, command, expected, preload):
    """What a run took; it must end as expected."""
    begin, before = time.monotonic(), processor_s()
    outcome = runner.run(command, expected, preload)
    took = Took(time.monotonic() - begin, processor_s() - before)
    if outcome.status != 0 or outcome.stderr:
        sys.exit(f"error: {command}: status {outcome.status}\n{outcome.stdout}{outcome.stderr}")
    return took, outcome


def least(results):
    return Took(*map(min, zip(*results)))


def both_ways(runner, command, expected, runs):
    """(without, with) Cistern."""
    results = {False: [], True: []}
    for _ in range(runs):
        for preload, of_them in results.items():
            of_them.append(measured(runner, command, expected, preload)[0])
    return least(results[False]), least(results[True])


def beyond(alone, with_cistern, ceiling):
    """The seconds by which a run with Cistern is longer than so many without."""
    clock = ceiling.clock.replace(" ", "_")
    return getattr(with_cistern, clock) - ceiling.factor * getattr(alone, clock)


def ceiling_rows(runner, ceilings, runs):
    tests, took = expectations.Reader(runner.words_for("1")), {}
    for ceiling in ceilings:
        if ceiling.test not in took:
            [expected] = tests.tests(ceiling.test).values()
            took[ceiling.test] = [both_ways(runner, command, expected, runs) for command in expected.commands]
        seconds = max(beyond(alone, with_cistern, ceiling) for alone, with_cistern in took[ceiling.test])
        yield f"{ceiling.what}: {ceiling.clock} beyond {ceiling.factor} x the driver alone's", seconds, "s", ceiling.seconds


def last_by_first(stderr):
    """Of what a run of graph_updates says on stderr."""
    first, last = map(float, re.search(r"first quarter ([\d.]+) s, of the last ([\d.]+) s", stderr).groups())
    return last / first


def graph_rows(runner, names):
    for name in names:
        [expected] = expectations.Reader(runner.words_for("1")).tests(name).values()
        for command in expected.commands:
            outcome = runner.run([*command, "--time"], expected, preload=True)
            what = name.partition(".")[2]
            yield f"graph updates, {what}: processor time of the last quarter / the first's", last_by_first(outcome.stderr), "", 4


def rows(build, ceilings=CEILINGS, graphs=UPDATED_GRAPHS, runs=RUNS):
    runner = pairs.Runner(build)
    yield from ceiling_rows(runner, ceilings, runs)
    yield from graph_rows(runner, graphs)
