// SPDX-License-Identifier: Apache-2.0
#include "shim/order/shared.h"

#include "allocator/base/os.h"
#include "allocator/chunk_pools/groups.h"
#include "shim/entry/driver.h"
#include "shim/process/settings.h"

namespace cistern::shim {
namespace {

constinit Device devices[kMaxDevices] = {};
constinit std::atomic<CUdevice> devices_end{0};

// The number of processors at the first call: the program may bind itself to fewer later.
unsigned allowed_cpus() {
  static constinit unsigned cpus = 0;
  if (cpus == 0) cpus = alloc::os::allowed_cpus();
  return cpus;
}

// Without virtual memory management, mode 3 becomes mode 0, whatever sizes were set for its pool.
alloc::ChunkSizes sizes_without_units(alloc::ChunkSizes sizes) {
  static constinit std::atomic<bool> warned{false};
  sizes.kind = alloc::without_units(sizes.kind);
  if (!warned.exchange(true)) {
    const StaticModeSeen seen = static_mode_seen();
    log(config::LogLevel::kWarn,
        "this device or driver has no virtual memory management; value seen %s=%d; allowed: a "
        "device and a driver (CUDA 10.2 or newer) that have it; mode %d is used",
        seen.name, seen.value, alloc::has_arenas(sizes.kind) ? 2 : 0);
  }
  return sizes;
}

}  // namespace

Device& device_state(CUdevice device) { return devices[device]; }

// Threads that call this first at the same time store the same values.
Device* known_device(CUdevice device) {
  if (device < 0 || device >= kMaxDevices) return nullptr;
  Device& d = devices[device];
  if (d.total.load(std::memory_order_acquire) != 0) return &d;
  size_t total;
  if (driver().cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) return nullptr;
  const config::Cap cap = policy().cap_for(static_cast<unsigned>(device));
  const uint64_t limit = cap.kind == config::CapKind::kNone ? 0 : cap.bytes_of(total);
  const bool capped = limit != 0 && limit < total;  // else the device's own size is the limit
  d.cap.set_limit(capped ? limit : 0);
  d.max_request_bytes.store(capped ? limit : total, std::memory_order_relaxed);
  d.chooses_requests.store(policy().chooses_requests(), std::memory_order_relaxed);
  const bool looks = policy().chooses_requests() || alloc::group_rules(policy()).on ||
                     policy().graph_arenas() || policy().plan.value.mode != config::PlanMode::kOff;
  d.fast_path_max_bytes.store(looks ? 0 : d.max_request_bytes.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  d.total.store(total, std::memory_order_release);
  CUdevice end = devices_end.load();
  while (end <= device && !devices_end.compare_exchange_weak(end, device + 1)) {
  }
  return &d;
}

CUdevice known_devices_end() { return devices_end.load(std::memory_order_relaxed); }

alloc::ChunkSizes sizes_on(const Device& d, bool has_units) {
  static constinit std::atomic<bool> warned{false};
  const uint64_t max_bytes = d.max_request_bytes.load(std::memory_order_relaxed);
  const alloc::ChunkSizes sizes = alloc::chunk_sizes(policy(), max_bytes, allowed_cpus());
  if (alloc::has_units(sizes.kind) && !has_units) return sizes_without_units(sizes);
  if ((sizes.initial_clamped || sizes.later_clamped) && !warned.exchange(true)) {
    const config::Policy& p = policy();
    const auto mb = [](auto setting) { return static_cast<unsigned long long>(setting.value); };
    const bool growth = sizes.kind == alloc::StrategyKind::auto_growth;
    log(config::LogLevel::kWarn,
        "a chunk cannot be larger than the device; value seen %s=%llu; allowed: up to %llu, which "
        "is used now",
        sizes.initial_clamped ? "FLAGS_initial_gpu_memory_in_mb"
        : growth              ? "FLAGS_auto_growth_chunk_size_in_mb"
                              : "FLAGS_reallocate_gpu_memory_in_mb",
        sizes.initial_clamped ? mb(p.initial_gpu_memory_in_mb)
        : growth              ? mb(p.auto_growth_chunk_size_in_mb)
                              : mb(p.reallocate_gpu_memory_in_mb),
        static_cast<unsigned long long>(max_bytes >> 20));
  }
  return sizes;
}

}  // namespace cistern::shim
