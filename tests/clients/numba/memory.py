# SPDX-License-Identifier: Apache-2.0
"""Numba's arrays: device, pinned, mapped and managed; streams, what is out of memory, what is freed late."""

import gc

import numpy as np
from numba import cuda

SIZES = [1, 100, 4096, 70_000, 1 << 20, 3_000_000, 20_000_000]


def attempt(title, call):
    try:
        print(title, call())
    except Exception as error:  # whatever it is, it has to be the same with Cistern
        print(title, type(error).__name__, str(error).splitlines()[0])


def round_trips():
    drawn = np.random.default_rng(1)
    for size in SIZES:
        host = drawn.integers(0, 255, size, dtype=np.uint8)
        first = cuda.to_device(host)
        second = cuda.device_array_like(first)
        second.copy_to_device(first)
        part = second[size // 3:].copy_to_host() if size > 3 else host
        print("round trip", size, np.array_equal(second.copy_to_host(), host),
              np.array_equal(part, host[size // 3:] if size > 3 else host), first.nbytes)


def streams():
    stream = cuda.stream()
    host = cuda.pinned_array(1 << 20, dtype=np.uint8)
    back = cuda.pinned_array(1 << 20, dtype=np.uint8)
    for value in range(20):
        host[:] = value
        device = cuda.to_device(host, stream=stream)
        device.copy_to_host(back, stream=stream)
        stream.synchronize()
        if not np.all(back == value):
            print("stream", value, "differs")
    start, end = cuda.event(), cuda.event()
    start.record(stream)
    end.record(stream)
    end.synchronize()
    print("streams", start.elapsed_time(end) >= 0)


def kinds():
    mapped = cuda.mapped_array(1000, dtype=np.int32)
    mapped[:] = 3
    managed = cuda.managed_array(1000, dtype=np.int32)
    managed[:] = 4
    print("kinds", mapped.sum(), managed.sum(), mapped.device_ctypes_pointer.value != 0)


def churn():
    """Numba frees late, many at once; what is held meanwhile stays as it was."""
    drawn = np.random.default_rng(2)
    held = []
    wrong = 0
    for step in range(600):
        host = np.full(int(2 ** drawn.uniform(0, 22)), step % 250, dtype=np.uint8)
        held.append((cuda.to_device(host), host))
        if len(held) > 30:
            device, host = held.pop(int(drawn.integers(len(held))))
            wrong += not np.array_equal(device.copy_to_host(), host)
    with cuda.defer_cleanup():
        held.clear()
        gc.collect()
    print("churn", wrong)


def out_of_memory():
    held = []
    try:
        while True:
            held.append(cuda.device_array(256 << 20, dtype=np.uint8))
    except cuda.cudadrv.driver.CudaAPIError as error:
        print("out", len(held), str(error).splitlines()[0])
    free, total = cuda.current_context().get_memory_info()
    print("left", free >> 20, total >> 20)
    held.clear()
    gc.collect()
    cuda.current_context().deallocations.clear()
    print("works again", cuda.device_array(1 << 30, dtype=np.uint8).nbytes)


def main():
    round_trips()
    streams()
    kinds()
    churn()
    out_of_memory()
    attempt("nothing", lambda: cuda.device_array(0, dtype=np.uint8).nbytes)
    attempt("too much", lambda: cuda.device_array(1 << 42, dtype=np.uint8))


if __name__ == "__main__":
    main()
