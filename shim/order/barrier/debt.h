// SPDX-License-Identifier: Apache-2.0
// The part of a debt that one context keeps in its slot, and the functions with which the files
// below debts.h have debts paid. debts.h defines a debt. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ticket.h"
#include "shim/cuda_api.h"
#include "shim/order/barrier/unfinished.h"
#include "shim/process/free_counts.h"
#include "shim/process/thread.h"

namespace cistern::shim {

struct Debt {
  // *Open*: nothing was submitted since the free, so that further frees of this thread belong to
  // the same debt. 0: it is not.
  std::atomic<ThreadId> open_for{0};
  // The rest with the lock of debts.cc.
  enum class State : uint8_t {
    none,
    recorded,
    unrecorded
  };  // the last: the driver refused the event
  State state = State::none;
  uint64_t number = 0;       // of the event's last record
  uint64_t since = 0;        // of the first one that is not known to be over
  alloc::Ticket ticket = 0;  // of the last record: it covers what was freed until then
  bool prints_held = false;  // it was asked whether it is over: that brings no print out
  CUevent event = nullptr;   // made for the first debt, ends with the context
};

// The thread with debts; 0: nothing is owed.
extern constinit std::atomic<ThreadId> debtor;
inline constexpr ThreadId kEndedDebtor = 1;  // it ended, and left some

// Of the process. Defined in debts.cc.
extern constinit FreeCounts free_counts;

inline ThreadId this_thread_id() { return reinterpret_cast<ThreadId>(&this_thread); }
inline bool any_debts() { return debtor.load(std::memory_order_seq_cst) != 0; }
inline bool others_debts() {
  const ThreadId thread = debtor.load(std::memory_order_seq_cst);
  return thread != 0 && thread != this_thread_id();
}

// The calling thread has just handed work over, and there are debts of another thread's: if they
// began meanwhile, they may cover that work. Defined in debts.cc.
void others_debts_may_cover_work();

// Waits until nothing is owed, as long as that takes; another thread than the debtor does so for
// ten seconds at most, and after that frees wait as the driver's do. Whether nothing is owed. No
// lock is held by the caller. `who` is what a wait of the debtor counts as. Defined in debts.cc.
bool pay_debts(PaidBy who = PaidBy::end_of_use);
// The same before memory that may be under a debt goes elsewhere, whatever is owed for other memory
// meanwhile; another thread waits for a second at most.
bool pay_for_release();
// Whether an order may still be owed, as far as this thread knows. Does not wait.
bool owes_now();

}  // namespace cistern::shim
