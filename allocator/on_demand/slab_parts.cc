// SPDX-License-Identifier: Apache-2.0
#include "allocator/on_demand/slab_parts.h"

namespace cistern::alloc {

void* SlabParts::take(uint32_t bytes) {
  LockGuard guard(mutex_);
  Link*& free = free_of(bytes);
  if (free != nullptr) {
    Link* part = free;
    free = part->next;
    return part;
  }
  // The end of a segment that is too short stays untouched, and so takes no memory.
  if (left_ < bytes) {
    void* segment = os::map(kSegmentBytes, 4096);
    if (segment == nullptr) return nullptr;
    next_ = static_cast<char*>(segment);
    left_ = kSegmentBytes;
  }
  void* part = next_;
  next_ += bytes;
  left_ -= bytes;
  return part;
}

void SlabParts::give_back(void* part, uint32_t bytes) {
  LockGuard guard(mutex_);
  push(free_of(bytes), part);
}

void SlabParts::give_back(Block** parts, size_t count, size_t stride, uint32_t bytes) {
  LockGuard guard(mutex_);
  Link*& free = free_of(bytes);
  for (size_t i = count; i-- > 0;) push(free, parts[i * stride]);
}

}  // namespace cistern::alloc
