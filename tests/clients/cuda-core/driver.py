# SPDX-License-Identifier: Apache-2.0
"""Plain driver calls of cuda.bindings: what cuMemAlloc, cuMemAllocHost and the questions about them answer."""

import random

from cuda.bindings import driver as cuda

ATTRIBUTE = cuda.CUpointer_attribute
ASKED = [ATTRIBUTE.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ATTRIBUTE.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
         ATTRIBUTE.CU_POINTER_ATTRIBUTE_IS_MANAGED, ATTRIBUTE.CU_POINTER_ATTRIBUTE_MAPPED,
         ATTRIBUTE.CU_POINTER_ATTRIBUTE_RANGE_SIZE]


def done(answer):
    status, *values = answer
    if status != cuda.CUresult.CUDA_SUCCESS:
        raise RuntimeError(status.name)
    return values[0] if len(values) == 1 else values


def attempt(title, answer):
    status, *values = answer
    print(title, status.name, *[type(value).__name__ for value in values if status == cuda.CUresult.CUDA_SUCCESS])


def question(size):
    address = done(cuda.cuMemAlloc(size))
    base, told = done(cuda.cuMemGetAddressRange(int(address) + size - 1))
    answers = [int(value) for value in (done(cuda.cuPointerGetAttribute(name, address)) for name in ASKED)]
    print("asked", size, int(base) == int(address), told == size, answers)
    attempt("free of an inside", cuda.cuMemFree(int(address) + 512))
    done(cuda.cuMemFree(address))
    attempt("free again", cuda.cuMemFree(address))


def churn(seed):
    """What was written is still there when a block is freed, whatever was freed and handed out meanwhile."""
    drawn = random.Random(seed)
    held, wrong = [], 0
    for step in range(1200):
        if len(held) < 40 or drawn.random() < 0.5:
            size = max(1, int(2 ** drawn.uniform(0, 23.5)))
            address, value = done(cuda.cuMemAlloc(size)), step % 256
            done(cuda.cuMemsetD8(address, value, size))
            held.append((address, size, value))
        else:
            address, size, value = held.pop(drawn.randrange(len(held)))
            back = bytearray(size)
            done(cuda.cuMemcpyDtoH(back, address, size))
            wrong += back != bytes([value]) * size
            done(cuda.cuMemFree(address))
    for address, _, _ in held:
        done(cuda.cuMemFree(address))
    print("churn", seed, wrong)


def until_it_is_out(size):
    held = []
    while True:
        status, address = cuda.cuMemAlloc(size)
        if status != cuda.CUresult.CUDA_SUCCESS:
            break
        held.append(address)
    free, total = done(cuda.cuMemGetInfo())
    print("out", size, len(held), status.name, total >> 20, free >> 20)
    for address in held:
        done(cuda.cuMemFree(address))
    free, total = done(cuda.cuMemGetInfo())
    print("all given back", total == free)


def pinned():
    for size in (1, 4096, 3 << 20):
        address = done(cuda.cuMemHostAlloc(size, cuda.CU_MEMHOSTALLOC_DEVICEMAP))
        print("pinned", size, done(cuda.cuMemHostGetFlags(address)),
              int(done(cuda.cuMemHostGetDevicePointer(address, 0))) == int(address))
        done(cuda.cuMemFreeHost(address))
    attempt("pinned nothing", cuda.cuMemHostAlloc(0, 0))


def main():
    done(cuda.cuInit(0))
    device = done(cuda.cuDeviceGet(0))
    context = done(cuda.cuDevicePrimaryCtxRetain(device))
    done(cuda.cuCtxSetCurrent(context))
    for size in (1, 512, 4097, (1 << 20) - 1, 1 << 20, 3_000_001, 33 << 20):
        question(size)
    for seed in (1, 2):
        churn(seed)
    until_it_is_out(256 << 20)
    pinned()
    attempt("nothing", cuda.cuMemAlloc(0))
    attempt("too much", cuda.cuMemAlloc(1 << 45))
    attempt("free of nothing", cuda.cuMemFree(0))
    attempt("free of the unknown", cuda.cuMemFree(0x1234500))
    done(cuda.cuCtxSetCurrent(cuda.CUcontext(0)))
    attempt("without a context", cuda.cuMemAlloc(64))
    done(cuda.cuDevicePrimaryCtxRelease(device))


if __name__ == "__main__":
    main()
