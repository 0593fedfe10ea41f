# SPDX-License-Identifier: Apache-2.0
"""What any user of the machine can do to the socket by which a process answers importers: its name is
public. As a program it does all of that, as the user whose id is its argument, until it is ended, and
prints a line after each round."""

import array
import os
import pathlib
import re
import socket
import struct
import sys

REQUEST_MAGIC, VERSION, REQUEST_BYTES, ANSWER_BYTES = 0x51C9A1D07BE33F5E, 4, 88, 120
MOST_KEPT = 64


def names(process=None):
    """The sockets of all processes that can be seen here, as the kernel tells everybody; of one, for its user alone."""
    table = pathlib.Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    found = re.findall(r" (\d+) @(cistern-ipc-[0-9a-f]+)", table)
    if process is None:
        return {name for _, name in found}
    files = {os.readlink(path) for path in pathlib.Path(f"/proc/{process}/fd").iterdir()}
    return {name for inode, name in found if f"socket:[{inode}]" in files}


def guess(name):
    """A request that is right but for its secret."""
    token = struct.pack("<QIIQQIIQQQ", 0, VERSION, 0, int(name.rpartition("-")[2], 16), *struct.unpack("<Q", os.urandom(8)),
                        0, 0, 0, 0, 0)
    return struct.pack("<QIIQ", REQUEST_MAGIC, VERSION, 0, 1) + token


def send(to, data, files=()):
    """Without a wait; what the kernel says to it does not matter."""
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        try:
            own.sendmsg([data], control, socket.MSG_DONTWAIT, to)
        except OSError:
            pass


def lingering():
    """A connection with unsent data. The last close of its near end waits a minute, unless a process
    ends by it."""
    with socket.create_server(("127.0.0.1", 0)) as listens:
        near = socket.socket()
        near.connect(listens.getsockname())
        far, _ = listens.accept()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(1 << 16))
    except BlockingIOError:
        return near, far


def send_lingering(to, data, kept):
    """By a child, whose end closes its copies at once: what arrived has the last one."""
    near, far = lingering()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writes)
        os.read(reads, 1)
        send(to, data, [near.fileno()])
        os._exit(0)
    near.close()
    for end in (reads, writes):
        os.close(end)
    os.waitpid(child, 0)
    kept.append(far)
    for old in kept[:-MOST_KEPT]:
        old.close()
    del kept[:-MOST_KEPT]


def one_round(name, kept):
    to = f"\0{name}"
    for data in (guess(name), b"", bytes(ANSWER_BYTES), os.urandom(REQUEST_BYTES), os.urandom(4000)):
        for files in ((), (2,), (2,) * 60):
            for _ in range(20):
                send(to, data, files)
        send_lingering(to, data, kept)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as squatter:
        try:
            squatter.bind(to)
        except OSError:
            pass


def become(user):
    """Only root can."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main():
    if len(sys.argv) > 1:
        become(int(sys.argv[1]))
    kept = []
    while True:
        there = names()
        for name in there:
            one_round(name, kept)
        print("round" if there else "there is no socket", flush=True)


if __name__ == "__main__":
    sys.exit(main())
