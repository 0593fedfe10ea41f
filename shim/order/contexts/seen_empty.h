// SPDX-License-Identifier: Apache-2.0
// Whether a context was seen *empty*, with all its work done, and nothing was submitted since: a
// free of its memory then has nothing to wait for (pooled/free_wait.h). One for each context.
//
// Two things show that a context is empty: a synchronisation of it, and a free of the driver's own.
// Call expect() before that driver call and confirm() after it. A submission in between makes
// confirm() fail. Where work may be unseen (Reclaim::frozen()) nothing is confirmed.
//
// A submission ends the state of every context (order/submissions.h). To find the one context would
// cost each submission a query, while a wait for a context that is empty after all is short. Any
// thread.
#pragma once

#include <atomic>

#include "allocator/reclaim/reclaim.h"

namespace cistern::shim {

class SeenEmpty {
 public:
  // What showed it. A synchronisation was given a ticket that the context has passed; a free of the
  // driver's own waits for as much as the program's would have, and says nothing about tickets.
  enum class By : uint8_t { kSynchronisation = 1, kDriverFree = 2 };

  // Whether the context is empty. If so, *latest covers all its work: the ticket of the
  // synchronisation, else Reclaim::kNow.
  bool now(alloc::Ticket* latest) const {
    const uint64_t state = state_.load(std::memory_order_acquire);
    const uint64_t by = state & kBy;
    if (by == 0) return false;
    *latest =
        by == static_cast<uint64_t>(By::kSynchronisation) ? ticket_in(state) : alloc::Reclaim::kNow;
    return true;
  }

  // `ticket` was closed; the driver call follows. It succeeded: what was submitted before
  // expect() is done.
  void expect(alloc::Ticket ticket);
  void confirm(alloc::Ticket ticket, By by);

  // Whether it was empty until now.
  bool end() { return (state_.exchange(kBusy, std::memory_order_seq_cst) & kBy) != 0; }

 private:
  static constexpr uint64_t kBy = 3, kBusy = 0;
  static uint64_t expecting(alloc::Ticket ticket) { return (ticket + 1) << 2; }
  static alloc::Ticket ticket_in(uint64_t state) { return (state >> 2) - 1; }

  std::atomic<uint64_t> state_{kBusy};
};

// Not 0 while a context may be empty, or is expected to be; another number each time. A submission
// that finds one ends the state of all contexts, then clears the number, unless it has changed
// (order/submissions.h).
extern constinit std::atomic<uint64_t> contexts_seen_empty;

}  // namespace cistern::shim
