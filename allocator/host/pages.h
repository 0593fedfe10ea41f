// SPDX-License-Identifier: Apache-2.0
// What the pool of host memory asks of the system, in whole pages. Any thread; errno stays as it
// is; nothing is a cancellation point.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::alloc::host::pages {

// Address space that may not be touched, and is not charged; nullptr when there is none.
void* reserve(uint64_t bytes, uint64_t alignment);
// It may be touched from now on. False: the system promises no more memory.
bool commit(uintptr_t start, uint64_t bytes);

// Locks what may be touched, each page when it first is, or (`eager`) all at once.
bool lock(uintptr_t start, uint64_t bytes, bool eager);

// The pages go back to the system, and read as zero from then on. `locked`: they are, and
// stay so.
bool discard(uintptr_t start, uint64_t bytes, bool locked);

}  // namespace cistern::alloc::host::pages
