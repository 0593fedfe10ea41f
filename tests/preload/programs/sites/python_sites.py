# SPDX-License-Identifier: Apache-2.0
"""Which requests are pooled can be said by the Python functions and files that make them."""

import ctypes
import threading

cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status != 0:
        print(f"{name}: {status}")


def take(mib):
    block = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(mib * MIB))
    call("cuMemFree_v2", block)
    call("cuCtxSynchronize")


class Layer:
    def forward(self, mib):
        take(mib)


def below(depth, mib):
    if depth == 0:
        take(mib)
    else:
        below(depth - 1, mib)


def generated():
    take(6)
    yield 6


def in_thread():
    call("cuCtxSetCurrent", context)
    Layer().forward(4)


context = ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
for _ in range(3):
    Layer().forward(4)
    take(5)
    list(generated())
below(500, 5)
for _ in range(2):
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
print("done")
