// SPDX-License-Identifier: Apache-2.0
#include "shim/process/report_writer.h"

#include <bit>
#include <cstring>

namespace cistern::shim {
namespace {

// A framework with its own pool asks only for what that pool lacks, and Cistern's pool rarely has
// it either. If Cistern has memory ready for more than half of the requests, there is hardly
// another pool in front.
constexpr uint64_t kServedShare = 2;

// cudaMalloc and cudaFree take the driver about 0.1 ms together: fewer than a thousand take a tenth
// of a second in a whole run.
constexpr uint64_t kManyCalls = 1000;
// Driver calls left of a hundred: 10 to 15 in the demo's training run, 23 to 30 if sizes change all
// the time (README, "Which policy").
constexpr uint64_t kCallsShare = 5;
// Memory that was obtained and is kept is growth, which no setting avoids.
constexpr uint64_t kReturnedShare = 2;
// A program that is short of memory returns memory that it would otherwise have kept.
constexpr uint64_t kShortShare = 10;
// Few sizes, which repeat, set at most this many bits.
constexpr int kFewSizes = 8;

// A single free waits at most this long before the bound gives way (waiting_memory.cc). If the
// waits of a whole run add up to less, they are not worth a line.
constexpr uint64_t kHeldBackNs = 1'000'000'000;

// The waits of frees are worth a line if they take at least this share of the run, and this long in
// all. Runs differ by a hundredth anyway, and a short run has nothing to gain.
constexpr uint64_t kFreeWaitsShare = 100, kFreeWaitsNs = 100'000'000;

void hint_limit(const DeviceReport& device, const config::Policy& policy, Advice& out) {
  const uint64_t refused = device.ledger->refused_by_cap.get();
  if (refused == 0) return;
  const auto ordinal = static_cast<unsigned>(device.ordinal);
  char name[32] = "FLAGS_gpu_memory_limit_mb";
  if (ordinal < config::kMaxDevices && policy.gpu_limit_of[ordinal].set) {
    snprintf(name, sizeof name, "CISTERN_GPU_LIMIT_%u", ordinal);
  } else if (policy.gpu_limit.set) {
    snprintf(name, sizeof name, "CISTERN_GPU_LIMIT");
  }
  out.hint("limit",
           "the limit of %.1f MiB refused %lu calls on device %u; a higher %s would allow them",
           mib(device.cap->limit()), refused, ordinal, name);
}

void hint_pinned_limit(const PinnedReport& pinned, Advice& out) {
  const uint64_t refused = pinned.ledger->refused_by_cap.get();
  if (refused == 0) return;
  out.hint("limit",
           "the limit of %.1f MiB refused %lu calls for pinned memory; a higher "
           "FLAGS_fraction_of_cuda_pinned_memory_to_use would allow them",
           mib(pinned.limit_bytes), refused);
}

void hint_ipc(const IpcReport& ipc, Advice& out) {
  if (ipc.unanswered != 0) {
    out.hint("ipc",
             "%lu IPC handles could not be opened: their process did not give the block (the log "
             "says why); CISTERN_ONLY_SIZES in that process keeps their size out of chunks",
             ipc.unanswered);
  } else if (ipc.exported != 0 && ipc.answered == 0) {
    out.hint(
        "ipc",
        "%lu IPC handles of blocks inside chunks or in static memory were made, and none was "
        "opened; run the other process under Cistern too (CISTERN_POOL=off is enough), or keep "
        "their size out of chunks with CISTERN_ONLY_SIZES here",
        ipc.exported);
  }
}

void hint_bound(const DeviceReport& device, Advice& out) {
  const alloc::Ledger& l = *device.ledger;
  if (device.garbage != nullptr && device.garbage->flushed_when_short.get() != 0) {
    out.hint("bound",
             "memory ran short on device %d while %.1f MiB of freed memory was held back; "
             "FLAGS_eager_delete_tensor_gb=0 holds none back",
             device.ordinal, mib(device.garbage->flushed_when_short.get()));
  } else if (l.held_back_ns.get() >= kHeldBackNs) {
    out.hint("bound",
             "frees on device %d waited %lu times, %.1f s in all: more freed memory waited for "
             "earlier work than is allowed (256 MiB, or a tenth of the live memory); compare with "
             "CISTERN_POOL=off, since the driver alone may wait at each free",
             device.ordinal, l.held_back.get(), static_cast<double>(l.held_back_ns.get()) / 1e9);
  }
}

// No hint to a user who has set CISTERN_FREE_SYNC: he knows what it does.
void hint_free_waits(const ProcessReport& process, const config::Policy& policy, Advice& out) {
  if (policy.free_sync.set || process.frees == nullptr) return;
  const WaitSum frees = waits_of_frees(*process.frees), order = waits_for_order(*process.frees);
  const uint64_t ns = frees.ns + order.ns;
  const uint64_t waits = frees.waits + order.waits;
  if (ns < kFreeWaitsNs || ns < process.ran_ns / kFreeWaitsShare) return;
  out.hint("free_waits",
           "CISTERN_FREE_SYNC=false would have saved up to %.0f ms (%lu waits); use it only if the "
           "program synchronises by itself before it reads results after a cudaFree, and before "
           "one stream uses what another one wrote",
           static_cast<double>(ns) / 1e6, waits);
}

// Memory returned because it was idle for long was requested by FLAGS_free_idle_memory.
uint64_t returned_unasked(const alloc::Ledger& l) {
  const uint64_t aged = by(alloc::WorkedBy::call, l.aged) + by(alloc::WorkedBy::background, l.aged);
  const uint64_t released = l.released.get();
  return released > aged ? released - aged : 0;
}

// Only for the default strategy, which has a budget for idle memory.
void hint_sizes(const DeviceReport& device, const config::Policy& policy, Advice& out) {
  const alloc::Ledger& l = *device.ledger;
  const uint64_t taken = l.obtained.get();
  if (device.strategy != alloc::StrategyKind::on_demand || policy.free_idle_memory.set) return;
  if (taken < kManyCalls || l.shortages.get() * kShortShare > taken) return;
  if (driver_calls(device) * kCallsShare < driver_calls_without(device)) return;
  if (returned_unasked(l) * kReturnedShare < taken) return;
  const bool few = std::popcount(l.sizes_taken.load(std::memory_order_relaxed)) <= kFewSizes;
  out.hint("sizes", "%lu of %lu allocations on device %d went to the driver, in %s; %s", taken,
           device.allocations, device.ordinal,
           few ? "few sizes that had been returned to it"
               : "many sizes, while other sizes were returned to it",
           few ? "FLAGS_free_idle_memory=false keeps idle memory"
               : "FLAGS_allocator_strategy=auto_growth with FLAGS_auto_growth_chunk_size_in_mb=64 "
                 "cuts them from chunks that stay; GE_USE_STATIC_MEMORY=3 takes least memory");
}

}  // namespace

void Frameworks::add(const config::Framework* framework) {
  for (const config::Framework* known : list()) {
    if (strcmp(known->name, framework->name) == 0) return;
  }
  if (count_ < kMost) all_[count_++] = framework;
}

void Advice::hint(const char* about, const char* format, ...) {
  if (count_ == kMost) return;
  Hint& next = hints_[count_++];
  next.about = about;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(next.text, sizeof next.text, format, arguments);
  va_end(arguments);
}

Advice advise(const ProcessReport& process, const config::Policy& policy,
              const Frameworks& loaded) {
  Advice advice;
  for_each_device(process, [&](const DeviceReport& d) { hint_limit(d, policy, advice); });
  PinnedReport pinned;
  if (process.pinned_memory != nullptr && process.pinned_memory(&pinned)) {
    hint_pinned_limit(pinned, advice);
  }
  hint_ipc(process.ipc, advice);
  for_each_device(process, [&](const DeviceReport& d) { hint_bound(d, advice); });
  hint_free_waits(process, policy, advice);
  bool asked = false, other_pool = false;
  for_each_device(process, [&](const DeviceReport& d) {
    asked |= d.allocations != 0;
    other_pool |= d.allocations != 0 && hits(d) * kServedShare <= d.allocations;
  });
  if (other_pool || !asked) advice.frameworks = loaded;
  // If another pool is in front, a different policy of Cistern's would not help.
  if (advice.frameworks.list().empty()) {
    for_each_device(process, [&](const DeviceReport& d) { hint_sizes(d, policy, advice); });
  }
  return advice;
}

}  // namespace cistern::shim
