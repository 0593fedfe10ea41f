// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/work.h"

namespace cistern::shim {

constinit std::atomic<uint64_t> contexts_seen_empty{0};

namespace {

constinit std::atomic<uint64_t> times_expected{0};

}  // namespace

// Store the state before the number: a thread that finds the number ends the state.
void SeenEmpty::expect(alloc::Ticket ticket) {
  if ((state_.load(std::memory_order_seq_cst) & kBy) != 0) return;
  state_.store(expecting(ticket), std::memory_order_seq_cst);
  contexts_seen_empty.store(times_expected.fetch_add(1) + 1, std::memory_order_seq_cst);
  submissions_are_not_quiet();
}

void SeenEmpty::confirm(alloc::Ticket ticket, By by) {
  uint64_t state = expecting(ticket);
  state_.compare_exchange_strong(state, state | static_cast<uint64_t>(by),
                                 std::memory_order_seq_cst);
}

}  // namespace cistern::shim
