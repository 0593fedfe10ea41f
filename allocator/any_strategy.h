// SPDX-License-Identifier: Apache-2.0
// The strategy of one context, which its policy resolves to once, when the context is seen first. A
// visit is one branch and no indirect call, because the default is on the way of every request.
// Both strategies offer what ContextMemory, Shortage and IdleWork ask of them. Any thread.
#pragma once

#include <atomic>

#include "allocator/chunk_pools/chunk_pools.h"
#include "allocator/on_demand/on_demand.h"
#include "allocator/shared.h"

namespace cistern::alloc {

class AnyStrategy {
 public:
  void init(Shared* shared, ChunkSupply* supply, const DeviceParts& device, uint32_t owner,
            const ChunkSizes& sizes) {
    chunked_.store(sizes.kind != StrategyKind::on_demand, std::memory_order_relaxed);
    if (chunked()) {
      chunk_pools_.init(shared, &shared->blocks, supply, device, owner, sizes);
    } else {
      on_demand_.init(shared, &shared->slabs, supply, device, owner);
    }
  }

  template <typename Visitor>
  decltype(auto) visit(Visitor visitor) {
    if (chunked()) [[unlikely]]
      return visitor(chunk_pools_);
    return visitor(on_demand_);
  }
  template <typename Visitor>
  decltype(auto) visit(Visitor visitor) const {
    if (chunked()) [[unlikely]]
      return visitor(chunk_pools_);
    return visitor(on_demand_);
  }

  // The strategy that a chunk's role names.
  OnDemand& on_demand() { return on_demand_; }
  ChunkPools& chunk_pools() { return chunk_pools_; }

  // While less than this waits in each pool, and in the chunk layer, all of them together are
  // within the bound on what waits.
  uint64_t bound_share() const {
    return Reclaim::kWaitingBound /
           visit([](const auto& strategy) { return strategy.most_pools() + 1; });
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
  bool chunked() const { return chunked_.load(std::memory_order_relaxed); }

  // Totals are read also while the next context, with the same policy, takes the place of one.
  std::atomic<bool> chunked_;
  OnDemand on_demand_;
  ChunkPools chunk_pools_;
};

}  // namespace cistern::alloc
