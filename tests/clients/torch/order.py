# SPDX-License-Identifier: Apache-2.0
"""Streams and events as PyTorch shows them."""

import torch

from common import empty, error_of, memset, pattern, same


def events():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    block = empty(4 << 20)
    memset(block, 3)
    end.record()
    end.synchronize()
    print("events", start.query(), end.query(), start.elapsed_time(end) >= 0)
    plain = torch.cuda.Event()
    plain.record()
    plain.wait()
    plain.synchronize()
    print("untimed", error_of(lambda: plain.elapsed_time(end)))


def streams():
    least, greatest = torch.cuda.Stream.priority_range()
    high = torch.cuda.Stream(priority=greatest)
    print("priorities", least, greatest, high.priority, high.query())
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    host = pattern(1 << 20, 1)
    with torch.cuda.stream(one):
        block = host.cuda(non_blocking=True)
        done = one.record_event()
    other.wait_event(done)
    with torch.cuda.stream(other):
        copy = block.clone()
    other.synchronize()
    print("waited", same(copy, host), torch.cuda.current_stream() == torch.cuda.default_stream())
    external = torch.cuda.ExternalStream(one.cuda_stream)
    print("external", external.query(), external.cuda_stream == one.cuda_stream)


def callbacks_and_kernels():
    """What needs a kernel is refused alike; nothing else is lost by it."""
    block = pattern(1000, 5).cuda()
    print("kernel", error_of(lambda: block + 1))
    print("after it", same(block, pattern(1000, 5)))


events()
streams()
callbacks_and_kernels()
torch.cuda.synchronize()
