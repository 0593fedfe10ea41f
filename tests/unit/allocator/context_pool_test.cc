// SPDX-License-Identifier: Apache-2.0
#include "allocator/context_pool.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/unit/allocator/fake_source.h"

using namespace cistern::alloc;
using cistern::test::FakeSource;
using cistern::test::kMiB;
using cistern::test::Pool;

namespace {

// Nothing passes before the test lets it.
std::unique_ptr<Pool> busy_pool(uint64_t capacity = uint64_t{1} << 40) {
  auto p = std::make_unique<Pool>(capacity);
  p->source.passed_mark = 0;
  return p;
}

ChunkSizes chunks_of(uint64_t bytes) {
  return {StrategyKind::legacy, bytes, bytes, kBlockGranule, false, false};
}

}  // namespace

TEST_CASE("a large block is a driver allocation of exactly the size asked") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = p->allocate(3 * kMiB + 123);
  REQUIRE(a != 0);
  CHECK(p->source.held() == 3 * kMiB + 123);
  CHECK(p->source.obtained == 1);
}

TEST_CASE("small blocks share one slab and are aligned to 512 bytes") {
  auto p = std::make_unique<Pool>();
  for (uint64_t bytes : {1, 511, 512, 513, 4096, 100000}) {
    const uint64_t a = p->allocate(bytes);
    REQUIRE(a != 0);
    CHECK(a % 512 == 0);
  }
  CHECK(p->source.obtained == 1);
  CHECK(p->source.held() == 2 * kMiB);
}

TEST_CASE("blocks never overlap, whatever the order of allocations and frees") {
  auto p = std::make_unique<Pool>();
  std::mt19937 random(7);
  std::map<uint64_t, uint64_t> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 300 && random() % 3 != 0) {
      const uint64_t bytes =
          random() % 4 == 0 ? kMiB + random() % (8 * kMiB) : 1 + random() % 300000;
      const uint64_t a = p->allocate(bytes);
      REQUIRE(a != 0);
      const auto after = live.lower_bound(a);
      if (after != live.end()) REQUIRE(a + bytes <= after->first);
      if (after != live.begin()) {
        const auto before = std::prev(after);
        REQUIRE(before->first + before->second <= a);
      }
      live[a] = bytes;
    } else if (!live.empty()) {
      const auto it = std::next(live.begin(), random() % live.size());
      REQUIRE(p->free(it->first) == Freed::done);
      live.erase(it);
    }
    if (random() % 50 == 0) p->synchronise();
  }
  uint64_t bytes = 0;
  for (const auto& [a, n] : live) bytes += n;
  CHECK(p->pool.usage().live == bytes);
  CHECK(p->ledger.live.get() + p->pool.unpublished_live() == bytes);
}

TEST_CASE("a freed block is not handed out again while earlier work may use it") {
  auto p = busy_pool();
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  const uint64_t a = p->allocate(bytes);
  p->free(a);
  const uint64_t b = p->allocate(bytes);
  CHECK(b != a);
  p->synchronise();
  std::vector<uint64_t> again;
  for (int i = 0; i < 3; ++i) again.push_back(p->allocate(bytes));
  CHECK(std::find(again.begin(), again.end(), a) != again.end());
}

TEST_CASE("a synchronisation makes clean what was freed before it began, not what came after") {
  auto p = busy_pool();
  const uint64_t a = p->allocate(4 * kMiB), b = p->allocate(5 * kMiB);
  p->free(a);
  const Ticket ticket = p->shared.reclaim.close();  // the program's call starts …
  p->free(b);                                       // … another thread frees …
  p->shared.reclaim.passed(p->timeline, ticket);    // … and it ends
  CHECK(p->allocate(4 * kMiB) == a);
  CHECK(p->allocate(5 * kMiB) != b);
}

TEST_CASE("a free that a synchronisation already covers is clean at once") {
  const auto sizes = GENERATE(ChunkSizes{}, chunks_of(64 * kMiB));
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, sizes);
  p->source.passed_mark = 0;
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  const uint64_t a = p->allocate(bytes);
  REQUIRE(p->free(a, p->synchronise()) == Freed::done);
  CHECK(p->allocate(bytes) == a);
  CHECK(p->source.last_mark == 0);
}

TEST_CASE("behind a free that is not covered it waits for that one, and gets its mark") {
  auto p = busy_pool();
  const uint64_t bytes = 2 * kMiB;  // too little for a free to make the mark
  const uint64_t a = p->allocate(bytes), b = p->allocate(bytes);
  const Ticket ticket = p->synchronise();
  REQUIRE(p->free(b) == Freed::done);
  REQUIRE(p->free(a, ticket) == Freed::done);
  const uint64_t c = p->allocate(bytes);
  CHECK((c != a && c != b));
  CHECK(p->source.last_mark == 1);
  p->source.passed_mark = 1;
  const uint64_t d = p->allocate(bytes);
  CHECK((d == a || d == b));
}

TEST_CASE("a chunk that a strategy takes is not the program's meanwhile") {
  auto p = std::make_unique<Pool>();
  ChunkSupply supply;
  supply.init(&p->shared, &p->source, {&p->ledger, &p->cap}, 0);
  const Reclaim& reclaim = p->shared.reclaim;
  int code;
  uint64_t requested;
  Chunk* chunk = supply.obtain(2 * kMiB, Role::whole, &code);
  REQUIRE(chunk != nullptr);
  const auto free = [&] {
    return supply.cache.free(chunk, chunk->base(), reclaim, &requested, Reclaim::kNow,
                             /*refreshes=*/false);
  };
  REQUIRE(free() == ChunkCache::Freed::cached);
  p->synchronise();
  REQUIRE(supply.cache.take(2 * kMiB, Role::released, reclaim) == chunk);
  CHECK(free() == ChunkCache::Freed::not_live);
}

TEST_CASE("one event covers every free since the last one") {
  auto p = busy_pool();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 7; ++i) blocks.push_back(p->allocate(kMiB));
  for (uint64_t a : blocks) p->free(a);
  CHECK(p->source.last_mark == 0);
  p->allocate(kMiB);
  CHECK(p->source.last_mark == 1);
  p->allocate(kMiB);
  CHECK(p->source.last_mark == 1);
}

TEST_CASE("a program that synchronises by itself causes no event") {
  auto p = busy_pool();
  for (int i = 0; i < 100; ++i) {
    const uint64_t a = p->allocate(4 * kMiB), b = p->allocate(2000);
    p->free(a);
    p->free(b);
    p->synchronise();
  }
  CHECK(p->source.last_mark == 0);
  CHECK(p->source.obtained == 2);
}

TEST_CASE("work of every context must have passed") {
  auto p = std::make_unique<Pool>();
  FakeSource other;
  other.passed_mark = 0;
  Timeline* second = p->shared.reclaim.join(&other);
  const uint64_t a = p->allocate(4 * kMiB);
  p->free(a);
  p->synchronise();
  CHECK(p->allocate(4 * kMiB) != a);
  SECTION("until it passes") { other.passed_mark = ~Mark{0}; }
  SECTION("until it is gone") { p->shared.reclaim.leave(second); }
  p->shared.reclaim.poll();
  CHECK(p->allocate(4 * kMiB) == a);
}

TEST_CASE("reuse never takes more of the device than the driver would have given") {
  auto p = std::make_unique<Pool>();
  struct Case {
    uint64_t freed, asked;
    bool reused;
  };
  const Case c = GENERATE(Case{10 * kMiB, 10 * kMiB, true}, Case{10 * kMiB, 9 * kMiB + 1, true},
                          Case{10 * kMiB, 8 * kMiB, false}, Case{10 * kMiB, 11 * kMiB, false},
                          Case{2 * kMiB, kMiB, false}, Case{100 * kMiB, 97 * kMiB, false},
                          Case{100 * kMiB, 99 * kMiB, true});
  const uint64_t a = p->allocate(c.freed);
  p->free(a);
  p->synchronise();
  CHECK((p->allocate(c.asked) == a) == c.reused);
}

TEST_CASE("what a reused larger block says about itself is the requested size") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = p->allocate(10 * kMiB);
  p->free(a);
  p->synchronise();
  REQUIRE(p->allocate(10 * kMiB - 700) == a);
  uint64_t start, bytes;
  Chunk* chunk = p->shared.index.find(a + 12345);
  REQUIRE(p->pool.find(chunk, a + 12345, &start, &bytes));
  CHECK(start == a);
  CHECK(bytes == 10 * kMiB - 700);
  CHECK_FALSE(p->pool.find(chunk, a + 10 * kMiB - 700, &start, &bytes));
}

TEST_CASE("interior, freed and unknown addresses are told apart") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(5000, 3 * kMiB);
  const uint64_t a = p->allocate(bytes);
  CHECK(p->free(a + 512) == Freed::invalid);
  CHECK(p->free(a + 1) == Freed::invalid);
  CHECK(p->free(12345) == Freed::foreign);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->free(a) == Freed::invalid);
  p->synchronise();
  CHECK(p->free(a) == Freed::invalid);
}

TEST_CASE("idle memory beyond the budget goes back, oldest first") {
  auto p = busy_pool();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(p->allocate(10 * kMiB));
  for (uint64_t a : blocks) p->free(a);
  p->synchronise();
  const uint64_t newest = p->allocate(10 * kMiB);
  CHECK(newest == blocks.back());
  CHECK(p->source.released == 0);  // not in an allocation: the driver's free may wait
  p->pool.release_excess();
  CHECK(p->pool.usage().idle <= 64 * kMiB);
  CHECK(p->shared.index.find(blocks.front()) == nullptr);
  CHECK(p->source.held() <= 74 * kMiB);
}

TEST_CASE("a free gives back what became idle beyond the budget") {
  auto p = busy_pool();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(p->allocate(10 * kMiB));
  for (int i = 1; i < 20; ++i) p->free(blocks[static_cast<size_t>(i)]);
  p->synchronise();
  CHECK(p->source.released == 0);
  p->free(blocks.front());
  CHECK(p->source.released > 0);
  CHECK(p->pool.usage().idle <= 64 * kMiB + p->pool.usage().waiting);
}

TEST_CASE("what could go back is counted in the driver's pages") {
  auto p = busy_pool();
  const uint64_t a = p->allocate(3 * kMiB + 1), b = p->allocate(1000);
  CHECK(p->pool.returnable_bytes() == 0);
  p->free(a);
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
  p->free(b);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == 6 * kMiB);
  const uint64_t before = p->source.held();
  p->pool.release_everything();
  CHECK(p->pool.returnable_bytes() == 0);
  CHECK(before - p->source.held() == 5 * kMiB + 1);
}

TEST_CASE("an empty slab becomes an idle chunk that serves a whole request") {
  auto p = std::make_unique<Pool>();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(p->allocate(512 * 1024));
  REQUIRE(p->source.obtained == 2);
  for (uint64_t a : blocks) p->free(a);
  p->synchronise();
  p->allocate(1000);
  CHECK(p->allocate(2 * kMiB) != 0);
  CHECK(p->source.obtained == 2);
}

TEST_CASE("out of memory: everything idle or waiting goes back before the program is told") {
  auto p = busy_pool(64 * kMiB);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(p->allocate(10 * kMiB));
  for (uint64_t a : blocks) p->free(a);
  CHECK(p->allocate(60 * kMiB) != 0);
  CHECK(p->allocate(10 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  CHECK(p->ledger.out_of_memory.get() == 1);
}

TEST_CASE("a small request gets exactly its size where no slab fits any more") {
  auto p = std::make_unique<Pool>(3 * kMiB);
  REQUIRE(p->allocate(kMiB + 1) != 0);  // two driver pages' worth: 1 MiB is left
  const uint64_t a = p->allocate(600 * 1024);
  CHECK(a != 0);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->source.held() == kMiB + 1);
}

TEST_CASE("any other error of the driver reaches the program unchanged") {
  auto p = std::make_unique<Pool>();
  p->source.fail_obtain = 700;
  CHECK(p->allocate(GENERATE(100, 5 * kMiB)) == 0);
  CHECK(p->code == 700);
  p->source.fail_obtain = 0;
  CHECK(p->allocate(5 * kMiB) != 0);
}

TEST_CASE("more waiting than the budget makes an allocation wait, but not for long") {
  auto p = busy_pool();
  for (int i = 0; i < 6; ++i) p->free(p->allocate(100 * kMiB));
  CHECK(p->ledger.waits.get() > 0);
  CHECK(p->ledger.wait_ns.get() < 1'000'000'000);
}

TEST_CASE("while a capture is in progress nothing is given back or marked") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  const uint64_t a = p->allocate(50 * kMiB);
  p->source.capturing = true;
  p->free(a);
  CHECK(p->allocate(60 * kMiB) == 0);
  CHECK(p->source.released == 0);
  CHECK(p->source.last_mark == 0);
  p->source.capturing = false;
  CHECK(p->allocate(60 * kMiB) != 0);
}

TEST_CASE("during a capture, too, clean memory serves where the driver has none") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  const uint64_t kept = p->allocate(1000), freed = p->allocate(62 * kMiB);
  p->free(freed);
  p->synchronise();
  p->source.capturing = true;
  uint64_t large = 0, small = 0;
  CHECK(p->pool.allocate_direct(62 * kMiB, 0, /*pooled=*/true, &large) == kSuccess);
  CHECK(large == freed);
  CHECK(p->pool.allocate_direct(1000, 0, /*pooled=*/true, &small) == kSuccess);
  CHECK(small != kept);
  CHECK(p->pool.allocate_direct(4 * kMiB, 0, /*pooled=*/true, &large) == kOutOfMemory);
}

TEST_CASE("work that cannot be followed ends reuse, and a shortage still returns memory") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  p->shared.reclaim.freeze();
  const uint64_t a = p->allocate(20 * kMiB);
  p->free(a);
  p->synchronise();
  CHECK(p->allocate(20 * kMiB) != a);
  CHECK(p->allocate(40 * kMiB) != 0);
}

TEST_CASE("a block known to another process is really freed") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = p->allocate(4 * kMiB), b = p->allocate(1000);
  CHECK(p->pool.mark_exported(p->shared.index.find(a), a));
  CHECK(p->pool.mark_exported(p->shared.index.find(b), b));
  CHECK(p->free(a) == Freed::done);
  CHECK(p->source.released == 1);
  CHECK(p->shared.index.find(a) == nullptr);
}

TEST_CASE("a refused free leaves the block with the program") {
  auto p = std::make_unique<Pool>();
  uint64_t a;
  REQUIRE(p->pool.allocate_direct(4 * kMiB, 0, /*pooled=*/true, &a) == kSuccess);
  p->source.fail_release = 900;
  p->free(a);
  CHECK(p->code == 900);
  CHECK(p->pool.usage().live == 4 * kMiB);
  p->source.fail_release = 0;
  CHECK(p->free(a) == Freed::done);
  CHECK(p->code == kSuccess);
  CHECK(p->pool.usage().live == 0);
}

TEST_CASE("the cap holds, and idle memory under it is given up first") {
  auto p = std::make_unique<Pool>();
  p->cap.set_limit(20 * kMiB);
  const uint64_t a = p->allocate(12 * kMiB);
  REQUIRE(a != 0);
  CHECK(p->allocate(12 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  p->free(a);
  CHECK(p->allocate(18 * kMiB) != 0);
  CHECK(p->cap.charged() == 18 * kMiB);
}

TEST_CASE("a context that goes takes its memory along without a call to the driver") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = p->allocate(4 * kMiB), b = p->allocate(1000), c = p->allocate(6 * kMiB);
  p->free(c);
  p->pool.forget_all();
  CHECK(p->source.released == 0);
  for (uint64_t address : {a, b, c}) CHECK(p->free(address) == Freed::foreign);
  CHECK(p->ledger.live.get() == 0);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->cap.charged() == 0);
  CHECK(p->allocate(1000) == 0);
  CHECK(p->code == kContextGone);
}

TEST_CASE("what the source refuses to take back is not lost, and no progress either") {
  auto p = std::make_unique<Pool>();
  p->free(p->allocate(4 * kMiB));
  p->source.capturing = true;
  CHECK_FALSE(p->pool.release_everything());
  CHECK(p->ledger.lost.get() == 0);
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
  p->source.capturing = false;
  CHECK(p->pool.release_everything());
  CHECK(p->source.held() == 0);
}

TEST_CASE("a pool that serves another context counts from zero") {
  auto p = std::make_unique<Pool>();
  for (uint64_t bytes : {1000 * kMiB, uint64_t{1000}}) p->free(p->allocate(bytes));
  p->pool.forget_all();
  p->init();
  CHECK(p->pool.allocations() == 0);
  CHECK(p->pool.frees() == 0);
  CHECK(p->pool.usage().live + p->pool.usage().idle + p->pool.usage().waiting == 0);
}

TEST_CASE("the ledger's peaks are exact with one thread") {
  auto p = std::make_unique<Pool>();
  const uint64_t a = p->allocate(3 * kMiB), b = p->allocate(700), c = p->allocate(900);
  p->free(b);
  p->free(c);
  p->free(a);
  CHECK(p->ledger.live_peak.get() == 3 * kMiB + 1600);
  CHECK(p->ledger.reserved_peak.get() == 5 * kMiB);
}

TEST_CASE("in a shortage what is clean goes back first, without a wait for the device") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  p->source.may_take_clean = true;
  const uint64_t large = p->allocate(20 * kMiB), small = p->allocate(5000);
  const uint64_t waiting = p->allocate(10 * kMiB);
  REQUIRE(p->free(large) == Freed::done);
  REQUIRE(p->free(small) == Freed::done);
  p->synchronise();
  p->source.passed_mark = 0;
  REQUIRE(p->free(waiting) == Freed::done);
  SECTION("and what is not clean stays, if that is enough") {
    CHECK(p->allocate(48 * kMiB) != 0);
    CHECK(p->source.taken_clean == 2);
    CHECK(p->pool.usage().waiting == 10 * kMiB);
  }
  SECTION("and the rest after it, if it is not") {
    CHECK(p->allocate(60 * kMiB) != 0);
    CHECK(p->source.taken_clean == 2);
    CHECK(p->source.released == 3);
  }
  SECTION("where the source cannot do that, as ever") {
    p->source.may_take_clean = false;
    CHECK(p->allocate(48 * kMiB) != 0);
    CHECK(p->pool.usage().idle == 0);
  }
}

TEST_CASE("a free of much memory marks the work so far, so that later work does not hold it back") {
  auto p = std::make_unique<Pool>(256 * kMiB);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 30; ++i) blocks.push_back(p->allocate(5 * kMiB));
  SECTION("unless the program synchronises by itself") {
    for (const uint64_t block : blocks) {
      REQUIRE(p->free(block) == Freed::done);
      p->synchronise();
    }
    CHECK(p->source.last_mark == 0);
  }
  SECTION("once for a batch of frees") {
    for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
    CHECK(p->source.last_mark > 10);
    CHECK(p->source.last_mark < 20);
  }
}
