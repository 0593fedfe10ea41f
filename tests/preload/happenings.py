# SPDX-License-Identifier: Apache-2.0
"""Whether something really happened in a run with Cistern, by its report, its output and its trace:
what `happens NAME` asks for. An expectation of a random program says so, since such a program that
does nothing of what it is run for would pass as well.
"""

import json
import re

REFUSED = 999  # CUDA_ERROR_UNKNOWN: no driver answers it here unless it was told to


def devices(outcome):
    return json.loads(outcome.report)["devices"]


def in_report(*path):
    """The value of the report at this path is not 0 on some device, or one of several below it."""
    def happened(outcome):
        def any_of(value):
            return any(map(any_of, value.values())) if isinstance(value, dict) else value != 0
        for device in devices(outcome):
            for name in path:
                device = device.get(name, {})
            if any_of(device):
                return True
        return False
    return happened


def in_trace(pattern):
    compiled = re.compile(pattern, re.MULTILINE)
    return lambda outcome: compiled.search(outcome.trace) is not None


def strategy(name):
    return lambda outcome: any(device["strategy"] == name and device["hits"] for device in devices(outcome))


def in_output(line):
    compiled = re.compile(rf"^{line}", re.MULTILINE)
    return lambda outcome: compiled.search(outcome.stdout) is not None


def return_refused(outcome):
    """The driver did not take an allocation back that it had given."""
    given = set()
    for line in outcome.trace.splitlines():
        address = re.search(r"\bdptr=(0x\w+)", line)
        if line.startswith("cuMemAlloc_v2 ") and address:
            given.add(address[1])
        elif line.startswith("cuMemFree") and f" -> {REFUSED} " in line and address[1] in given:
            return True
    return False


def stream_lost(outcome):
    """A stream was destroyed by a thread that had a capture under way."""
    capturing = set()
    for line in outcome.trace.splitlines():
        call, thread = line.split(" ", 1)[0], re.search(r"\btid=(\d+)", line)[1]
        if call.startswith("cuStreamBeginCapture"):
            capturing.add(thread)
        elif call.startswith("cuStreamEndCapture"):
            capturing.discard(thread)
        elif call.startswith("cuStreamDestroy") and thread in capturing:
            return True
    return False


def marks_of_streams(outcome):
    """Work was marked though the driver has no event for a whole context."""
    return "cuCtxRecordEvent" not in outcome.calls and json.loads(outcome.report)["events_recorded"] > 0


HAPPENINGS = {
    **{name: strategy(name) for name in
       ("on_demand", "legacy", "naive_best_fit", "auto_growth", "thread_local")},
    "garbage": in_report("garbage"),
    "fill": in_report("fill", "fills"),
    "idle_release": in_report("idle_release"),
    "cap": in_report("refused_by_limit"),
    "scratch": in_report("scratch", "hits"),
    "graph": in_trace(r"^cuGraphExecUpdate\w* .* -> 0 "),
    "capture": in_output(r"operation capture: [1-9]"),
    "export": in_output(r"tokens of a block: 0, "),
    "context_end": in_trace(r"^cuCtxDestroy\w* .* -> 0 "),
    "stream_loss": stream_lost,
    "shortage": in_report("shortages"),
    "refused_return": return_refused,
    "failed_call": in_trace(rf"^cuMemAlloc\w* .* -> {REFUSED} "),
    "old_driver": marks_of_streams,
}


def happening(rest):
    """For the reader of expectations."""
    unknown = set(rest.split()) - set(HAPPENINGS)
    if unknown or not rest:
        raise ValueError(f"expected: happens NAME...; there are {', '.join(HAPPENINGS)}")
    return rest.split()


def judge(outcome, wanted):
    """The report is needed: without it nothing happened that anyone could know of."""
    for name in wanted:
        try:
            if HAPPENINGS[name](outcome):
                continue
            yield f"it did not happen: {name}"
        except (ValueError, KeyError) as error:
            yield f"nobody knows whether it happened: {name} ({error!r})\n{outcome.report}"
