// SPDX-License-Identifier: Apache-2.0
// What one context keeps of a debt (debts.h): a part of its slot.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/cuda_api.h"
#include "shim/order/barrier/unfinished.h"

namespace cistern::shim {

struct Debt {
  // *Open*: nothing was submitted since the free, so that further frees of this thread belong to the
  // same debt. 0: it is not.
  std::atomic<ThreadId> open_for{0};
  // The rest with the lock of debts.cc.
  enum class State : uint8_t { none, recorded, unrecorded };  // the last: the driver refused the event
  State state = State::none;
  uint64_t number = 0;      // of the event's last record
  CUevent event = nullptr;  // made for the first debt, ends with the context
};

// When a synchronisation began.
struct DebtMoment {
  uint64_t number;  // of the last record
  bool own;         // by the debtor: it passes what is open, too
};

}  // namespace cistern::shim
