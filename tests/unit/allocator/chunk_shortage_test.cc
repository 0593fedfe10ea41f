// SPDX-License-Identifier: Apache-2.0
// A chunk cannot be had: the steps of the settings page, in their order, and the one that serves.
#include "tests/unit/allocator/chunk_pool.h"

namespace chunk_shortage_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr auto kLegacy = StrategyKind::legacy;

}  // namespace

TEST_CASE("short of memory, first what has become clean serves") {
  auto p = pool(kLegacy, 64, 64, 64);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(40 * kMiB);
  REQUIRE(p->allocate(20 * kMiB) != 0);
  REQUIRE(p->free(a) == Freed::done);
  // The event passes while the driver is being asked.
  p->source.on_obtain = [&] { p->source.passed_mark = ~Mark{0}; };
  CHECK(p->allocate(30 * kMiB) == a);
  CHECK(p->source.ended == Step::clean);
  CHECK(p->source.released == 0);
}

TEST_CASE("then wholly idle chunks are returned") {
  auto p = pool(kLegacy, 32, 32, 64);
  const uint64_t a = p->allocate(20 * kMiB), b = p->allocate(20 * kMiB);
  free_and_synchronise(*p, {a});
  CHECK(p->allocate(40 * kMiB) == 0);  // b's chunk is not idle
  CHECK(p->source.ended == Step::refused);
  CHECK(p->source.released == 1);
  CHECK(p->allocate(32 * kMiB) != 0);
  REQUIRE(p->free(b) == Freed::done);
  CHECK(p->allocate(28 * kMiB) != 0);
  CHECK(p->source.released == 1);
  auto q = pool(kLegacy, 32, 32, 64);
  free_and_synchronise(*q, {q->allocate(20 * kMiB)});
  CHECK(q->allocate(48 * kMiB) != 0);
  CHECK(q->source.ended == Step::returned);
  CHECK(q->source.released == 1);
}

TEST_CASE("then smaller chunks are asked for, never below the request, then just the request") {
  auto p = pool(kLegacy, 64, 64, 84);
  REQUIRE(p->allocate(60 * kMiB) != 0);
  p->source.asked.clear();
  REQUIRE(p->allocate(5 * kMiB) != 0);
  CHECK(p->source.asked == Sizes{64 * kMiB, 64 * kMiB, 32 * kMiB, 16 * kMiB});
  CHECK(p->source.ended == Step::smaller);
  auto q = pool(kLegacy, 64, 64, 84);
  REQUIRE(q->allocate(60 * kMiB) != 0);
  q->source.asked.clear();
  REQUIRE(q->allocate(18 * kMiB) != 0);
  CHECK(q->source.asked == Sizes{64 * kMiB, 64 * kMiB, 32 * kMiB, 18 * kMiB});
  CHECK(q->source.ended == Step::exact);
}

// As a chunk it would be idle beside others in its page, and that could not be told as free.
TEST_CASE("no chunk shares a driver page: a small request that needs one is the driver's") {
  auto p = std::make_unique<Pool>(4 * kMiB + kMiB / 2, sizes(kLegacy, 4 * kMiB, 4 * kMiB));
  const uint64_t a = p->allocate(4 * kMiB);
  REQUIRE(a != 0);
  p->source.asked.clear();
  const uint64_t b = p->allocate(100 * 1024);
  REQUIRE(b != 0);
  CHECK(p->source.asked == Sizes{4 * kMiB, 4 * kMiB, 2 * kMiB, kMiB, 100 * 1024});
  CHECK(p->source.ended == Step::exact);
  CHECK(p->pool.returnable_bytes() == 0);
  REQUIRE(p->free(b) == Freed::done);
  CHECK(p->source.released == 1);
  free_and_synchronise(*p, {a});
  CHECK(p->pool.returnable_bytes() == 4 * kMiB);
}

TEST_CASE("then the program gets the driver's code, and everything goes on") {
  auto p = pool(kLegacy, 64, 64, 84);
  const uint64_t a = p->allocate(60 * kMiB);
  CHECK(p->allocate(30 * kMiB) == 0);
  CHECK(p->code == kOutOfMemory);
  CHECK(p->source.ended == Step::refused);
  CHECK(p->ledger.out_of_memory.get() == 1);
  CHECK(p->ledger.served_by[static_cast<int>(Step::refused)].get() == 1);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->allocate(30 * kMiB) != 0);
}

TEST_CASE("what waits behind earlier work is waited for before memory is said to be out") {
  auto p = pool(kLegacy, 64, 64, 64);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(40 * kMiB);
  REQUIRE(p->allocate(20 * kMiB) != 0);
  REQUIRE(p->free(a) == Freed::done);
  int refused = 0;
  p->source.on_obtain = [&] {
    // The usual size, once more after returning what is idle, half of it, just the request.
    if (++refused == 4) p->source.pass_after_queries = 20;
  };
  CHECK(p->allocate(30 * kMiB) == a);
  CHECK(p->source.ended == Step::clean);
  CHECK(refused == 4);
}

TEST_CASE("where a smaller chunk can be had, earlier work is not waited for") {
  auto p = pool(kLegacy, 64, 64, 110);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(40 * kMiB);
  REQUIRE(p->allocate(20 * kMiB) != 0);
  REQUIRE(p->free(a) == Freed::done);
  p->source.asked.clear();
  REQUIRE(p->allocate(30 * kMiB) != 0);
  CHECK(p->source.asked == Sizes{64 * kMiB, 64 * kMiB, 32 * kMiB});
  CHECK(p->source.ended == Step::smaller);
  CHECK(p->shared.reclaim.queries_made() < 1000);
}

TEST_CASE("a free block that holds an aligned one serves before memory is out, whatever its size") {
  auto p = pool(kLegacy, 64, 64, 64, 8 * kMiB);
  const uint64_t base = p->allocate(512);
  const uint64_t up = 8 * kMiB - base % (8 * kMiB);  // to an aligned address
  std::vector<uint64_t> blocks;
  const auto fill = [&](uint64_t bytes) { blocks.push_back(p->allocate(bytes)); };
  fill(up - 512);
  for (int i = 0; i < 40; ++i) fill(kMiB);
  for (const uint64_t block : blocks) REQUIRE(block != 0);
  const auto at = [&](uint64_t mib) { return base + up + mib * kMiB; };
  // 9 MiB of which no 8 are aligned, and 10 that begin aligned; all else is taken.
  std::vector<uint64_t> freed;
  for (uint64_t i = 1; i < 10; ++i) freed.push_back(at(i));
  for (uint64_t i = 16; i < 26; ++i) freed.push_back(at(i));
  while (p->allocate(kMiB) != 0) {
  }
  for (const uint64_t block : freed) REQUIRE(p->free(block) == Freed::done);
  p->synchronise();
  CHECK(p->allocate(8 * kMiB) == at(16));
}

TEST_CASE("under thread_local a free block of another thread's pool serves before memory is out") {
  auto p = pool(StrategyKind::thread_local_, 32, 32, 64);
  const uint64_t a = p->allocate(20 * kMiB, 0);
  REQUIRE(p->allocate(5 * kMiB, 0) != 0);
  REQUIRE(p->allocate(32 * kMiB, 1) != 0);
  free_and_synchronise(*p, {a});
  CHECK(p->allocate(20 * kMiB, 1) == a);
  CHECK(p->source.ended == Step::elsewhere);
}

TEST_CASE("a free block of another thread's pool serves before a shortage waits for work") {
  auto p = pool(StrategyKind::thread_local_, 32, 32, 64);
  const uint64_t a = p->allocate(20 * kMiB, 0);
  REQUIRE(p->allocate(5 * kMiB, 0) != 0);
  const uint64_t b = p->allocate(20 * kMiB, 1);
  free_and_synchronise(*p, {a});
  p->source.passed_mark = 0;  // what is freed from now on waits
  REQUIRE(p->free(b) == Freed::done);
  CHECK(p->allocate(20 * kMiB, 1) == a);
  CHECK(p->ledger.waits.get() == 1);  // as long as the driver may take, before it is asked
}

TEST_CASE("a cap ends a chunk pool as the device's end does") {
  auto p = pool(kLegacy, 64, 64);
  p->cap.set_limit(84 * kMiB);
  REQUIRE(p->allocate(60 * kMiB) != 0);
  REQUIRE(p->allocate(5 * kMiB) != 0);
  CHECK(p->source.ended == Step::smaller);
  CHECK(p->allocate(30 * kMiB) == 0);
  CHECK(p->cap.charged() == 80 * kMiB);
}

TEST_CASE("the driver's own errors travel through unchanged") {
  auto p = pool(kLegacy, 64, 64);
  p->source.fail_obtain = 719;
  CHECK(p->allocate(kMiB) == 0);
  CHECK(p->code == 719);
  CHECK(p->source.asked.size() == 1);
}

}  // namespace chunk_shortage_test
