# SPDX-License-Identifier: Apache-2.0
# client: {"devices": 2}
"""Two devices: which is current, what is on which, copies between them."""

import torch

from common import SIZES, empty, memset, pattern, same


def main():
    print(torch.cuda.device_count(), torch.cuda.current_device(), torch.cuda.can_device_access_peer(0, 1))
    for seed, size in enumerate(SIZES):
        host = pattern(size, seed)
        first = host.to("cuda:0")
        second = first.to("cuda:1")
        back = second.to("cuda:0", non_blocking=True)
        print(size, second.device, same(second, host), same(back, host))
    with torch.cuda.device(1):
        here = empty(3 << 20)
        memset(here, 9)
        print(here.device, torch.cuda.current_device(), same(here[:10], torch.full((10,), 9, dtype=torch.uint8)))
    print([torch.cuda.memory_allocated(device) for device in range(2)])
    del here, second, back, first
    for device in range(2):
        torch.cuda.synchronize(device)
    print([torch.cuda.memory_allocated(device) for device in range(2)])
    torch.cuda.empty_cache()
    print([torch.cuda.memory_reserved(device) for device in range(2)])


main()
