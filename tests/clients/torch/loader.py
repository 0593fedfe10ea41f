# SPDX-License-Identifier: Apache-2.0
# client: {"env": {"TORCH_CPP_LOG_LEVEL": "ERROR"}}
"""DataLoader with workers that are forked, after CUDA was used, and spawned; batches are pinned by its
thread and copied to the device."""

import os

import torch
from torch.utils.data import DataLoader, Dataset

from common import error_of, pattern


class Bytes(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return pattern(50_000, index)


class OnDevice(Bytes):
    """A forked worker must not use CUDA, and is told so; a spawned one may."""

    def __getitem__(self, index):
        return torch.tensor([len(error_of(lambda: pattern(10, 1).cuda())) > len("no error")])


class OfDevice(Bytes):
    """Tensors of the device, which the worker shares with the process that asked."""

    def __getitem__(self, index):
        return pattern(50_000, index).cuda()


def run(start):
    loader = DataLoader(Bytes(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=start)
    right = 0
    for epoch in range(2):
        for number, batch in enumerate(loader):
            there = batch.to("cuda", non_blocking=True)
            wanted = torch.stack([pattern(50_000, 8 * number + i) for i in range(8)])
            right += int(batch.is_pinned() and torch.equal(there.cpu(), wanted))
    print(start, right)


if __name__ == "__main__":
    print(pattern(10, 0).cuda().cpu())
    run("fork")
    run("spawn")
    if torch.cuda.get_allocator_backend() == "native" and "PYTORCH_NO_CUDA_MEMORY_CACHING" not in os.environ:
        shared = DataLoader(OfDevice(), batch_size=None, num_workers=2, multiprocessing_context="spawn")
        print("of the device", sum(torch.equal(item.cpu(), pattern(50_000, index))
                                   for index, item in enumerate(shared)))
    refused = DataLoader(OnDevice(), batch_size=64, num_workers=1, multiprocessing_context="fork")
    print("CUDA in a forked worker refused", next(iter(refused)).all())
