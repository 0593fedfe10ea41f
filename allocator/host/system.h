// SPDX-License-Identifier: Apache-2.0
// What the host memory pool asks of the system: how much memory there is for this process, and
// whole pages. Any thread; errno stays as it is; nothing allocates or is a cancellation point.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::alloc::host {

// The machine's physical memory or the lowest memory limit of the process's control groups,
// whichever is lower. Looks at version 2 and at the memory controller of version 1, including
// parent groups. In bytes; 0 if the system does not say.
uint64_t usable_memory();

// The lowest limit of control groups, in bytes; UINT64_MAX if there is none. `groups`: the text of
// /proc/self/cgroup. `root`: where control groups are mounted. Apart for tests.
uint64_t group_limit(const char* groups, const char* root);

namespace pages {

// Reserves address space, which must not be touched yet and is not charged; nullptr if there is
// none. `near`: the preferred address; 0: anywhere.
void* reserve(uint64_t bytes, uint64_t alignment, uintptr_t near = 0);
// Makes reserved memory usable. False if the system has no more memory to promise.
bool commit(uintptr_t start, uint64_t bytes);

// Locks usable pages in memory: each when it is first touched, or all at once if `eager`. False if
// the system refuses.
bool lock(uintptr_t start, uint64_t bytes, bool eager);

// Moves the mapping at `from` to `to`, where it replaces what is mapped and grows to `to_bytes`;
// nothing is copied. kNo: nothing changed, for example because `from` is not a single mapping.
// kLost: it failed, and `to` is no longer mapped.
enum class Moved { kYes, kNo, kLost };
Moved move(uintptr_t from, uint64_t from_bytes, uintptr_t to, uint64_t to_bytes);

// Maps new pages where a mapping was. False if another thread has mapped something there.
bool map_again(uintptr_t start, uint64_t bytes);

// Copies, and returns the copied pages of `from` to the system piece by piece.
void copy_and_discard(uintptr_t from, uintptr_t to, uint64_t bytes);

// Returns the pages to the system; they read as zero from then on. `locked`: they are locked in
// memory, and stay so. False if the system refuses.
bool discard(uintptr_t start, uint64_t bytes, bool locked);

}  // namespace pages

}  // namespace cistern::alloc::host
