// SPDX-License-Identifier: Apache-2.0
// The most this process may take from one device (FLAGS_gpu_memory_limit_mb, CISTERN_GPU_LIMIT),
// and what its memory is charged. One object per device, shared by its contexts. Any thread.
//
// An allocation is charged with the memory that it would take on a device of the cap's size: whole
// pages of 2 MiB (source.h). So a program that allocates until it reaches the cap gets as far as on
// that device. What a query reports as free it can really allocate.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/records.h"
#include "allocator/base/source.h"
#include "allocator/base/threads.h"

namespace cistern::alloc {

// Lock-free.
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

// Charges for blocks that the driver places side by side, as in its memory pools, so that a page
// holds parts of several blocks. A page is charged when the first block that touches it comes, and
// refunded when the last one goes. Only the address of a block shows which pages it touches,
// because a page that is full for one request may have room for a smaller one. One lock, and no
// driver call under it.
class SharedPages {
 public:
  // Charges the pages that this block is the first to touch. This replaces `before`, which the
  // caller has already charged for the block. False, and nothing changes, if that passes the limit.
  bool enter(Cap& cap, Cap::Weight before, uint64_t address, uint64_t bytes) {
    const Span span(address, bytes);
    const LockGuard guard(mutex_);
    uint64_t first_touched = span.whole;
    for (int i = 0; i < span.parts; ++i) first_touched += pages_.find(span.part[i]) == nullptr;
    if (!cap.exchange(before, Cap::pages(first_touched))) return false;
    for (int i = 0; i < span.parts; ++i) add_block(span.part[i]);
    return true;
  }

  // The block that entered with this address and size is gone: refunds the pages that no other
  // block touches.
  void leave(Cap& cap, uint64_t address, uint64_t bytes) {
    const Span span(address, bytes);
    const LockGuard guard(mutex_);
    uint64_t last_touched = span.whole;
    for (int i = 0; i < span.parts; ++i) last_touched += is_last_block(span.part[i]);
    cap.refund(Cap::pages(last_touched));
  }

  void reset_after_fork() {
    mutex_.reset();
    arena_.reset_after_fork();
  }

 private:
  struct Page {
    Page* next;
    uint64_t key;  // its number
    uint64_t blocks;
  };

  // The pages that a block touches: those it covers completely, which no other block shares, and at
  // most one at each end that it covers in part.
  struct Span {
    Span(uint64_t address, uint64_t bytes) {
      const uint64_t end = address + bytes;
      const uint64_t first = address / kDriverPage, last = (end - 1) / kDriverPage;
      const bool from_start = address % kDriverPage == 0, to_end = end % kDriverPage == 0;
      if (!from_start || (first == last && !to_end)) part[parts++] = first;
      if (!to_end && first != last) part[parts++] = last;
      whole = last - first + 1 - static_cast<uint64_t>(parts);
    }

    uint64_t whole;
    uint64_t part[2];
    int parts = 0;
  };

  // A page without a record, because the system had no memory for one, is charged to each block.
  void add_block(uint64_t number) {
    if (Page* page = pages_.find(number)) return void(++page->blocks);
    Page* page = arena_.take();
    if (page == nullptr) return;
    *page = {nullptr, number, 1};
    pages_.insert(page);
  }

  bool is_last_block(uint64_t number) {
    Page* page = pages_.find(number);
    if (page == nullptr) return true;
    if (--page->blocks != 0) return false;
    pages_.remove(page);
    arena_.give_back(page);
    return true;
  }

  Mutex mutex_;
  KeyedTable<Page, 12> pages_;
  Arena<Page, size_t{64} << 10> arena_;
};

}  // namespace cistern::alloc
