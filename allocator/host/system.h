// SPDX-License-Identifier: Apache-2.0
// What the host memory pool asks of the system: how much memory there is for this process, and
// whole pages. Any thread; errno stays as it is; nothing allocates or is a cancellation point.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::alloc::host {

// The machine's physical memory, or the lowest limit of the process's control groups (version 2, or
// the memory controller of version 1) and of those above them, whichever is lower. In bytes; 0 if
// the system does not say.
uint64_t usable_memory();

// The same from given files, for tests: `groups` is the text of /proc/self/cgroup, `root` the place
// where control groups are mounted.
uint64_t group_limit(const char* groups, const char* root);

namespace pages {

// Address space that may not be touched, and is not charged; nullptr when there is none. `near`:
// where it is wanted, if that is free; 0: anywhere.
void* reserve(uint64_t bytes, uint64_t alignment, uintptr_t near = 0);
// It may be touched from now on. False: the system promises no more memory.
bool commit(uintptr_t start, uint64_t bytes);

// Locks what may be touched, each page when it first is, or (`eager`) all at once.
bool lock(uintptr_t start, uint64_t bytes, bool eager);

// The mapping at `from`, as far as it is one, moves to `to` and grows to `to_bytes`, in place of
// what is mapped there; nothing is copied. kLost: the system refused, and took `to` away before it
// did.
enum class Moved { kYes, kNo, kLost };
Moved move(uintptr_t from, uint64_t from_bytes, uintptr_t to, uint64_t to_bytes);

// Maps new pages where a mapping was, unless somebody else has done so.
bool map_again(uintptr_t start, uint64_t bytes);

// Copies, and gives back what was copied as it goes.
void copy_and_discard(uintptr_t from, uintptr_t to, uint64_t bytes);

// The pages go back to the system, and read as zero from then on. `locked`: they are, and
// stay so.
bool discard(uintptr_t start, uint64_t bytes, bool locked);

}  // namespace pages

}  // namespace cistern::alloc::host
