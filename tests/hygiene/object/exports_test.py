#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import sys

import elf

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import hook_tables  # noqa: E402

HOST_EXPORTS = elf.ROOT / "shim/host/exports.def"
# Whatever a program may get a block from, or give one to: if one went to the C library, a block would cross over.
FAMILY = set("""malloc free calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc
    malloc_usable_size free_sized free_aligned_sized cfree""".split())
FAMILY |= set(re.findall(r"^CISTERN_\w+\((\w+),", (elf.ROOT / "shim/host/new_delete.def").read_text(encoding="utf-8"), re.MULTILINE))


def exports(obj):
    """Exactly the hooks, dlsym, dlvsym, NVTX's door, cistern_* and, by one object, the malloc family are exported, without versions."""
    defined = elf.dynamic_symbols(obj, "--defined-only")
    names = {name for name, _ in defined}
    expected = set(hook_tables.hooks()) | {"dlsym", "dlvsym", "InitializeInjectionNvtx2"}
    if elf.serves_malloc(obj):
        expected |= set(re.findall(r"^(\w+);$", HOST_EXPORTS.read_text(encoding="utf-8"), re.MULTILINE))
        yield from (f"{name} is of the malloc family and not exported" for name in sorted(FAMILY - names))
    for name, version in defined:
        if version:
            yield f"{name} is exported with version {version}"
    for name in sorted(names - expected):
        if not name.startswith("cistern_"):
            yield f"{name} is exported and no hook"
    for name in sorted(expected - names):
        yield f"{name} is a hook and not exported"


elf.check(exports)
