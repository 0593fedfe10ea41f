// SPDX-License-Identifier: Apache-2.0
// An allocator of device memory, as the loop beside it (loop.cc) drives it: one is linked with each
// program. Memory is used on the legacy stream. tests/bench/side_by_side builds and runs them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peer {

// Once, with a current context.
void open();
// Null where there is no memory.
void* allocate(size_t bytes);
void release(void* block, size_t bytes);
// The most device memory it held, where the driver's trace does not tell; else 0.
uint64_t held_peak();

}  // namespace peer
