# SPDX-License-Identifier: Apache-2.0
"""Reads recordings of Cistern (allocator/record/FORMAT.md) for Python programs; needs nothing else.

    recording = cistern_trace.read("app.rec")
    for event in recording.events: print(event.time_ns, event.type, event.bytes)
    print(cistern_trace.shown(recording.head.program))

The same files are refused as by `cistern trace`, with the same line, as a Refused.
"""

import collections
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


# The characters that config/shown.h hides, and bytes that were no UTF-8.
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


class Recording:
    """`head`, `events` by time, and what their numbers mean: `names`, `ranges`, `phases` (names) and `sites`
    (frames, the innermost first), each at its number; 0 is "none"."""

    def __init__(self, data):
        self.names, self.ranges, self.phases, self.sites, self.events = [""], [Range(0, 0)], [0], [[]], []
        data = memoryview(data)
        self.head = self._read_head(data)
        at = _HEAD_BYTES
        while at < self.head.committed:
            at = self._read_block(data, at)
        self.events = _by_time(self.events)

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
            kind = (self.names, self.ranges, self.phases, self.sites)[tag - 1]
            number, names = contents.varint(), len(self.names) - 1
            if number != len(kind):
                raise contents.refuse(f"number {number} is defined after {len(kind) - 1}")
            if tag == 1:
                kind.append(contents.text(contents.varint_up_to(_LONGEST_NAME, "bytes of a name")))
            elif tag == 2:
                kind.append(Range(contents.varint_up_to(len(kind) - 1, "range"), contents.varint_up_to(names, "name")))
            elif tag == 3:
                kind.append(contents.varint_up_to(names, "name"))
            else:
                kind.append([Frame(contents.varint_up_to(names, "name"), contents.varint_up_to(names, "name"),
                                   contents.varint_up_to(_U32, "line"), contents.varint())
                             for _ in range(contents.varint_up_to(_MOST_FRAMES, "frames"))])

    def _read_events(self, contents):
        state, time_ns, address = dict.fromkeys(_STATES, 0), 0, 0
        most = {"thread": _U32, "device": _U32, "context": _U64, "stream": _U64, "site": len(self.sites) - 1,
                "range": len(self.ranges) - 1, "phase": len(self.phases) - 1}
        while contents.more():
            tag = contents.tag()
            kind, memory = tag & 15, tag >> 4
            if 8 <= kind < 15 and memory == 0:
                name = _STATES[kind - 8]
                state[name] = contents.varint_up_to(most[name], name)
                continue
            if not 1 <= kind <= 7 or memory >= len(MEMORIES):
                raise contents.refuse(f"an event of kind {tag}")
            kind = TYPES[kind]
            time_ns = time_ns + contents.difference() & _U64
            if time_ns >= 2**63:
                raise contents.refuse("a time before the recording began")
            if kind in _WITH_ADDRESS:
                address = address + contents.difference() & _U64
            size = contents.varint() if kind in _WITH_BYTES else 0
            code = contents.varint_up_to(_U32, "code") if kind == "refused" else 0
            told = {name: state[name] if name in _TOLD[kind] else 0 for name in _STATES}
            self.events.append(Event(kind, MEMORIES[memory], time_ns, address if kind in _WITH_ADDRESS else 0, size,
                                     code=code, **told))


def _by_time(events):
    """Of those with one time frees come first, but each thread's stay in order."""
    result = []
    for _, group in itertools.groupby(sorted(events, key=lambda event: event.time_ns), lambda event: event.time_ns):
        queues = {}
        for event in group:
            queues.setdefault(event.thread, collections.deque()).append(event)
        while queues:
            for ending in (True, False):
                for queue in queues.values():
                    while queue and (queue[0].type in _ENDING) == ending:
                        result.append(queue.popleft())
            queues = {thread: queue for thread, queue in queues.items() if queue}
    return result


def read(path):
    """The Recording in a file."""
    with open(path, "rb") as file:
        return Recording(file.read())
