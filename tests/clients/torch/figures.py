# SPDX-License-Identifier: Apache-2.0
"""What PyTorch tells of its memory. The figures of its own allocator are the same whoever serves it; of
the device's free memory only the bounds are, as pools may hold some for live blocks' neighbours. With all
given back it is the same again: what Cistern keeps idle is told as free."""

import gc

import torch

from common import MB, SIZES, empty

KEYS = ("allocation.all.current", "allocation.all.allocated", "segment.all.current", "segment.all.peak",
        "allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current",
        "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")


def tell(when):
    torch.cuda.synchronize()  # what is freed in the order of a stream counts until it gets there
    stats = torch.cuda.memory_stats()
    print(when, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved(),
          [stats.get(key, 0) for key in KEYS])


def free_is_sensible(live):
    free, total = torch.cuda.mem_get_info()
    return live <= total - free <= live + 128 * MB


def main():
    free_before, total = torch.cuda.mem_get_info()
    print("total", total, torch.cuda.get_device_properties(0).total_memory)
    tell("start")
    blocks = [empty(size) for size in SIZES]
    tell("all")
    print("sensible", free_is_sensible(sum(SIZES)))
    del blocks[::2]
    gc.collect()
    tell("half")
    blocks += [empty(size + 100) for size in SIZES]
    tell("more")
    torch.cuda.reset_peak_memory_stats()
    for round_ in range(50):
        blocks[round_ % len(blocks)] = empty(SIZES[round_ % len(SIZES)] + 4096 * round_)
        torch.cuda.synchronize()
    tell("rounds")
    del blocks
    gc.collect()
    tell("none")
    torch.cuda.empty_cache()
    tell("emptied")
    free_after, _ = torch.cuda.mem_get_info()
    print("free again", free_before - free_after <= 2 * MB)


main()
