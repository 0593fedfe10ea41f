// SPDX-License-Identifier: Apache-2.0
#include "allocator/waiting_memory.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"
#include "tests/unit/test_clock.h"

namespace waiting_memory_test {

using namespace cistern::alloc;
using cistern::test::busy_pool;
using cistern::test::FakeSource;
using cistern::test::kMiB;
using cistern::test::Pool;
using cistern::test::StoppedClock;

namespace {

ChunkSizes chunks_of(uint64_t bytes) {
  return {StrategyKind::legacy, bytes, bytes, kBlockGranule, false, false};
}

}  // namespace

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
  p->shared.reclaim.passed(0, ticket);              // … and it ends
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

TEST_CASE("work of every context that may reach the memory must have passed") {
  auto p = std::make_unique<Pool>();
  FakeSource other;
  other.passed_mark = 0;
  p->shared.reclaim.join(1, &other);
  p->shared.reclaim.reaches(0, 1, true);
  const uint64_t a = p->allocate(4 * kMiB);
  p->free(a);
  p->synchronise();
  CHECK(p->allocate(4 * kMiB) != a);
  SECTION("until it passes") { other.passed_mark = ~Mark{0}; }
  SECTION("until it is gone") { p->shared.reclaim.leave(1); }
  p->shared.reclaim.poll(0);
  CHECK(p->allocate(4 * kMiB) == a);
}

TEST_CASE("a free that carries what waits past the bound waits for the oldest work") {
  auto p = busy_pool();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(p->allocate(100 * kMiB));
  for (size_t i = 0; i < 2; ++i) p->free(blocks[i]);
  CHECK(p->ledger.waits.get() == 0);
  CHECK(p->ledger.held_back.get() == 0);
  SECTION("which ends") {
    p->source.pass_after_queries = 20;
    p->free(blocks[2]);
    CHECK(p->ledger.waits.get() == 1);
    CHECK(p->ledger.held_back.get() == 1);
    CHECK(p->ledger.held_back_ns.get() >= p->ledger.wait_ns.get());
    CHECK(p->ledger.bound_gave_way.get() == 0);
    CHECK(p->pool.usage().waiting == 0);
  }
  SECTION("which has ended meanwhile, so that nothing is held back") {
    p->source.passed_mark = ~Mark{0};
    p->free(blocks[2]);
    CHECK(p->ledger.held_back.get() == 0);
    CHECK(p->pool.usage().waiting <= 100 * kMiB);
  }
  SECTION("and where none ends for a second, it gives way until some does") {
    for (size_t i = 2; i < 5; ++i) p->free(blocks[i]);
    CHECK(p->ledger.bound_gave_way.get() == 1);
    CHECK(p->ledger.waits.get() == 1);
    CHECK(p->ledger.wait_ns.get() >= 1'000'000'000);
    CHECK(p->ledger.held_back.get() == 1);
    CHECK(p->ledger.held_back_ns.get() >= 1'000'000'000);
    CHECK(p->pool.usage().waiting == 500 * kMiB);
  }
}

TEST_CASE("what is live or waits is looked at while a good part of the bound waits") {
  auto p = busy_pool();
  const uint64_t live = p->allocate(kMiB), a = p->allocate(4 * kMiB);
  p->free(a);
  REQUIRE(live != 0);
  CHECK(p->ledger.live_and_waiting_peak.get() == 0);
  const uint64_t b = p->allocate(120 * kMiB);
  p->free(b);
  CHECK(p->ledger.live_and_waiting_peak.get() == 125 * kMiB);
  p->synchronise();
  p->free(p->allocate(100 * kMiB));
  CHECK(p->ledger.live_and_waiting_peak.get() == 125 * kMiB);
}

TEST_CASE("a miss waits as long as the call takes that it saves") {
  constexpr uint64_t kObtainNs = 3'000'000;
  const StoppedClock clock;
  auto p = busy_pool();
  p->source.on_obtain = [&] { clock.move_ns(kObtainNs); };
  p->free(p->allocate(4 * kMiB));
  REQUIRE(p->allocate(4 * kMiB) != 0);
  CHECK(p->ledger.waits.get() == 1);
  CHECK(p->ledger.wait_ns.get() >= kObtainNs);
  CHECK(p->ledger.wait_ns.get() < 2 * kObtainNs);
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

TEST_CASE("what can be marked only once the program has synchronised is not waited for") {
  const StoppedClock clock;
  auto p = std::make_unique<Pool>(64 * kMiB);
  const uint64_t a = p->allocate(50 * kMiB);
  p->source.lost = true;
  p->source.patience = 5'000'000'000;
  p->free(a);
  CHECK(p->allocate(60 * kMiB) != 0);
  CHECK(p->ledger.waits.get() >= 1);
  CHECK(p->ledger.wait_ns.get() < 1'000'000'000);
}

TEST_CASE("before a submission what was freed is marked") {
  const StoppedClock clock;
  auto p = busy_pool();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 30; ++i) blocks.push_back(p->allocate(5 * kMiB));
  CHECK_FALSE(p->pool.before_submission(false));
  CHECK(p->source.last_mark == 0);
  REQUIRE(p->free(blocks[0]) == Freed::done);
  CHECK_FALSE(p->pool.before_submission(false));  // the first: long after any other
  CHECK(p->source.last_mark == 1);
  CHECK_FALSE(p->pool.before_submission(false));
  CHECK(p->source.last_mark == 1);
  SECTION("at once, where the work may wait for the host") {
    REQUIRE(p->free(blocks[1]) == Freed::done);
    CHECK_FALSE(p->pool.before_submission(true));
    CHECK(p->source.last_mark == 2);
  }
  SECTION("with one mark for much") {
    const cistern::alloc::Mark before = p->source.last_mark;
    for (int i = 1; i < 30; ++i) REQUIRE(p->free(blocks[static_cast<size_t>(i)]) == Freed::done);
    CHECK_FALSE(p->pool.before_submission(false));
    CHECK(p->source.last_mark == before + 1);
  }
  SECTION("unless the program has synchronised by then") {
    REQUIRE(p->free(blocks[1]) == Freed::done);
    p->synchronise();
    CHECK_FALSE(p->pool.before_submission(true));
    CHECK(p->source.last_mark == 1);
  }
}

TEST_CASE("little that was freed a moment after a mark gets none before a submission") {
  constexpr uint64_t kMarkEveryNs = 100'000;
  const StoppedClock clock;
  auto p = busy_pool();
  const uint64_t first = p->allocate(4096), second = p->allocate(4096);
  REQUIRE(p->free(first) == Freed::done);
  p->pool.before_submission(/*at_once=*/true);
  const Mark before = p->source.last_mark;
  p->free(second);
  CHECK(p->pool.before_submission(/*at_once=*/false));
  clock.move_ns(kMarkEveryNs - 1);
  CHECK(p->pool.before_submission(/*at_once=*/false));
  CHECK(p->source.last_mark == before);
  clock.move_ns(1);
  CHECK_FALSE(p->pool.before_submission(/*at_once=*/false));
  CHECK(p->source.last_mark == before + 1);
}

TEST_CASE("much that was freed a moment after a mark gets one, though as much waited before") {
  constexpr uint64_t kBytes = 12 * kMiB;
  const StoppedClock clock;
  auto p = busy_pool();
  const uint64_t block = p->allocate(kBytes), little = p->allocate(4096);
  REQUIRE(p->free(block) == Freed::done);
  p->pool.before_submission(/*at_once=*/true);
  const Mark before = p->source.last_mark;
  p->source.passed_mark = before;
  SECTION("one, where the same memory was taken since") {
    REQUIRE(p->allocate(kBytes) == block);
    REQUIRE(p->free(block) == Freed::done);
    CHECK_FALSE(p->pool.before_submission(/*at_once=*/false));
    CHECK(p->source.last_mark == before + 1);
  }
  SECTION("none, where it is clean and little is freed beside it") {
    REQUIRE(p->free(little) == Freed::done);
    for (int i = 0; i < 20; ++i) {
      CHECK(p->pool.before_submission(/*at_once=*/false));
      REQUIRE(p->free(p->allocate(4096)) == Freed::done);
    }
    CHECK(p->source.last_mark == before);
  }
  SECTION("none, where much is taken and freed clean, and as much waits elsewhere") {
    std::vector<uint64_t> small;
    for (int i = 0; i < 24; ++i) small.push_back(p->allocate(512 << 10, /*shard=*/3));
    const Ticket ticket = p->synchronise();
    for (const uint64_t each : small) REQUIRE(p->free(each, ticket) == Freed::done);
    for (int i = 0; i < 20; ++i) {
      const uint64_t again = p->allocate(4 * kMiB);
      REQUIRE(p->free(again, p->synchronise()) == Freed::done);
    }
    REQUIRE(p->free(p->allocate(4096)) == Freed::done);
    REQUIRE(p->pool.waiting_bytes() >= 8 * kMiB);
    CHECK(p->pool.before_submission(/*at_once=*/false));
    CHECK(p->source.last_mark == before);
  }
  SECTION("none, where all of it was soon clean and taken again") {
    for (int i = 0; i < 20; ++i) {
      REQUIRE(p->free(p->allocate(4 * kMiB)) == Freed::done);
      p->synchronise();
    }
    REQUIRE(p->free(p->allocate(4096)) == Freed::done);
    CHECK(p->pool.before_submission(/*at_once=*/false));
    CHECK(p->source.last_mark == before);
  }
  SECTION("none, where all of it was taken and freed clean") {
    for (int i = 0; i < 20; ++i) {
      const uint64_t again = p->allocate(4 * kMiB);
      REQUIRE(p->free(again, p->synchronise()) == Freed::done);
    }
    REQUIRE(p->free(p->allocate(4096)) == Freed::done);
    CHECK(p->pool.before_submission(/*at_once=*/false));
    CHECK(p->source.last_mark == before);
  }
}

}  // namespace waiting_memory_test
