# SPDX-License-Identifier: Apache-2.0
"""Whether something really happened in a run with Cistern, by its report, its output and its trace:
what `happens NAME` asks for. An expectation of a random program says so, since such a program that
does nothing of what it is run for would pass as well.

How the threads of one run take turns is chance, so no single run fails for what did not happen.
Each test notes what happened in a file of the build folder, or of HAPPENED_DIR in the environment;
happened_test.py judges the sum.
"""

import json
import os
import pathlib
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
    **{name: (f"served a request again under {name}", strategy(name)) for name in
       ("on_demand", "legacy", "naive_best_fit", "auto_growth", "thread_local")},
    "garbage": ("held freed memory back as garbage", in_report("garbage")),
    "fill": ("filled memory", in_report("fill", "fills")),
    "idle_release": ("released idle memory", in_report("idle_release")),
    "cap": ("was refused memory by its cap", in_report("refused_by_limit")),
    "scratch": ("used the scratch cache", in_report("scratch", "hits")),
    "graph": ("updated an executable graph", in_trace(r"^cuGraphExecUpdate\w* .* -> 0 ")),
    "capture": ("captured work", in_output(r"operation capture: [1-9]")),
    "export": ("exported a block", in_output(r"tokens of a block: 0, ")),
    "context_end": ("destroyed a context", in_trace(r"^cuCtxDestroy\w* .* -> 0 ")),
    "stream_loss": ("destroyed a stream during a capture", stream_lost),
    "shortage": ("ran short of memory", in_report("shortages")),
    "refused_return": ("had the driver refuse memory that was given back", return_refused),
    "failed_call": ("had the driver fail an allocation", in_trace(rf"^cuMemAlloc\w* .* -> {REFUSED} ")),
    "graphs_apart": ("ran a graph while another had its arena", in_report("arena", "apart")),
    "old_driver": ("marked work on a driver without events for contexts", marks_of_streams),
}


def happening(rest):
    """For the reader of expectations."""
    unknown = set(rest.split()) - set(HAPPENINGS)
    if unknown or not rest:
        raise ValueError(f"expected: happens NAME...; there are {', '.join(HAPPENINGS)}")
    return set(rest.split())


def seen(outcome, wanted):
    """Those of the wanted that happened in this run."""
    return {name for name in wanted if HAPPENINGS[name][1](outcome)}


class Notes:
    """What happened in the tests of a build: a file each. What another object's run left does not count. In a folder
    that somebody names, several runs of a test add up."""

    def __init__(self, build, library):
        self.named = os.environ.get("HAPPENED_DIR")
        self.folder = pathlib.Path(self.named or build / "happened")
        self.of = [library.stat().st_mtime_ns, library.stat().st_size]

    def path(self, test):
        return self.folder / (test.replace("/", "-") + ".json")

    def write(self, test, wanted, happened):
        self.folder.mkdir(exist_ok=True)
        if self.named:
            happened = happened | (self.read(test, wanted) or set())
        beside = self.path(test).with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps({"of": self.of, "wanted": sorted(wanted), "happened": sorted(happened)}))
        beside.rename(self.path(test))  # a reader sees all of it or nothing

    def read(self, test, wanted):
        """The set of what happened in a test; None if it was not run with this object, or for something else."""
        try:
            note = json.loads(self.path(test).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return set(note["happened"]) if (note["of"], note["wanted"]) == (self.of, sorted(wanted)) else None


def sum_up(wanted, happened):
    """Of `wanted`, what each row asks for, and `happened`, the same for rows that were run: the features that no row
    showed though all that ask for them were run, and those that no row showed so far."""
    shown = set().union(*happened.values())
    open_ones = {name for row, names in wanted.items() if row not in happened for name in names} - shown
    return set().union(*wanted.values()) - shown - open_ones, open_ones
