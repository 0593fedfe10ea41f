// SPDX-License-Identifier: Apache-2.0
// The strategies of GE_USE_STATIC_MEMORY=2 and 4: graphs that take turns share arenas
// (graph_runs.h). Any thread.
#pragma once

#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/expandable/expandable.h"
#include "allocator/graph_arena/graph_runs.h"
#include "allocator/on_demand/on_demand.h"

namespace cistern::alloc {

// The default strategy with a pool beside it for the members of groups (chunk_pools/groups.h),
// which lie side by side in chunks as large as their group needs. Requests without a group are the
// default strategy's; only when no other memory is left, free space between members serves them.
// Idle chunks of groups count in the default strategy's budget of idle memory. In calls of the
// program they are returned first, because the strategy's own idle memory serves any request. Any
// thread; no lock is held while the chunk layer is called.
class GroupedOnDemand {
 public:
  static constexpr uint64_t kMostUnpublished = ChunkPools::kMostUnpublished;
  static constexpr bool kCutsIdleChunks = false;
  static constexpr bool kHasIdleBudget = true;

  void init(OnDemand* rest, ChunkPools* members) {
    rest_ = rest;
    members_ = members;
  }

  bool take_clean(Request& request) { return rest_->take_clean(request); }
  int take_fresh(Request& request) { return rest_->take_fresh(request); }
  int take_fresh_of_any_size(Request& request, Step* step) {
    return rest_->take_fresh_of_any_size(request, step);
  }
  bool can_ask_for_less() const { return false; }
  bool take_from_anywhere(Request& request, Step* step) {
    return rest_->take_from_anywhere(request, step) || members_->take_from_anywhere(request, step);
  }
  bool worth_waiting(const Request& request) const { return rest_->worth_waiting(request); }
  bool take_of_other_sizes(Request& request) { return rest_->take_of_other_sizes(request); }
  uint64_t most_pools() const { return OnDemand::most_pools() + members_->most_pools(); }

  void fill_freed() {
    rest_->fill_freed();
    members_->fill_freed();
  }
  void collect_clean(ChunkList* out) {
    ChunkList slabs;
    rest_->collect_clean(&slabs);
    members_->collect_clean(out);
    while (Chunk* chunk = slabs.pop()) out->push(chunk);
  }
  void collect_all(ChunkList* out) {
    ChunkList slabs;
    rest_->collect_all(&slabs);
    members_->collect_all(out);
    while (Chunk* chunk = slabs.pop()) out->push(chunk);
  }
  void refresh(bool spare_too) {
    rest_->refresh(spare_too);
    members_->refresh(spare_too);
  }

  // ChunkPools' versions include the chunk layer, which both share.
  IdleChunks see_idle(Tick now) { return members_->see_idle(now); }
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX) {
    members_->collect_aged(now, least, out, most);
  }

  void refresh_chunks() {
    rest_->refresh_chunks();
    members_->refresh(/*spare_too=*/false);
  }
  // Whether waiting memory is idle is known only after refresh_chunks(), so it counts here.
  bool over_floor() const {
    const BlockPool* pool = members();
    return rest_->over_floor(pool == nullptr ? 0 : pool->waiting_bytes());
  }
  bool over_budget(uint64_t coming = 0) const { return rest_->over_budget(coming); }
  bool far_over_budget() const { return rest_->far_over_budget(); }
  bool must_give_back() const { return false; }
  void collect_excess(ChunkList* out, uint64_t coming = 0) {
    const BlockPool* pool = members();
    const bool idle = pool != nullptr && pool->idle_chunk_bytes() != 0;
    if (idle && over_budget(coming)) members_->collect_one_idle(ChunkPools::kBesideOnDemand, out);
    if (out->empty()) rest_->collect_excess(out, coming);
  }
  void collect_aged_excess(Tick look, uint32_t least, uint64_t coming, ChunkList* out) {
    if (over_budget(coming)) collect_aged(look, least, out);
  }

  void forget(Chunk* chunk) {
    rest_->forget(chunk);
    members_->forget(chunk);
  }

  template <typename Visitor>
  void for_each_pool(Visitor visit) {
    rest_->for_each_pool(visit);
    members_->for_each_pool(visit);
  }
  template <typename Visitor>
  void for_each_pool(Visitor visit) const {
    static_cast<const OnDemand*>(rest_)->for_each_pool(visit);
    static_cast<const ChunkPools*>(members_)->for_each_pool(visit);
  }
  void reset_after_fork() {
    rest_->reset_after_fork();
    members_->reset_after_fork();
  }

 protected:
  const BlockPool* members() const { return members_->pool_at(ChunkPools::kBesideOnDemand); }

  OnDemand* rest_;
  ChunkPools* members_;
};

// The strategy of GE_USE_STATIC_MEMORY=2: graphs that run one after the other share an arena as
// large as the largest of them. The default strategy serves requests outside of graphs, and
// requests that outlived their graph in an earlier run of the same name.
//
//   begin   of a known graph: if the arena is not one chunk that is large enough, it is replaced.
//           An empty arena goes back to the driver, and the first miss takes one of the new size.
//           If blocks that outlived their graphs are in it, it is left to them, and a new arena
//           takes its place
//   miss    a graph that needs more than the arena has, or that is not known yet, adds chunks
//   sync    memory that was not clean when the graph began goes back to the driver then
//
// Arenas that were left to such blocks also serve requests of the default strategy, before its own
// memory does.
class GraphArenas : public GroupedOnDemand, public GraphRuns<GraphArenas> {
 public:
  static constexpr unsigned kMostArenas = 32;  // with those that were left

  // `sizes`: `first` and `later` are the bytes that the arena takes at its first use and grows by;
  // 0: as much as needed.
  void init(SharedChunks* shared, OnDemand* rest, ChunkPools* members, ChunkSupply* supply,
            MemorySource* source, const DeviceParts& device, const ChunkSizes& sizes);

  bool take_clean(Request& request) {
    if (request.in_arena()) return members_->take_clean(request);
    return (left_.load(std::memory_order_relaxed) != 0 && take_left(request)) ||
           rest_->take_clean(request);
  }
  int take_fresh(Request& request) {
    return request.in_arena() ? grow(request, nullptr) : rest_->take_fresh(request);
  }
  int take_fresh_of_any_size(Request& request, Step* step) {
    return request.in_arena() ? grow(request, step) : rest_->take_fresh_of_any_size(request, step);
  }
  bool can_ask_for_less() const { return true; }
  bool worth_waiting(const Request& request) const {
    return request.in_arena() || rest_->worth_waiting(request);
  }

  void refresh_chunks();

  // Idle memory of arenas stays. Only arenas that are to go back count as excess.
  bool over_budget(uint64_t coming = 0) const {
    return GroupedOnDemand::over_budget(coming) || to_give_back() != 0;
  }
  bool must_give_back() const { return to_give_back() != 0; }
  void collect_excess(ChunkList* out, uint64_t coming = 0);
  // Does not include arenas.
  void collect_aged_excess(Tick look, uint32_t least, uint64_t coming, ChunkList* out) {
    rest_->collect_aged_excess(look, least, coming, out);
  }

  // Chunks that go back no longer belong to an arena: publishes the arenas' size.
  void collect_clean(ChunkList* out) {
    GroupedOnDemand::collect_clean(out);
    publish();
  }
  void collect_all(ChunkList* out) {
    GroupedOnDemand::collect_all(out);
    publish();
  }
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX) {
    GroupedOnDemand::collect_aged(now, least, out, most);
    if (!out->empty()) publish();
  }

  void forget_all();
  void reset_after_fork() {
    GroupedOnDemand::reset_after_fork();
    mutex_.reset();
  }

 private:
  friend GraphRuns;

  BlockPool* arena(unsigned number) { return members_->pool_at(number); }
  void enter_arena(Running* running, AtBegin* begin);
  void after_begin(const AtBegin& begin) {
    if (begin.gives_back != 0) give_back(begin.gives_back);
  }

  bool gathers() const { return supply_->filler.gathers(); }
  uint64_t reusable_bytes(const BlockPool& pool) const;
  unsigned new_pool();
  [[gnu::noinline]] bool take_left(Request& request);
  int grow(Request& request, Step* step);
  void give_back(unsigned pool);
  void publish();
  uint32_t to_give_back() const;

  ChunkSupply* supply_;
  SharedChunks* shared_;
  uint32_t used_ = 0;                 // a bit for each pool in use
  std::atomic<uint32_t> left_{0};     // arenas left to blocks that outlived their graph
  std::atomic<uint32_t> refolds_{0};  // arenas to replace by one chunk once they are empty
  std::atomic<uint64_t> published_{0};
};

// The strategy of GE_USE_STATIC_MEMORY=3 and, with arenas, of 4: arenas of graphs over expandable
// memory (expandable.h), both from one supply of units. An arena keeps its addresses and grows by
// units behind them. When a known graph begins, it grows at once to the graph's need, so it need
// not be empty for that. A block that outlives its graph holds only the units in which it lies.
// When memory is short, the arena's clean units move to where they are needed, and later come back
// behind the same addresses.
class UnitArenas : public Expandable, public GraphRuns<UnitArenas> {
 public:
  // As Expandable::init(). `sizes`: memory within graphs and outside of graphs grows separately;
  // whichever is used first takes `first`.
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

  // Each place for a running graph has its own arena.
  void enter_arena(Running* running, AtBegin*) {
    const unsigned number = place_of(running) + 1;
    running->pool = static_cast<uint8_t>(begin_arena(number) ? number : 0);
  }
  void after_begin(const AtBegin&) {}
};

}  // namespace cistern::alloc
