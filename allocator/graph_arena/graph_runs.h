// SPDX-License-Identifier: Apache-2.0
// Runs of graphs: decides to which arena a request of a run belongs. If it outlived its graph in an
// earlier run of the same name, it belongs to none (KnownGraph). A run begins with its first
// request. It takes a place whose last run has ended; the need of that run, and which of its
// requests outlived it, are found out now. If another run is still open, the new run gets another
// place, and so another arena. A graph that comes after both uses either one.
//
// An arena is a BlockPool, so the choice of the arena affects room, not safety. The Strategy that
// derives from this class provides the memory and takes it:
//
//   arena(number)                the pool; nullptr if there is none yet
//   enter_arena(running, begin)  a run begins: sets running->pool, or 0 if there is no pool, and
//                                prepares that pool for most_needed bytes
//   after_begin(begin)           does the rest of that work, without the lock
//
// Any thread. mutex_ protects only runs. A pool's lock is taken under it, never the other way
// round, and it is not held while the chunk layer is called. Without memory for bookkeeping no
// request is placed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "allocator/base/os.h"
#include "allocator/base/source.h"
#include "allocator/base/threads.h"
#include "allocator/chunk/chunk_supply.h"
#include "allocator/chunk/index.h"
#include "allocator/chunk_pools/block_pool.h"
#include "allocator/chunk_pools/chunk_sizes.h"

namespace cistern::alloc {

// One run of a graph, as a request names it (record/phases.h finds runs).
struct GraphRun {
  uint32_t run = 0;   // later runs have higher numbers; 0: the request is in no graph
  uint32_t name = 0;  // the graph's: runs with one name need about the same memory
};

// What earlier runs of graphs have shown, by name: how many bytes of the arena a run needs, and
// which of its requests outlive it. A request is identified by its size and its number among the
// run's requests of that size, so that threads of one run may take turns. All zero bytes at the
// start. Not thread-safe.
class KnownGraph {
 public:
  static constexpr unsigned kMostSizes = 1024;  // other sizes: taken not to outlive the graph

  // The requests of one run, counted by size.
  struct Counts {
    uint32_t seen[kMostSizes];
  };
  // One request of a run.
  struct Key {
    uint16_t size;  // an index; kMostSizes: there was no room for the size
    uint16_t nth;   // its number among those of its size; 63 stands for all further ones
  };

  uint32_t name() const { return name_; }
  void begin(uint32_t name) { name_ = name; }

  // The key of the next request of `bytes` in a run. Adds it to the run's counts.
  Key next(uint64_t bytes, Counts& counts) {
    const unsigned size = find_size(bytes);
    if (size == kMostSizes) return {kMostSizes, 0};
    const uint32_t nth = counts.seen[size]++;
    return {static_cast<uint16_t>(size), static_cast<uint16_t>(nth < kLast ? nth : kLast)};
  }

  bool outlives(Key key) const {
    return key.size != kMostSizes && (sizes_[key.size].outlive >> key.nth & 1) != 0;
  }
  void note_outlives(Key key) {
    if (key.size != kMostSizes) sizes_[key.size].outlive |= uint64_t{1} << key.nth;
  }

  // known(): whether a run has ended. need(): the bytes of an arena that a run needs; it only
  // grows.
  bool known() const { return runs_ != 0; }
  uint64_t need() const { return need_; }
  void note_run(uint64_t need) {
    ++runs_;
    if (need > need_) need_ = need;
  }

 private:
  static constexpr uint32_t kLast = 63;

  struct Size {
    uint64_t bytes;    // 0: free
    uint64_t outlive;  // a bit for each Key::nth
  };

  unsigned find_size(uint64_t bytes) {
    const uint64_t hash = bytes * 0x9e3779b97f4a7c15u >> 32;
    for (unsigned i = 0; i < kProbes; ++i) {
      Size& size = sizes_[(hash + i) % kMostSizes];
      if (size.bytes == 0) size.bytes = bytes;
      if (size.bytes == bytes) return static_cast<unsigned>((hash + i) % kMostSizes);
    }
    return kMostSizes;
  }

  static constexpr unsigned kProbes = 16;

  uint32_t name_;
  uint32_t runs_;
  uint64_t need_;
  Size sizes_[kMostSizes];
};

template <typename Strategy>
class GraphRuns {
 public:
  static constexpr unsigned kMostRunning = 4;      // graphs at one time; further ones: no arena
  static constexpr unsigned kMostNames = 64;       // further names share the last one's entry
  static constexpr uint32_t kMostNoted = 1 << 16;  // requests per run that may be seen to survive

  // The arena for a request of `bytes` in this run; pool 0: none. May release memory to the source,
  // without a wait.
  ArenaPart place(uint64_t bytes, GraphRun graph);
  // The request was served.
  void note_taken(const Request& request, GraphRun graph);

 protected:
  struct Noted {
    uint64_t address;  // 0: not served, or not noted
    KnownGraph::Key key;
  };
  struct Running {
    uint32_t run;  // 0: none yet
    uint8_t pool;
    bool grew;  // the arena grew although the graph was known
    KnownGraph* graph;
    uint64_t most_needed;  // bytes, by any graph in this place, in whole driver pages
    uint64_t peak;         // bytes in use at this run's peak
    uint64_t live_before;  // live bytes of the arena when the run began
    uint32_t requests;     // of this run, in noted[]
    KnownGraph::Counts counts;
    Noted noted[kMostNoted];
  };
  // Work of the beginning of a run that is done later, without the lock.
  struct AtBegin {
    bool overlaps;        // another run is open
    unsigned gives_back;  // the pool whose clean chunks go to the source, or 0
  };

  // Call it before the first request; if the object was used before, with forget_runs(). `sizes`:
  // `first` and `later` are the bytes that an arena takes at its first use and grows by.
  void init_runs(MemorySource* source, Index* index, Ledger* ledger, const ChunkSizes& sizes);
  // With the lock.
  void forget_runs();
  template <typename Visitor>
  void for_each_running(Visitor visit) {
    if (tables_ == nullptr) return;
    for (Running& each : tables_->running) visit(each);
  }
  unsigned place_of(const Running* running) const {
    return static_cast<unsigned>(running - tables_->running);
  }

  Mutex mutex_;
  MemorySource* source_;
  Ledger* ledger_;

 private:
  static constexpr uint32_t kSeen = 2 * kMostNoted;

  struct Tables {
    KnownGraph graphs[kMostNames];
    Running running[kMostRunning];
    uint64_t seen[kSeen];  // addresses already looked at by look_for_survivors()
  };

  Strategy& strategy() { return static_cast<Strategy&>(*this); }
  Running* of_run(uint32_t run);
  Running* running(GraphRun graph, AtBegin* begin);
  Running* free_place();
  KnownGraph* graph_of(uint32_t name);
  void end(Running& running);
  void look_for_survivors(Running& running, BlockPool& pool);
  bool seen_before(uint64_t address);

  Index* index_;
  ChunkSizes sizes_;
  Tables* tables_ = nullptr;  // mapped when the first graph comes
  unsigned known_ = 0;        // how many of tables_->graphs are used
};

template <typename Strategy>
void GraphRuns<Strategy>::init_runs(MemorySource* source, Index* index, Ledger* ledger,
                                    const ChunkSizes& sizes) {
  source_ = source;
  index_ = index;
  ledger_ = ledger;
  sizes_ = sizes;
}

template <typename Strategy>
void GraphRuns<Strategy>::forget_runs() {
  if (tables_ != nullptr) os::unmap(tables_, sizeof *tables_);
  tables_ = nullptr;
  known_ = 0;
}

template <typename Strategy>
ArenaPart GraphRuns<Strategy>::place(uint64_t bytes, GraphRun graph) {
  AtBegin begin{};
  ArenaPart part;
  {
    LockGuard guard(mutex_);
    Running* mine = running(graph, &begin);
    if (mine == nullptr) return part;
    const KnownGraph::Key key = mine->graph->next(bytes, mine->counts);
    if (!mine->graph->outlives(key)) {
      part.pool = mine->pool;
      part.first_chunk = std::max(sizes_.first, mine->most_needed);
      part.later_chunk = sizes_.later;
      part.noted = mine->requests;
      if (mine->requests < kMostNoted) mine->noted[mine->requests++] = {0, key};
    }
  }
  if (begin.overlaps) source_->graphs_overlap();
  strategy().after_begin(begin);
  return part;
}

// If an unknown graph grows its arena, that says nothing about the size that it needs in one piece.
template <typename Strategy>
void GraphRuns<Strategy>::note_taken(const Request& request, GraphRun graph) {
  const ArenaPart& part = *request.arena;
  if (part.pool == 0) return;
  LockGuard guard(mutex_);
  Running* mine = of_run(graph.run);
  if (mine == nullptr || mine->pool != part.pool) return;  // its graph has ended meanwhile
  if (part.noted < kMostNoted) mine->noted[part.noted].address = request.address;
  if (part.grew && mine->graph->known()) mine->grew = true;
  if (BlockPool* pool = strategy().arena(part.pool)) {
    mine->peak = std::max(mine->peak, pool->in_use_bytes());
  }
}

template <typename Strategy>
typename GraphRuns<Strategy>::Running* GraphRuns<Strategy>::of_run(uint32_t run) {
  if (tables_ == nullptr) return nullptr;
  for (Running& each : tables_->running) {
    if (each.run == run) return &each;
  }
  return nullptr;
}

// The run's place. A run that has none begins now. nullptr if it gets no place.
template <typename Strategy>
typename GraphRuns<Strategy>::Running* GraphRuns<Strategy>::running(GraphRun graph,
                                                                    AtBegin* begin) {
  if (tables_ == nullptr) {
    tables_ = static_cast<Tables*>(os::map(sizeof(Tables)));
    if (tables_ == nullptr) return nullptr;
  }
  if (Running* mine = of_run(graph.run)) return mine;
  if (!source_->graph_is_open(graph.run)) return nullptr;  // it ended while the request came here
  Running* place = free_place();
  if (place == nullptr) return nullptr;
  if (place->run != 0) end(*place);
  place->run = 0;
  place->graph = graph_of(graph.name);
  place->most_needed = std::max(place->most_needed, round_up(place->graph->need(), kDriverPage));
  strategy().enter_arena(place, begin);
  if (place->pool == 0) return nullptr;
  if (place != tables_->running) {
    ledger_->graphs_apart.add();
    begin->overlaps = true;
  }
  const BlockPool* pool = strategy().arena(place->pool);
  place->run = graph.run;
  place->live_before = pool == nullptr ? 0 : pool->live();
  place->peak = 0;
  place->grew = false;
  place->requests = 0;
  std::memset(&place->counts, 0, sizeof place->counts);
  return place;
}

// The first place whose run has ended; nullptr if there is none.
template <typename Strategy>
typename GraphRuns<Strategy>::Running* GraphRuns<Strategy>::free_place() {
  for (Running& each : tables_->running) {
    if (each.run == 0 || !source_->graph_is_open(each.run)) return &each;
  }
  return nullptr;
}

template <typename Strategy>
KnownGraph* GraphRuns<Strategy>::graph_of(uint32_t name) {
  for (unsigned i = 0; i < known_; ++i) {
    if (tables_->graphs[i].name() == name) return &tables_->graphs[i];
  }
  if (known_ == kMostNames) return &tables_->graphs[kMostNames - 1];
  KnownGraph* graph = &tables_->graphs[known_++];
  graph->begin(name);
  ledger_->graphs.raise_to(known_);
  return graph;
}

// A run has ended: notes its need and its survivors. If a known graph grew the arena, the free
// memory may have been in pieces or not clean yet. It then needs as much as the arena has now.
template <typename Strategy>
void GraphRuns<Strategy>::end(Running& running) {
  BlockPool* pool = strategy().arena(running.pool);
  if (pool == nullptr) return;
  const uint64_t live = pool->live();
  if (live > running.live_before) look_for_survivors(running, *pool);
  uint64_t need = running.peak - std::min(running.peak, pool->in_use_bytes());
  if (running.grew && live == 0) need = std::max(need, pool->chunk_bytes());
  running.graph->note_run(need);
  uint64_t sum = 0;
  for (unsigned i = 0; i < known_; ++i) sum += tables_->graphs[i].need();
  ledger_->graph_bytes.raise_to(sum);
}

// If several requests got the same address, only the last one can be live.
template <typename Strategy>
void GraphRuns<Strategy>::look_for_survivors(Running& running, BlockPool& pool) {
  std::memset(tables_->seen, 0, sizeof tables_->seen);
  for (uint32_t i = running.requests; i-- > 0;) {
    const Noted& noted = running.noted[i];
    if (noted.address == 0 || seen_before(noted.address)) continue;
    const Chunk* chunk = index_->find(noted.address);
    uint64_t start, bytes;
    const bool live = chunk != nullptr && pool.find(chunk, noted.address, &start, &bytes);
    if (live && start == noted.address) running.graph->note_outlives(noted.key);
  }
}

template <typename Strategy>
bool GraphRuns<Strategy>::seen_before(uint64_t address) {
  uint64_t slot = (address >> 9) * 0x9e3779b97f4a7c15u >> 40;
  for (; tables_->seen[slot % kSeen] != 0; ++slot) {
    if (tables_->seen[slot % kSeen] == address) return true;
  }
  tables_->seen[slot % kSeen] = address;
  return false;
}

}  // namespace cistern::alloc
