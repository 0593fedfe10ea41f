// SPDX-License-Identifier: Apache-2.0
// One run of a graph, as a request names it (record/phases.h finds runs).
#pragma once

#include <cstdint>

namespace cistern::alloc {

struct GraphRun {
  uint32_t run = 0;   // numbers grow; 0: the request is in no graph
  uint32_t name = 0;  // of the graph: runs of one name need about the same memory
};

}  // namespace cistern::alloc
