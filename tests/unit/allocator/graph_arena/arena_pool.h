// SPDX-License-Identifier: Apache-2.0
// A pool with arenas, and runs of graphs in it. A graph is a number, and so is its run.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "tests/hangs.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace cistern::test {

inline constexpr uint32_t kSmall = 1, kLarge = 2, kOther = 3;

inline std::unique_ptr<Pool> arenas(uint64_t capacity_mib = 4096, uint64_t first_mib = 0,
                                    uint64_t later_mib = 0,
                                    alloc::FillMode fill = alloc::FillMode::off) {
  auto p = std::make_unique<Pool>(
      capacity_mib * kMiB,
      sizes(alloc::StrategyKind::graph_arena, first_mib * kMiB, later_mib * kMiB),
      alloc::GarbageRules{}, fill);
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

// Whether a child can begin a run that was forked while another thread began one.
inline bool child_begins_a_run(Pool& p) {
  int status = 1;
  const auto fork_and_wait = [&] {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangsS);
      p.shared.reset_after_fork();
      p.pool.reset_after_fork();
      _exit(p.allocate_in_graph(4 * kMiB, 1, kSmall) != 0 ? 0 : 1);
    }
    if (child > 0) waitpid(child, &status, 0);
  };
  p.source.begin_graph(1);
  p.source.on_graph_is_open = [&] { std::thread(fork_and_wait).join(); };
  return p.allocate_in_graph(4 * kMiB, 1, kSmall) != 0 && status == 0;
}

}  // namespace cistern::test
