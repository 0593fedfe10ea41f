// SPDX-License-Identifier: Apache-2.0
// The state that a thread keeps between calls, in thread-local storage of the initial-exec model:
// access is one instruction and never allocates. The whole object may use 64 bytes of the static
// TLS block. Ranges and call sites in it are numbers; the process's table of names has their text.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/record/names.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;
struct ThreadRanges;

struct Thread {
  // The context that was looked up last, and its handle. Valid while `generation` equals
  // context_generation(), i.e. while no handle was reused.
  CUcontext handle;
  Context* context;
  uint32_t generation;
  uint16_t shard_plus_one;   // 0: none yet
  uint16_t number_plus_one;  // 0: none yet
  bool may_free_in_capture;  // captures do not forbid frees in this call (pooled/out_of_memory.cc)
  bool background;           // this is the background thread (background.h)
  bool finds_site;           // capture_site() is under way (sites/)
  bool ranges_over;          // the thread is ending and enters no more ranges (nvtx/)
  uint32_t system_number;    // the kernel's id of the thread; 0: no recording needed it yet
  uint32_t site, range;      // the origin of the call that is being served (sites/, nvtx/)
  uint64_t stack_low;        // the lowest address of its stack; 0: call sites did not need it yet
  ThreadRanges* ranges;      // null until the thread enters its first range (nvtx/)

  void remember(CUcontext h, Context* c, uint32_t g) {
    handle = h;
    context = c;
    generation = g;
  }

  // The shard that serves this thread, if the strategy divides a context's pool into shards.
  unsigned shard() {
    if (shard_plus_one == 0) [[unlikely]]
      shard_plus_one = static_cast<uint16_t>(choose_shard() + 1);
    return shard_plus_one - 1;
  }

  // A number of its own (alloc::ThreadNumbers), while there are any.
  unsigned number() {
    if (number_plus_one == 0) [[unlikely]]
      number_plus_one = static_cast<uint16_t>(choose_number() + 1);
    return number_plus_one - 1;
  }

 private:
  unsigned choose_shard();
  static unsigned choose_number();
};

extern constinit thread_local Thread this_thread;

// The process's table of names of ranges, functions and files; each has one number. It is here,
// since folders that do not include each other share it.
inline constinit alloc::Names names_of_process{};
inline alloc::Names& names() { return names_of_process; }

}  // namespace cistern::shim
