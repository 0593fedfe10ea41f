// SPDX-License-Identifier: Apache-2.0
// The shared state of all pools that the chunk layer and every strategy use. It is a part of Shared
// (allocator/shared.h). Constant-initialised and, until the first block, untouched. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/base/counted_in.h"
#include "allocator/base/deadlines.h"
#include "allocator/base/left_units.h"
#include "allocator/base/movers.h"
#include "allocator/chunk/index.h"
#include "allocator/reclaim/idle_release.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

// The sizes of exported blocks. Another process learns the size from the driver, which reports that
// of the chunk. A program that exports one block usually exports more of its size. So from then on
// a request of that size gets a chunk of exactly that size. Any thread, no lock; no size is ever
// forgotten.
class ToldSizes {
 public:
  static constexpr int kMost = 32;

  void note(uint64_t bytes) {
    for (auto& size : sizes_) {
      uint64_t known = 0;
      if (size.compare_exchange_strong(known, bytes) || known == bytes) return;
    }
  }

  // With kMost sizes noted, any size may have been told.
  bool has(uint64_t bytes) const {
    for (const auto& size : sizes_) {
      const uint64_t known = size.load(std::memory_order_relaxed);
      if (known == bytes) return true;
      if (known == 0) [[likely]]
        return false;
    }
    return true;
  }

 private:
  std::atomic<uint64_t> sizes_[kMost] = {};  // 0: free, and so are those behind it
};

struct SharedChunks {
  Index index;
  Reclaim reclaim;
  IdleRelease idle;  // written before the first pool is made
  Arena<Chunk> chunks;
  LeftUnits left_units;

  ToldSizes told_sizes;

  // Threads that ask the driver for a chunk, or carry it to their pool: what it will serve is not
  // found yet.
  std::atomic<int> threads_obtaining{0};
  // Threads whose request met a shortage.
  std::atomic<int> threads_short_of_memory{0};
  // Why a free does more than free: one for each thread that is short of memory, and one for each
  // pool whose garbage a free may have to flush.
  std::atomic<int> free_extra_work{0};
  // Threads that took free memory out of a pool, to release it, to fill it or to move it elsewhere.
  Movers movers;
  // Threads that add up what is free: idle memory stays where it is until they have finished.
  std::atomic<int> threads_counting{0};

  // Waits for those that move free memory, but not for ever: the driver makes them wait for the
  // device, whose work may not end before the caller goes on.
  void await_moving(uint64_t most_ns = Deadlines::kRelease) { movers.await(most_ns); }

  void reset_after_fork() {
    index.reset_after_fork();
    chunks.reset_after_fork();
    left_units.reset_after_fork();
    reclaim.reset_after_fork();
  }
};

}  // namespace cistern::alloc
