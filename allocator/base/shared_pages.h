// SPDX-License-Identifier: Apache-2.0
// Charges for blocks that the driver places side by side, so that a page holds parts of several
// blocks. A page is charged when the first block that touches it comes, and refunded when the last
// one goes. Only the address of a block shows which pages it touches, because a page that is full
// for one request may have room for a smaller one. Any thread; one lock, and no driver call under
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/base/arena.h"
#include "allocator/base/cap.h"
#include "allocator/base/keyed_table.h"
#include "allocator/base/mutex.h"

namespace cistern::alloc {

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
