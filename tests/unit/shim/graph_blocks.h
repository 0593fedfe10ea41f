// SPDX-License-Identifier: Apache-2.0
// Graphs by number, and blocks of which it is asked whether a graph may hold them.
#pragma once

#include "shim/order/captures/graphs.h"
#include "shim/order/shared.h"
#include "tests/catch.h"
#include "tests/unit/shim/fake_shim.h"

namespace cistern::test::graph_blocks {

inline CUgraph graph(uintptr_t n) { return reinterpret_cast<CUgraph>(64 * n); }
inline CUgraphExec exec(uintptr_t n) { return reinterpret_cast<CUgraphExec>(64 * n); }
inline CUcontext context(uintptr_t n) { return reinterpret_cast<CUcontext>(n); }
inline CUstream stream(uintptr_t n) { return reinterpret_cast<CUstream>(16 * n); }

inline alloc::GraphLives& lives() { return shim::shared().reclaim.graphs(); }

// A block, by when it was handed out. What is asked of it is whether a free of it now parks it.
struct Block {
  alloc::Epoch born = lives().now();
  bool held() const { return alloc::GraphLives::Look(lives()).held(born, lives().now()); }
};

// A block that was handed out and freed at once. Each is of an epoch of its own.
struct Freed {
  alloc::Epoch born = lives().begin(), freed = lives().begin();
  bool held() const { return alloc::GraphLives::Look(lives()).held(born, freed); }
};

// Each test begins and ends without graphs.
struct Graphs {
  Graphs() {
    reset_fakes();
    REQUIRE(lives().none());
  }
  ~Graphs() {
    for (uintptr_t n = 1; n < 32; ++n) {
      shim::GraphLeaving(graph(n)).destroyed();
      shim::GraphLeaving(exec(n)).destroyed();
    }
    CHECK(lives().none());
  }
};

inline void create(CUgraph made) {
  const alloc::Epoch since = shim::graph_begins();
  shim::graph_created(made, since);
}

inline void capture(CUgraph captured, CUcontext of, alloc::Epoch since, bool into_graph = false) {
  shim::graph_captured(captured, {stream(1), of, since, into_graph});
}
inline void capture(CUgraph captured, CUcontext of = context(1)) {
  capture(captured, of, shim::graph_begins());
}

}  // namespace cistern::test::graph_blocks
