# SPDX-License-Identifier: Apache-2.0
# client: {"long": true, "limit_s": 900, "variants": ["cache", "expandable"], "env": {"TORCH_CPP_LOG_LEVEL": "ERROR"}}
"""Eight processes in a ring: each makes tensors, hands them to the next, and checks, changes and drops
what it gets, many rounds long; one is killed in the end, and the others go on without it."""

import os
import signal

import torch
import torch.multiprocessing

from common import SIZES, memset, pattern, same

PROCESSES, ROUNDS = 8, 12


def member(number, inbox, outbox, results):
    right = 0
    for round_ in range(ROUNDS):
        seed = round_ * PROCESSES + number
        size = SIZES[seed % len(SIZES)]
        tensor = pattern(size, seed).cuda()
        torch.cuda.synchronize()
        outbox.put((seed, tensor))
        seed, other = inbox.get(timeout=120)
        right += same(other, pattern(SIZES[seed % len(SIZES)], seed))
        memset(other, 1)
        torch.cuda.synchronize()
        outbox.put("seen")
        inbox.get(timeout=120)
        del tensor, other
        torch.cuda.ipc_collect()
    results.put((number, right))
    inbox.get(timeout=120)  # the word to end


def main():
    context = torch.multiprocessing.get_context("spawn")
    queues = [context.Queue() for _ in range(PROCESSES)]
    results = context.Queue()
    members = [context.Process(target=member, args=(i, queues[i], queues[(i + 1) % PROCESSES], results))
               for i in range(PROCESSES)]
    for process in members:
        process.start()
    print(sorted(results.get(timeout=600) for _ in members))
    os.kill(members[3].pid, signal.SIGKILL)
    for i, queue in enumerate(queues):
        if i != 3:
            queue.put(None)
    for process in members:
        process.join()
    print([process.exitcode for process in members])


if __name__ == "__main__":
    main()
