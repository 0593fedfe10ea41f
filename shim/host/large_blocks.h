// SPDX-License-Identifier: Apache-2.0
// Large blocks, if no setting of host memory is set: the program then must not use more memory than
// with the C library.
//
//   below 8 MiB    the last freed 32 MiB are kept for requests of the same size class, or of one
//                  that is more than half as large. Without that, jemalloc would merge and split
//                  their pages each time. If a kept block serves a smaller request, its rest still
//                  counts as kept. Kept memory counts as idle in the pool, so that both together
//                  stay within the pool's bound
//   from 8 MiB on  each block is a mapping of its own (HostPolicy::own_bytes). It is unmapped when
//                  the block is freed; its pages move when the block grows. If there is no memory
//                  for the whole size class, only the requested bytes are mapped
//                  (HostPool::take_backed)
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

inline constexpr size_t kOwnMappingBytes = size_t{8} << 20;

// Switches this on. To be called during jemalloc's first call.
void serve_large_blocks();

// What a call of malloc's family passes to the extent hook on the same thread. One word, because
// the object has few bytes of thread-local storage: the address of memory held for the hook
// (jemalloc.cc), or, with the lowest bit set, the requested bytes rounded up to pages.
extern constinit thread_local uintptr_t left_for_hook;

// The requested bytes of the extent that the hook is asked for; 0 if they are not known.
inline size_t asked_of_extent() {
  return (left_for_hook & 1) != 0 ? static_cast<size_t>(left_for_hook - 1) : 0;
}

// The usable bytes of a block whose size is `bytes` according to jemalloc.
size_t usable_of(const void* block, size_t bytes);

// Whether the usable bytes are fewer than jemalloc says.
bool backed_in_part(const void* block);

// realloc() of a block of 8 MiB or more to a larger size. Null with `*done`: there is no memory.
// Null without it: jemalloc must do the work.
void* grow_large_block(void* block, size_t bytes, bool* done);

// Returns kept blocks to the pool; `for_good`: and keeps none from now on.
void give_back_kept_blocks(bool for_good);

// Around a fork: take and release the lock of kept blocks; in the child, reset it.
void lock_kept_blocks();
void unlock_kept_blocks();
void reset_kept_blocks_lock();

}  // namespace cistern::shim
