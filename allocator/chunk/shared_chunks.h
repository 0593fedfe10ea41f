// SPDX-License-Identifier: Apache-2.0
// The shared state of all pools that the chunk layer and every strategy use. It is a part of Shared
// (allocator/shared.h). Constant-initialised and, until the first block, untouched. Any thread.
#pragma once

#include "allocator/base/arena.h"
#include "allocator/base/counted_in.h"
#include "allocator/base/left_units.h"
#include "allocator/base/movers.h"
#include "allocator/chunk/index.h"
#include "allocator/chunk/told_sizes.h"
#include "allocator/reclaim/idle_release.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

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
  void await_moving(uint64_t most_ns = 2'000'000'000) { movers.await(most_ns); }

  void reset_after_fork() {
    index.reset_after_fork();
    chunks.reset_after_fork();
    left_units.reset_after_fork();
    reclaim.reset_after_fork();
  }
};

}  // namespace cistern::alloc
