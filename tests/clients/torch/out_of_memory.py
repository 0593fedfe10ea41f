# SPDX-License-Identifier: Apache-2.0
# client: {"memory_mb": 2048, "cap_mb": 1024}
"""Memory runs out, and is there again once something is freed. How much fits is the device's size without
its pages' last one: blocks of 64 MiB are whole pages for everybody."""

import gc

import torch

from common import MB, empty, error_of, pattern, same


def fill():
    blocks = []
    try:
        while True:
            blocks.append(empty(64 * MB))
    except torch.OutOfMemoryError as error:
        print("out of memory", type(error).__name__, isinstance(error, RuntimeError))
    except RuntimeError as error:
        print("out of memory", type(error).__name__, str(error).partition("\n")[0])
    return blocks


def main():
    total = torch.cuda.mem_get_info()[1]
    print("too large", error_of(lambda: empty(1 << 40)), error_of(lambda: empty(total)))
    host = pattern(64 * MB, 1)
    for round_ in range(3):
        blocks = fill()
        print("blocks", len(blocks), torch.cuda.memory_allocated(), torch.cuda.memory_stats().get("num_ooms", 0))
        blocks[0].copy_(host)
        del blocks[1:4]
        gc.collect()
        again = [empty(64 * MB) for _ in range(3)]
        again[2].copy_(blocks[0])
        print("again", round_, same(again[2], host), error_of(lambda: empty(64 * MB)))
        del again, blocks
        gc.collect()
    # Other sizes than what is kept: PyTorch and Cistern give it back before they say no.
    print("one large", same(empty(total - 192 * MB)[:100].copy_(host[:100]), host[:100]))
    torch.cuda.empty_cache()
    small = [empty(900 * 1024) for _ in range(300)]
    print("small", len(small))
    del small
    torch.cuda.set_per_process_memory_fraction(0.25)
    print("a fraction", error_of(lambda: empty(total // 2)))


main()
