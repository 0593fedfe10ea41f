// SPDX-License-Identifier: Apache-2.0
#include "allocator/context_pool.h"

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace context_pool_test {

using namespace cistern::alloc;
using cistern::test::busy_pool;
using cistern::test::kMiB;
using cistern::test::Pool;
using cistern::test::virtual_ms;

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

TEST_CASE("a chunk that a strategy takes is not the program's meanwhile") {
  auto p = std::make_unique<Pool>();
  ChunkSupply supply;
  supply.init(&p->shared, &p->source, {&p->ledger, &p->cap}, 0);
  Reclaim& reclaim = p->shared.reclaim;
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

// --- what may stay idle ---

namespace {

std::vector<uint64_t> blocks_of(Pool& p, int count, uint64_t bytes) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(p.allocate(bytes));
  return blocks;
}

}  // namespace

TEST_CASE("what was in use within the last second may stay idle") {
  auto p = std::make_unique<Pool>();
  p->source.may_take_clean = true;
  for (const uint64_t a : blocks_of(*p, 100, 10 * kMiB)) p->free(a);
  for (int step = 0; step < 20; ++step) {
    p->pool.release_excess();
    CHECK(p->pool.work_in_background());
    CHECK(p->source.taken_clean == 0);
    virtual_ms += 50;
  }
  CHECK(p->allocate(10 * kMiB) != 0);
  CHECK(p->source.obtained == 100);
}

TEST_CASE("after a second the oldest idle memory beyond the floor goes back") {
  const uint64_t count = GENERATE(20, 100);  // the floor: 64 MiB, or an eighth of the peak
  auto p = std::make_unique<Pool>();
  p->source.may_take_clean = true;
  const std::vector<uint64_t> blocks = blocks_of(*p, static_cast<int>(count), 10 * kMiB);
  for (const uint64_t a : blocks) p->free(a);
  p->synchronise();
  const uint64_t newest = p->allocate(10 * kMiB);
  CHECK(newest == blocks.back());
  p->pass_a_second();
  CHECK(p->source.released == 0);
  p->pool.release_excess();
  const uint64_t floor = std::max(64 * kMiB, count * 10 * kMiB / 8);
  CHECK(p->pool.usage().idle <= floor);
  CHECK(p->pool.usage().idle > floor - 10 * kMiB);
  CHECK(p->shared.index.find(blocks.front()) == nullptr);
}

TEST_CASE("before more is obtained, idle memory makes room for it") {
  auto p = std::make_unique<Pool>();
  p->source.may_take_clean = true;
  for (const uint64_t a : blocks_of(*p, 20, 10 * kMiB)) p->free(a);
  p->synchronise();
  CHECK(p->allocate(64 * kMiB) != 0);  // within the floor
  CHECK(p->source.taken_clean == 0);
  CHECK(p->allocate(100 * kMiB) != 0);
  CHECK(p->source.taken_clean == 10);
  CHECK(p->ledger.reserved_peak.get() == (200 + 64) * kMiB);
}

TEST_CASE("before more is obtained, only memory goes back that no order is owed for") {
  auto p = std::make_unique<Pool>();
  p->source.may_take_clean = true;
  p->source.owes = true;
  for (const uint64_t a : blocks_of(*p, 20, 10 * kMiB)) p->free(a);
  p->synchronise();
  p->source.passed_mark = 0;
  const uint64_t late = p->allocate(10 * kMiB);
  CHECK(p->allocate(100 * kMiB) != 0);  // marks
  p->free(late);
  p->synchronise();
  p->source.passed_mark = ~Mark{0};
  CHECK(p->source.taken_clean == 0);
  CHECK(p->allocate(128 * kMiB) != 0);
  CHECK(p->source.taken_clean == 14);
  CHECK(p->shared.index.find(late) != nullptr);
}

TEST_CASE("in the background idle memory goes once work before it is done, without a wait") {
  auto p = busy_pool();
  p->source.may_take_clean = true;
  p->source.owes = true;
  for (const uint64_t a : blocks_of(*p, 20, 10 * kMiB)) p->free(a);
  p->synchronise();
  p->pass_a_second();
  CHECK(p->pool.work_in_background());
  CHECK(p->source.last_mark != 0);
  CHECK(p->pool.work_in_background());
  CHECK(p->source.taken_clean == 0);
  p->source.passed_mark = ~Mark{0};
  CHECK_FALSE(p->pool.work_in_background());
  CHECK(p->source.taken_clean == 14);
  CHECK(p->pool.usage().idle == 60 * kMiB);
}

TEST_CASE("a thread is asked for once more than the floor is idle, and not again while it looks") {
  auto p = std::make_unique<Pool>();
  p->source.may_take_clean = true;
  for (int round = 1; round < 3; ++round) {
    const std::vector<uint64_t> blocks = blocks_of(*p, 20, 10 * kMiB);
    const Ticket waited = p->synchronise();
    for (size_t i = 0; i < 6; ++i) p->free(blocks[i], waited);
    CHECK(p->source.asked_to_attend == round - 1);
    for (size_t i = 6; i < 20; ++i) p->free(blocks[i], waited);
    CHECK(p->source.asked_to_attend == round);
    while (p->pool.work_in_background()) virtual_ms += 100;
  }
}

TEST_CASE("the background thread ends where the source turns out to wait, and frees do its work") {
  auto p = busy_pool();
  p->source.may_take_clean = true;
  const std::vector<uint64_t> blocks = blocks_of(*p, 12, 10 * kMiB);
  const Ticket waited = p->synchronise();
  for (const uint64_t a : blocks) p->free(a, waited);
  CHECK(p->pool.work_in_background());
  p->source.may_take_clean = false;
  p->source.capturing = true;
  CHECK(p->pool.work_in_background());
  p->source.capturing = false;
  CHECK_FALSE(p->pool.work_in_background());
}

TEST_CASE("a source that would wait takes idle memory once no work goes on") {
  auto p = busy_pool();
  for (const uint64_t a : blocks_of(*p, 10, 10 * kMiB)) p->free(a);
  p->synchronise();
  p->allocate(10 * kMiB);
  p->pass_a_second();
  p->pool.release_excess();
  CHECK(p->source.released == 0);
  CHECK(p->source.asked_to_attend == 0);
  p->source.passed_mark = ~Mark{0};
  p->pool.release_excess();
  CHECK(p->source.released == 3);
}

TEST_CASE("where a source would wait, a free does so from twice the budget on") {
  auto p = busy_pool();
  const std::vector<uint64_t> blocks = blocks_of(*p, 12, 10 * kMiB);
  const uint64_t first = p->allocate(8 * kMiB), second = p->allocate(4 * kMiB);
  const uint64_t third = p->allocate(kMiB);
  for (const uint64_t a : blocks) p->free(a);
  p->synchronise();
  p->pass_a_second();
  p->free(first);
  p->synchronise();
  CHECK(p->source.released == 0);
  p->free(second);  // 128 MiB are idle
  CHECK(p->source.released == 0);
  p->synchronise();
  p->pass_a_second();
  p->free(third);
  CHECK(p->source.released > 0);
  CHECK(p->pool.usage().idle <= 64 * kMiB);
}

TEST_CASE("what waits counts as in use") {
  auto p = busy_pool();
  p->source.may_take_clean = true;
  for (const uint64_t a : blocks_of(*p, 36, 8 * kMiB)) p->free(a);
  CHECK(p->pool.usage().waiting == 288 * kMiB);
  p->synchronise();
  virtual_ms += 200;
  p->pool.release_excess();
  CHECK(p->pool.usage().idle == 288 * kMiB);
  CHECK(p->source.taken_clean == 0);
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

TEST_CASE("any other error of the driver reaches the program unchanged") {
  auto p = std::make_unique<Pool>();
  p->source.fail_obtain = 700;
  CHECK(p->allocate(GENERATE(100, 5 * kMiB)) == 0);
  CHECK(p->code == 700);
  p->source.fail_obtain = 0;
  CHECK(p->allocate(5 * kMiB) != 0);
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

TEST_CASE("blocks of a size that other processes were told have chunks of just that size") {
  constexpr uint64_t kTold = 10 * kMiB - 512;
  auto p = std::make_unique<Pool>(34 * kMiB);
  const uint64_t told = p->allocate(kTold);
  p->pool.note_size_told(p->shared.index.find(told));
  const uint64_t a = p->allocate(10 * kMiB);
  p->free(a);
  p->synchronise();
  const uint64_t exact = p->allocate(kTold);
  CHECK(exact != a);
  CHECK(p->shared.index.find(exact)->size() == kTold);
  CHECK(p->allocate(10 * kMiB - 1024) == a);  // others did not learn of this size
  SECTION("unless memory is short") {
    p->free(a);
    p->synchronise();
    p->source.passed_mark = 0;
    p->free(p->allocate(1 * kMiB));  // so that work goes on, and nothing can be returned
    CHECK(p->allocate(kTold) == a);
  }
  SECTION("and of any size once very many were told") {
    for (uint64_t i = 0; i < ToldSizes::kMost; ++i) p->shared.told_sizes.note(3 * kMiB + i);
    p->free(a);
    p->synchronise();
    CHECK(p->shared.told_sizes.has(10 * kMiB - 2048));
  }
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

}  // namespace context_pool_test
