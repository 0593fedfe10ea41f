// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/out_of_memory.h"

#include <cstdio>

#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/process/log.h"
#include "shim/process/thread.h"
#include "shim/record/record.h"

namespace cistern::shim {
namespace {

// A thread with a pooled context is not refused. For other threads the driver's query of free
// memory shows the error; the query has no other effect.
CUresult refusal_of_thread() {
  if (current_context() != nullptr) [[likely]]
    return CUDA_SUCCESS;
  size_t free, total;
  return noted(driver().cuMemGetInfo_v2(&free, &total));
}

// While it exists, the calling thread may free memory during a capture: it is in relaxed capture
// mode, in which captures do not forbid it such calls (cuda.h, cuThreadExchangeStreamCaptureMode).
class FreeInCaptures {
 public:
  FreeInCaptures() { this_thread.may_free_in_capture = exchange(); }
  ~FreeInCaptures() {
    if (this_thread.may_free_in_capture) exchange();
    this_thread.may_free_in_capture = false;
  }
  FreeInCaptures(const FreeInCaptures&) = delete;
  FreeInCaptures& operator=(const FreeInCaptures&) = delete;

 private:
  bool exchange() { return driver().cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS; }

  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// What the user may do about it.
void write_advice(const Device& device, uint64_t bytes, bool capped, const alloc::Usage& usage,
                  char* out, size_t size) {
  const uint64_t reserved = device.ledger.reserved.get();
  const uint64_t unused = usage.idle + usage.waiting + usage.garbage;
  const GatePass pass;
  size_t free = 0, all = 0;
  const bool told = pass && driver().cuMemGetInfo_v2(&free, &all) == CUDA_SUCCESS;
  const uint64_t known = reserved + free;
  const bool rounds_up = device.ledger.chunks.get() != 0;
  if (bytes > device.total.load()) {
    std::snprintf(out, size, "that is more than the device has, %.1f MiB",
                  mib(device.total.load()));
  } else if (unused >= bytes || (!capped && told && unused + free >= bytes)) {
    std::snprintf(
        out, size, "enough is free, but in pieces, or in use by work under way; %s may help",
        policy().static_mode() == config::StaticMode::kDynamic ? "another FLAGS_allocator_strategy"
                                                               : "a synchronisation");
  } else if (capped) {
    std::snprintf(out, size, "CISTERN_GPU_LIMIT may be too low");
  } else if (told && known < all) {
    std::snprintf(
        out, size,
        "%.1f MiB of the device are neither the pools' nor free: what %sthis program takes "
        "outside the pools, or other processes",
        mib(all - known), rounds_up ? "the driver adds to fill pages of 2 MiB, what " : "");
  } else {
    std::snprintf(out, size, "the device has no more");
  }
}

}  // namespace

CUresult refusal(Context& owner) {
  const CUresult result = refusal_of_thread();
  return result == CUDA_SUCCESS ? condition_of(owner) : result;
}

CUresult refusal_here() {
  Context* context = current_context();
  return context != nullptr ? condition_of(*context) : refusal_of_thread();
}

// To query an event that was never recorded is an unsafe call without any other effect. The driver
// refuses it, and invalidates the capture, whenever it would do so for a free of memory outside the
// pools.
CUresult ask_for_unsafe_call() {
  const Driver& d = driver();
  CUevent event;
  if (d.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_SUCCESS;
  const CUresult result = d.cuEventQuery(event);
  d.cuEventDestroy_v2(event);
  return result;
}

CUresult no_room() {
  const CUresult result = no_room_for_units();
  if (result != CUDA_ERROR_OUT_OF_MEMORY || !capture_gate().capturing()) return result;
  const CUresult unsafe = ask_for_unsafe_call();
  return unsafe != CUDA_SUCCESS ? unsafe : result;
}

CUresult no_room_for_units() {
  Context* context = current_context();
  const CUresult died = context != nullptr ? condition_of(*context) : CUDA_SUCCESS;
  return died != CUDA_SUCCESS ? died : CUDA_ERROR_OUT_OF_MEMORY;
}

bool release_idle_memory(CUdevice device) {
  if (device == kNoDevice) return false;
  const alloc::Ledger& ledger = device_state(device).ledger;
  const uint64_t before = ledger.releases();
  // Memory that another thread is just releasing counts as well, although no pool has it any more.
  const bool others = shared().movers.now() != 0;
  const FreeInCaptures free_in_captures;
  const bool any = release_idle_memory_of(device, /*except=*/nullptr);
  shared().await_moving();
  return any || others || ledger.releases() != before;
}

void return_freed(Context& context) {
  const FreeInCaptures free_in_captures;
  const Visit visit(context);
  if (visit.open()) context.pool.release_freed();
}

bool release_idle_memory() {
  const bool beside_pools = release_idle_memory_of_clients(kNoDevice);
  return release_idle_memory(current_device()) || beside_pools;
}

bool release_for_once_more() {
  return active() && (careful() || !capture_gate().capturing()) && release_idle_memory();
}

// Logged as information, not as a warning: programs often find their limit by running out of
// memory.
CUresult out_of_memory(Context& context, size_t bytes) {
  Device& device = device_state(context.device);
  alloc::Ledger& ledger = device.ledger;
  const bool capped = device.cap.limit() != 0 && bytes <= device.total.load() &&
                      bytes > device.cap.available(/*idle=*/0);
  if (capped) ledger.refused_by_cap.add();
  if (!log_enabled(config::LogLevel::kInfo)) return CUDA_ERROR_OUT_OF_MEMORY;
  alloc::Usage u{};
  for_each_context([&](Context& c) {
    const Visit visit(c);
    if (visit.handle() != nullptr && c.device == context.device) u += c.pool.usage();
  });
  char advice[200], holders[1000];
  write_advice(device, bytes, capped, u, advice, sizeof advice);
  const uint64_t reserved = ledger.reserved.get();
  const uint64_t held = u.live + u.idle + u.waiting + u.parked + u.garbage + u.quarantined;
  log(config::LogLevel::kInfo,
      "out of memory: %.1f MiB requested on device %d; live %.1f, idle %.1f, waiting %.1f, parked "
      "for "
      "graphs %.1f, lost to rounding %.1f, largest free block %.1f MiB; %s%s",
      mib(bytes), context.device.load(), mib(u.live), mib(u.idle), mib(u.waiting), mib(u.parked),
      mib(reserved > held ? reserved - held : 0), mib(context.pool.largest_free()), advice,
      describe_holders(static_cast<uint32_t>(context.device.load()), holders, sizeof holders));
  return CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace cistern::shim
