// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/block_table.h"

#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {

// Without memory for more buckets the chains just get longer.
void BlockTable::grow() {
  const auto segment = static_cast<int>(std::bit_width(size_ / kFirst));
  if (segment == kSegments) return;
  if (segments_[segment] == nullptr) {
    const size_t bytes = (kFirst << segment >> 1) * sizeof *segments_[segment];
    segments_[segment] = static_cast<ChunkBlock**>(os::map(bytes, 4096));
    if (segments_[segment] == nullptr) return;
  }
  // The new bucket takes its share of the one that had to stand in for it.
  const uint32_t added = size_++;
  if (added > mask_) mask_ = 2 * mask_ + 1;
  ChunkBlock** link = &bucket(added & mask_ >> 1);
  ChunkBlock** moved = &bucket(added);
  while (ChunkBlock* block = *link) {
    if ((hash(block->map(), block->start) & mask_) != added) {
      link = &block->same_bucket;
      continue;
    }
    *link = block->same_bucket;
    block->same_bucket = *moved;
    *moved = block;
  }
}

void BlockTable::clear() {
  memset(first_, 0, sizeof first_);
  for (int i = 1; i < kSegments && (kFirst << i >> 1) < size_; ++i) {
    memset(segments_[i], 0, (kFirst << i >> 1) * sizeof *segments_[i]);
  }
  size_ = kFirst;
  mask_ = kFirst - 1;
  count_ = 0;
}

}  // namespace cistern::alloc
