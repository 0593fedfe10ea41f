# SPDX-License-Identifier: Apache-2.0
# client: {"variants": ["cache", "no cache"]}
"""The allocations of a recorded training run, each a tensor: its first bytes are checked at its end."""

import csv
import pathlib

import torch

from common import empty

TRACE = pathlib.Path(__file__).resolve().parents[2] / "data/torch-transformer-train.events.csv"


def main():
    live, wrong, peak = {}, 0, 0
    with open(TRACE, encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(line for line in file if not line.startswith("#"))):
            if row["op"] == "alloc":
                block = empty(int(row["size"]))
                mark = torch.tensor(list((number % 251).to_bytes(1, "little") * 8), dtype=torch.uint8)[:block.numel()]
                block[:mark.numel()].copy_(mark)
                live[row["id"]] = block, mark
                peak = max(peak, torch.cuda.memory_allocated())
            else:
                block, mark = live.pop(row["id"])
                wrong += not torch.equal(block[:mark.numel()].cpu(), mark)
                del block
    print("wrong", wrong, "left", len(live), "peak", peak, torch.cuda.memory_stats().get("num_ooms", 0))


main()
