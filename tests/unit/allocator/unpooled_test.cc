// SPDX-License-Identifier: Apache-2.0
// Requests that the settings keep out of the pools, to find the one a program uses wrongly: each is
// what it would be without a pool, as long as the driver has memory, and memory is out for none of
// them earlier.
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace unpooled_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

std::unique_ptr<Pool> any_pool(uint64_t capacity_mib) {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy,
                             StrategyKind::naive_best_fit, StrategyKind::auto_growth);
  return pool(kind, kind == StrategyKind::auto_growth ? 0 : 16, 16, capacity_mib);
}

}  // namespace

TEST_CASE("a request kept out of the pool is a driver allocation of its own, really freed") {
  auto p = any_pool(1024);
  const uint64_t bytes = GENERATE(2, 4096, 5 * kMiB);
  const uint64_t a = p->allocate_unpooled(bytes);
  REQUIRE(a != 0);
  CHECK(found(*p, a) == std::pair{a, bytes});
  CHECK(p->pool.usage().live == bytes);
  CHECK(p->free(a + 1) == Freed::invalid);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->source.released == 1);
  CHECK(p->free(a) == Freed::foreign);
  p->synchronise();
  REQUIRE(p->allocate_unpooled(bytes) != 0);
  CHECK(p->source.asked == Sizes{bytes, bytes});
  CHECK(p->ledger.unpooled.get() == 2);
  CHECK(p->ledger.live.get() == bytes);
}

TEST_CASE("a free block of the pool serves it only where there is no other memory") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy,
                             StrategyKind::naive_best_fit, StrategyKind::auto_growth);
  auto p = pool(kind, 16, 16, 32);
  const uint64_t kept = p->allocate(1000);  // with its chunk, or slab, mostly free
  REQUIRE(kept != 0);
  while (p->ledger.unpooled_short.get() == 0 && p->allocate_unpooled(2 * kMiB) != 0) {
  }
  CHECK(p->ledger.unpooled.get() == (kind == StrategyKind::on_demand ? 15 : 8));
  CHECK(p->source.held() == 32 * kMiB);
  const uint64_t live = p->pool.usage().live;
  const uint64_t a = p->allocate_unpooled(1000), b = p->allocate_unpooled(1000);
  REQUIRE((a != 0 && b != 0));
  CHECK(p->source.ended == Step::elsewhere);
  CHECK(p->source.released == 0);
  CHECK(p->ledger.unpooled_short.get() == (kind == StrategyKind::on_demand ? 2 : 3));
  CHECK(p->pool.usage().live == live + 2000);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->pool.usage().live == live + 1000);
}

TEST_CASE("what the pool keeps idle or waiting goes back for it, and then the driver serves") {
  auto p = any_pool(64);
  p->source.passed_mark = GENERATE(0, ~Mark{0});
  p->source.pass_after_queries = 20;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(p->allocate(12 * kMiB));
  for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
  const int obtained = p->source.obtained;
  const uint64_t a = p->allocate_unpooled(60 * kMiB);
  REQUIRE(a != 0);
  CHECK(p->source.obtained > obtained);
  CHECK(p->source.held() == 60 * kMiB);
  CHECK(p->source.ended == Step::returned);
}

TEST_CASE("under the cap it is charged like any other") {
  auto p = any_pool(1024);
  p->cap.set_limit(40 * kMiB);
  const uint64_t a = p->allocate_unpooled(30 * kMiB);
  REQUIRE(a != 0);
  CHECK(p->allocate_unpooled(11 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->cap.charged() == 0);
}

TEST_CASE("during a capture, too, clean memory of the pool serves it only at last") {
  auto p = any_pool(64);
  const uint64_t kept = p->allocate(1000);
  REQUIRE(kept != 0);
  uint64_t a = 0;
  p->source.capturing = true;
  while (p->pool.allocate_direct(2 * kMiB, 0, /*pooled=*/false, &a) == kSuccess) {
  }
  while (p->pool.allocate_direct(512, 0, /*pooled=*/false, &a) == kSuccess) {
  }
  CHECK(p->ledger.unpooled_short.get() == 0);
  CHECK(p->pool.allocate_at_last(512, 0, &a) == kSuccess);
  CHECK(p->ledger.unpooled_short.get() == 1);
  CHECK(p->free(a) == Freed::done);
}

TEST_CASE("any other answer of the driver reaches the program unchanged") {
  auto p = any_pool(1024);
  p->source.fail_obtain = 700;
  CHECK(p->allocate_unpooled(1000) == 0);
  CHECK(p->code == 700);
  CHECK(p->ledger.shortages.get() == 0);
}

}  // namespace unpooled_test
