// SPDX-License-Identifier: Apache-2.0
// The default strategy with a pool beside it for the members of groups (chunk_pools/groups.h),
// which lie side by side in chunks as large as their group needs. Requests without a group are the
// default strategy's; only when no other memory is left, free space between members serves them.
// Idle chunks of groups count in the default strategy's budget of idle memory. In calls of the
// program they are returned first, because the strategy's own idle memory serves any request. Any
// thread; no lock is held while the chunk layer is called.
#pragma once

#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/on_demand/on_demand.h"

namespace cistern::alloc {

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

  // Those of ChunkPools look at the chunk layer, which both share, too.
  IdleChunks see_idle(Tick now) { return members_->see_idle(now); }
  void collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most = UINT64_MAX) {
    members_->collect_aged(now, least, out, most);
  }

  void refresh_chunks() {
    rest_->refresh_chunks();
    members_->refresh(/*spare_too=*/false);
  }
  // Of what waits it is not known before refresh_chunks() whether it is idle.
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

}  // namespace cistern::alloc
