# SPDX-License-Identifier: Apache-2.0
# client: {"variants": ["no cache"]}
"""CUDA's own handles of tensors that PyTorch did not pool, each a cudaMalloc of its own: another process
opens them, sees what is in them and writes there, and has some open when their tensors are gone."""

import ctypes
import gc
import multiprocessing

import torch

from common import SIZES, empty, memset, pattern, runtime, same

HANDLE_BYTES = 64


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * HANDLE_BYTES)]


def handle_of(tensor):
    handle = Handle()
    code = runtime.cudaIpcGetMemHandle(ctypes.byref(handle), ctypes.c_void_p(tensor.data_ptr()))
    return code, ctypes.string_at(ctypes.addressof(handle), HANDLE_BYTES)


def open_handle(handle):
    there = Handle()
    ctypes.memmove(ctypes.addressof(there), handle, HANDLE_BYTES)
    address = ctypes.c_void_p()
    code = runtime.cudaIpcOpenMemHandle(ctypes.byref(address), there, 1)
    return code, address.value


def read(address, size):
    host = torch.empty(size, dtype=torch.uint8)
    code = runtime.cudaMemcpy(ctypes.c_void_p(host.data_ptr()), ctypes.c_void_p(address), ctypes.c_size_t(size), 2)
    return code, host


def child(inbox, outbox):
    torch.cuda.init()
    torch.cuda.synchronize()
    opened = []
    for handle, size, seed in iter(inbox.get, None):
        code, address = open_handle(handle)
        copied, host = read(address, size) if code == 0 else (None, None)
        right = copied == 0 and torch.equal(host, pattern(size, seed))
        set_ = runtime.cudaMemset(ctypes.c_void_p(address), 7, ctypes.c_size_t(size)) if code == 0 else None
        torch.cuda.synchronize()
        opened.append(address)
        outbox.put((code, right, set_))
    outbox.put([runtime.cudaIpcCloseMemHandle(ctypes.c_void_p(address)) for address in opened])


def main():
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    kept = []
    for seed, size in enumerate(SIZES):
        tensor = pattern(size, seed).cuda()
        torch.cuda.synchronize()
        code, handle = handle_of(tensor)
        inbox.put((handle, size, seed))
        print(size, code, outbox.get(timeout=60), same(tensor, torch.full((size,), 7, dtype=torch.uint8)))
        kept.append(tensor)
    del kept[::2], tensor
    gc.collect()
    more = [empty(size) for size in SIZES]
    for block in more:
        memset(block, 1)
    print("later", all(same(block, torch.full((size,), 7, dtype=torch.uint8))
                       for block, size in zip(kept, SIZES[1::2])))
    inbox.put(None)
    print("closed", outbox.get(timeout=60))
    process.join()
    print("exit code", process.exitcode)
    print("of host memory", handle_of(torch.empty(100).pin_memory())[0])


if __name__ == "__main__":
    main()
