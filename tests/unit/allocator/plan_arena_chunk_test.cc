// SPDX-License-Identifier: Apache-2.0
// The chunk of a plan: when it is asked for, when it is asked for again, and which one does.
#include <memory>
#include <vector>

#include "allocator/plan_arena.h"
#include "tests/catch.h"
#include "tests/unit/allocator/planned.h"
#include "tests/unit/test_clock.h"

namespace plan_arena_chunk_test {

using namespace cistern::alloc;
using namespace cistern::test;

TEST_CASE("plan arena: a run that lost its idle chunk asks for another one", "[plan]") {
  const StoppedClock clock;
  const OfRequests given({at(0, 1000), at(0, 2000), at(0, 3000), at(0, 4000), at(0, 5000)},
                         4 * kMiB, false);
  auto p = pool_with(given.plan);
  p->source.may_take_clean = true;
  const auto ask = [&](uint64_t bytes) {
    const uint64_t address = p->allocate_planned(bytes);
    if (address != 0) p->free(address);
    p->synchronise();
    return address != 0;
  };
  REQUIRE(ask(1000));
  REQUIRE(p->pool.release_clean());
  SECTION("at once") {
    for (const uint64_t bytes : {2000, 3000, 4000, 5000}) CHECK(ask(bytes));
    CHECK(p->source.asked.size() == 2);
  }
  SECTION("a second after the second refusal, whatever was asked for meanwhile") {
    p->source.fail_obtain = kOutOfMemory;
    for (const uint64_t bytes : {2000, 3000}) CHECK_FALSE(ask(bytes));
    p->source.fail_obtain = 0;
    CHECK_FALSE(ask(4000));
    clock.move_ns(1000 * kMs);
    CHECK(ask(5000));
  }
}

TEST_CASE("plan arena: no chunk is no error, and the pool serves", "[plan]") {
  const OfRequests given({at(0, 1000), at(1024, 1000)}, uint64_t{1} << 41);
  auto p = pool_with(given.plan);
  CHECK(p->allocate_planned(1000) == 0);
  CHECK(p->allocate(1000) != 0);
  CHECK(p->allocate_planned(1000) == 0);
}

TEST_CASE("plan arena: the first request with a place takes the chunk, whatever is before it",
          "[plan]") {
  plan::PlannedRequest outside = at(0, 500);
  outside.outside = 1;
  const OfRequests given({outside, at(0, 1000)}, 8192);
  auto p = pool_with(given.plan);
  for (int i = 0; i < 3; ++i) {
    CHECK(p->allocate_planned(500) == 0);
    const uint64_t a = p->allocate_planned(1000);
    REQUIRE(a != 0);
    p->free(a);
    p->synchronise();
  }
  CHECK(p->source.asked == std::vector<uint64_t>{kDriverPage});
}

TEST_CASE("plan arena: a chunk that the driver has not is asked for ever more seldom", "[plan]") {
  const StoppedClock clock;
  const OfRequests given({at(0, 1000), at(1024, 1000)}, 8192);
  auto p = pool_with(given.plan);
  p->source.fail_obtain = kOutOfMemory;
  constexpr int kPeriods = 1000;
  for (int i = 0; i < 2 * kPeriods; ++i) CHECK(p->allocate_planned(1000) == 0);
  CHECK((p->source.asked.size() >= 5 && p->source.asked.size() <= 25));
  p->source.fail_obtain = 0;
  uint64_t served = 0;
  for (int i = 0; i < 4 * kPeriods; ++i) {
    if (const uint64_t address = p->allocate_planned(1000); address != 0) {
      ++served;
      p->free(address);
      p->synchronise();
    }
  }
  CHECK(served > 1000);
}

TEST_CASE("plan arena: a refused chunk is asked for again a second later at the latest", "[plan]") {
  const StoppedClock clock;
  const OfRequests given({at(0, 1000), at(1024, 1000)}, 8192);
  auto p = pool_with(given.plan);
  p->source.fail_obtain = kOutOfMemory;
  const auto ask_in_period = [&] {
    const size_t before = p->source.asked.size();
    for (int i = 0; i < 2; ++i) REQUIRE(p->allocate_planned(1000) == 0);
    return p->source.asked.size() != before;
  };
  // Behind its tenth refusal it would wait for a thousand periods.
  for (int i = 0; i < 1100; ++i) ask_in_period();
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(ask_in_period());
    clock.move_ns(999 * kMs);
    CHECK_FALSE(ask_in_period());
    clock.move_ns(kMs);
    CHECK(ask_in_period());
  }
  p->source.fail_obtain = 0;
  CHECK(p->allocate_planned(1000) == 0);
  CHECK(p->allocate_planned(1000) == 0);
  clock.move_ns(1000 * kMs);
  CHECK(p->allocate_planned(1000) != 0);
}

TEST_CASE(
    "plan arena: idle memory that work in flight holds back goes for the chunk in the next period",
    "[plan]") {
  constexpr uint64_t kBytes = 100 * kMiB;
  const OfRequests given({at(0, 1000), at(1024, 1000)}, kBytes);
  auto p = std::make_unique<Pool>(kBytes + 32 * kMiB);
  p->source.may_take_clean = true;
  p->set_plan(&given.plan);
  const uint64_t kept = p->allocate(kBytes - kMiB);
  REQUIRE(kept != 0);
  p->free(kept);
  p->synchronise();
  p->source.owes = true;
  CHECK(p->allocate_planned(1000) == 0);
  CHECK(p->allocate_planned(1000) == 0);
  CHECK(p->allocate_planned(1000) != 0);
}

TEST_CASE("plan arena: a refused chunk is asked for again once less is live", "[plan]") {
  constexpr uint64_t kBytes = 100 * kMiB;
  const StoppedClock clock;
  const OfRequests given({at(0, 1000)}, kBytes);
  auto p = std::make_unique<Pool>(kBytes + 32 * kMiB);
  p->source.may_take_clean = true;
  p->set_plan(&given.plan);
  const uint64_t live = p->allocate(kBytes - kMiB);
  REQUIRE(live != 0);
  for (int i = 0; i < 600; ++i) REQUIRE(p->allocate_planned(1000) == 0);
  const size_t asked = p->source.asked.size();
  CHECK(asked <= 24);  // about twice for each of ten refusals
  p->free(live);
  p->synchronise();
  CHECK(p->allocate_planned(1000) != 0);
}

TEST_CASE("plan arena: a larger chunk that was kept does as well", "[plan]") {
  const OfRequests given({at(0, 1000)}, 3 * kMiB);
  auto p = pool_with(given.plan);
  const uint64_t kept = p->allocate(3 * kMiB + 300000);
  p->free(kept);
  p->synchronise();
  for (int i = 0; i < 3; ++i) {
    const uint64_t a = p->allocate_planned(1000);
    REQUIRE(a != 0);
    p->free(a);
    p->synchronise();
  }
  CHECK(p->source.asked.size() <= 2);
}

}  // namespace plan_arena_chunk_test
