#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes point one way only: shim -> allocator -> config, and CUDA's headers stay in shim.

Includes that are relative to a parent folder are findings too, since they would hide a layer.
"""

import pathlib
import re
import sys

FORBIDDEN = {
    "config": r"allocator/|shim/|tests/|cuda|nv|libunwind|jemalloc",
    "allocator": r"shim/|tests/|cuda|nv|libunwind|jemalloc",
    "shim": r"tests/|cuda_runtime|driver_types|libunwind-",
}
# Parts of std that need libstdc++ at run time, or allocate.
NOT_INSIDE = re.compile(
    r"^(iostream|sstream|fstream|string|vector|map|set|unordered_\w+|memory_resource|functional|"
    r"thread|mutex|condition_variable|future|regex|locale|stdexcept|filesystem|iomanip|cuchar)$"
)


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match[1]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    findings, seen = [], 0
    for layer, forbidden in FORBIDDEN.items():
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in (".h", ".cc", ".S", ".def"):
                continue
            seen += 1
            in_tool = path.is_relative_to(root / "config" / "tool")
            for number, name in includes(path):
                where = f"{path.relative_to(root)}:{number}"
                if re.match(forbidden, name):
                    findings.append(f"{where}: {layer} includes {name}")
                if ".." in name:
                    findings.append(f"{where}: {name} is relative to a parent")
                if NOT_INSIDE.match(name) and not in_tool:
                    findings.append(f"{where}: <{name}> needs libstdc++ or allocates")
    if seen == 0:
        findings.append(f"no sources under {root}")
    print("\n".join(findings))
    print(f"{seen} files of {', '.join(FORBIDDEN)} read")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
