# SPDX-License-Identifier: Apache-2.0
"""Recordings that no program made: each has as much as possible of one thing for its bytes."""

import functools
import struct
import zlib

MOST_BLOCK = 65536
EVENTS, DEFINITIONS = 1, 2


def varint(value):
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def recording_of(*blocks):
    """Of (kind, contents)."""
    data = b"".join(struct.pack("<4sIII", b"CBLK", len(contents), kind, zlib.adler32(contents)) + contents
                    for kind, contents in blocks)
    return struct.pack("<8sIIQ", b"CISTREC\n", 1, 4096, 4096 + len(data)).ljust(4096, b"\0") + data


def blocks_of(kind, items, size):
    """Blocks full of what an iterator gives, of so many bytes in all at most."""
    contents = bytearray()  # adding to bytes copies all of them
    for item in items:
        if contents and len(contents) + len(item) > min(size, MOST_BLOCK):
            yield kind, contents
            size -= len(contents)
            contents = bytearray()
            if size < len(item):
                return
        contents += item
    yield kind, contents


def count(first=1):
    while True:
        yield first
        first += 1


THREAD, DEVICE, CONTEXT, STREAM, SITE, RANGE, PHASE = (bytes([tag]) for tag in range(8, 15))
ALLOCATED, FREED, REFUSED, OBTAINED, RELEASED, ENDED, SYNCHRONISED = (bytes([tag]) for tag in range(1, 8))
ONE = ALLOCATED + b"\0\2\1"  # a byte at the next address
EACH = {"thread": THREAD, "device": DEVICE, "context": CONTEXT, "stream": STREAM}


def many(event, size):
    return blocks_of(EVENTS, (event for _ in count()), size)


def of_each(state, event, size):
    return blocks_of(EVENTS, (state + varint(i) + event for i in count()), size)


def defined(make, state, event, size):
    """Things of a few bytes, and an event with each of them."""
    things = max(1, size // (len(make(1 << 14)) + len(state) + 3 + len(event)))
    yield from blocks_of(DEFINITIONS, (make(i) for i in range(1, things + 1)), size)
    yield from blocks_of(EVENTS, (state + varint(i) + event for i in range(1, things + 1)), size)


def in_all_places(size):
    """Something is live on each device and in pinned memory, and there are many phases."""
    yield EVENTS, b"".join(DEVICE + varint(i) + ALLOCATED + b"\0" + varint(2000) + b"\1" for i in range(70)) + bytes([0x31]) + b"\0\2\1"
    yield from defined(lambda i: b"\3" + varint(i) + b"\0", PHASE, SYNCHRONISED + b"\0", size)


def ended_contexts(size):
    """Chunks, and contexts that end though they have none."""
    yield from many(OBTAINED + b"\0\2\1", size // 2)
    yield from blocks_of(EVENTS, (CONTEXT + varint(i) + ENDED + b"\0" for i in count()), size // 2)


def long_stacks(size):
    """Names of the longest kind, and stacks of nothing else."""
    name = "\N{EURO SIGN}".encode() * 1365
    yield DEFINITIONS, b"\1\1" + varint(len(name)) + name
    yield from defined(lambda i: b"\4" + varint(i) + varint(64) + b"\1\1\1\1" * 64, SITE, ONE, size)


def long_paths(size):
    name = b"x" * 4096
    yield DEFINITIONS, b"\1\1" + varint(len(name)) + name
    yield from defined(lambda i: b"\2" + varint(i) + varint(i - 1) + b"\1", RANGE, ONE, size)


MADE_UP = {
    "synchronisations": lambda size: many(SYNCHRONISED + b"\0", size),
    "synchronisations of rising time": lambda size: many(SYNCHRONISED + b"\2", size),
    "blocks that nobody frees": lambda size: many(ONE, size),
    "blocks at one address": lambda size: many(ALLOCATED + b"\0\0\1", size),
    "frees of nothing": lambda size: many(FREED + b"\0\2", size),
    "frees after later ones": lambda size: blocks_of(EVENTS, (b"".join((ONE, FREED + b"\0\0")) for _ in count()), size),
    "refused": lambda size: many(REFUSED + b"\0\0\0", size),
    "chunks": lambda size: many(OBTAINED + b"\0\2\1", size),
    **{f"a {name} for each block": lambda size, state=state: of_each(state, ONE, size) for name, state in EACH.items()},
    "a thread for each synchronisation": lambda size: of_each(THREAD, SYNCHRONISED + b"\0", size),
    "a site for each block": lambda size: defined(lambda i: b"\4" + varint(i) + b"\0", SITE, ONE, size),
    "sites": lambda size: blocks_of(DEFINITIONS, (b"\4" + varint(i) + b"\0" for i in count()), size),
    "frames": lambda size: blocks_of(DEFINITIONS, (b"\4" + varint(i) + varint(64) + b"\0\0\1\1" * 64 for i in count()), size),
    "names": lambda size: blocks_of(DEFINITIONS, (b"\1" + varint(i) + b"\0" for i in count()), size),
    "names of two letters": lambda size: blocks_of(DEFINITIONS, (b"\1" + varint(i) + b"\2\xff\xfe" for i in count()), size),
    "a range for each block": lambda size: defined(lambda i: b"\2" + varint(i) + b"\0\0", RANGE, ONE, size),
    "phases in all places": in_all_places,
    "contexts that end": ended_contexts,
    "long stacks": long_stacks,
    "long paths": long_paths,
}


@functools.cache  # making one takes longer than reading it
def made_up(name, size):
    return recording_of(*MADE_UP[name](size))
