# SPDX-License-Identifier: Apache-2.0
"""Recordings of Cistern in Python, as `cistern trace FILE --events --json` prints them (allocator/record/TRACE.md).

    recording = cistern_trace.read("app.rec")
    for event in recording.events: print(event.time_ns, event.type, event.bytes)
    print(cistern_trace.shown(recording.head.program))

This needs cistern-trace: of the installation or the source tree that holds this file, of `home`, or of the `cistern` on
the PATH. If the recording names no phases, events have the phases that `cistern trace` finds. Texts are exact; bytes that
are no UTF-8 are as in Python's file names. Reading takes at most 40 times the file's size in memory, and cistern-trace at
most 32 times until it has ended. `events`, `ranges` and `sites` make their entries when they are asked for.
"""

import array
import collections
import collections.abc
import json
import os
import re
import shutil
import subprocess

TYPES = (None, "allocated", "freed", "refused", "obtained", "released", "context-ended", "synchronised")
MEMORIES = ("linear", "pitched", "managed", "pinned", "stream-ordered", "array", "physical")
ENDED, HAS_SITES, POOLED, CUT_SHORT = 1, 2, 4, 8

Event = collections.namedtuple("Event", "type memory time_ns address bytes stream context thread device site range phase code")
Head = collections.namedtuple("Head", "committed began_ns began_unix_ns process flags lost program host policy")
Range = collections.namedtuple("Range", "parent name")
Frame = collections.namedtuple("Frame", "file function line offset")

_FLAGS = {"ended": ENDED, "has_sites": HAS_SITES, "pooled": POOLED, "cut_short": CUT_SHORT}


class Refused(Exception):
    """A file that is no whole recording, or cannot be read; with the line of `cistern trace`."""


class NoTool(Exception):
    """No cistern-trace that can be used; one line says where it was looked for."""


# The characters that config/text.h hides, and bytes that were not UTF-8.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text):
    """A name of a recording for a terminal: the recorded program chose it, and it may hold anything."""
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


class _Lazy(collections.abc.Sequence):
    """A list whose entries are made when they are asked for."""

    def __init__(self, length, entry):
        self._length, self._entry = length, entry

    def __len__(self):
        return self._length()

    def __getitem__(self, at):
        places = range(len(self))[at]
        return [self._entry(i) for i in places] if isinstance(at, slice) else self._entry(places)

    def __iter__(self):
        return map(self._entry, range(len(self)))


class _Columns:
    """Rows of numbers, each in as many bytes as it needs."""

    def __init__(self, codes):
        self._columns = [array.array(code) for code in codes]

    def __len__(self):
        return len(self._columns[0])

    def add(self, row):
        for column, value in zip(self._columns, row):
            column.append(value)

    def row(self, i):
        return [column[i] for column in self._columns]


class Recording:
    """`head`, `events` by time, and what their numbers mean: `names`, `ranges`, `phases` (names) and `sites`
    (frames, the innermost first), each at its number; 0 is "none"."""

    def __init__(self):
        self.head, self.names, self.phases = None, [""], array.array("I", [0])
        self._ranges, self._frames, self._first_frames = _Columns("II"), _Columns("IIIQ"), array.array("I", [0, 0])
        self._events = _Columns("BBQQQQQIIIIII")
        self._ranges.add((0, 0))
        self.ranges = _Lazy(lambda: len(self._ranges), lambda i: Range(*self._ranges.row(i)))
        self.sites = _Lazy(lambda: len(self._first_frames) - 1, self._site)
        self.events = _Lazy(lambda: len(self._events), self._event)

    def _site(self, number):
        return [Frame(*self._frames.row(i)) for i in range(*self._first_frames[number:number + 2])]

    def _event(self, i):
        kind, memory, *numbers = self._events.row(i)
        return Event(TYPES[kind], MEMORIES[memory], *numbers)

    def _add(self, line):
        """A line of `cistern trace --events --json`."""
        if "event" in line:
            numbers = [line.get(name, 0) for name in Event._fields[2:]]
            self._events.add((TYPES.index(line["event"]), MEMORIES.index(line["memory"]), *numbers))
        elif "name" in line:
            self.names.append(line["name"])
        elif "range" in line:
            self._ranges.add((line["range"]["parent"], line["range"]["name"]))
        elif "phase" in line:
            self.phases.append(line["phase"])
        elif "site" in line:
            for frame in line["site"]:
                self._frames.add([frame[name] for name in Frame._fields])
            self._first_frames.append(len(self._frames))
        else:
            flags = sum(flag for name, flag in _FLAGS.items() if line[name])
            self.head = Head(**{name: flags if name == "flags" else line[name] for name in Head._fields})


def _tool(home):
    """The command that reads recordings."""
    here = os.path.dirname(os.path.realpath(__file__))
    homes = [] if home is None else [os.fsdecode(home)]
    if home is None and here.endswith("/lib/cistern"):
        homes = [here[:-len("/lib/cistern")]]
    elif home is None and os.path.isfile(f"{here}/../CMakeLists.txt"):
        homes = [f"{os.path.dirname(here)}/build/release"]
    for place in homes:
        for tool in (f"{place}/libexec/cistern/cistern-trace", f"{place}/cistern-trace"):
            if os.access(tool, os.X_OK):
                return [tool]
    launcher = shutil.which("cistern") if home is None else None
    if launcher:
        return [launcher, "trace"]
    seen = shown(homes[0] if homes else here)
    raise NoTool(f'cistern-trace not found; value seen "{seen}"; allowed: a build or an installation of Cistern, or '
                 f'cistern on the PATH; try: make, or read(path, home="/usr/local")')


def read(path, home=None):
    """The Recording in a file. `home`: the build or installation whose cistern-trace reads it."""
    os.stat(path)  # FileNotFoundError
    file = os.fsdecode(path)
    command = [*_tool(home), "--events", "--json", f"./{file}" if file.startswith("-") else file]
    recording = Recording()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as tool:
        for line in tool.stdout:
            if line.endswith("\n"):  # else the line was cut short
                recording._add(json.loads(line))
        said = tool.stderr.read()
    if tool.returncode == 0:
        return recording
    error = re.search("^cistern: error: (.*)$", said, re.M)
    if error and tool.returncode in (1, 2):
        raise (Refused if tool.returncode == 1 else NoTool)(error[1])
    raise subprocess.CalledProcessError(tool.returncode, command, stderr=said)
