# SPDX-License-Identifier: Apache-2.0
# client: {"env": {"SIMCUDA_LATENCY": "cuMemcpyDtoDAsync=300us,cuMemsetD8Async=200us,cuMemcpyHtoDAsync=100us"}}
"""Eight threads, each with a stream of its own, and blocks that one thread makes and another drops."""

import queue
import random
import threading

import torch

from common import SIZES, memset, pattern

HOSTS = [pattern(size, seed) for seed, size in enumerate(SIZES[:6])]
WRONG = []
handed_over = queue.Queue(maxsize=32)


def work(number):
    draw = random.Random(number)
    stream = torch.cuda.Stream()
    kept = []
    with torch.cuda.stream(stream):
        for _ in range(120):
            which = draw.randrange(len(HOSTS))
            kept.append((which, HOSTS[which].cuda()))
            if len(kept) > 6:
                which, block = kept.pop(draw.randrange(len(kept)))
                if not torch.equal(block.cpu(), HOSTS[which]):
                    WRONG.append(number)
                memset(block, 0)
            if draw.random() < 0.2 and kept:
                stream.synchronize()
                handed_over.put(kept.pop())
    stream.synchronize()
    handed_over.put(None)


def main():
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    ended = taken = 0
    while ended < len(threads):
        item = handed_over.get()
        if item is None:
            ended += 1
            continue
        which, block = item
        taken += 1
        if not torch.equal(block.cpu(), HOSTS[which]):
            WRONG.append("main")
    for thread in threads:
        thread.join()
    del item, block
    print("wrong", WRONG, "handed over", taken)
    torch.cuda.synchronize()
    print("allocated", torch.cuda.memory_allocated())


main()
