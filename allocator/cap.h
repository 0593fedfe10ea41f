// SPDX-License-Identifier: Apache-2.0
// The most this process may take from one device (FLAGS_gpu_memory_limit_mb, CISTERN_GPU_LIMIT).
// One object per device, shared by its contexts. Lock-free, any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace cistern::alloc {

class Cap {
 public:
  void set_limit(uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }  // 0: none
  uint64_t charged() const { return charged_.load(std::memory_order_relaxed); }

  // False when `bytes` more would pass the limit; nothing is charged then.
  bool charge(uint64_t bytes) {
    uint64_t before = charged();
    do {
      const bool fits = bytes <= limit() && before <= limit() - bytes;
      if (limit() != 0 && !fits) return false;
    } while (!charged_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
    return true;
  }

  void refund(uint64_t bytes) { charged_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> limit_{0};
  std::atomic<uint64_t> charged_{0};
};

}  // namespace cistern::alloc
