#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import re

import elf

LIMIT_BYTES = 64
OF_JEMALLOC_BYTES = 2632


def thread_locals(obj):
    """At most 64 bytes of thread-local storage beside jemalloc's, reached by initial-exec only."""
    limit = LIMIT_BYTES + (OF_JEMALLOC_BYTES if elf.serves_malloc(obj) else 0)
    segment = re.search(r"^\s*TLS\s+\w+\s+\w+\s+\w+\s+\w+\s+(\w+)", elf.output("readelf", "-lW", obj),
                        re.MULTILINE)
    if segment and int(segment[1], 16) > limit:
        yield f"{int(segment[1], 16)} bytes of thread-local storage"
    for kind in re.findall(r"R_\w*(?:DTPMOD|DTPOFF|TLSDESC)\w*", elf.output("readelf", "-rW", obj)):
        yield f"{kind}: not initial-exec"
    if "__tls_get_addr" in dict(elf.dynamic_symbols(obj, "--undefined-only")):
        yield "__tls_get_addr is imported"


elf.check(thread_locals)
