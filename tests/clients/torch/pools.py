# SPDX-License-Identifier: Apache-2.0
"""Memory that PyTorch hands out without a tensor, pools of its own beside the default one, the record it
keeps of its allocations, and memory that is trimmed."""

import gc

import torch

from common import MB, empty, error_of, memset, pattern, same


def raw():
    address = torch.cuda.caching_allocator_alloc(3 * MB)
    print("raw", address % 512, torch.cuda.memory_allocated())
    torch.cuda.caching_allocator_delete(address)
    torch.cuda.synchronize()  # what is freed in the order of a stream counts until it gets there
    print("deleted", torch.cuda.memory_allocated())


def own_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        blocks = [pattern(2 * MB, seed).cuda() for seed in range(4)]
    outside = empty(2 * MB)
    memset(outside, 9)
    print("pool", all(same(block, pattern(2 * MB, seed)) for seed, block in enumerate(blocks)))
    del blocks, outside
    gc.collect()
    print("left", torch.cuda.memory_allocated())
    del pool
    gc.collect()
    torch.cuda.empty_cache()
    print("reserved", torch.cuda.memory_reserved())


def record():
    torch.cuda.memory._record_memory_history(max_entries=1000)
    blocks = [empty(size * MB) for size in (1, 5, 30)]
    del blocks[1]
    gc.collect()
    snapshot = torch.cuda.memory._snapshot()
    print("segments", sorted((segment["total_size"], segment["allocated_size"]) for segment in snapshot["segments"]))
    print("events", [(event["action"], event["size"]) for trace in snapshot["device_traces"] for event in trace])
    torch.cuda.memory._record_memory_history(enabled=None)


for work in (raw, own_pool, record):
    error = error_of(work)
    if error != "no error":
        print(work.__name__, error)
