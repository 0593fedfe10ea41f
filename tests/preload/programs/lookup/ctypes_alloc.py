# SPDX-License-Identifier: Apache-2.0
"""The driver from Python, by ctypes: dlopen and dlsym through libffi, as in many tools."""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status != 0:
        print(f"{name}: {status}")
        sys.exit(1)


def round_trip(size, value):
    block = ctypes.c_uint64()
    back = (ctypes.c_ubyte * size)()
    call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
    call("cuMemsetD8_v2", block, ctypes.c_ubyte(value), ctypes.c_size_t(size))
    call("cuMemcpyDtoH_v2", back, block, ctypes.c_size_t(size))
    call("cuMemFree_v2", block)
    return sum(back)


context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
total = sum(round_trip(1000 + 10 * i, i) for i in range(100))
print("sum", total)

free_bytes, total_bytes = ctypes.c_size_t(), ctypes.c_size_t()
call("cuMemGetInfo_v2", ctypes.byref(free_bytes), ctypes.byref(total_bytes))
print("free <= total", free_bytes.value <= total_bytes.value)
print("free of an unknown address", cuda.cuMemFree_v2(ctypes.c_uint64(0x12345)))
