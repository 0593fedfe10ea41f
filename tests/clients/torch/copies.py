# SPDX-License-Identifier: Apache-2.0
# client: {"env": {"SIMCUDA_LATENCY": "cuMemcpyDtoDAsync=300us,cuMemsetD8Async=200us,cuMemcpyHtoDAsync=100us"}}
"""Bytes go to the device, on it and back, on the default stream and on others."""

import torch

from common import SIZES, empty, memset, pattern, same


def round_trips():
    for seed, size in enumerate(SIZES):
        host = pattern(size, seed)
        there = host.cuda()
        copy = empty(size)
        copy.copy_(there)
        part = there[size // 3: size // 2].clone()
        memset(there, seed)
        print(size, same(copy, host), same(part, host[size // 3: size // 2]),
              same(there, torch.full_like(host, seed)))


def on_streams():
    streams = [torch.cuda.Stream() for _ in range(4)]
    hosts = [pattern(2 << 20, 100 + i).pin_memory() for i in range(4)]
    devices, backs = [None] * 4, [torch.empty_like(host).pin_memory() for host in hosts]
    for _ in range(10):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                devices[i] = hosts[i].to("cuda", non_blocking=True)
                scratch = devices[i].clone()
                backs[i].copy_(scratch, non_blocking=True)
                del scratch
        for stream in streams:
            stream.synchronize()
        if not all(torch.equal(host, back) for host, back in zip(hosts, backs)):
            return False
    return True


def recorded_on_another_stream():
    """The block of a tensor that another stream still reads is not handed out before."""
    side = torch.cuda.Stream()
    host = pattern(8 << 20, 7)
    back = torch.empty_like(host).pin_memory()
    for _ in range(20):
        there = host.cuda()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            back.copy_(there, non_blocking=True)
            there.record_stream(side)
        del there
        memset(empty(8 << 20), 0xEE)
        side.synchronize()
        if not torch.equal(back, host):
            return False
    return True


round_trips()
print("streams", on_streams())
print("recorded", recorded_on_another_stream())
