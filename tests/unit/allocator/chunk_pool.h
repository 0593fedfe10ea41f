// SPDX-License-Identifier: Apache-2.0
// Pools of one chunk strategy, and what their tests ask of them.
#pragma once

#include <memory>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace cistern::test {

inline alloc::ChunkSizes sizes(alloc::StrategyKind kind, uint64_t first, uint64_t later,
                               uint64_t align = 512) {
  return {kind, first, later, align, false, false};
}

inline std::unique_ptr<Pool> pool(alloc::StrategyKind kind, uint64_t first_mib, uint64_t later_mib,
                                  uint64_t capacity_mib = 1024 * kMiB, uint64_t align = 512) {
  return std::make_unique<Pool>(capacity_mib * kMiB,
                                sizes(kind, first_mib * kMiB, later_mib * kMiB, align));
}

using Sizes = std::vector<uint64_t>;

inline std::pair<uint64_t, uint64_t> found(Pool& p, uint64_t address) {
  std::pair<uint64_t, uint64_t> block{0, 0};
  alloc::Chunk* chunk = p.shared.index.find(address);
  if (chunk == nullptr || !p.pool.find(chunk, address, &block.first, &block.second)) return {0, 0};
  return block;
}

inline void free_and_synchronise(Pool& p, std::initializer_list<uint64_t> addresses) {
  for (const uint64_t address : addresses) REQUIRE(p.free(address) == alloc::Freed::done);
  p.synchronise();
}

}  // namespace cistern::test
