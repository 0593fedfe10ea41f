// SPDX-License-Identifier: Apache-2.0
// Memory that a slab takes beside its own record when it has more blocks: parts, and the maps of
// slabs with many blocks. A part has a power of two of bytes, and parts of all sizes are cut from
// the same segments, side by side: a slab with twenty blocks takes no page of its own. Parts given
// back serve others of their size; segments are never unmapped. Any thread; not on hot paths: a
// slab keeps what it took until it ends.
#pragma once

#include <bit>
#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/on_demand/slab_map.h"

namespace cistern::alloc {

struct Block;

class SlabParts {
 public:
  static constexpr uint32_t kLeastBytes = 64;  // a cache line
  static constexpr uint32_t kMostBytes = 16384;

  // `bytes`: a power of two between these. Its contents are anything; nullptr when the system has
  // no memory left.
  void* take(uint32_t bytes);
  void give_back(void* part, uint32_t bytes);
  // So many, every `stride`th of these.
  void give_back(Block** parts, size_t count, size_t stride, uint32_t bytes);

  Arena<SlabMap> maps;

  void reset_after_fork() {
    mutex_.reset();
    maps.reset_after_fork();
  }

 private:
  static constexpr size_t kSegmentBytes = size_t{1} << 20;
  struct Link {
    Link* next;
  };
  static void push(Link*& free, void* part) {
    auto* link = static_cast<Link*>(part);
    link->next = free;
    free = link;
  }
  static constexpr int kSizes = std::countr_zero(kMostBytes / kLeastBytes) + 1;
  Link*& free_of(uint32_t bytes) { return free_[std::countr_zero(bytes / kLeastBytes)]; }

  Mutex mutex_;
  Link* free_[kSizes] = {};
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace cistern::alloc
