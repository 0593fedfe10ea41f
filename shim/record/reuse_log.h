// SPDX-License-Identifier: Apache-2.0
// The log of reuse (CISTERN_PRINT_LOG): a line for each new block in memory of a former block, and
// a summary at exit. Sources report their chunks here, for this log and for recordings. Any thread;
// one lock.
#pragma once

#include <cstdint>

#include "allocator/base/source.h"
#include "allocator/record/event.h"
#include "shim/cuda_api.h"
#include "shim/record/recording.h"

namespace cistern::shim {

// The context ended with all its chunks.
void log_context_ended(uint64_t context);

// A pool answered a request: event.type is allocated.
void log_allocated(const alloc::Event& event);
// The block is about to be freed; `event` is its allocation. From now on its memory may be
// another's.
void log_freed(const alloc::Event& event);
// It was not freed.
void log_not_freed(const alloc::Event& event);

// `lost_bytes`: lost to rounding.
void log_reuse_summary(uint64_t lost_bytes);

struct ChunkPlace {
  alloc::Memory memory;
  CUdevice device;
  CUcontext context;
};

void record_obtained(const ChunkPlace& place, uint64_t address, uint64_t bytes);
inline void note_obtained(const ChunkPlace& place, uint64_t address, uint64_t bytes) {
  if (watching()) [[unlikely]]
    record_obtained(place, address, bytes);
}

// Around the driver call: from its beginning on the address may be somebody else's.
class ChunkRelease {
 public:
  ChunkRelease(alloc::Memory memory, uint64_t address);
  // `code` is what the source answers.
  int ended(int code) const;

 private:
  alloc::Memory memory_;
  uint64_t address_;
  uint64_t asked_ns_ = 0;
};

}  // namespace cistern::shim
