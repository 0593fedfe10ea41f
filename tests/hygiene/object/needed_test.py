#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import elf

ALLOWED = {
    "libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
}


def needed(obj):
    """Only libc, libm, libgcc_s and the loader are needed."""
    for name in elf.needed(obj):
        if name not in ALLOWED:
            yield f"needs {name}"


elf.check(needed)
