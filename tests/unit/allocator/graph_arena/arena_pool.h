// SPDX-License-Identifier: Apache-2.0
// A pool with arenas, and runs of graphs in it. A graph is a number, and so is its run.
#pragma once

#include <memory>
#include <vector>

#include "tests/unit/allocator/chunk_pool.h"

namespace cistern::test {

inline constexpr uint32_t kSmall = 1, kLarge = 2, kOther = 3;

inline std::unique_ptr<Pool> arenas(uint64_t capacity_mib = 4096, uint64_t first_mib = 0,
                                    uint64_t later_mib = 0) {
  auto p = std::make_unique<Pool>(capacity_mib * kMiB, sizes(alloc::StrategyKind::graph_arena,
                                                             first_mib * kMiB, later_mib * kMiB));
  p->source.may_take_clean = true;
  return p;
}

// A run of a graph: blocks of 4 MiB that are all live once, then none.
inline void run(Pool& p, uint32_t number, uint32_t graph, unsigned blocks) {
  p.source.open_graphs = {number};
  std::vector<uint64_t> live;
  for (unsigned i = 0; i < blocks; ++i)
    live.push_back(p.allocate_in_graph(4 * kMiB, number, graph));
  for (const uint64_t address : live) {
    REQUIRE(address != 0);
    REQUIRE(p.free(address) == alloc::Freed::done);
  }
  p.source.open_graphs.clear();
  p.synchronise();
}

}  // namespace cistern::test
