// SPDX-License-Identifier: Apache-2.0
// What the pools of the process share, and those of one device, whatever contexts it has: its
// ledger, its cap, the sizes of its chunks and its plan. Also what the log says of the driver calls
// made for the pools. Any thread, unless a function says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <span>

#include "allocator/any_strategy.h"
#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "allocator/chunk_pools/chunk_sizes.h"
#include "allocator/plan/plan_file.h"
#include "allocator/reclaim/garbage.h"
#include "shim/cuda_api.h"
#include "shim/process/log.h"

namespace cistern::shim {

alloc::Shared& shared();

// Contexts and streams whose creation no hook saw (contexts/context_life.h,
// streams/stream_marks.h). noticed() counts them for the report, and logs the first of each
// kind.
enum class Unseen : uint8_t { kContext, kStream };
void noticed(Unseen what);
uint64_t times_noticed(Unseen what);

// The sources turn the pools' decisions into driver calls (cuda_source.h,
// contexts/pinned_pools.h). told() logs such a call at level debug and returns `code`, the source's
// result. `bytes` 0: the call has no size.
inline int told(const char* call, uint64_t address, uint64_t bytes, int code) {
  if (log_enabled(config::LogLevel::kDebug)) [[unlikely]] {
    using Number = unsigned long long;
    char size[32] = "";
    if (bytes != 0) std::snprintf(size, sizeof size, " bytes=%llu", static_cast<Number>(bytes));
    log(config::LogLevel::kDebug, "pool: %s address=0x%llx%s -> %d", call,
        static_cast<Number>(address), size, code);
  }
  return code;
}

inline constexpr int kMaxDevices = 64;
inline constexpr CUdevice kNoDevice = -1;

struct Device {
  alloc::Ledger ledger;
  alloc::Cap cap;
  alloc::Garbage garbage;
  std::atomic<bool> used;                   // had a pool or a charge: the report describes it
  std::atomic<uint64_t> total;              // 0: not asked yet, see known_device()
  std::atomic<uint64_t> max_request_bytes;  // a larger request cannot be served: total, or the cap
  // The pool serves a request up to this size without further checks. Usually max_request_bytes; 0
  // if the settings choose which requests are pooled (pooled/selection.h), group them, or give
  // graphs an arena.
  std::atomic<uint64_t> fast_path_max_bytes;
  std::atomic<bool> chooses_requests;  // the settings choose which requests are pooled
  std::atomic<alloc::StrategyKind> strategy;
  // Calls answered by pools that are gone.
  alloc::Counter past_allocations, past_frees;
};

Device& device_state(CUdevice device);

// The same, with its total memory and its cap filled in. Needs no current context. nullptr if there
// is no such device.
Device* known_device(CUdevice device);
// One more than the highest number for which known_device() succeeded.
CUdevice known_devices_end();

// The chunk sizes that the settings mean on a known device. `has_units`: whether the device
// supports physical units (virtual memory management). Warns once if the settings exceed the
// device's memory or cap, or need units that it does not support. One thread at a time.
alloc::ChunkSizes sizes_on(const Device& device, bool has_units);

// --- the plans of CISTERN_PLAN=FILE (allocator/plan/FORMAT.md): read when the first context
// appears, and kept as long as the process lives. One context of a device at a time has the
// device's plan. If the file cannot be used, one message says so, and there is no plan. One thread
// at a time: the lock of the contexts.

// Gives the context with this number the plan of a device with `total` bytes, or its plans of
// several threads. Empty if the file has none, or if another context has it.
std::span<const alloc::plan::Plan> claim_plan(CUdevice device, uint64_t total, uint32_t context);
// The context is gone: another one may get its plan.
void give_up_plan(uint32_t context);

}  // namespace cistern::shim
