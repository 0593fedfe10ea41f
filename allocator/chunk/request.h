// SPDX-License-Identifier: Apache-2.0
// One request on its way through ContextPool, a strategy and, if memory is short, Shortage. It
// belongs to the calling thread.
#pragma once

#include <cstdint>

namespace cistern::alloc {

// Which arena serves a request of a graph (graph_arena/graph_runs.h).
struct ArenaPart {
  uint8_t pool = 0;                           // 0: none
  uint64_t first_chunk = 0, later_chunk = 0;  // at least how large it is to be, and to grow by
  uint32_t noted = 0;                         // where the request is noted
  bool grew = false;                          // for this request, and not to its size
};

struct Request {
  uint64_t bytes;          // as the program asked, > 0
  unsigned shard;          // the caller's thread
  bool pooled = true;      // false: to be a driver allocation of its own, if the driver has memory
  uint64_t address = 0;    // the answer
  bool whole = false;      // the answer is a chunk of its own, counted as such
  bool ask_first = false;  // much was freed lately: ask what is clean before taking anything
  uint64_t room = 0;       // bytes to be had behind it, for others of its group
  ArenaPart* arena = nullptr;  // of a graph

  bool in_arena() const { return arena != nullptr && arena->pool != 0; }
};

}  // namespace cistern::alloc
