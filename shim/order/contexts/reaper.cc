// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/reaper.h"

#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/shared.h"
#include "shim/process/background.h"

namespace cistern::shim {
namespace {

// One round over all pools; true if there will be more to do.
bool tend_all_pools() {
  bool more = false;
  for_each_context([&](Context& context) {
    if (!may_call()) return;
    const Visit visit(context);
    more |= visit.closing() || (visit.open() && context.pool.work_in_background());
  });
  for_each_pinned_pool([&](PinnedPool& pinned) {
    if (!may_call()) return;
    const PinnedVisit visit(pinned);
    more |= visit.closing() || (visit.open() && pinned.pool.work_in_background());
  });
  return more;
}

constexpr BackgroundWork kWork{.round = tend_all_pools,
                               .pause_ns = [] { return shared().idle.tick_ns; },
                               .calls_driver = true,
                               .keeps_thread = false};

}  // namespace

bool request_background_work(bool now) { return attend(now, &kWork); }

}  // namespace cistern::shim
