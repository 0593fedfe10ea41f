#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import elf

MALLOC_FAMILY = {
    "malloc", "calloc", "realloc", "reallocarray", "free", "posix_memalign", "aligned_alloc",
    "memalign", "valloc", "strdup", "strndup", "asprintf", "vasprintf", "getline", "fopen",
}
# What malloc asks of the system; by name it would reach another library's wrapper (shim/host/system.cc).
ASKED_STRAIGHT = {"clock_gettime", "mmap", "munmap", "madvise", "mprotect", "mremap", "sysconf", "getrlimit", "sysinfo",
                  "sched_getaffinity", "sched_yield", "secure_getenv", "readlink", "syscall"}
# Weak references to the clock of a test (tests/sim/include/simcuda/clock.h) and to its system (fixtures/refuses.cc).
OF_TESTS = {"cistern_clock_now_ns", "cistern_clock_wait", "cistern_system_call"}
# Weak references that crtbeginS.o of every compiler brings along.
FROM_TOOLCHAIN = {"__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable"}


def undefined(obj):
    """Everything imported is glibc's or libgcc's: no libstdc++, no CUDA, no allocation."""
    weak = elf.weak_symbols(obj)
    for name, version in elf.dynamic_symbols(obj, "--undefined-only"):
        if name in FROM_TOOLCHAIN or name in OF_TESTS & weak:
            continue
        if not (version or "").startswith(("GLIBC_", "GCC_")):
            yield f"{name} ({version or 'no version'}) comes from elsewhere"
        if name in MALLOC_FAMILY:
            yield f"{name} would call the program's malloc"
        if name in ASKED_STRAIGHT and elf.serves_malloc(obj):
            yield f"{name} may be a wrapper that allocates"


elf.check(undefined)
