// SPDX-License-Identifier: Apache-2.0
// A device that places memory as the CUDA driver does: large requests take whole 2 MiB pages, small
// ones are packed at 512-byte spacing, lowest address first, into pages of their own. Finite, so
// that running out can be compared. Work is always finished.
#pragma once

#include <map>

#include "allocator/context_pool.h"

namespace cistern::test {

class PackedDriver final : public alloc::MemorySource {
 public:
  explicit PackedDriver(uint64_t pages) : pages_left_(pages) {}

  int obtain(uint64_t bytes, uint64_t* address) override {
    return bytes < alloc::kWholeBytes ? obtain_small(bytes, address) : obtain_large(bytes, address);
  }

  int release_for_program(uint64_t address, const alloc::OrderedFree*) override {
    return release(address);
  }

  int release(uint64_t address) override {
    if (const auto large = large_.find(address); large != large_.end()) {
      pages_left_ += large->second;
      large_.erase(large);
      return alloc::kSuccess;
    }
    auto page = small_.upper_bound(address);
    if (page == small_.begin()) return 1;
    --page;
    if (page->second.erase(address) == 0) return 1;
    if (page->second.empty()) {
      small_.erase(page);
      ++pages_left_;
    }
    return alloc::kSuccess;
  }

  bool mark(alloc::Mark* out) override {
    *out = 0;
    return true;
  }
  alloc::MarkState query(alloc::Mark) override { return alloc::MarkState::passed; }
  void forget(alloc::Mark) override {}

 private:
  using Blocks = std::map<uint64_t, uint64_t>;  // start, rounded size

  int obtain_large(uint64_t bytes, uint64_t* address) {
    const uint64_t pages = (bytes + alloc::kDriverPage - 1) / alloc::kDriverPage;
    if (pages > pages_left_) return alloc::kOutOfMemory;
    pages_left_ -= pages;
    *address = next_;
    next_ += pages * alloc::kDriverPage;
    large_[*address] = pages;
    return alloc::kSuccess;
  }

  int obtain_small(uint64_t bytes, uint64_t* address) {
    const uint64_t size = (bytes + 511) / 512 * 512;
    for (auto& [start, blocks] : small_) {
      uint64_t at = start;
      for (const auto& [block, length] : blocks) {
        if (block - at >= size) break;
        at = block + length;
      }
      if (start + alloc::kDriverPage - at < size) continue;
      blocks[at] = size;
      *address = at;
      return alloc::kSuccess;
    }
    if (pages_left_ == 0) return alloc::kOutOfMemory;
    --pages_left_;
    small_[next_][next_] = size;
    *address = next_;
    next_ += alloc::kDriverPage;
    return alloc::kSuccess;
  }

  uint64_t pages_left_;
  uint64_t next_ = uint64_t{1} << 32;
  std::map<uint64_t, uint64_t> large_;  // start, pages
  std::map<uint64_t, Blocks> small_;    // page
};

}  // namespace cistern::test
