// SPDX-License-Identifier: Apache-2.0
#include "shim/order/submissions.h"

#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/contexts/visit.h"
#include "shim/process/settings.h"

namespace cistern::shim {

void note_first_submission() {
  if (active()) current_context();  // one that no hook saw made is noticed here
  end_seen_empty();
}

// The flag stays set while threads are at work here,
// so that none of them passes before the marks are made. A free that comes after the last look at
// its context finds the flag set, or is seen by the look after it was cleared.
void mark_frees_before_submission(bool may_wait_for_host) {
  if (!active()) return;
  // Nothing is marked any more, nor becomes clean. Another free sets the flag again.
  if (careful()) return shared().reclaim.set_any_unmarked(false);
  current_context();  // one that no hook saw made is noticed here
  bool left = false;
  for_each_context([&](Context& context) {
    const Visit visit(context);
    if (visit.open()) left |= context.pool.before_submission(may_wait_for_host);
  });
  if (pinned_frees_unmarked()) {
    for_each_pinned_pool([&](PinnedPool& pinned) {
      const PinnedVisit visit(pinned);
      if (visit.open()) left |= pinned.pool.before_submission(may_wait_for_host);
    });
  }
  if (left) return;
  alloc::Reclaim& reclaim = shared().reclaim;
  reclaim.set_any_unmarked(false);
  for_each_context([&](const Context& context) {
    if (reclaim.unmarked(context.number)) reclaim.set_any_unmarked(true);
  });
  if (pinned_frees_unmarked()) reclaim.set_any_unmarked(true);
}

}  // namespace cistern::shim
