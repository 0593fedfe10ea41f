#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether Cistern sees what Python's frameworks hand over: libraries.cc for PyTorch, Triton and CuPy.

Usage: launches.py FRAMEWORK order|idle|busy

The modes and their output are those of libraries.cc, and tests/gpu/parts.py reads them alike. Each operation
copies an array. Exit status 77 where the framework is not installed.
"""

import ctypes
import sys

COUNT = 1024
SLOW_CYCLES = 20_000_000  # some ten milliseconds
ROUNDS = 20


def triton_kernel():
    """Triton looks for names of a kernel among those of its module."""
    global tl
    import triton
    from triton import language as tl

    @triton.jit
    def copy_block(source, target, count: tl.constexpr):
        at = tl.arange(0, count)
        tl.store(target + at, tl.load(source + at))

    return copy_block


class Torch:
    """Two streams, and two arrays on the device."""

    def __init__(self):
        import torch
        self.torch = torch
        self.working, self.copying = torch.cuda.Stream(), torch.cuda.Stream()
        self.source, self.target = (torch.zeros(COUNT, device="cuda") for _ in range(2))
        self.ones = torch.ones(COUNT, device="cuda")
        self.unit = torch.eye(32, device="cuda")

    def operations(self):
        torch, square = self.torch, lambda array: array.view(32, 32)
        return {"copy": lambda: self.target.copy_(self.source),
                "add": lambda: torch.add(self.source, 0, out=self.target),
                "mm": lambda: torch.mm(square(self.source), self.unit, out=square(self.target))}

    def synchronize(self):
        self.torch.cuda.synchronize()

    def clear(self):
        self.source.zero_()
        self.target.zero_()

    def write_slowly(self):
        with self.torch.cuda.stream(self.working):
            self.torch.cuda._sleep(SLOW_CYCLES)
            self.source.copy_(self.ones)

    def copy(self, operation):
        with self.torch.cuda.stream(self.copying):
            operation()

    def arrived(self):
        return bool((self.target == 1).all().item())


class Triton(Torch):
    def __init__(self):
        self.kernel = triton_kernel()
        super().__init__()

    def operations(self):
        return {"copy_block": lambda: self.kernel[(1,)](self.source, self.target, count=COUNT)}


class Cupy:
    def __init__(self):
        import cupy
        self.cupy = cupy
        self.working, self.copying = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        self.source, self.target = (cupy.zeros(COUNT, dtype=cupy.float32) for _ in range(2))
        self.slow = cupy.RawKernel(
            'extern "C" __global__ void slow(float* words, int count, long long cycles) {'
            "  for (long long start = clock64(); clock64() - start < cycles;) {}"
            "  for (int i = 0; i < count; ++i) words[i] = 1; }", "slow")

    def operations(self):
        return {"copyto": lambda: self.cupy.copyto(self.target, self.source),
                "add": lambda: self.cupy.add(self.source, self.cupy.float32(0), out=self.target)}

    def synchronize(self):
        self.cupy.cuda.Device().synchronize()

    def clear(self):
        self.source.fill(0)
        self.target.fill(0)

    def write_slowly(self):
        with self.working:
            self.slow((1,), (1,), (self.source, self.cupy.int32(COUNT), self.cupy.int64(SLOW_CYCLES)))

    def copy(self, operation):
        with self.copying:
            operation()

    def arrived(self):
        return bool((self.target == 1).all())


FRAMEWORKS = {"torch": Torch, "triton": Triton, "cupy": Cupy}


class Memory:
    """Blocks of the driver's own API, in the context that the framework made current."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")

    def block(self):
        address = ctypes.c_uint64()
        assert self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000)) == 0
        return address

    def free(self, address):
        assert self.driver.cuMemFree_v2(address) == 0


def order(work, memory):
    for name, operation in work.operations().items():
        there = 0
        for _ in range(ROUNDS):
            work.clear()
            work.synchronize()
            block = memory.block()
            work.write_slowly()
            memory.free(block)
            work.copy(operation)
            work.synchronize()
            there += work.arrived()
        print(f"{name}: the input was there in {there} of {ROUNDS} rounds")


def frees(work, memory, busy):
    operations = work.operations()
    for operation in operations.values():
        for _ in range(ROUNDS):
            block = memory.block()
            work.synchronize()
            if busy:
                work.copy(operation)
            memory.free(block)
    work.synchronize()
    print("operations:", len(operations) * ROUNDS)


def main(framework, mode):
    try:
        work = FRAMEWORKS[framework]()
    except ImportError as missing:
        print(missing)
        return 77
    memory = Memory()
    for operation in work.operations().values():  # compiles, and takes memory
        work.copy(operation)
    work.write_slowly()
    work.synchronize()
    if mode == "order":
        order(work, memory)
    else:
        frees(work, memory, mode == "busy")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
