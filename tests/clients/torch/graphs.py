# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of copies and fills, with memory of a private pool. Where an allocator's calls may not be
made in a capture, that is refused alike and the process goes on."""

import gc

import torch

from common import MB, empty, error_of, memset, pattern, same


def copies():
    graph = torch.cuda.CUDAGraph()
    source = pattern(2 * MB, 1).cuda()
    target = empty(2 * MB)
    with torch.cuda.graph(graph):
        between = empty(2 * MB)
        between.copy_(source)
        target.copy_(between)
    for seed in range(2, 6):
        source.copy_(pattern(2 * MB, seed))
        graph.replay()
        if not same(target, pattern(2 * MB, seed)):
            return False
    return True


def shared_pool():
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    block = empty(1 * MB)
    with torch.cuda.graph(first):
        one = empty(1 * MB)
        memset(one, 1)
    with torch.cuda.graph(second, pool=first.pool()):
        block.copy_(one)
    first.replay()
    second.replay()
    return same(block, torch.ones(1 * MB, dtype=torch.uint8))


def tell(name, work):
    def once():
        print(name, work())
    error = error_of(once)
    if error != "no error":
        print(name, error)
    gc.collect()


def main():
    tell("copies", copies)
    tell("shared pool", shared_pool)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print("afterwards", same(pattern(5 * MB, 9).cuda(), pattern(5 * MB, 9)))


main()
