// SPDX-License-Identifier: Apache-2.0
// One request on its way through the orchestrator (device_pool.h) and a strategy.
#pragma once

#include <cstdint>

namespace cistern::alloc {

struct Request {
  uint64_t bytes;    // as the program asked, > 0
  unsigned shard;    // the caller's thread
  uint64_t address;  // the answer, 0 so far
  bool whole;        // the answer is a chunk of its own, counted as such
};

}  // namespace cistern::alloc
