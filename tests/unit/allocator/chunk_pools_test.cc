// SPDX-License-Identifier: Apache-2.0
// What each chunk strategy promises, seen through the pool: sizes asked of the driver, which block
// serves, when neighbours are merged. When memory is short: chunk_shortage_test.cc.
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace chunk_pools_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr auto kLegacy = StrategyKind::legacy;
constexpr uint64_t kKiB = 1024;

}  // namespace

TEST_CASE("the first chunk comes with the first request, the second when the first is full") {
  auto p = pool(kLegacy, 64, 32);
  CHECK(p->source.asked.empty());
  for (int i = 0; i < 64; ++i) REQUIRE(p->allocate(kMiB) != 0);
  CHECK(p->source.asked == Sizes{64 * kMiB});
  for (int i = 0; i < 33; ++i) REQUIRE(p->allocate(kMiB) != 0);
  CHECK(p->source.asked == Sizes{64 * kMiB, 32 * kMiB, 32 * kMiB});
  CHECK(p->ledger.reserved.get() == 128 * kMiB);
  CHECK(p->ledger.chunks.get() == 3);
}

TEST_CASE("blocks are cut at 512 bytes and told as they were asked for") {
  auto p = pool(kLegacy, 64, 32);
  const uint64_t a = p->allocate(1), b = p->allocate(513), c = p->allocate(5 * kMiB + 7);
  CHECK(b - a == 512);
  CHECK(c - b == 1024);
  CHECK(found(*p, a) == std::pair{a, uint64_t{1}});
  CHECK(found(*p, b + 512) == std::pair{b, uint64_t{513}});
  CHECK(found(*p, b + 513).first == 0);
  CHECK(found(*p, c + 5 * kMiB) == std::pair{c, 5 * kMiB + 7});
  CHECK(p->pool.usage().live == 5 * kMiB + 521);
}

TEST_CASE("an address far inside a large block, and between many small ones, leads to its block") {
  auto p = pool(kLegacy, 4096, 4096);
  const uint64_t large = p->allocate(3000 * kMiB);
  std::vector<uint64_t> small;
  for (int i = 0; i < 20000; ++i) small.push_back(p->allocate(700));
  for (const uint64_t offset : {uint64_t{0}, kMiB, 2 * kMiB - 1, 2999 * kMiB, 3000 * kMiB - 1}) {
    CHECK(found(*p, large + offset) == std::pair{large, 3000 * kMiB});
  }
  for (const uint64_t address : small) {
    REQUIRE(found(*p, address + 699) == std::pair{address, uint64_t{700}});
    REQUIRE(found(*p, address + 700).first == 0);
  }
  for (size_t i = 0; i < small.size(); i += 2) p->free(small[i]);
  for (size_t i = 1; i < small.size(); i += 2) {
    REQUIRE(found(*p, small[i] + 100) == std::pair{small[i], uint64_t{700}});
    REQUIRE(found(*p, small[i - 1] + 100).first == 0);
  }
}

TEST_CASE("only the start of a live block can be freed, once") {
  auto p = pool(kLegacy, 64, 32);
  const uint64_t a = p->allocate(4096), b = p->allocate(2 * kMiB);
  CHECK(p->free(a + 1) == Freed::invalid);
  CHECK(p->free(a + 512) == Freed::invalid);
  CHECK(p->free(b + kMiB) == Freed::invalid);
  CHECK(p->free(b + 2 * kMiB) == Freed::invalid);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->free(a) == Freed::invalid);
  p->synchronise();
  CHECK(p->free(a) == Freed::invalid);
  CHECK(p->free(b) == Freed::done);
}

TEST_CASE("the smallest free block that fits serves") {
  auto p = pool(kLegacy, 64, 32);
  std::vector<uint64_t> holes;
  for (const uint64_t mib : {8, 2, 4, 1}) {
    holes.push_back(p->allocate(mib * kMiB));
    REQUIRE(p->allocate(512) != 0);
  }
  free_and_synchronise(*p, {holes[0], holes[1], holes[2], holes[3]});
  CHECK(p->allocate(3 * kMiB) == holes[2]);
  CHECK(p->allocate(3 * kMiB / 2) == holes[1]);
  CHECK(p->allocate(kMiB) == holes[2] + 3 * kMiB);
  CHECK(p->allocate(kMiB) == holes[3]);
}

TEST_CASE("a freed block serves again only when it is clean") {
  auto p = pool(kLegacy, 64, 32);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(40 * kMiB);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->pool.usage().waiting == 40 * kMiB);
  CHECK(p->allocate(30 * kMiB) != a);
  p->synchronise();
  CHECK(p->allocate(35 * kMiB) == a);
}

TEST_CASE("clean neighbours are merged at once, by naive_best_fit only when a request misses") {
  const auto kind = GENERATE(StrategyKind::legacy, StrategyKind::auto_growth,
                             StrategyKind::thread_local_, StrategyKind::naive_best_fit);
  auto p = pool(kind, 16, 16);
  const uint64_t a = p->allocate(4 * kMiB), b = p->allocate(4 * kMiB), c = p->allocate(4 * kMiB);
  REQUIRE(p->allocate(4 * kMiB) != 0);
  free_and_synchronise(*p, {a, c, b});
  p->source.asked.clear();
  const bool naive = kind == StrategyKind::naive_best_fit;
  // Makes the pool look at what is clean.
  const uint64_t small = p->allocate(512);
  CHECK(p->pool.largest_free() == (naive ? 4 * kMiB : 12 * kMiB - 512));
  REQUIRE(p->free(small) == Freed::done);
  p->synchronise();
  CHECK(p->allocate(12 * kMiB) == a);
  CHECK(p->source.asked.empty());
}

TEST_CASE("auto_growth takes a chunk of the size asked for each miss") {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, sizes(StrategyKind::auto_growth, 0, 0));
  const uint64_t a = p->allocate(5 * kMiB + 100);
  REQUIRE(p->allocate(3 * kMiB) != 0);
  REQUIRE(p->allocate(1000) != 0);
  REQUIRE(p->allocate(1000) != 0);
  CHECK(p->source.asked == Sizes{5 * kMiB + 512, 3 * kMiB, 2 * kMiB});
  free_and_synchronise(*p, {a});
  CHECK(p->allocate(4 * kMiB) == a);
}

TEST_CASE("with fraction 0 every request is the driver's, and counted") {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, sizes(StrategyKind::none, 0, 0));
  const uint64_t a = p->allocate(1000), b = p->allocate(3 * kMiB);
  CHECK(p->source.asked == Sizes{1000, 3 * kMiB});
  CHECK(p->ledger.live.get() == 3 * kMiB + 1000);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->free(b) == Freed::done);
  CHECK(p->source.released == 2);
  CHECK(p->pool.allocations() == 2);
  CHECK(p->pool.frees() == 2);
  CHECK(p->ledger.reserved.get() == 0);
}

TEST_CASE("a request larger than a chunk is kept and reused like a chunk") {
  auto p = pool(kLegacy, 16, 16);
  const uint64_t large = p->allocate(100 * kMiB + 1);
  CHECK(p->source.asked == Sizes{100 * kMiB + 512});
  free_and_synchronise(*p, {large});
  CHECK(p->source.released == 0);
  CHECK(p->allocate(60 * kMiB) == large);
  CHECK(p->allocate(30 * kMiB) == large + 60 * kMiB);
  CHECK(p->source.asked.size() == 1);
}

TEST_CASE("a request larger than a chunk is not the first chunk") {
  auto p = pool(kLegacy, 64, 32);
  const uint64_t large = p->allocate(100 * kMiB);
  REQUIRE(p->allocate(60 * kMiB) != 0);
  REQUIRE(p->allocate(20 * kMiB) != 0);
  CHECK(p->source.asked == Sizes{100 * kMiB, 64 * kMiB, 32 * kMiB});
  free_and_synchronise(*p, {large});
  p->pool.release_returnable(1'000'000);
  CHECK(p->source.released == 1);
  REQUIRE(p->allocate(30 * kMiB) != 0);
  CHECK(p->source.asked.back() == 32 * kMiB);
}

TEST_CASE("CISTERN_ALIGN holds for blocks at least that large, wherever chunks begin") {
  const uint64_t align = GENERATE(4 * 1024u, 64 * 1024u, 2u << 20, 8u << 20);
  CAPTURE(align);
  auto p = pool(kLegacy, 64, 32, 1024 * kMiB, align);
  std::mt19937_64 random(5);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 400; ++i) {
    const uint64_t bytes = 1 + random() % (2 * align);
    const uint64_t address = p->allocate(bytes);
    REQUIRE(address != 0);
    REQUIRE(address % (bytes >= align ? align : 512) == 0);
    blocks.push_back(address);
    if (i % 3 == 0) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      REQUIRE(p->free(blocks.back()) == Freed::done);
      blocks.pop_back();
    }
  }
  for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
  p->synchronise();
  CHECK(p->pool.release_returnable(1'000'000));
  CHECK(p->source.held() == 0);
}

TEST_CASE("each thread has a pool, and blocks go back to the pool they came from") {
  auto p = pool(StrategyKind::thread_local_, 8, 4);
  const uint64_t a = p->allocate(kMiB, 0), b = p->allocate(kMiB, 1), c = p->allocate(kMiB, 255);
  CHECK(p->source.asked == Sizes{8 * kMiB, 8 * kMiB, 8 * kMiB});
  free_and_synchronise(*p, {a, b, c});
  CHECK(p->allocate(kMiB, 1) == b);
  CHECK(p->allocate(kMiB, 255) == c);
  CHECK(p->allocate(kMiB, 0) == a);
  CHECK(p->allocate(8 * kMiB, 1) != 0);
  CHECK(p->source.asked == Sizes{8 * kMiB, 8 * kMiB, 8 * kMiB, 8 * kMiB});
}

// --- the rest of the pool over chunk strategies ---

TEST_CASE("a chunk the driver would not take back now is used again") {
  auto p = pool(kLegacy, 32, 32, 64);
  free_and_synchronise(*p, {p->allocate(20 * kMiB)});
  p->source.capturing = true;
  CHECK(p->allocate(48 * kMiB) == 0);
  p->source.capturing = false;
  p->synchronise();
  p->source.asked.clear();
  CHECK(p->allocate(20 * kMiB) != 0);
  CHECK(p->source.asked.empty());
  CHECK(p->ledger.reserved.get() == 32 * kMiB);
}

TEST_CASE("free memory inside partly used chunks counts as free") {
  auto p = pool(kLegacy, 64, 64);
  const uint64_t a = p->allocate(10 * kMiB);
  REQUIRE(p->allocate(10 * kMiB) != 0);
  CHECK(p->pool.returnable_bytes() == 44 * kMiB);
  CHECK(p->pool.largest_free() == 44 * kMiB);
  p->source.passed_mark = 0;
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->pool.returnable_bytes() == 44 * kMiB);  // work goes on, and the source would wait for it
  p->source.may_take_clean = true;
  CHECK(p->pool.returnable_bytes() == 54 * kMiB);
  CHECK(p->pool.usage().live == 10 * kMiB);
  CHECK(p->pool.usage().waiting == 10 * kMiB);
  CHECK(p->pool.usage().idle == 44 * kMiB);
}

TEST_CASE("an idle chunk counts as all that the driver gives for it, a used one does not") {
  auto p = pool(StrategyKind::auto_growth, 0, 0);
  const uint64_t a = p->allocate(3 * kMiB + 1), b = p->allocate(kMiB);
  CHECK(p->pool.returnable_bytes() == 0);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
  p->synchronise();
  CHECK(p->allocate(kMiB) == a);
  CHECK(p->pool.returnable_bytes() == 2 * kMiB + 512);
  REQUIRE(p->free(a) == Freed::done);
  REQUIRE(p->free(b) == Freed::done);
  CHECK(p->pool.returnable_bytes() == 6 * kMiB);
  p->pool.release_returnable(1'000'000);
  CHECK(p->pool.returnable_bytes() == 0);
}

TEST_CASE("idle chunks are kept, and go back when everything is asked for") {
  auto p = pool(kLegacy, 64, 32);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(p->allocate(4 * kMiB));
  for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->source.released == 0);
  CHECK(p->pool.release_returnable(1'000'000));
  CHECK(p->source.held() == 0);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->ledger.chunks.get() == 0);
  CHECK(p->cap.charged() == 0);
  CHECK(p->pool.returnable_bytes() == 0);
  // The next chunk is a first one again.
  p->source.asked.clear();
  CHECK(p->allocate(512) != 0);
  CHECK(p->source.asked == Sizes{64 * kMiB});
}

TEST_CASE("a dropped chunk pool forgets everything and starts anew") {
  auto p = pool(GENERATE(StrategyKind::legacy, StrategyKind::thread_local_), 64, 32);
  std::vector<uint64_t> blocks;
  for (unsigned i = 0; i < 3000; ++i) blocks.push_back(p->allocate(20 * kKiB + 512 * i, i % 5));
  for (size_t i = 0; i < blocks.size(); i += 2) REQUIRE(p->free(blocks[i]) == Freed::done);
  p->pool.forget_all();
  for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::foreign);
  CHECK(p->ledger.live.get() == 0);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->ledger.chunks.get() == 0);
  CHECK(p->cap.charged() == 0);
  p->init();
  CHECK(p->pool.allocations() == 0);
  p->source.asked.clear();
  const uint64_t a = p->allocate(1000);
  CHECK(p->source.asked == Sizes{64 * kMiB});
  CHECK(p->free(a) == Freed::done);
}

TEST_CASE("an exported block is never reused, and its chunk goes back with its last block") {
  auto p = pool(kLegacy, 64, 32);
  const uint64_t a = p->allocate(8 * kMiB), b = p->allocate(8 * kMiB), c = p->allocate(8 * kMiB);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a + 1), a + 1));
  CHECK_FALSE(p->pool.mark_exported(p->shared.index.find(a), c + 8 * kMiB));
  free_and_synchronise(*p, {a, b});
  CHECK(p->pool.usage().quarantined == 8 * kMiB);
  CHECK(p->allocate(6 * kMiB) == b);
  CHECK(p->allocate(8 * kMiB) == c + 8 * kMiB);
  CHECK(p->free(a) == Freed::invalid);
  CHECK(p->free(c + 8 * kMiB) == Freed::done);
  CHECK(p->free(b) == Freed::done);
  CHECK(p->source.released == 0);
  CHECK(p->free(c) == Freed::done);
  CHECK(p->source.released == 1);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->ledger.quarantined.get() == 0);
  CHECK(p->pool.usage().quarantined == 0);
  CHECK(p->pool.usage().waiting == 0);
  CHECK(p->pool.usage().idle == 0);
}

TEST_CASE("the end of a chunk with an exported block leaves other idle chunks as they are") {
  auto p = pool(kLegacy, 16, 16);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(16 * kMiB), b = p->allocate(16 * kMiB);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  REQUIRE(p->free(b) == Freed::done);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->pool.usage().waiting == 16 * kMiB);
  p->synchronise();
  CHECK(p->allocate(16 * kMiB) == b);
}

TEST_CASE("after an exported slab or chunk has ended, the context can") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  auto p = pool(kind, 16, 16);
  const uint64_t a = p->allocate(4096);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->source.released == 1);
  p->pool.forget_all();
  CHECK(p->ledger.reserved.get() == 0);
}

TEST_CASE("an exported chunk the driver would not take back is offered again, not reused") {
  auto p = pool(kLegacy, 16, 16);
  const uint64_t a = p->allocate(16 * kMiB);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  p->source.capturing = true;
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->source.released == 0);
  p->source.capturing = false;
  const uint64_t b = p->allocate(16 * kMiB);
  CHECK(b != a);
  REQUIRE(p->free(b) == Freed::done);
  CHECK(p->source.released == 1);
}

TEST_CASE("a block that a living graph may hold is parked, for a shortage only it is not") {
  auto p = pool(kLegacy, 16, 16, 16);
  const uint64_t a = p->allocate(8 * kMiB), b = p->allocate(4 * kMiB);
  GraphLives& graphs = p->shared.reclaim.graphs();
  GraphLife graph = {};
  graphs.hold(&graph, 0, 0);
  REQUIRE(p->free(a) == Freed::done);
  p->synchronise();
  CHECK(p->pool.usage().parked == 8 * kMiB);
  CHECK(p->allocate(4 * kMiB) == b + 4 * kMiB);
  graphs.release(&graph, p->shared.reclaim.open());
  p->synchronise();
  CHECK(p->allocate(4 * kMiB) == a);
  CHECK(p->pool.usage().parked == 0);
  // Born before the next graph, and wanted when there is nothing else.
  graphs.hold(&graph, 0, 0);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->pool.usage().parked == 4 * kMiB);
  CHECK(p->allocate(8 * kMiB) == a);
}

TEST_CASE("inside a capture a full device is served from the chunk") {
  auto p = pool(kLegacy, 64, 64, 64);
  REQUIRE(p->allocate(kMiB) != 0);
  uint64_t address;
  CHECK(p->pool.allocate_direct(4 * kMiB, 0, /*pooled=*/true, &address) == kSuccess);
  CHECK(found(*p, address) == std::pair{address, 4 * kMiB});
}

TEST_CASE("bookkeeping is at most 64 bytes a block") {
  CHECK(sizeof(ChunkBlock) + sizeof(ChunkBlock*) <= 64);
}

// --- a random program against a plain map of intervals ---

TEST_CASE("random programs: blocks never overlap, and everything merges in the end") {
  const auto kind = GENERATE(StrategyKind::legacy, StrategyKind::naive_best_fit,
                             StrategyKind::auto_growth, StrategyKind::thread_local_);
  const unsigned seed = Catch::rngSeed() + static_cast<unsigned>(kind);
  CAPTURE(seed, strategy_name(kind));
  const uint64_t capacity = GENERATE(96, 4096);
  auto p = pool(kind, 32, 16, capacity);
  std::mt19937_64 random(seed);
  std::map<uint64_t, uint64_t> live;  // address, bytes
  uint64_t live_bytes = 0;
  int refused = 0;
  for (int step = 0; step < 10000; ++step) {
    const uint64_t draw = random();
    if (live.empty() || draw % 100 < 55) {
      const uint64_t bytes = 1 + (random() >> (40 + draw % 22)) % (12 * kMiB);
      const uint64_t address = p->allocate(bytes, static_cast<unsigned>(draw % 3));
      if (address == 0) {
        REQUIRE(p->code == kOutOfMemory);
        ++refused;
        continue;
      }
      const auto next = live.lower_bound(address);
      REQUIRE((next == live.end() || next->first >= address + bytes));
      if (next != live.begin()) {
        REQUIRE(std::prev(next)->first + std::prev(next)->second <= address);
      }
      REQUIRE(address % 512 == 0);
      live[address] = bytes;
      live_bytes += bytes;
    } else {
      auto at = live.lower_bound((std::prev(live.end())->first / 4096 + 1) * (draw >> 20 & 4095));
      if (at == live.end()) at = live.begin();
      REQUIRE(found(*p, at->first + at->second / 2) == std::pair(at->first, at->second));
      live_bytes -= at->second;
      REQUIRE(p->free(at->first) == Freed::done);
      live.erase(at);
    }
    if (draw % 50 == 0) p->synchronise();
    if (draw % 3000 == 0) p->pool.release_returnable(1'000'000);
    if (step % 1000 == 0) REQUIRE(p->pool.usage().live == live_bytes);
  }
  CHECK((refused > 0) == (capacity == 96));
  for (const auto& [address, bytes] : live) REQUIRE(p->free(address) == Freed::done);
  p->synchronise();
  CHECK(p->pool.usage().live == 0);
  CHECK(p->pool.returnable_bytes() >= p->ledger.reserved.get());
  p->pool.release_returnable(1'000'000);
  CHECK(p->pool.returnable_bytes() == 0);
  CHECK(p->source.held() == 0);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->pool.usage().idle + p->pool.usage().waiting == 0);
  for (const auto& [address, bytes] : live) REQUIRE(p->free(address) == Freed::foreign);
}

TEST_CASE("what became clean is looked for before a larger block is cut") {
  auto p = pool(kLegacy, 64, 32);
  const uint64_t a = p->allocate(20 * kMiB);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->allocate(20 * kMiB) == a);
}

}  // namespace chunk_pools_test
