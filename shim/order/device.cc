// SPDX-License-Identifier: Apache-2.0
#include "shim/order/device.h"

#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/chunk/chunk_cache.h"
#include "shim/entry/driver.h"
#include "shim/order/context.h"
#include "shim/order/suspicion.h"
#include "shim/pooled/selection.h"
#include "shim/process/log.h"
#include "shim/process/process.h"

namespace cistern::shim {
namespace {

constinit Device devices[kMaxDevices] = {};

// As of the first call: the program may bind itself to fewer later.
unsigned allowed_cpus() {
  static constinit unsigned cpus = 0;
  if (cpus == 0) cpus = alloc::os::allowed_cpus();
  return cpus;
}

}  // namespace

Device& device_state(CUdevice device) { return devices[device]; }

// Threads that come first together store the same.
Device* known_device(CUdevice device) {
  if (device < 0 || device >= kMaxDevices) return nullptr;
  Device& d = devices[device];
  if (d.total.load(std::memory_order_acquire) != 0) return &d;
  size_t total;
  if (driver().cuDeviceTotalMem_v2(&total, device) != CUDA_SUCCESS) return nullptr;
  const config::Cap cap = policy().cap_for(static_cast<unsigned>(device));
  const uint64_t limit = cap.kind == config::CapKind::kNone ? 0 : cap.bytes_of(total);
  const bool capped = limit != 0 && limit < total;  // else what there is, is the limit
  d.cap.set_limit(capped ? limit : 0);
  d.max_request_bytes.store(capped ? limit : total, std::memory_order_relaxed);
  d.fast_path_max_bytes.store(selects() ? 0 : d.max_request_bytes.load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
  d.total.store(total, std::memory_order_release);
  return &d;
}

alloc::ChunkSizes sizes_on(const Device& d) {
  static constinit std::atomic<bool> warned{false};
  const uint64_t most = d.max_request_bytes.load(std::memory_order_relaxed);
  const alloc::ChunkSizes sizes = alloc::chunk_sizes(policy(), most, allowed_cpus());
  if ((sizes.initial_clamped || sizes.later_clamped) && !warned.exchange(true)) {
    const config::Policy& p = policy();
    const auto mb = [](auto setting) { return static_cast<unsigned long long>(setting.value); };
    const bool growth = sizes.kind == alloc::StrategyKind::auto_growth;
    log(config::LogLevel::kWarn,
        "a chunk cannot be larger than the device; value seen %s=%llu; allowed: up to %llu, which "
        "is what is used",
        sizes.initial_clamped ? "FLAGS_initial_gpu_memory_in_mb"
        : growth              ? "FLAGS_auto_growth_chunk_size_in_mb"
                              : "FLAGS_reallocate_gpu_memory_in_mb",
        sizes.initial_clamped ? mb(p.initial_gpu_memory_in_mb)
        : growth              ? mb(p.auto_growth_chunk_size_in_mb)
                              : mb(p.reallocate_gpu_memory_in_mb),
        static_cast<unsigned long long>(most >> 20));
  }
  return sizes;
}

namespace {

// What the driver has free, and what the pools keep. A chunk that changes hands between the two
// readings would count twice, and one on its way not at all; where that goes on and on, the last
// readings do.
CUresult driver_and_pools(const Device* device, CUdevice ordinal, size_t* free, size_t* total,
                          uint64_t* idle) {
  constexpr int kAttempts = 8;
  constexpr uint64_t kPatienceNs = 200'000'000;
  const alloc::CountedIn counting(shared().threads_counting);
  const auto changes = [device]() -> uint64_t {
    if (device == nullptr) return 0;
    const alloc::Ledger& ledger = device->ledger;
    return ledger.obtained.get() + ledger.releases() + shared().moves_begun.load();
  };
  CUresult result;
  uint64_t before;
  int attempts = 0;
  do {
    before = changes();
    if (device != nullptr) shared().await_moving(kPatienceNs);
    result = noted(driver().cuMemGetInfo_v2(free, total));
    *idle = device == nullptr ? 0 : idle_memory_of(ordinal);
  } while (result == CUDA_SUCCESS && before != changes() && ++attempts < kAttempts);
  return result;
}

}  // namespace

CUresult memory_info(size_t* free, size_t* total) {
  size_t driver_free = 0, driver_total = 0;
  uint64_t idle = 0;
  const CUdevice ordinal = active() ? current_device() : kNoDevice;
  const Device* device = known_device(ordinal);
  const CUresult result = driver_and_pools(device, ordinal, &driver_free, &driver_total, &idle);
  if (result != CUDA_SUCCESS) return result;
  if (device != nullptr) {
    // What the driver would get back is whole pages; a part of one would fit nothing.
    const uint64_t pages = idle / alloc::kDriverPage * alloc::kDriverPage;
    driver_free = std::min(driver_free + pages, driver_total);
    const alloc::Cap& cap = device->cap;
    if (const uint64_t limit = cap.limit(); limit != 0) {
      driver_total = std::min(driver_total, limit);
      driver_free = std::min(driver_free, cap.available(idle));
    }
  }
  if (free != nullptr) *free = driver_free;
  if (total != nullptr) *total = driver_total;
  return CUDA_SUCCESS;
}

CUresult total_memory(size_t* bytes, CUdevice ordinal) {
  const CUresult result = driver().cuDeviceTotalMem_v2(bytes, ordinal);
  if (result != CUDA_SUCCESS || !active()) return result;
  const Device* device = known_device(ordinal);
  if (device != nullptr && device->cap.limit() != 0) *bytes = std::min(*bytes, device->cap.limit());
  return CUDA_SUCCESS;
}

}  // namespace cistern::shim
