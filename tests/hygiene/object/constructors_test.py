#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import re

import elf

# What crtbeginS.o of every compiler brings along.
FROM_TOOLCHAIN = {"frame_dummy", "__do_global_dtors_aux"}


def function_pointers(obj, section):
    """Names of the functions a section of pointers holds, from its relocations."""
    sections = elf.output("readelf", "-SW", obj)
    row = re.search(rf"\] {re.escape(section)}\s+\w+\s+(\w+) \w+ (\w+)", sections)
    if not row:
        return []
    start, size = int(row[1], 16), int(row[2], 16)
    names = {}
    for line in elf.output("nm", obj).splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[1] in "tT":
            names.setdefault(int(parts[0], 16), parts[2])
    found = []
    for line in elf.output("readelf", "-rW", obj).splitlines():
        parts = line.split()
        if len(parts) < 4 or not parts[2].startswith("R_") or not start <= int(parts[0], 16) < start + size:
            continue
        # A function of the object itself stands there by address, a visible one by name.
        own = parts[2].endswith("_RELATIVE")
        found.append(names.get(int(parts[3], 16), parts[3]) if own else parts[4])
    return found


def constructors(obj):
    """At most one constructor (settings) and one function at exit (the report); no static object.

    on_exit() is for the background thread alone, which must end before the driver is shut down. jemalloc has a
    constructor of its own, and prints its statistics at exit where its configuration says so.
    """
    others = FROM_TOOLCHAIN | ({"jemalloc_constructor"} if elf.serves_malloc(obj) else set())
    init = [name for name in function_pointers(obj, ".init_array") if name not in others]
    fini = [name for name in function_pointers(obj, ".fini_array") if name not in FROM_TOOLCHAIN]
    if not function_pointers(obj, ".init_array"):
        yield "no .init_array entry was found: this rule would hold for any object"
    if any("_sub_I_" in name for name in init):
        yield "a static object has a constructor, which is joined with that of the settings and takes its arguments away"
    if len(init) > 1:
        yield f"constructors: {', '.join(init)}"
    if len(fini) > 1:
        yield f"run at exit: {', '.join(fini)}"
    of_jemalloc = {"__cxa_atexit"} if elf.serves_malloc(obj) else set()
    for name, _ in elf.dynamic_symbols(obj, "--undefined-only"):
        if name in {"__cxa_atexit", "__cxa_thread_atexit_impl", "__cxa_guard_acquire"} - of_jemalloc:
            yield f"{name} is imported: a static object has a constructor or destructor"


elf.check(constructors)
