# SPDX-License-Identifier: Apache-2.0
"""A process that takes the address of a socket whose process ended, as any user of the machine can:

    taker.py NAME [USER]

prints "bound"; when stdin ends, after another guess at what the sender may want to hear, it prints how many
descriptors came, and the bytes of each message."""

import array
import os
import socket
import sys

MOST_FILES = 253


def messages(own):
    """All that are there: bytes, descriptors and sender of each."""
    files = array.array("i")
    while True:
        try:
            data, control, _, sender = own.recvmsg(4096, socket.CMSG_SPACE(MOST_FILES * files.itemsize), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        came = sum(len(words) // files.itemsize for level, kind, words in control
                   if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS))
        yield data, came, sender


def main():
    name = bytes.fromhex(sys.argv[1])
    if len(sys.argv) > 2:  # only root can become another user
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(name)
        print("bound", flush=True)
        for _ in sys.stdin:  # a line each time
            for data, files, sender in messages(own):
                print(files, data.hex())
                for answer in (data, bytes(88), bytes(120)):
                    try:
                        own.sendto(answer, sender)
                    except OSError:
                        pass
            print("heard", flush=True)


if __name__ == "__main__":
    sys.exit(main())
