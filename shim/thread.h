// SPDX-License-Identifier: Apache-2.0
// What a thread keeps between calls. Initial-exec, so that access is one instruction and never
// allocates; the whole object may use 64 bytes of the static TLS block.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/device_pool.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

struct Thread {
  // The context found last, valid while no handle changed its meaning since.
  CUcontext handle;
  Context* context;
  uint32_t generation;
  uint32_t shard_plus_one;   // 0: none yet
  bool may_free_in_capture;  // the driver just let an allocation of this thread through

  void remember(CUcontext h, Context* c, uint32_t g) {
    handle = h;
    context = c;
    generation = g;
  }

  // Threads take the shards in turn: one allocating thread fills one set of slabs.
  unsigned shard() {
    if (shard_plus_one == 0) [[unlikely]] {
      static constinit std::atomic<uint32_t> next{0};
      shard_plus_one = next.fetch_add(1) % alloc::DevicePool::kShards + 1;
    }
    return shard_plus_one - 1;
  }
};

extern constinit thread_local Thread this_thread;

}  // namespace cistern::shim
