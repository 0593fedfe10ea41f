# SPDX-License-Identifier: Apache-2.0
"""CuPy's memory in other processes: ipcGetMemHandle of blocks of its pool and of cudaMalloc, small and large."""

# client: {"limit_s": 120}

import multiprocessing

import cupy
import numpy
from cupy.cuda import memory, runtime

SIZES = [1000, 4096, 100_000, (1 << 20) - 512, 1 << 20, 4_000_000, 40_000_000]


def read(pointer, size):
    host = numpy.empty(size, dtype=numpy.uint8)
    runtime.memcpy(host.ctypes.data, pointer, size, runtime.memcpyDeviceToHost)
    return host


def importer(pipe):
    while (message := pipe.recv()) is not None:
        handle, size, value = message
        pointer = runtime.ipcOpenMemHandle(handle)
        found = read(pointer, size)
        runtime.memset(pointer, value + 1, size)
        runtime.deviceSynchronize()
        runtime.ipcCloseMemHandle(pointer)
        pipe.send(bool((found == value).all()))


def share(pipe, block, size, value):
    """What the other process saw, and whether what it wrote has arrived."""
    runtime.memset(block.ptr, value, size)
    runtime.deviceSynchronize()
    pipe.send((runtime.ipcGetMemHandle(block.ptr), size, value))
    return pipe.recv(), bool((read(block.ptr, size) == value + 1).all())


def main():
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    other = spawn.Process(target=importer, args=(there,))
    other.start()
    there.close()
    pool = cupy.cuda.MemoryPool()
    for title, allocate in (("pool", pool.malloc), ("plain", memory._malloc)):
        held = []
        for value, size in enumerate(SIZES * 2):
            held.append(allocate(size))
            print(title, size, *share(here, held[-1], size, 2 * value))
            if value % 3 == 2:
                held.pop(0)
        held.clear()
    here.send(None)
    other.join()
    print("ended", other.exitcode)


if __name__ == "__main__":
    main()
