// SPDX-License-Identifier: Apache-2.0
// One request on its way through ContextPool, a strategy and, if memory is short, Shortage. It
// belongs to the calling thread.
#pragma once

#include <cstdint>

namespace cistern::alloc {

// Which arena serves a request of a graph (graph_arena/graph_runs.h).
struct ArenaPart {
  uint8_t pool = 0;                           // 0: none
  uint64_t first_chunk = 0, later_chunk = 0;  // least bytes of its first and of each later chunk
  uint32_t noted = 0;                         // the request's place in Running::noted
  bool grew = false;                          // for this request, but not to its known size
};

struct Request {
  uint64_t bytes;              // requested by the program, > 0
  unsigned shard;              // the caller's thread
  bool pooled = true;          // false: a driver allocation of its own, if the driver has memory
  uint64_t address = 0;        // the answer
  bool whole = false;          // the answer is a whole chunk
  bool ask_first = false;      // much was freed lately: first ask what has become clean
  uint64_t room = 0;           // bytes to reserve behind it, for other members of its group
  ArenaPart* arena = nullptr;  // for a request of a graph

  bool in_arena() const { return arena != nullptr && arena->pool != 0; }
};

}  // namespace cistern::alloc
