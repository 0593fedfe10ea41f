// SPDX-License-Identifier: Apache-2.0
// The strategy of one context, and the state that the pools of all contexts share. The policy
// selects the strategy once, when the context is first seen. A visit is one branch and no indirect
// call, because every request passes here. Any thread.
#pragma once

#include <atomic>
#include <concepts>

#include "allocator/chunk/index.h"
#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/graph_arena/graph_arenas.h"
#include "allocator/on_demand/on_demand.h"
#include "allocator/on_demand/slab.h"

namespace cistern::alloc {

// The shared state of all pools of the process: the chunk layer's part, and the bookkeeping of
// every strategy. Constant-initialised and, until the first block, untouched.
struct Shared : SharedChunks {
  SlabArena slabs;     // the default strategy's
  BlockArenas blocks;  // the chunk strategies'

  void reset_after_fork() {
    SharedChunks::reset_after_fork();
    slabs.reset_after_fork();
    blocks.reset_after_fork();
  }
};

// The functions of a strategy that ContextMemory, Shortage and IdleWork call. on_demand.h says what
// each means.
template <typename S>
concept ServesRequests = requires(S s, const S& c, Request& request, Step* step) {
  { s.take_clean(request) } -> std::same_as<bool>;
  { s.take_fresh(request) } -> std::same_as<int>;
  // With memory short.
  { c.can_ask_for_less() } -> std::same_as<bool>;
  { s.take_fresh_of_any_size(request, step) } -> std::same_as<int>;
  { s.take_from_anywhere(request, step) } -> std::same_as<bool>;
  { c.worth_waiting(request) } -> std::same_as<bool>;
  requires S::kCutsIdleChunks || requires { s.take_of_other_sizes(request); };
};
template <typename S>
concept GivesMemoryBack = requires(S s, const S& c, ChunkList* out, Tick now, uint64_t bytes) {
  s.fill_freed();
  s.refresh(/*spare_too=*/true);
  s.collect_clean(out);
  s.collect_all(out);
  // Beyond the budget of idle memory.
  requires std::same_as<decltype(S::kHasIdleBudget), const bool>;
  s.refresh_chunks();
  { c.over_floor() } -> std::same_as<bool>;
  { c.over_budget(bytes) } -> std::same_as<bool>;
  { c.far_over_budget() } -> std::same_as<bool>;
  { c.must_give_back() } -> std::same_as<bool>;
  s.collect_excess(out, bytes);
  s.collect_aged_excess(now, uint32_t{}, bytes, out);
  // Idle for long.
  { s.see_idle(now) } -> std::same_as<IdleChunks>;
  s.collect_aged(now, uint32_t{}, out, bytes);
};
template <typename S>
concept Strategy = ServesRequests<S> && GivesMemoryBack<S> &&
    requires(S s, const S& c, Chunk* chunk) {
  { c.most_pools() } -> std::same_as<uint64_t>;
  s.for_each_pool([](const auto&) {});
  c.for_each_pool([](const auto&) {});
  s.forget(chunk);
  s.reset_after_fork();
  requires std::same_as<decltype(S::kMostUnpublished), const uint64_t>;
};
static_assert(Strategy<OnDemand> && Strategy<ChunkPools> && Strategy<GroupedOnDemand> &&
              Strategy<GraphArenas> && Strategy<UnitArenas>);

class AnyStrategy {
 public:
  void init(Shared* shared, ChunkSupply* supply, MemorySource* source, const DeviceParts& device,
            uint32_t owner, const ChunkSizes& sizes, bool groups) {
    const Kind kind = kind_of(sizes.kind, groups);
    kind_.store(kind, std::memory_order_relaxed);
    if (kind == Kind::units) {
      has_arenas_ = sizes.kind == StrategyKind::unit_arena;
      units_.init(shared, &shared->blocks, supply, source, device, owner, sizes);
      return;
    }
    has_arenas_ = kind == Kind::arenas;
    ChunkSizes of_chunks = sizes;
    if (kind != Kind::chunked) {
      on_demand_.init(shared, &shared->slabs, supply, device, owner);
      if (kind == Kind::arenas) {
        arenas_.init(shared, &on_demand_, &chunk_pools_, supply, source, device, sizes);
      } else {
        grouped_.init(&on_demand_, &chunk_pools_);
      }
      of_chunks = {StrategyKind::auto_growth, 0, 0, sizes.align, false, false};
    }
    if (kind != Kind::on_demand) {
      chunk_pools_.init(shared, &shared->blocks, supply, device, owner, of_chunks);
    }
  }

  template <typename Visitor>
  [[gnu::always_inline]] decltype(auto) visit(Visitor visitor) {
    const Kind kind = kind_.load(std::memory_order_relaxed);
    if (kind != Kind::on_demand) [[unlikely]] {
      if (kind == Kind::chunked) return visitor(chunk_pools_);
      if (kind == Kind::arenas) return visitor(arenas_);
      return kind == Kind::units ? visitor(units_) : visitor(grouped_);
    }
    return visitor(on_demand_);
  }
  template <typename Visitor>
  decltype(auto) visit(Visitor visitor) const {
    const Kind kind = kind_.load(std::memory_order_relaxed);
    if (kind != Kind::on_demand) [[unlikely]] {
      if (kind == Kind::chunked) return visitor(chunk_pools_);
      if (kind == Kind::arenas) return visitor(arenas_);
      return kind == Kind::units ? visitor(units_) : visitor(grouped_);
    }
    return visitor(on_demand_);
  }

  // Serves the request from clean memory at hand.
  [[gnu::always_inline]] bool take_clean(Request& request) {
    return visit([&](Strategy auto& strategy) { return strategy.take_clean(request); });
  }

  // The strategy that a chunk's role names.
  OnDemand& on_demand() { return on_demand_; }
  ChunkPools& chunk_pools() { return chunk_pools_; }
  Expandable& expandable() { return units_; }

  // The strategy whose memory is units; nullptr under the other strategies.
  Expandable* units() {
    return kind_.load(std::memory_order_relaxed) == Kind::units ? &units_ : nullptr;
  }

  // Whether graphs have arenas (graph_arena/graph_runs.h). Without arenas, do not call the next
  // two.
  bool has_arenas() const { return has_arenas_; }
  ArenaPart place(uint64_t bytes, GraphRun graph) {
    return units() != nullptr ? units_.place(bytes, graph) : arenas_.place(bytes, graph);
  }
  void note_taken(const Request& request, GraphRun graph) {
    units() != nullptr ? units_.note_taken(request, graph) : arenas_.note_taken(request, graph);
  }
  // Once the pools were forgotten.
  void forget_arenas() {
    if (has_arenas()) units() != nullptr ? units_.forget_all() : arenas_.forget_all();
  }

  // `waiting`: bytes that wait in one pool, or in the chunk layer. False if this is so little that
  // all pools together would stay below half of Reclaim::kWaitingBound if each had as much.
  bool near_bound(uint64_t waiting) const {
    constexpr uint64_t kMostPools = 2 * kMostThreads;  // of any strategy
    static_assert(OnDemand::kShards + kMostThreads <= kMostPools);
    if (2 * waiting * (kMostPools + 1) < Reclaim::kWaitingBound) [[likely]]
      return false;
    return visit([=](const auto& strategy) {
      return 2 * waiting * (strategy.most_pools() + 1) >= Reclaim::kWaitingBound;
    });
  }

  // The strategy's pools of blocks, for totals.
  template <typename Visitor>
  void for_each_pool(Visitor visitor) {
    visit([&](auto& strategy) { strategy.for_each_pool(visitor); });
  }
  template <typename Visitor>
  void for_each_pool(Visitor visitor) const {
    visit([&](const auto& strategy) { strategy.for_each_pool(visitor); });
  }

 private:
  enum class Kind : uint8_t { on_demand, chunked, grouped, arenas, units };

  static Kind kind_of(StrategyKind kind, bool groups) {
    if (kind == StrategyKind::expandable || kind == StrategyKind::unit_arena) return Kind::units;
    if (kind == StrategyKind::graph_arena) return Kind::arenas;
    if (kind != StrategyKind::on_demand) return Kind::chunked;
    return groups ? Kind::grouped : Kind::on_demand;
  }

  // Atomic, because totals may be read while init() runs for the next context in this place. The
  // policy, and so the value, is the same.
  std::atomic<Kind> kind_;
  bool has_arenas_;
  OnDemand on_demand_;
  ChunkPools chunk_pools_;
  GroupedOnDemand grouped_;
  GraphArenas arenas_;
  UnitArenas units_;
};

}  // namespace cistern::alloc
