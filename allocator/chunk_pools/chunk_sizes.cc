// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/chunk_sizes.h"

#include <algorithm>
#include <bit>

namespace cistern::alloc {
namespace {

uint64_t pages(uint64_t bytes) { return bytes / kDriverPage * kDriverPage; }

StrategyKind kind_of(config::Strategy strategy) {
  switch (strategy) {
    case config::Strategy::kLegacy:
      return StrategyKind::legacy;
    case config::Strategy::kNaiveBestFit:
      return StrategyKind::naive_best_fit;
    case config::Strategy::kAutoGrowth:
      return StrategyKind::auto_growth;
    case config::Strategy::kThreadLocal:
      return StrategyKind::thread_local_;
    case config::Strategy::kOnDemand:
      break;
  }
  return StrategyKind::on_demand;
}

// At least a page: 0 would mean something else.
uint64_t share_of(uint64_t total, double fraction) {
  if (fraction <= 0) return 0;
  return std::max(pages(static_cast<uint64_t>(static_cast<double>(total) * fraction)), kDriverPage);
}

// `mb` as bytes, but not more than `total`; `fallback` where it is not set.
uint64_t size_of(uint64_t mb, uint64_t total, uint64_t fallback, bool* clamped) {
  if (mb == 0) return fallback;
  *clamped = mb << 20 > total;
  return *clamped ? std::max(pages(total), kDriverPage) : mb << 20;
}

// No block is larger than a chunk can be, and so none is aligned to more.
uint64_t align_of(const config::Policy& policy) {
  return std::min(policy.align.value, std::bit_floor(kMostChunkBytes));
}

uint64_t divide(uint64_t bytes, unsigned shares) {
  return bytes == 0 ? 0 : std::max(pages(bytes / shares), kDriverPage);
}

}  // namespace

const char* strategy_name(StrategyKind kind) {
  switch (kind) {
    case StrategyKind::none:
      return "none";
    case StrategyKind::legacy:
      return "legacy";
    case StrategyKind::naive_best_fit:
      return "naive_best_fit";
    case StrategyKind::auto_growth:
      return "auto_growth";
    case StrategyKind::thread_local_:
      return "thread_local";
    case StrategyKind::expandable:
      return "expandable";
    case StrategyKind::graph_arena:
      return "graph_arena";
    case StrategyKind::unit_arena:
      return "unit_arena";
    case StrategyKind::on_demand:
      break;
  }
  return "on_demand";
}

StrategyKind without_units(StrategyKind kind) {
  if (kind == StrategyKind::unit_arena) return StrategyKind::graph_arena;
  return kind == StrategyKind::expandable ? StrategyKind::on_demand : kind;
}

namespace {

// The share of the device that is a chunk pool's own default is none here: by need.
ChunkSizes static_sizes(StrategyKind kind, const config::Policy& policy, uint64_t total) {
  ChunkSizes sizes{kind, 0, 0, align_of(policy), false, false};
  const auto& fraction = policy.fraction_of_gpu_memory_to_use;
  const uint64_t part = fraction.set ? share_of(total, fraction) : 0;
  const auto reallocate_mb = static_cast<uint64_t>(policy.reallocate_gpu_memory_in_mb.value);
  sizes.first = size_of(policy.initial_gpu_memory_in_mb, total, part, &sizes.initial_clamped);
  sizes.later = size_of(reallocate_mb, total, 0, &sizes.later_clamped);
  return sizes;
}

}  // namespace

ChunkSizes chunk_sizes(const config::Policy& policy, uint64_t total, unsigned cpus) {
  switch (policy.static_mode()) {
    case config::StaticMode::kExpandable:
      return static_sizes(StrategyKind::expandable, policy, total);
    case config::StaticMode::kStatic:
      return static_sizes(StrategyKind::graph_arena, policy, total);
    case config::StaticMode::kBoth:
      return static_sizes(StrategyKind::unit_arena, policy, total);
    default:
      break;
  }
  ChunkSizes sizes{kind_of(policy.strategy()), 0, 0, align_of(policy), false, false};
  if (sizes.kind == StrategyKind::on_demand) return sizes;
  if (sizes.kind == StrategyKind::auto_growth) {
    sizes.first = sizes.later =
        size_of(policy.auto_growth_chunk_size_in_mb, total, 0, &sizes.later_clamped);
    if (policy.fraction_of_gpu_memory_to_use == 0) sizes.kind = StrategyKind::none;
    return sizes;
  }
  const uint64_t part = share_of(total, policy.fraction_of_gpu_memory_to_use);
  const auto reallocate_mb = static_cast<uint64_t>(policy.reallocate_gpu_memory_in_mb.value);
  sizes.first = size_of(policy.initial_gpu_memory_in_mb, total, part, &sizes.initial_clamped);
  if (sizes.kind == StrategyKind::naive_best_fit) {
    sizes.later = sizes.first;
  } else {
    sizes.later = size_of(reallocate_mb, total, part, &sizes.later_clamped);
  }
  if (sizes.kind == StrategyKind::thread_local_) {
    const unsigned shares = std::clamp(cpus, 1u, kMostThreadShares);
    sizes.first = divide(sizes.first, shares);
    sizes.later = divide(sizes.later, shares);
  }
  if (sizes.first == 0 && sizes.later == 0) sizes.kind = StrategyKind::none;
  return sizes;
}

// A chunk of a small request's own size would share a driver page with others, so that nothing of
// it could be told as free again; it takes the page, as the driver would for it and its neighbours.
uint64_t ChunkSizes::chunk_for(uint64_t need, bool is_first) const {
  uint64_t size = is_first ? first : later;
  const bool by_need = size == 0 || kind == StrategyKind::auto_growth;
  if (by_need && need < kDriverSharesBelow) size = std::max(size, kDriverPage);
  return std::max(size, need);
}

bool ChunkSizes::exceeds(uint64_t need, bool is_first) const {
  const uint64_t usual = is_first ? first : later;
  return usual != 0 && need > usual;
}

}  // namespace cistern::alloc
