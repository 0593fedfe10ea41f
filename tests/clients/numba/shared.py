# SPDX-License-Identifier: Apache-2.0
"""Arrays of 8 bytes to 40 MB, and slices of them, that other processes open by Numba's IPC handles."""

# client: {"limit_s": 120}

import multiprocessing

import numpy as np
from numba import cuda

ELEMENTS = [1, 100, 12_500, 131_000, 131_072, 500_000, 5_000_000]


def importer(pipe):
    while (handle := pipe.recv()) is not None:
        with handle as array:
            host = array.copy_to_host()
            array.copy_to_device(host + 1)
            cuda.synchronize()
        pipe.send((host.size, int(host.sum())))


def share(array, was, pipes):
    """Each process in turn adds 1; what they saw and what is there afterwards."""
    handle, seen = array.get_ipc_handle(), []
    for pipe in pipes:
        pipe.send(handle)
        seen.append(pipe.recv())
    expected = [(was.size, int(was.sum()) + turn * was.size) for turn in range(len(pipes))]
    return seen == expected, np.array_equal(array.copy_to_host(), was + len(pipes))


def main():
    spawn = multiprocessing.get_context("spawn")
    pipes, others = [], []
    for _ in range(2):
        here, there = spawn.Pipe()
        others.append(spawn.Process(target=importer, args=(there,)))
        others[-1].start()
        there.close()
        pipes.append(here)
    for round_number in range(2):
        for elements in ELEMENTS:
            host = np.arange(elements) + round_number
            whole = cuda.to_device(host)
            print("shared", whole.nbytes, *share(whole, host, pipes))
            part = slice(elements // 2, None)
            print("a slice", *share(whole[part], host[part] + len(pipes), pipes))
    for pipe, other in zip(pipes, others):
        pipe.send(None)
        other.join()
        print("ended", other.exitcode)


if __name__ == "__main__":
    main()
