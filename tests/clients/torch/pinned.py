# SPDX-License-Identifier: Apache-2.0
# client: {"variants": ["cache"]}
"""Page-locked memory: PyTorch's pool of it, and memory of the program that is registered."""

import gc

import torch

from common import SIZES, pattern, same

COUNTS = ("num_host_alloc", "num_host_free", "allocations.current", "allocated_bytes.current",
          "active_bytes.current")


def tell(when):
    stats = torch.cuda.host_memory_stats()
    print(when, [stats.get(key) for key in COUNTS])


def main():
    tell("start")
    for round_ in range(3):
        blocks = [pattern(size, seed).pin_memory() for seed, size in enumerate(SIZES)]
        print("pinned", all(block.is_pinned() for block in blocks), pattern(10, 1).is_pinned())
        there = [block.to("cuda", non_blocking=True) for block in blocks]
        torch.cuda.synchronize()
        print("same", all(same(one, block) for one, block in zip(there, blocks)))
        tell(f"round {round_}")
        del blocks, there
        gc.collect()
    tell("freed")
    plain = torch.empty(1 << 20, dtype=torch.uint8)
    runtime = torch.cuda.cudart()
    print("register", runtime.cudaHostRegister(plain.data_ptr(), plain.numel(), 0), plain.is_pinned())
    print("twice", runtime.cudaHostRegister(plain.data_ptr(), plain.numel(), 0))
    print("unregister", runtime.cudaHostUnregister(plain.data_ptr()), plain.is_pinned())


main()
