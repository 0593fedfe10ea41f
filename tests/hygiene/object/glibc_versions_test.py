#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import re

import elf

CEILING = (2, 34)


def glibc_versions(obj):
    """No GLIBC_PRIVATE symbol, and none newer than glibc 2.34."""
    for name, version in elf.dynamic_symbols(obj, "--undefined-only"):
        if version == "GLIBC_PRIVATE":
            yield f"{name} is private to glibc"
        number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version or "")
        if number and (int(number[1]), int(number[2])) > CEILING:
            yield f"{name} wants {version}"


elf.check(glibc_versions)
