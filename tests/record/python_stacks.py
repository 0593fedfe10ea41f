# SPDX-License-Identifier: Apache-2.0
"""Allocates from many kinds of Python stacks, and prints each as Python itself sees it: one JSON line an allocation,
the bytes and then (function, file, line) of each frame, the innermost first. Run by python_frames_test.py."""

import ctypes
import functools
import json
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
KIB = 1 << 10
taken = 0
told = []


def frames():
    """Of the caller's caller; those of threads end where they begin."""
    found, frame = [], sys._getframe(2)
    while frame is not None:
        name = getattr(frame.f_code, "co_qualname", "")
        found.append((name if name.isascii() else "?", frame.f_code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return found


def take():
    global taken
    taken += 1
    block = ctypes.c_uint64()
    note(), cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(taken * KIB))
    return block


def note():
    told.append((taken * KIB, frames()))


class Layer:
    def forward(self):
        return take()

    def __call__(self, *_):  # called by the interpreter from C
        return self.forward()


def below(depth):
    return take() if depth == 0 else below(depth - 1)


def generated():
    yield take()
    yield take()


async def awaited():
    return take()


async def waits():
    return await awaited()


def größe():
    return take()


def lineless():
    return take()


def in_thread():
    cuda.cuCtxSetCurrent(context)
    Layer().forward()
    sorted([2, 1], key=lambda _: take().value)


def run(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        pass


context = ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
take()
for _ in range(30):  # an interpreter may rewrite what runs often
    Layer().forward()
    Layer()()
list(map(Layer(), (1, 2)))  # from C, twice between Python frames
sorted([3, 2, 1], key=lambda _: [take().value for _ in (1, 2)])
functools.reduce(lambda _, __: Layer()(), (1, 2, 3))
list(generated())
run(waits())
größe()
if hasattr(lineless.__code__, "co_linetable"):  # not before 3.10
    lineless.__code__ = lineless.__code__.replace(co_linetable=b"")
lineless()
below(40)
eval("take()")
exec(compile("def made():\n\n  take()\nmade()", "made.py", "exec"))
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
for entry in told:
    print(json.dumps(entry))
