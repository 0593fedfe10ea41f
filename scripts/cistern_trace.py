# SPDX-License-Identifier: Apache-2.0
"""Reads recordings of Cistern (allocator/record/FORMAT.md) for Python programs; needs nothing else.

    recording = cistern_trace.read("app.rec")
    for event in recording.events: print(event.time_ns, event.type, event.bytes)
    print(cistern_trace.shown(recording.head.program))

The same files are refused as by `cistern trace`, with the same line, as a Refused. Reading takes at most 24 times the
file's size in memory, whatever the file is: `events` and `sites` make their entries when they are asked for.
"""

import array
import collections
import collections.abc
import heapq
import itertools
import re
import struct
import zlib

TYPES = (None, "allocated", "freed", "refused", "obtained", "released", "context-ended", "synchronised")
MEMORIES = ("linear", "pitched", "managed", "pinned", "stream-ordered", "array", "physical")
ENDED, HAS_SITES, POOLED, CUT_SHORT = 1, 2, 4, 8

Event = collections.namedtuple("Event", "type memory time_ns address bytes stream context thread device site range phase code")
Head = collections.namedtuple("Head", "committed began_ns began_unix_ns process flags lost program host policy")
Range = collections.namedtuple("Range", "parent name")
Frame = collections.namedtuple("Frame", "file function line offset")

_HEAD_BYTES, _LONGEST_NAME, _MOST_BLOCK_BYTES, _MOST_FRAMES = 4096, 4096, 65536, 64
_MOST_READ = 8 << 30
_U32, _U64 = 2**32 - 1, 2**64 - 1
_STATES = ("thread", "device", "context", "stream", "site", "range", "phase")
_CALLER, _PLACE = ("thread", "range", "phase"), ("device", "context")
_TOLD = {
    "allocated": _CALLER + _PLACE + ("stream", "site"), "refused": _CALLER + _PLACE + ("stream", "site"),
    "freed": _CALLER + ("stream",), "obtained": _CALLER + _PLACE, "context-ended": _CALLER + _PLACE,
    "released": _CALLER, "synchronised": _CALLER,
}
_WITH_ADDRESS = ("allocated", "freed", "obtained", "released")
_WITH_BYTES = ("allocated", "obtained", "refused")
_ENDING = ("freed", "released", "context-ended")
_AGAIN = "copy it again, or record again"


class Refused(Exception):
    """A file that is no whole recording; one line says why."""

    def __init__(self, kind, at, what, remedy=_AGAIN):
        super().__init__(f"{kind}; byte {at}: {what}; try: {remedy}")


# The characters that config/text.h hides, and bytes that were no UTF-8.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text):
    """A name of a recording for a terminal: the recorded program chose it, and it may hold anything."""
    return _HIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _damaged(at, what):
    return Refused("a damaged recording", at, what)


class _Contents:
    """The contents of a block."""

    def __init__(self, data, begin):
        self.data, self.begin, self.next, self.item = data, begin, 0, 0

    def more(self):
        return self.next < len(self.data)

    def refuse(self, what):
        return _damaged(self.begin + self.item, what)

    def tag(self):
        self.item = self.next
        self.next += 1
        return self.data[self.item]

    def varint(self):
        value = 0
        for shift in itertools.count(0, 7):
            if not self.more():
                raise self.refuse("the block ends within it")
            byte = self.data[self.next]
            self.next += 1
            if shift == 63 and byte > 1:
                raise self.refuse("a number of more than 64 bits")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value

    def varint_up_to(self, most, what):
        value = self.varint()
        if value > most:
            raise self.refuse(f"{what} {value} of {most}")
        return value

    def difference(self):
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def text(self, length):
        if length > len(self.data) - self.next:
            raise self.refuse("the block ends within it")
        self.next += length
        return bytes(self.data[self.next - length:self.next]).decode("utf-8", "surrogateescape")


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

    def add(self, *row):
        for column, value in zip(self._columns, row):
            column.append(value)

    def row(self, i):
        return [column[i] for column in self._columns]

    def column(self, which):
        return self._columns[which]


class Recording:
    """`head`, `events` by time, and what their numbers mean: `names`, `ranges`, `phases` (names) and `sites`
    (frames, the innermost first), each at its number; 0 is "none"."""

    def __init__(self, data):
        self._frames, self._first_frames = _Columns("IIIQ"), array.array("I", [0, 0])
        self._states, self._times = _Columns("IIQQIII"), array.array("Q")
        self._tags, self._values, self._state_of, self._value_of = array.array("B"), array.array("Q"), array.array("I"), array.array("I")
        self.names, self.phases = [""], array.array("I", [0])
        self._ranges = _Columns("II")
        self._ranges.add(0, 0)
        self.ranges = _Lazy(lambda: len(self._ranges), lambda i: Range(*self._ranges.row(i)))
        self.sites = _Lazy(lambda: len(self._first_frames) - 1, self._site)
        data = memoryview(data)
        self.head = self._read_head(data)
        at = _HEAD_BYTES
        while at < self.head.committed:
            at = self._read_block(data, at)
        order = _by_time(self._times, self._tags, self._states.column(_STATES.index("thread")), self._state_of)
        self.events = _Lazy(lambda: len(order), lambda i: self._event(order[i]))

    def _site(self, number):
        return [Frame(*self._frames.row(i)) for i in range(*self._first_frames[number:number + 2])]

    def _event(self, i):
        kind, memory = TYPES[self._tags[i] & 15], MEMORIES[self._tags[i] >> 4]
        values = iter(self._values[self._value_of[i]:self._value_of[i] + 2])
        address = next(values) if kind in _WITH_ADDRESS else 0
        size = next(values) if kind in _WITH_BYTES else 0
        code = next(values) if kind == "refused" else 0
        state = zip(_STATES, self._states.row(self._state_of[i]))
        told = {name: value if name in _TOLD[kind] else 0 for name, value in state}
        return Event(kind, memory, self._times[i], address, size, code=code, **told)

    @staticmethod
    def _read_head(data):
        if bytes(data[:8]) != b"CISTREC\n":
            raise Refused("no recording", 0, "it does not begin with CISTREC", "a file that cistern record wrote")
        if len(data) < _HEAD_BYTES:
            raise Refused("a truncated recording", len(data), "the file ends within its head")
        version, head_bytes, committed, began, unix, process, flags, lost = struct.unpack_from("<IIQQQIIQ", data, 8)
        if version != 1:
            raise Refused("a recording of another version", 8, f"version {version}, and this reads 1", "the cistern that wrote it")
        if head_bytes != _HEAD_BYTES:
            raise _damaged(12, f"a head of {head_bytes} bytes")
        if committed < _HEAD_BYTES:
            raise _damaged(16, f"{committed} bytes count")
        if committed > _MOST_READ:
            raise Refused("a recording of more than 8 GiB", 16, f"{committed} bytes count", "record a shorter time")
        if committed > len(data):
            raise Refused("a truncated recording", len(data),
                          f"the file ends before {committed} bytes, which its head tells of")
        if flags & ~(ENDED | HAS_SITES | POOLED | CUT_SHORT):
            raise _damaged(44, f"flags {flags}")
        texts = []
        for at, size in ((64, 1024), (1088, 256), (1344, 1024)):
            text, end, _ = bytes(data[at:at + size]).partition(b"\0")
            if not end:
                raise _damaged(at, "a text without an end")
            texts.append(text.decode("utf-8", "surrogateescape"))
        if any(data[2368:_HEAD_BYTES]):
            raise _damaged(2368, "the rest of the head is not zero")
        return Head(committed, began, unix, process, flags, lost, *texts)

    def _read_block(self, data, at):
        left = self.head.committed - at
        if left < 16:
            raise _damaged(at, "what counts ends within a block")
        magic, size, kind, checksum = struct.unpack_from("<4sIII", data, at)
        if magic != b"CBLK":
            raise _damaged(at, "no block begins here")
        if size > _MOST_BLOCK_BYTES or size > left - 16:
            raise _damaged(at, f"a block of {size} bytes")
        contents = data[at + 16:at + 16 + size]
        if zlib.adler32(contents) != checksum:
            raise _damaged(at, "a block whose checksum does not fit")
        if kind == 1:
            self._read_events(_Contents(contents, at + 16))
        elif kind == 2:
            self._read_definitions(_Contents(contents, at + 16))
        else:
            raise _damaged(at, f"a block of kind {kind}")
        return at + 16 + size

    def _read_definitions(self, contents):
        while contents.more():
            tag = contents.tag()
            if tag not in (1, 2, 3, 4):
                raise contents.refuse(f"a definition of kind {tag}")
            number, names = contents.varint(), len(self.names) - 1
            last = len((self.names, self.ranges, self.phases, self.sites)[tag - 1]) - 1
            if number != last + 1:
                raise contents.refuse(f"number {number} is defined after {last}")
            if tag == 1:
                self.names.append(contents.text(contents.varint_up_to(_LONGEST_NAME, "bytes of a name")))
            elif tag == 2:
                self._ranges.add(contents.varint_up_to(last, "range"), contents.varint_up_to(names, "name"))
            elif tag == 3:
                self.phases.append(contents.varint_up_to(names, "name"))
            else:
                for _ in range(contents.varint_up_to(_MOST_FRAMES, "frames")):
                    self._frames.add(contents.varint_up_to(names, "name"), contents.varint_up_to(names, "name"),
                                     contents.varint_up_to(_U32, "line"), contents.varint())
                self._first_frames.append(len(self._frames))

    def _read_events(self, contents):
        state, changed, time_ns, address = dict.fromkeys(_STATES, 0), True, 0, 0
        most = {"thread": _U32, "device": _U32, "context": _U64, "stream": _U64, "site": len(self.sites) - 1,
                "range": len(self.ranges) - 1, "phase": len(self.phases) - 1}
        while contents.more():
            tag = contents.tag()
            kind, memory = tag & 15, tag >> 4
            if 8 <= kind < 15 and memory == 0:
                name = _STATES[kind - 8]
                state[name], changed = contents.varint_up_to(most[name], name), True
                continue
            if not 1 <= kind <= 7 or memory >= len(MEMORIES):
                raise contents.refuse(f"an event of kind {tag}")
            kind = TYPES[kind]
            time_ns = time_ns + contents.difference() & _U64
            if time_ns >= 2**63:
                raise contents.refuse("a time before the recording began")
            if changed:
                self._states.add(*state.values())
                changed = False
            self._value_of.append(len(self._values))
            if kind in _WITH_ADDRESS:
                address = address + contents.difference() & _U64
                self._values.append(address)
            if kind in _WITH_BYTES:
                self._values.append(contents.varint())
            if kind == "refused":
                self._values.append(contents.varint_up_to(_U32, "code"))
            self._times.append(time_ns)
            self._tags.append(tag)
            self._state_of.append(len(self._states) - 1)


_SORTED_AT_ONCE = 1 << 16


def _sorted(numbers, key):
    """Parts are sorted and then merged: sorted() has a list of all keys, of a hundred bytes each."""
    parts = [array.array("I", sorted(numbers[i:i + _SORTED_AT_ONCE], key=key)) for i in range(0, len(numbers), _SORTED_AT_ONCE)]
    if all(key(one[-1]) <= key(other[0]) for one, other in zip(parts, parts[1:])):
        return array.array("I", itertools.chain.from_iterable(parts))
    return array.array("I", heapq.merge(*parts, key=key))


def _by_time(times, tags, threads, state_of):
    """The order of the events. Of those with one time frees come first, but each thread's stay in order: turn by turn,
    of every thread the frees that are next, then what follows up to its next free."""
    order = _sorted(range(len(times)), times.__getitem__)
    begin = 0
    while begin < len(order):
        end = begin + 1
        while end < len(order) and times[order[end]] == times[order[begin]]:
            end += 1
        if end - begin > 1:
            order[begin:end] = _by_turns(order[begin:end], tags, lambda event: threads[state_of[event]])
        begin = end
    return order


def _by_turns(events, tags, thread_of):
    turns, firsts = array.array("I"), array.array("I")
    events = _sorted(events, lambda event: (thread_of(event), event))
    last = None
    for event in events:
        begins = TYPES[tags[event] & 15] not in _ENDING
        if last is None or thread_of(last) != thread_of(event):
            turn, first = int(begins), event
        elif turn % 2 != begins:
            turn += 1
        turns.append(turn)
        firsts.append(first)
        last = event
    return array.array("I", (events[i] for i in _sorted(range(len(events)), lambda i: (turns[i], firsts[i], events[i]))))


def read(path):
    """The Recording in a file."""
    with open(path, "rb") as file:
        return Recording(file.read())
