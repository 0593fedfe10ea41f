// SPDX-License-Identifier: Apache-2.0
// Where the driver's memory pools have their memory: a block may come from a pool on another device
// than its stream's, or on no device. Pools are recorded only if charges are kept (kinds/charges.h)
// or memory is filled (kinds/fill.h). Any thread.
#pragma once

#include <optional>

#include "allocator/base/ledger.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct PoolHome {
  CUdevice device;  // kNoDevice: host memory, or nothing is known of the pool
  alloc::MemoryKind kind;
};

void memory_pool_created(CUmemoryPool pool, const CUmemPoolProps& properties);
// What was noted of it, if anything was.
std::optional<PoolHome> forget_home(CUmemoryPool pool);
void remember_home(CUmemoryPool pool, PoolHome home);
// The home of a pool that was noted, or of a device's default pool.
PoolHome home_of(CUmemoryPool pool);

// The program asked for stream-ordered memory: there may be something to trim.
void note_stream_ordered_use();

// Memory is short on the device, or (kNoDevice) on any: what their default pools keep and nothing
// uses goes back to the driver, which by itself gives it back at a synchronisation. True if that
// was anything.
bool trim_default_pools(CUdevice device);

void reset_memory_pools_after_fork();

}  // namespace cistern::shim
