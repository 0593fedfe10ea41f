# SPDX-License-Identifier: Apache-2.0
"""Blocks of 1 KB to 40 MB that another process opens by cuIpcGetMemHandle, reads, changes and closes."""

# client: {"limit_s": 60}

import ctypes
import multiprocessing

from cuda.bindings import driver as cuda

SIZES = [1000, 4096, 100_000, (1 << 20) - 512, 1 << 20, 4_000_000, 40_000_000]
HANDLE_BYTES = 64


def done(answer):
    status, *values = answer
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise RuntimeError(status.name)
    return values[0] if len(values) == 1 else values


def start():
    done(cuda.cuInit(0))
    done(cuda.cuCtxSetCurrent(done(cuda.cuDevicePrimaryCtxRetain(done(cuda.cuDeviceGet(0))))))


def importer(pipe):
    """Answers what it found in each block, and leaves another value there."""
    start()
    while (message := pipe.recv()) is not None:
        raw, size, value = message
        handle = cuda.CUipcMemHandle()
        ctypes.memmove(handle.getPtr(), raw, HANDLE_BYTES)
        status, address = cuda.cuIpcOpenMemHandle(handle, cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        if status != cuda.CUresult.CUDA_SUCCESS:
            pipe.send(status.name)
            continue
        found = bytearray(size)
        done(cuda.cuMemcpyDtoH(found, address, size))
        done(cuda.cuMemsetD8(address, value + 1, size))
        done(cuda.cuCtxSynchronize())
        done(cuda.cuIpcCloseMemHandle(address))
        pipe.send("read" if found == bytes([value]) * size else "read something else")


def main():
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    other = spawn.Process(target=importer, args=(there,))
    other.start()
    there.close()
    start()
    held = []
    for index, size in enumerate(SIZES * 2):
        address, value = done(cuda.cuMemAlloc(size)), 10 + 2 * index
        done(cuda.cuMemsetD8(address, value, size))
        done(cuda.cuCtxSynchronize())
        handle = done(cuda.cuIpcGetMemHandle(address))
        here.send((ctypes.string_at(handle.getPtr(), HANDLE_BYTES), size, value))
        answer, found = here.recv(), bytearray(size)
        done(cuda.cuMemcpyDtoH(found, address, size))
        print("shared", size, answer, found == bytes([value + 1]) * size)
        held.append(address)
        if index % 3 == 2:
            done(cuda.cuMemFree(held.pop(0)))
    for address in held:
        done(cuda.cuMemFree(address))
    here.send(None)
    other.join()
    print("ended", other.exitcode)


if __name__ == "__main__":
    main()
