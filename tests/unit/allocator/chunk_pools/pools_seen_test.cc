// SPDX-License-Identifier: Apache-2.0
// Walks over the pools of a strategy while others come.
#include <algorithm>
#include <memory>
#include <vector>

#include "allocator/context_memory.h"
#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace pools_seen_test {

using namespace cistern::alloc;
using namespace cistern::test;

TEST_CASE("a walk over all pools meets those that were there, also while another one comes") {
  auto p = pool(StrategyKind::thread_local_, 32, 32);
  auto memory = std::make_unique<ContextMemory>();
  DeviceParts parts{};
  parts.ledger = &p->ledger;
  parts.cap = &p->cap;
  const ChunkSizes chunks = sizes(StrategyKind::thread_local_, 32 * kMiB, 32 * kMiB);
  memory->init(&p->shared, &p->source, parts, 1, chunks, {});
  const auto create = [&](unsigned shard) {
    Request request{.bytes = kMiB, .shard = shard};
    CHECK_FALSE(memory->strategy.take_clean(request));
  };
  create(1);
  create(5);
  std::vector<const void*> before, seen;
  memory->strategy.for_each_pool([&](auto& pool) { before.push_back(&pool); });
  REQUIRE(before.size() == 2);
  memory->strategy.for_each_pool([&](auto& pool) {
    seen.push_back(&pool);
    if (seen.size() == 1) create(3);  // as another thread does
  });
  CHECK(std::find(seen.begin(), seen.end(), before[1]) != seen.end());
}

}  // namespace pools_seen_test
