// SPDX-License-Identifier: Apache-2.0
// Sources report here which chunks they obtain and release, for recordings and the log of reuse.
// Any thread.
#pragma once

#include <cstdint>

#include "allocator/base/source.h"
#include "allocator/record/event.h"
#include "shim/cuda_api.h"
#include "shim/record/watched.h"

namespace cistern::shim {

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
