# SPDX-License-Identifier: Apache-2.0
# client: {"variants": ["cache", "no cache"]}
"""Processes that use the device and end in different ways: with work under way, with live tensors, by a
signal, by an exception, with a thread that still allocates. How they end is the same."""

import atexit
import os
import signal
import sys
import threading
import time

from common import empty, memset, pattern, same


def work_under_way():
    blocks = [empty(20 << 20) for _ in range(4)]
    for byte in range(50):
        for block in blocks:
            memset(block, byte)
    return blocks


def end_by_return():
    work_under_way()


def end_with_live_tensors():
    globals()["kept"] = work_under_way()


def end_by_exit():
    globals()["kept"] = work_under_way()
    sys.exit(3)


def end_at_once():
    work_under_way()
    os._exit(4)


def end_by_exception():
    kept = work_under_way()
    raise ValueError(f"{len(kept)} blocks")


def end_by_signal():
    work_under_way()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


def end_while_a_thread_allocates():
    def allocate():
        while True:
            memset(empty(3 << 20), 1)
    threading.Thread(target=allocate, daemon=True).start()
    time.sleep(0.3)
    os._exit(5)


def end_with_a_forked_child():
    kept = work_under_way()
    child = os.fork()
    if child == 0:
        os._exit(6)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(kept))


def end_after_out_of_memory():
    try:
        empty(1 << 40)
    except RuntimeError as error:
        print(type(error).__name__)
    print(same(pattern(1000, 1).cuda(), pattern(1000, 1)))


def end_by_an_exit_handler():
    atexit.register(lambda: print("at exit", same(pattern(5000, 1).cuda(), pattern(5000, 1))))
    globals()["kept"] = work_under_way()


def start(name):
    """In a child, forked before CUDA is used: what it says, and its end. False in the child itself."""
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        os.closerange(3, write + 1)
        globals()[name]()
        return False
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = pipe.read().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(name, code, lines[-1:] if code == 1 else lines)  # of a traceback, the error
    return True


def main():
    for name in sorted(name for name in globals() if name.startswith("end_")):
        if not start(name):
            return  # ends as its function left it


if __name__ == "__main__":
    main()
