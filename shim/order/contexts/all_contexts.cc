// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context.h"

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/entry/unknown.h"
#include "shim/host/host_memory.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/barrier/work.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/order/shared.h"

namespace cistern::shim {
namespace {

// How long to wait for a context's work, before memory that waits for it can be released.
constexpr uint64_t kPatienceNs = 200'000'000;

// The memory of a context that ends goes back to the driver with it. Waits until the driver has
// decided whether the context ends; false if that takes longer than 2 s.
bool closed(const Context& context, CUcontext handle) {
  return alloc::os::wait_until(
      [&] { return context.handle.load() != handle || !context.source.closing(); }, 2'000'000'000);
}

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

PooledBytes pooled_bytes_of(CUdevice device) {
  PooledBytes bytes{device_state(device).ledger.scratch_bytes.get(), 0};
  for_each_context([&](Context& context) {
    const Visit visit(context);
    // If the context is ending, the driver may have its memory back already.
    if (!visit.open() || context.device != device) return;
    bytes.idle += context.pool.returnable_bytes();
    bytes.live += context.pool.usage().live;
  });
  return bytes;
}

void about_to_tell_free(CUdevice device) {
  for (const ContextClient& client : context_clients()) {
    if (client.before_free_is_told != nullptr) client.before_free_is_told(device);
  }
}

bool release_idle_memory_of_clients(CUdevice device) {
  bool any = false;
  for (const ContextClient& client : context_clients()) {
    if (client.release_idle_memory != nullptr) any |= client.release_idle_memory(device);
  }
  return any;
}

void release_clean_memory_of(CUdevice device) {
  for_each_context([=](Context& context) {
    const Visit visit(context);
    if (visit.open() && context.device == device) context.pool.release_clean();
  });
}

bool release_idle_memory_of(CUdevice device, const Context* except) {
  bool any = release_idle_memory_of_clients(device);
  for_each_context([&](Context& context) {
    if (&context == except) return;
    CUcontext ending = nullptr;
    {
      const Visit visit(context);
      if (context.device != device) return;
      if (visit.open()) any |= context.pool.release_returnable(kPatienceNs);
      if (visit.closing()) ending = visit.handle();
    }
    if (ending != nullptr) any |= closed(context, ending);
  });
  return any;
}

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
