# SPDX-License-Identifier: Apache-2.0
"""Tensors of 1 KB to 40 MB go between processes by torch.multiprocessing, both ways and on; the ones that
a child changed are changed here. What PyTorch cannot share under an allocator is refused alike."""

import gc
import multiprocessing.reduction
import os

import torch
import torch.multiprocessing

from common import SIZES, error_of, memset, pattern, same


def child(inbox, outbox):
    """Tells whether what comes is what was sent, sets it to 7, and sends something of its own."""
    for seed, size in enumerate(SIZES):
        tensor = inbox.get(timeout=60)
        right = same(tensor, pattern(size, seed))
        memset(tensor, 7)
        torch.cuda.synchronize()
        own = pattern(size, 100 + seed).cuda()
        outbox.put((right, own))
        inbox.get(timeout=60)  # it is open there
        del tensor, own
        gc.collect()
        torch.cuda.ipc_collect()
    outbox.put("done")


def many_at_once(context):
    """Parts of one block, and the same block twice."""
    there = pattern(3 << 20, 1).cuda()
    pieces = [there[i << 18: (i + 1) << 18] for i in range(12)] + [there]
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=sum_up, args=(inbox, outbox))
    process.start()
    inbox.put(pieces)
    print("parts", outbox.get(timeout=120) == [int(piece.cpu().long().sum()) for piece in pieces])
    process.join()
    print("exit code", process.exitcode)


def sum_up(inbox, outbox):
    pieces = inbox.get(timeout=60)
    sums = [int(piece.cpu().long().sum()) for piece in pieces]
    del pieces
    outbox.put(sums)


def can_share():
    return torch.cuda.get_allocator_backend() == "native" and "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ


def main():
    if not can_share():
        tensor = pattern(2 << 20, 1).cuda()
        print("sharing", error_of(lambda: multiprocessing.reduction.ForkingPickler.dumps(tensor)))
        return
    context = torch.multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(inbox, outbox))
    process.start()
    for seed, size in enumerate(SIZES):
        tensor = pattern(size, seed).cuda()
        torch.cuda.synchronize()
        inbox.put(tensor)
        right, other = outbox.get(timeout=120)
        print(size, right, same(tensor, torch.full((size,), 7, dtype=torch.uint8)),
              same(other, pattern(size, 100 + seed)))
        inbox.put("open")
        del tensor, other
    print(outbox.get(timeout=60))
    process.join()
    print("exit code", process.exitcode)
    many_at_once(context)
    gc.collect()
    torch.cuda.ipc_collect()
    torch.cuda.synchronize()
    print("allocated", torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
