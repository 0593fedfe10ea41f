// SPDX-License-Identifier: Apache-2.0
#include "shim/process/report_writer.h"

#include <bit>
#include <cstring>

namespace cistern::shim {
namespace {

// A framework that pools asks only for what its own pool has not, which Cistern's has not either.
// Where more than half of the requests find memory ready here, another pool hardly stands before.
constexpr uint64_t kServedShare = 2;

// A cudaMalloc and its cudaFree take the driver some 0.1 ms: fewer than a thousand are a tenth of a
// second in a whole run.
constexpr uint64_t kManyCalls = 1000;
// The demo's training run leaves 10 to 15 of a hundred driver calls, sizes that change all the time
// 23 to 30 (README, "Which policy").
constexpr uint64_t kCallsShare = 5;
// What was taken and stays is growth, which no setting avoids.
constexpr uint64_t kReturnedShare = 2;
// A program whose memory is short gives back what it would have kept.
constexpr uint64_t kShortShare = 10;
// Bits that so many different sizes set at the most: few sizes, which come back.
constexpr int kFewSizes = 8;

// As long as one free waits before the bound gives way (waiting_memory.cc): less in a whole run is
// not worth a line.
constexpr uint64_t kHeldBackNs = 1'000'000'000;

// What the waits of frees take at least, of the run and in all, to be worth a line: a hundredth is
// as much as one run differs from the next, and a short run has nothing to gain.
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

// Whoever has set it knows the choice.
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

// Given back for being idle long is what FLAGS_free_idle_memory asked for.
uint64_t returned_unasked(const alloc::Ledger& l) {
  const uint64_t aged = by(alloc::WorkedBy::call, l.aged) + by(alloc::WorkedBy::background, l.aged);
  const uint64_t released = l.released.get();
  return released > aged ? released - aged : 0;
}

// Of the default strategy, whose idle memory has a budget.
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
  // Whose own pool comes first has no use for another policy of this one.
  if (advice.frameworks.list().empty()) {
    for_each_device(process, [&](const DeviceReport& d) { hint_sizes(d, policy, advice); });
  }
  return advice;
}

}  // namespace cistern::shim
