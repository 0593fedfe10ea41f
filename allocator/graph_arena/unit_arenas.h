// SPDX-License-Identifier: Apache-2.0
// The strategy of GE_USE_STATIC_MEMORY=3 and, with arenas, of 4: arenas of graphs (graph_runs.h)
// and expandable memory (expandable.h) over one supply of units. An arena keeps its addresses. It
// grows by units behind them, at once to the known need of the coming graph, so it need not be
// empty for that. A block that outlives its graph holds only the units in which it lies. When
// memory is short, the arena's clean units move to where they are needed, and later come back
// behind the same addresses.
//
// Any thread.
#pragma once

#include "allocator/expandable/expandable.h"
#include "allocator/graph_arena/graph_runs.h"

namespace cistern::alloc {

class UnitArenas : public Expandable, public GraphRuns<UnitArenas> {
 public:
  // As Expandable's. `sizes`: of the two kinds the first that is used takes `first`.
  void init(SharedChunks* shared, BlockArenas* arenas, ChunkSupply* supply, MemorySource* source,
            const DeviceParts& device, uint32_t owner, const ChunkSizes& sizes) {
    Expandable::init(shared, arenas, supply, source, device, owner, sizes);
    ChunkSizes of_arenas = sizes;
    of_arenas.first = 0;
    init_runs(source, supply->index, device.ledger, of_arenas);
    forget_all();
  }

  void forget_all() {
    LockGuard guard(mutex_);
    forget_runs();
    forget_arenas();
  }
  void reset_after_fork() {
    Expandable::reset_after_fork();
    mutex_.reset();
  }

 private:
  friend GraphRuns;
  static_assert(kMostRunning <= kMostArenas);

  // Each place has its arena.
  void enter_arena(Running* running, AtBegin*) {
    const unsigned number = place_of(running) + 1;
    running->pool = static_cast<uint8_t>(begin_arena(number) ? number : 0);
  }
  void after_begin(const AtBegin&) {}
};

}  // namespace cistern::alloc
