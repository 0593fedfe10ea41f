// SPDX-License-Identifier: Apache-2.0
#include "shim/order/barrier/host_visible.h"

#include "shim/order/barrier/debt.h"
#include "shim/order/barrier/unfinished.h"
#include "shim/process/settings.h"

namespace cistern::shim {

constinit std::atomic<bool> host_within_reach{false};

void host_comes_within_reach() {
  if (host_within_reach.load(std::memory_order_relaxed) || host_within_reach.exchange(true)) return;
  if (!active()) return;
  forget_submitters();
  pay_debts();
}

}  // namespace cistern::shim
