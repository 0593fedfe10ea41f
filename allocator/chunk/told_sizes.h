// SPDX-License-Identifier: Apache-2.0
// The sizes of exported blocks. Another process learns the size from the driver, which reports that
// of the chunk. A program that exports one block usually exports more of its size. So from then on
// a request of that size gets a chunk of exactly that size. Any thread, no lock; no size is ever
// forgotten.
#pragma once

#include <atomic>
#include <cstdint>

namespace cistern::alloc {

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

}  // namespace cistern::alloc
