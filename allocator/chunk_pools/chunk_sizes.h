// SPDX-License-Identifier: Apache-2.0
// Which strategy the settings ask for, and how large its chunks are: a pure function of the policy,
// the device and the processors. Meaning of each setting: the rows "GPU pool: chunks" of
// SETTINGS.md.
#pragma once

#include <cstdint>

#include "allocator/base/source.h"
#include "config/policy.h"

namespace cistern::alloc {

inline constexpr uint64_t kBlockGranule = kDriverGranule;
// Granules are counted in 32 bits.
inline constexpr uint64_t kMostChunkBytes = (uint64_t{1} << 32) * kBlockGranule - kBlockGranule;
inline constexpr unsigned kMostThreadShares = 16;

enum class StrategyKind : uint8_t {
  on_demand,       // nothing set: whole driver allocations and slabs (on_demand.h)
  none,            // FLAGS_fraction_of_gpu_memory_to_use=0: every request is the driver's
  legacy,          // the rest: blocks in large chunks (chunk_pools.h)
  naive_best_fit,  // all chunks alike; neighbours merged when a request misses
  auto_growth,     // a chunk for each miss
  thread_local_,   // a pool for each thread
  expandable,      // physical units behind addresses (allocator/expandable)
  graph_arena,     // one arena for all graphs that run one after the other (allocator/graph_arena)
  unit_arena,      // both, over one supply of units
};

const char* strategy_name(StrategyKind kind);

inline bool has_units(StrategyKind kind) {
  return kind == StrategyKind::expandable || kind == StrategyKind::unit_arena;
}
inline bool has_arenas(StrategyKind kind) {
  return kind == StrategyKind::graph_arena || kind == StrategyKind::unit_arena;
}
// The strategy to use instead if the device has no virtual memory management.
StrategyKind without_units(StrategyKind kind);

struct ChunkSizes {
  StrategyKind kind;
  uint64_t first;  // bytes of a pool's first chunk; 0: by the request
  uint64_t later;  // bytes of every other one; 0: by the request
  uint64_t align;  // of blocks that are at least as large; a power of two, >= kBlockGranule
  bool initial_clamped, later_clamped;  // the setting was larger than the device

  // The bytes to request from the driver when `need` bytes are missing. If the setting is 0, that
  // is `need`, but at least a driver page if `need` is small.
  uint64_t chunk_for(uint64_t need, bool is_first) const;
  // Whether `need` is larger than a chunk, so the chunk is made for this request alone
  // (ChunkMap::own). It does not count as the pool's first chunk.
  bool exceeds(uint64_t need, bool is_first) const;
};

// `total`: bytes of the device, MIG instance or cap, whichever is least. `cpus`: how many
// processors the process may use; they share thread_local's chunks.
ChunkSizes chunk_sizes(const config::Policy& policy, uint64_t total, unsigned cpus);

}  // namespace cistern::alloc
