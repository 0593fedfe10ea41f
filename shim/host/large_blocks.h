// SPDX-License-Identifier: Apache-2.0
// Large blocks, where nothing of the host's settings is set: the program's memory is to be as with
// the C library, or less.
//
//   to 8 MiB       the last freed 32 MiB are kept for requests of the same size class, or of one
//                  that is more than half as large: jemalloc would merge and split their pages each
//                  time. What a block has beyond such a request counts as kept. What is kept counts
//                  as idle in the pool, so that both together stay within its bound
//   from 8 MiB on  each is a mapping of its own (HostPolicy::own_bytes), which goes when it is
//                  freed, and whose pages move when it grows. Where there is no room for its size
//                  class, only what was asked for is there (HostPool::take_backed)
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

inline constexpr size_t kOwnMappingBytes = size_t{8} << 20;

// From now on; during jemalloc's first call.
void serve_large_blocks();

// What a call in this thread leaves for the hook that takes extents, in one word, since the object
// has few bytes for each thread: the address of memory held for it (jemalloc.cc), or, with the
// lowest bit set, how much the program asked for, in whole pages.
extern constinit thread_local uintptr_t left_for_hook;

// 0: it is not known.
inline size_t asked_of_extent() {
  return (left_for_hook & 1) != 0 ? static_cast<size_t>(left_for_hook - 1) : 0;
}

// How much of a block may be used, which jemalloc says is `bytes`.
size_t usable_of(const void* block, size_t bytes);

// Whether it is less than that.
bool backed_in_part(const void* block);

// realloc() to more than such a block has. Null and `*done`: there is no memory. Null and not: it
// is left to jemalloc.
void* grow_large_block(void* block, size_t bytes, bool* done);

// What is kept goes back to the pool, for good if `for_good`.
void give_back_kept_blocks(bool for_good);

// The lock: around a fork.
void lock_kept_blocks();
void unlock_kept_blocks();
void reset_kept_blocks_lock();

}  // namespace cistern::shim
