// SPDX-License-Identifier: Apache-2.0
// What a thread keeps between calls. Initial-exec, so that access is one instruction and never
// allocates; the whole object may use 64 bytes of the static TLS block.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

struct Thread {
  // The context found last, valid while no handle changed its meaning since.
  CUcontext handle;
  Context* context;
  uint32_t generation;
  uint32_t shard_plus_one;   // 0: none yet
  bool may_free_in_capture;  // captures do not forbid it to this thread just now
  bool background;           // not the program's (reaper.h)

  void remember(CUcontext h, Context* c, uint32_t g) {
    handle = h;
    context = c;
    generation = g;
  }

  // Which pool serves this thread, where the strategy has several.
  unsigned shard() {
    if (shard_plus_one == 0) [[unlikely]]
      shard_plus_one = choose_shard() + 1;
    return shard_plus_one - 1;
  }

 private:
  static unsigned choose_shard();
};

extern constinit thread_local Thread this_thread;

}  // namespace cistern::shim
