// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/device_report.h"

#include "shim/entry/driver.h"
#include "shim/entry/unknown.h"
#include "shim/host/host_memory.h"
#include "shim/order/barrier/debt.h"
#include "shim/order/barrier/host_visible.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/device.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

DeviceReport describe_device(CUdevice ordinal) {
  const Device& d = device_state(ordinal);
  DeviceReport report{.ordinal = ordinal,
                      .total_bytes = d.total.load(std::memory_order_relaxed),
                      .ledger = &d.ledger,
                      .cap = &d.cap,
                      .garbage = d.garbage.on() ? &d.garbage : nullptr,
                      .strategy = d.strategy.load(),
                      .allocations = d.past_allocations.get(),
                      .frees = d.past_frees.get(),
                      .usage = {}};
  for_each_context([&](Context& context) {
    const Visit visit(context);
    if (visit.handle() == nullptr || context.device != ordinal) return;
    report.allocations += context.pool.allocations();
    report.frees += context.pool.frees();
    report.usage += context.pool.usage();
  });
  return report;
}

bool next_device(int ordinal, DeviceReport* out) {
  for (; ordinal < kMaxDevices; ++ordinal) {
    if (!device_state(ordinal).used.load(std::memory_order_acquire)) continue;
    *out = describe_device(ordinal);
    return true;
  }
  return false;
}

bool describe_pinned(PinnedReport* out) {
  PinnedUsage now;
  if (!pinned_usage(&now)) return false;
  *out = {&pinned_ledger(), pinned_cap().limit(), now.allocations, now.frees, now.usage};
  return true;
}

}  // namespace

ProcessReport describe_process() {
  const alloc::Reclaim& reclaim = shared().reclaim;
  const UnknownCounts counts = unknown_counts();
  return {reclaim.marks_made(),
          reclaim.queries_made(),
          next_device,
          describe_host_memory,
          describe_pinned,
          /*holders=*/nullptr,
          /*site_entry=*/nullptr,
          /*ipc=*/{},
          times_noticed(Unseen::kContext),
          times_noticed(Unseen::kStream),
          {unknown_functions(), counts.looked_up, counts.called, counts.linked, why_careful(),
           why_work_is_unseen(), why_everything_is_visible()},
          &free_counts,
          /*ran_ns=*/0};
}

}  // namespace cistern::shim
