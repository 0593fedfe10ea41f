#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import re

import elf


def segments(obj):
    """Relocations read-only after binding at load, no executable stack, no text relocation."""
    headers = elf.output("readelf", "-lW", obj)
    dynamic = elf.output("readelf", "-dW", obj)
    if "GNU_RELRO" not in headers:
        yield "no RELRO segment"
    if "BIND_NOW" not in dynamic and not re.search(r"FLAGS_1.*\bNOW\b", dynamic):
        yield "not bound at load"
    if "TEXTREL" in dynamic:
        yield "text relocations"
    stack = re.search(r"GNU_STACK.*?\s([RWE ]{3})\s+0x", headers)
    if not stack or "E" in stack[1]:
        yield "executable stack"
    if re.search(r"^\s*LOAD.*\sRWE\s", headers, re.MULTILINE):
        yield "a segment is writable and executable"
    if "RUNPATH" in dynamic or "RPATH" in dynamic:
        yield "has a run path"


elf.check(segments)
