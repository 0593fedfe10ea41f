// SPDX-License-Identifier: Apache-2.0
// The strategy of GE_USE_STATIC_MEMORY=2: graphs that run one after the other share an arena as
// large as the largest of them. Beside it is the default strategy, for requests in no graph and for
// those that outlive their graph (known_graphs.h), as an earlier run of the name has shown.
//
//   place   a request's run is found, or begins: where another run has ended in this arena, what it
//           needed and what outlived it becomes known. If the coming graph is known and the arena
//           is not one chunk that suffices, it goes back to the driver when it is empty, and the
//           first miss takes one of the new size. Not empty, the arena is left to what outlived its
//           graphs, and another one takes its place
//   miss    a graph that needs more than there is, or is not known yet, grows the arena by chunks
//   sync    what could not go when the graph began, because it was not clean, goes then
//
// A run that finds another one open gets an arena of its own; a graph that comes after both uses
// either. An arena is a BlockPool: who allocates in which arena is a matter of room, not of safety.
// Arenas that were left serve requests of the default strategy before it takes memory.
//
// Any thread. mutex_ is about runs alone: it is held while a pool's lock is taken, never the other
// way round, and not while the chunk layer is called. Where there is no memory for bookkeeping
// every request is the default strategy's.
#pragma once

#include "allocator/graph_arena/graph_run.h"
#include "allocator/graph_arena/grouped_on_demand.h"
#include "allocator/graph_arena/known_graphs.h"

namespace cistern::alloc {

class GraphArenas : public GroupedOnDemand {
 public:
  static constexpr unsigned kMostRunning = 4;      // graphs at the same time; others have no arena
  static constexpr unsigned kMostNames = 64;       // further names are one
  static constexpr unsigned kMostArenas = 32;      // with those that were left
  static constexpr uint32_t kMostNoted = 1 << 16;  // requests of a run whose ends are looked at

  // `sizes`: first and later, bytes the arena takes at its first use and grows by; 0: by need.
  void init(SharedChunks* shared, OnDemand* rest, ChunkPools* members, ChunkSupply* supply,
            MemorySource* source, const DeviceParts& device, const ChunkSizes& sizes);

  // Where a request of `bytes` in this run belongs. May give memory back to the source, without a
  // wait.
  ArenaPart place(uint64_t bytes, GraphRun graph);
  // It was served.
  void note_taken(const Request& request, GraphRun graph);

  bool take_clean(Request& request) {
    if (in_arena(request)) return members_->take_clean(request);
    return (left_.load(std::memory_order_relaxed) != 0 && take_left(request)) ||
           rest_->take_clean(request);
  }
  int take_fresh(Request& request) {
    return in_arena(request) ? grow(request, nullptr) : rest_->take_fresh(request);
  }
  int take_fresh_of_any_size(Request& request, Step* step) {
    return in_arena(request) ? grow(request, step) : rest_->take_fresh_of_any_size(request, step);
  }
  bool can_ask_for_less() const { return true; }
  bool worth_waiting(const Request& request) const {
    return in_arena(request) || rest_->worth_waiting(request);
  }

  // Idle memory of arenas is kept; what is to go back is excess.
  bool may_be_over_budget() const {
    return GroupedOnDemand::may_be_over_budget() || to_give_back() != 0;
  }
  bool over_budget() const { return GroupedOnDemand::over_budget() || to_give_back() != 0; }
  void collect_excess(ChunkList* out);

  void forget_all();
  void reset_after_fork() {
    GroupedOnDemand::reset_after_fork();
    mutex_.reset();
  }

 private:
  static constexpr uint32_t kSeen = 2 * kMostNoted;

  struct Noted {
    uint64_t address;  // 0: not served, or not noted
    KnownGraph::Key key;
  };
  struct Running {
    uint32_t run;  // 0: none yet
    uint8_t pool;
    bool grew;  // beyond what the graph was known to need
    KnownGraph* graph;
    uint64_t most_needed;  // by any graph in this arena
    uint64_t peak;         // of this run
    uint64_t live_before;
    uint32_t requests;  // of this run, in noted[]
    KnownGraph::Counts counts;
    Noted noted[kMostNoted];
  };
  struct Tables {
    KnownGraph graphs[kMostNames];
    Running running[kMostRunning];
    uint64_t seen[kSeen];  // addresses, while what outlives a run is looked for
  };

  static bool in_arena(const Request& request) {
    return request.arena != nullptr && request.arena->pool != 0;
  }
  // What a run that begins leaves to do without the lock.
  struct AtBegin {
    bool overlaps;        // with another one, which is open
    unsigned gives_back;  // the pool whose clean chunks are to go to the source, or 0
  };
  Running* running(GraphRun graph, AtBegin* begin);
  Running* free_place();
  Running* by_pool(unsigned pool, uint32_t run);
  KnownGraph* graph_of(uint32_t name);
  void end(Running& running);
  void look_for_survivors(Running& running, const BlockPool& pool);
  bool seen_before(uint64_t address);
  unsigned reshape(Running& running);
  unsigned new_pool();
  bool take_left(Request& request);
  int grow(Request& request, Step* step);
  void note_grown(unsigned pool);
  void give_back(unsigned pool);
  void publish();
  uint32_t to_give_back() const;
  static uint64_t in_use(const BlockPool& pool);

  MemorySource* source_;
  ChunkSupply* supply_;
  SharedChunks* shared_;
  Ledger* ledger_;
  ChunkSizes sizes_;
  Mutex mutex_;
  Tables* tables_ = nullptr;          // mapped when the first graph comes
  uint32_t used_ = 0;                 // pools, a bit each
  std::atomic<uint32_t> left_{0};     // those that serve the default strategy
  std::atomic<uint32_t> refolds_{0};  // arenas that are to be one chunk, when they are empty
  unsigned known_ = 0;                // graphs
  std::atomic<uint64_t> published_{0};
};

}  // namespace cistern::alloc
