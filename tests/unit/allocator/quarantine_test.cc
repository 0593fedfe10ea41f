// SPDX-License-Identifier: Apache-2.0
// Blocks that are known outside the process: nobody says when the other side is done with them, so
// that nothing freed in their slab is reused, and the slab goes back to the driver with its last
// block.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace quarantine_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;

namespace {

constexpr uint64_t kBlock = 64 * 1024;

bool mark_exported(Pool& p, uint64_t address) {
  return p.pool.mark_exported(p.shared.index.find(address), address);
}

bool same_slab(uint64_t a, uint64_t b) { return (a > b ? a - b : b - a) < kSlabBytes; }

}  // namespace

TEST_CASE("what is freed in an exported slab is not handed out again", "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t before = p->allocate(kBlock), exported = p->allocate(kBlock);
  const uint64_t after = p->allocate(kBlock);
  REQUIRE(same_slab(exported, before));
  p->free(before);  // still waiting when the block becomes known
  REQUIRE(mark_exported(*p, exported + 100));
  p->free(after);
  p->synchronise();
  CHECK(p->ledger.quarantined.get() == 2 * kBlock);
  CHECK(p->pool.usage().quarantined == 2 * kBlock);
  CHECK(p->pool.usage().waiting == 0);
  std::vector<uint64_t> seen;
  for (uint64_t i = 0; i < 2 * kSlabBytes / kBlock; ++i) {
    seen.push_back(p->allocate(kBlock));
    REQUIRE(seen.back() != before);
    REQUIRE(seen.back() != after);
  }
  // Parts never handed out yet did serve.
  CHECK(std::count_if(seen.begin(), seen.end(), [&](uint64_t a) {
          return same_slab(a, exported);
        }) == kSlabBytes / kBlock - 3);
}

TEST_CASE("an exported slab goes back to the driver with its last block", "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t first = p->allocate(kBlock), exported = p->allocate(kBlock);
  REQUIRE(mark_exported(*p, exported));
  CHECK(p->free(exported) == Freed::done);
  CHECK(p->source.released == 0);
  CHECK(p->free(exported) == Freed::invalid);
  CHECK(p->free(first) == Freed::done);
  CHECK(p->source.released == 1);
  CHECK(p->shared.index.find(first) == nullptr);
  CHECK(p->source.held() == 0);
  CHECK(p->ledger.quarantined.get() == 0);
  CHECK(p->ledger.quarantined_peak.get() == 2 * kBlock);
  const Usage usage = p->pool.usage();
  CHECK(usage.live + usage.idle + usage.waiting + usage.quarantined == 0);
  CHECK(p->allocate(kBlock) != 0);
  CHECK(p->pool.usage().live == kBlock);
}

TEST_CASE("other slabs and later ones are reused as ever", "[quarantine]") {
  auto p = std::make_unique<Pool>();
  for (int i = 0; i < 10; ++i) {
    const uint64_t exported = p->allocate(kBlock, /*shard=*/0);
    REQUIRE(mark_exported(*p, exported));
    const uint64_t other = p->allocate(kBlock, /*shard=*/1);
    p->free(exported);
    p->free(other);
    p->synchronise();
  }
  CHECK(p->source.obtained == 11);
  CHECK(p->source.released == 10);
}

TEST_CASE("an exported slab freed during a capture waits for the driver, not for reuse",
          "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t exported = p->allocate(kBlock);
  REQUIRE(mark_exported(*p, exported));
  p->source.capturing = true;
  CHECK(p->free(exported) == Freed::done);
  CHECK(p->free(exported) == Freed::invalid);
  CHECK(p->source.released == 0);
  CHECK(p->pool.returnable_bytes() == kSlabBytes);
  p->synchronise();
  const uint64_t other = p->allocate(kBlock);
  CHECK_FALSE(same_slab(other, exported));
  p->source.capturing = false;
  SECTION("the next free offers it again") { p->free(other); }
  SECTION("so does a shortage") { p->pool.release_returnable(1'000'000); }
  CHECK(p->source.released >= 1);
  CHECK(p->shared.index.find(exported) == nullptr);
}

TEST_CASE("a context that goes takes its quarantine with it", "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t first = p->allocate(kBlock), exported = p->allocate(kBlock);
  REQUIRE(mark_exported(*p, exported));
  p->free(first);
  CHECK(p->ledger.quarantined.get() == kBlock);
  p->pool.forget_all();
  CHECK(p->ledger.quarantined.get() == 0);
  CHECK(p->pool.usage().quarantined == 0);
}

TEST_CASE("a context goes after its exported slabs, too", "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t exported = p->allocate(kBlock);
  REQUIRE(mark_exported(*p, exported));
  p->source.capturing = GENERATE(false, true);
  REQUIRE(p->free(exported) == Freed::done);
  p->pool.forget_all();  // would wait for the slab for ever if nobody had said where it is now
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->pool.usage().quarantined == 0);
}

TEST_CASE("what the driver did not take of a context that is gone is not offered for the next one",
          "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t exported = p->allocate(kBlock);
  REQUIRE(mark_exported(*p, exported));
  p->source.capturing = true;
  REQUIRE(p->free(exported) == Freed::done);
  p->pool.forget_all();
  p->init();
  p->source.capturing = false;
  for (int i = 0; i < 10; ++i) {
    p->free(p->allocate(kBlock));
    p->synchronise();
  }
  CHECK(p->source.last_mark == 0);  // nor is work followed for its sake
}

TEST_CASE("a shortage leaves exported slabs that hold something", "[quarantine]") {
  auto p = std::make_unique<Pool>();
  const uint64_t first = p->allocate(kBlock), exported = p->allocate(kBlock);
  REQUIRE(mark_exported(*p, exported));
  p->free(first);
  p->pool.release_returnable(1'000'000);
  CHECK(p->source.released == 0);
  CHECK(p->pool.is_live(p->shared.index.find(exported), exported));
  CHECK_FALSE(p->pool.is_live(p->shared.index.find(first), first));
}

TEST_CASE("the pool holds a block from its first byte to its last requested one") {
  auto p = std::make_unique<Pool>();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{700}, kMiB - 1, 3 * kMiB + 3}) {
    const uint64_t a = p->allocate(bytes);
    const auto is_live = [&](uint64_t address) {
      Chunk* chunk = p->shared.index.find(address);
      return chunk != nullptr && p->pool.is_live(chunk, address);
    };
    CHECK(is_live(a));
    CHECK(is_live(a + bytes - 1));
    CHECK_FALSE(is_live(a + bytes));
    p->free(a);
    CHECK_FALSE(is_live(a));
  }
}

}  // namespace quarantine_test
