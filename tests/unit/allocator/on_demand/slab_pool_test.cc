// SPDX-License-Identifier: Apache-2.0
// A slab's boundary tags against a plain model: every granule either belongs to one block or to a
// clean run, and neighbouring clean runs are always joined.
#include "allocator/on_demand/slab_pool.h"

#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace slab_pool_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;

TEST_CASE("freeing everything in any order leaves one whole slab", "[slab]") {
  auto p = std::make_unique<Pool>();
  std::mt19937 random(GENERATE(1u, 2u, 3u, 4u));
  for (int round = 0; round < 20; ++round) {
    const uint32_t largest = 1u << (10 + random() % 10);
    std::vector<uint64_t> blocks;
    uint64_t bytes = 0;
    while (bytes < kSlabBytes * 9 / 10) {
      const uint64_t n = 1 + random() % largest;
      blocks.push_back(p->allocate(n));
      bytes += n;
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (uint64_t a : blocks) {
      REQUIRE(p->free(a) == Freed::done);
      if (random() % 4 == 0) p->synchronise();
    }
    p->synchronise();
    // A block as large as a slab allows proves that the clean runs were joined.
    const uint64_t whole = p->allocate(kMiB - 1);
    const uint64_t other = p->allocate(kMiB - 1);
    REQUIRE(whole != 0);
    p->free(whole);
    p->free(other);
    p->synchronise();
  }
  CHECK(p->source.obtained <= 4);
}

TEST_CASE("a slab holds 4096 of the smallest blocks, each found by any address in it", "[slab]") {
  auto p = std::make_unique<Pool>();
  std::vector<uint64_t> blocks;
  for (uint32_t i = 0; i < kGranules; ++i) blocks.push_back(p->allocate(512));
  CHECK(p->source.obtained == 1);
  for (uint64_t a : blocks) {
    uint64_t start, bytes;
    REQUIRE(p->pool.find(p->shared.index.find(a + 511), a + 511, &start, &bytes));
    REQUIRE(start == a);
  }
  p->allocate(512);
  CHECK(p->source.obtained == 2);
}

TEST_CASE("the bookkeeping of a block takes at most 64 bytes") {
  CHECK(sizeof(Block) + sizeof(uint16_t) <= 64);
  CHECK(sizeof(Chunk) <= 64);
}

TEST_CASE("slabs that nobody took a block from go back, too") {
  auto shared = std::make_unique<Shared>();
  auto pool = std::make_unique<SlabPool>();
  Ledger ledger;
  pool->init(&ledger, nullptr, 0, 0, /*gathers=*/false);
  for (uint64_t base : {64 * kMiB, 128 * kMiB}) {
    Chunk* chunk = shared->chunks.take();
    chunk->set_range(base, kSlabBytes);
    pool->add(chunk, shared->slabs.take());
  }
  ChunkList empty;
  pool->collect_empty(shared->reclaim, /*freed_too=*/true, &empty);
  int slabs = 0;
  while (empty.pop() != nullptr) ++slabs;
  CHECK(slabs == 2);
  CHECK(pool->clean_bytes() == 0);
}

TEST_CASE(
    "level 0: an empty slab stays in its pool, and counts once, when its sizes are forgotten") {
  constexpr int kSlabs = 3;
  constexpr uint32_t kKept = 256 << 10;
  auto p = std::make_unique<Pool>();
  SlabArena arena;
  auto pool = std::make_unique<SlabPool>();
  pool->init(&p->ledger, nullptr, 0, 0, /*gathers=*/false, ReuseRule::same_size);
  std::vector<Chunk> chunks(kSlabs);
  ChunkList emptied;
  for (int i = 0; i < kSlabs; ++i) {
    chunks[i].set_range(uint64_t{0x40000000} + i * kSlabBytes, kSlabBytes);
    pool->add(&chunks[i], arena.take());
    for (uint64_t used = 0; used < kSlabBytes; used += kKept) {
      const uint64_t a = pool->allocate(kKept, p->shared.reclaim, &emptied);
      REQUIRE(pool->free(&chunks[i], a, p->shared.reclaim, &emptied));
    }
  }
  p->synchronise();
  pool->refresh(p->shared.reclaim, /*spare_too=*/false, &emptied);
  const auto told = [&] { return pool->available_bytes(p->shared.reclaim, false, true); };
  CHECK(told() == kSlabs * kSlabBytes);
  CHECK(pool->allocate(kMiB - 1, p->shared.reclaim, &emptied, /*thorough=*/true) != 0);
  CHECK(told() == (kSlabs - 1) * kSlabBytes);
  CHECK(emptied.empty());
  CHECK(p->ledger.sizes_forgotten.get() == 1);
}

}  // namespace slab_pool_test
