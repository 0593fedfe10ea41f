// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/reaper.h"

#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/background.h"

namespace cistern::shim {
namespace {

// One round over all pools; true if there will be more to do.
bool tend_all_pools() {
  bool more = false;
  for_each_context([&](Context& context) {
    if (!may_call()) return;
    context.visitors.fetch_add(1);
    const bool there = context.handle.load() != nullptr;
    const bool closing = there && context.source.closing();
    more |= closing || (there && context.pool.work_in_background());
    context.visitors.fetch_sub(1);
  });
  return more;
}

constexpr BackgroundWork kWork{tend_all_pools, [] { return shared().idle.tick_ns; }};

}  // namespace

bool request_background_work(bool now) { return attend(now, &kWork); }

}  // namespace cistern::shim
