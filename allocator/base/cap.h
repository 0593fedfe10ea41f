// SPDX-License-Identifier: Apache-2.0
// The most this process may take from one device (FLAGS_gpu_memory_limit_mb, CISTERN_GPU_LIMIT).
// One object per device, shared by its contexts. Lock-free, any thread.
//
// An allocation is charged with the memory that it would take on a device of the cap's size: whole
// pages of 2 MiB (driver_rounding.h). So a program that allocates until it reaches the cap gets as
// far as on that device. What a query reports as free it can really allocate. The charge of blocks
// in the driver's memory pools depends on their place: shared_pages.h.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "allocator/base/driver_rounding.h"

namespace cistern::alloc {

class Cap {
 public:
  // What an allocation is charged: whole pages of its own, and granules in pages that allocations
  // share.
  class Weight {
   public:
    constexpr Weight() = default;  // nothing

   private:
    friend class Cap;
    constexpr explicit Weight(uint64_t packed) : packed_(packed) {}
    uint64_t packed_ = 0;  // pages in the upper half, granules in the lower
  };

  // The weight of one driver allocation. Those below 1 MiB share pages.
  static constexpr Weight alone(uint64_t bytes) {
    return bytes < kDriverSharesBelow ? Weight{up(bytes, kDriverGranule)}
                                      : pages(up(bytes, kDriverPage));
  }
  // The least number of pages that a block covers completely, at whatever address it lies.
  static constexpr Weight at_least(uint64_t bytes) {
    constexpr uint64_t kMostShared = kDriverPage - kDriverGranule;  // of the page it begins in
    return pages(bytes < kMostShared ? 0 : (bytes - kMostShared) / kDriverPage);
  }
  // The most pages that a block may touch, including the partly covered ones at its ends.
  static constexpr Weight at_most(uint64_t bytes) { return pages(up(bytes, kDriverPage) + 1); }
  static constexpr Weight pages(uint64_t count) {
    return Weight{std::min(count, kMostPages) << 32};
  }

  // Set it before anything is charged. 0: no limit, and nothing is charged.
  void set_limit(uint64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  uint64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  uint64_t charged() const { return bytes_of(state_.load(std::memory_order_relaxed)); }

  // How many bytes may still be taken, in whole pages. `idle`: charged bytes that the pools would
  // give up for a request.
  uint64_t available(uint64_t idle) const {
    const uint64_t taken = charged(), used = taken > idle ? taken - idle : 0;
    return limit() > used ? (limit() - used) / kDriverPage * kDriverPage : 0;
  }

  bool has_room(Weight weight) const {
    const uint64_t most = limit();
    return most == 0 || bytes_of(state_.load(std::memory_order_relaxed) + weight.packed_) <= most;
  }

  // Replaces one weight with another. False, and nothing changes, if that would raise the charge
  // above the limit.
  bool exchange(Weight from, Weight to) {
    const uint64_t most = limit();
    if (most == 0) return true;
    uint64_t before = state_.load(std::memory_order_relaxed), after;
    do {
      after = before - from.packed_ + to.packed_;
      if (bytes_of(after) > most && bytes_of(after) > bytes_of(before)) return false;
    } while (!state_.compare_exchange_weak(before, after, std::memory_order_relaxed));
    return true;
  }

  bool charge(Weight weight) { return exchange({}, weight); }
  void refund(Weight weight) { exchange(weight, {}); }
  bool charge(uint64_t bytes) { return charge(alone(bytes)); }
  void refund(uint64_t bytes) { refund(alone(bytes)); }

 private:
  // The sum of two such counts still fits into its half of the word. Far above any device.
  static constexpr uint64_t kMostPages = uint64_t{1} << 30;

  static constexpr uint64_t up(uint64_t bytes, uint64_t unit) {
    return bytes / unit + (bytes % unit != 0 ? 1 : 0);
  }
  static constexpr uint64_t bytes_of(uint64_t packed) {
    const uint64_t granules = packed & UINT32_MAX;
    return ((packed >> 32) + up(granules * kDriverGranule, kDriverPage)) * kDriverPage;
  }

  std::atomic<uint64_t> limit_{0};
  std::atomic<uint64_t> state_{0};
};

}  // namespace cistern::alloc
