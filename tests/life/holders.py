# SPDX-License-Identifier: Apache-2.0
"""What processes do that have an owner's handle, or take its socket's name, and are no honest importers:

    holders.py WAY FILE NAMESPACE [USER]

reads the handle from the file again and again, in hexadecimal digits, and prints a line after each round, until it
is ended. As the user, if there is one; in no user namespace of its own (here), in one that maps nobody (unmapped),
or that maps this user (as_root).

  silent    asks, and neither reads what comes nor goes to its line
  wrong     goes to its line, and says other words there, or half of them
  refused   may not have the block, and ends with a status if it is told anything of it
  taker     takes the name once the owner has it no more, and answers in its place"""

import ctypes
import os
import pathlib
import random
import socket
import struct
import sys
import time

import strangers

PASS, PROOF, WORD = 1, 2, 3  # shim/ipc/protocol.cc
REFUSED = 2  # shim/ipc/protocol.h
TOKEN = struct.Struct("<QIIQQiIQQQ")
HEAD_OF_ANSWER = struct.Struct("<QIIQ")
BURST = 16  # as many messages, then a pause: who has a handle may hold up answers, by shim/SECURITY.md
PAUSE_S = 0.1
WORDS = (1 << 64) - 1
NEW_USERS, SET_DUMPABLE = 0x10000000, 4  # sched.h, sys/prctl.h
libc = ctypes.CDLL(None)


def turned(word, bits):
    return (word << bits | word >> (64 - bits)) & WORDS


def siphash(key, words):
    """SipHash-2-4 of two words."""
    v0, v1, v2, v3 = key[0] ^ 0x736F6D6570736575, key[1] ^ 0x646F72616E646F6D, key[0] ^ 0x6C7967656E657261, key[1] ^ 0x7465646279746573
    for word, rounds in (*((word, 2) for word in (*words, 16 << 56)), (None, 4)):
        v3 ^= word or 0
        v2 ^= 0xFF if word is None else 0
        for _ in range(rounds):
            v0, v2 = (v0 + v1) & WORDS, (v2 + v3) & WORDS
            v1, v3 = turned(v1, 13) ^ v0, turned(v3, 16) ^ v2
            v0 = turned(v0, 32)
            v2, v0 = (v2 + v1) & WORDS, (v0 + v3) & WORDS
            v1, v3 = turned(v1, 17) ^ v2, turned(v3, 21) ^ v0
            v2 = turned(v2, 32)
        v0 ^= word or 0
    return v0 ^ v1 ^ v2 ^ v3


class Handle:
    """What stands in it, and what is said with it."""

    def __init__(self, data):
        self.fields = TOKEN.unpack(data)
        self.key = self.fields[4], self.fields[3]  # the secret, the name

    @property
    def address(self):
        return f"\0cistern-ipc-{self.fields[3]:016x}"

    def request(self, kind, number):
        shown = siphash(self.key, (kind, 0 if kind == PASS else number))
        head = struct.pack("<QIIQ", strangers.REQUEST_MAGIC, strangers.VERSION, 0, number)
        return head + TOKEN.pack(*self.fields[:4], shown, *self.fields[5:])


def from_file(path):
    return Handle(bytes.fromhex(pathlib.Path(path).read_text(encoding="utf-8")))


def bound():
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    own.bind("")  # the kernel chooses a name
    return own


def told(own, data, to=None):
    """Whether it could be sent."""
    try:
        if to is None:
            own.send(data)
        else:
            own.sendto(data, to)
    except OSError:
        return False
    return True


def silent(handle, kept):
    for _ in range(BURST):
        kept.append(bound())
        number = random.getrandbits(64)
        told(kept[-1], handle.request(PASS, number), handle.address)
    for old in kept[:-strangers.MOST_KEPT]:
        old.close()
    del kept[:-strangers.MOST_KEPT]


def wrong(handle, _):
    for _ in range(BURST):
        with bound() as own:
            number = random.getrandbits(64)
            if not told(own, handle.request(PASS, number), handle.address):
                continue
            own.settimeout(0.1)
            try:
                _, line = own.recvfrom(4096)
                own.connect(line)
            except OSError:
                continue
            own.setblocking(False)
            word = handle.request(WORD, number)
            for data in (handle.request(WORD, number + 1), handle.request(PASS, number), word[:-1], word + b"0", b"", os.urandom(88)):
                told(own, data)


def refused(handle, _):
    """Nobody tells it more than that, whoever has the socket's name."""
    with bound() as own:
        number = random.getrandbits(64)
        proof = siphash(handle.key, (PROOF, number))
        told(own, handle.request(PASS, number), handle.address)
        own.settimeout(0.1)
        try:
            data = own.recv(4096)
        except OSError:
            return
        if len(data) == strangers.ANSWER_BYTES and HEAD_OF_ANSWER.unpack_from(data)[3] == proof:
            status, rest = HEAD_OF_ANSWER.unpack_from(data)[2], data[HEAD_OF_ANSWER.size:]
            if status != REFUSED or any(rest):
                sys.exit(f"it was told {status}")


def taker(handle, _):
    """Keeps the name for a while, if it gets it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        try:
            own.bind(handle.address)
        except OSError:
            return
        own.settimeout(0.1)
        for _ in range(20):
            try:
                data, sender = own.recvfrom(4096)
            except OSError:
                continue
            for answer in (data, os.urandom(strangers.ANSWER_BYTES)):
                told(own, answer, sender)


def unshare_users():
    return libc.unshare(NEW_USERS) == 0


def can_unshare(user=None):
    """Some systems let root alone make a user namespace, or write its map."""
    child = os.fork()
    if child == 0:
        try:
            if user is not None:
                os.setgid(user)
                os.setuid(user)
            enter("as_root")
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def enter(namespace):
    user = os.getuid()
    if namespace != "here" and not unshare_users():
        sys.exit("no user namespace")
    if namespace == "as_root":
        libc.prctl(SET_DUMPABLE, 1)  # else the files below are root's, since the user was changed
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="utf-8")


def main():
    way, path, namespace = globals()[sys.argv[1]], *sys.argv[2:4]
    if len(sys.argv) > 4:
        strangers.become(int(sys.argv[4]))
    enter(namespace)
    kept = []
    while True:
        way(from_file(path), kept)
        print("round", flush=True)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
