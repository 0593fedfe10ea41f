// SPDX-License-Identifier: Apache-2.0
// Requests at the places of a plan: in one chunk, never on another block, and back to the pools
// where the program does something else.
#include "allocator/plan_arena.h"

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/planned.h"

namespace plan_arena_test {

using namespace cistern::alloc;
using namespace cistern::test;

TEST_CASE("plan arena: requests get their places, period by period, in one chunk", "[plan]") {
  const OfRequests given = three();
  auto p = pool_with(given.plan);
  uint64_t base = 0;
  for (int i = 0; i < 3; ++i) {
    const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
    if (i == 0) base = a;
    REQUIRE((a == base && b == base + 4096));
    REQUIRE(p->free(a) == Freed::done);
    p->synchronise();
    const uint64_t c = p->allocate_planned(4000);
    REQUIRE(c == base);
    REQUIRE(p->free(b) == Freed::done);
    REQUIRE(p->free(c) == Freed::done);
    p->synchronise();
  }
  CHECK(p->source.asked == std::vector<uint64_t>{kDriverPage});
  CHECK((p->ledger.plan_served.get() == 9 && p->ledger.plan_periods.get() == 3));
  CHECK((p->ledger.plan_entered.get() == 1 && p->ledger.plan_left.get() == 0));
  CHECK(p->ledger.live.get() == 0);
}

TEST_CASE("plan arena: a place that is still in use is not handed out", "[plan]") {
  const OfRequests given = three();
  auto p = pool_with(given.plan);
  const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
  SECTION("live") { CHECK(p->allocate_planned(4000) == 0); }
  SECTION("waiting for earlier work") {
    p->source.passed_mark = 0;
    p->free(a);
    CHECK(p->allocate_planned(4000) == 0);
    p->source.passed_mark = ~Mark{0};
    p->synchronise();
  }
  CHECK(p->ledger.plan_occupied.get() == 1);
  // The next period begins all the same.
  p->free(a);  // where it is still live
  p->free(b);
  p->synchronise();
  CHECK((p->allocate_planned(1000) == a && p->allocate_planned(3000) == b));
}

TEST_CASE("plan arena: another request leaves the plan until the program comes back", "[plan]") {
  const OfRequests given = three();
  auto p = pool_with(given.plan);
  const uint64_t a = p->allocate_planned(1000);
  REQUIRE(a != 0);
  CHECK(p->allocate_planned(77) == 0);
  CHECK(p->ledger.plan_left.get() == 1);
  p->free(a);
  p->synchronise();
  for (const uint64_t bytes : {4000, 1000, 3000, 4000}) CHECK(p->allocate_planned(bytes) == 0);
  CHECK(p->allocate_planned(1000) == a);  // the last requests were those with which it ends
  CHECK(p->ledger.plan_entered.get() == 2);
}

TEST_CASE("plan arena: a plan by phases passes over the rest, and begins again with a phase",
          "[plan]") {
  OfRequests given({at(0, 1000), at(4096, 3000), at(0, 4000)}, 8192, plan::Period::phase);
  auto p = pool_with(given.plan);
  const auto ask = [&](uint64_t bytes, uint32_t phase) {
    const uint64_t address = p->allocate_planned(bytes, 0, phase);
    if (address != 0) p->free(address);
    p->synchronise();
    return address != 0;
  };
  const auto whole = [&](uint32_t phase) {
    return ask(1000, phase) && ask(3000, phase) && !ask(77, 0) && ask(4000, phase);
  };
  CHECK_FALSE(ask(1000, 0));
  CHECK((whole(1) && whole(2)));
  CHECK((p->ledger.plan_entered.get() == 1 && p->ledger.plan_left.get() == 0));
  CHECK(ask(1000, 3));  // and no more in this phase
  CHECK(whole(4));
  CHECK((ask(1000, 5) && !ask(5, 5) && !ask(6, 5) && !ask(1000, 5)));
  CHECK(whole(6));
  CHECK((p->ledger.plan_entered.get() == 3 && p->ledger.plan_left.get() == 2));
  // A program that has no phases any more leaves it for good: its chunk goes back.
  for (int i = 0; i < 64 * 3; ++i) CHECK_FALSE(ask(77, 0));
  p->pool.release_excess();
  CHECK(p->ledger.reserved.get() == kDriverPage);
  CHECK_FALSE(ask(77, 0));
  p->pool.release_excess();
  CHECK((p->ledger.reserved.get() == 0 && p->ledger.plan_left.get() == 3));
  CHECK(whole(7));
}

TEST_CASE("plan arena: phases of one request each, some of one size, are followed in their order",
          "[plan]") {
  OfRequests given({at(0, 1000), at(4096, 1000), at(0, 3000)}, 8192, plan::Period::phase);
  auto p = pool_with(given.plan);
  uint32_t phase = 0;
  const auto ask = [&](uint64_t bytes) {
    const uint64_t address = p->allocate_planned(bytes, 0, ++phase);
    if (address != 0) p->free(address);
    p->synchronise();
    return address != 0;
  };
  const auto whole = [&] { return ask(1000) && ask(1000) && ask(3000); };
  CHECK((whole() && whole()));
  CHECK((p->ledger.plan_entered.get() == 1 && p->ledger.plan_left.get() == 0));
  CHECK(p->ledger.plan_periods.get() == 2);
  // The second phase does not come: nothing is planned for the third.
  CHECK((ask(1000) && !ask(3000)));
  for (int i = 0; i < 3; ++i) whole();
  CHECK(whole());
  // Behind a phase that is not in the plan it goes on.
  CHECK((ask(1000) && !ask(500) && ask(1000) && ask(3000)));
}

TEST_CASE("plan arena: a plan that is made in the middle of a phase begins with the next one",
          "[plan]") {
  auto p = std::make_unique<Pool>();
  p->set_plan(nullptr);
  // As the hooks do it.
  const auto ask = [&](uint64_t bytes, uint32_t phase) {
    uint64_t address = p->allocate_planned(bytes, 0, phase);
    const bool planned = address != 0;
    if (!planned) address = p->allocate(bytes);
    if (p->pool.looks_for_plan()) p->pool.note_served(bytes, {0, phase, 0}, address);
    p->free(address);
    p->synchronise();
    return planned;
  };
  uint64_t other = 100'000;  // of no phase: ever new bytes
  uint32_t phase = 0;
  for (int i = 0; i < 100; ++i) {
    for (const uint64_t bytes : {1000, 3000, 1000, 5000}) REQUIRE_FALSE(ask(bytes, phase + 1));
    REQUIRE_FALSE(ask(other += 1000, 0));
    ++phase;
  }
  ++phase;
  REQUIRE_FALSE((ask(1000, phase) || ask(3000, phase)));
  p->pool.work_in_background();
  REQUIRE(p->ledger.plans_made.get() == 1);
  CHECK_FALSE((ask(1000, phase) || ask(5000, phase) || ask(other += 1000, 0)));
  CHECK(p->ledger.plan_entered.get() == 0);
  ++phase;
  for (const uint64_t bytes : {1000, 3000, 1000, 5000}) CHECK(ask(bytes, phase));
  CHECK((p->ledger.plan_entered.get() == 1 && p->ledger.plan_left.get() == 0));
}

TEST_CASE("plan arena: a run is followed once, and its idle chunk goes back", "[plan]") {
  const OfRequests given({at(0, 1000)}, 8192, false);
  auto p = pool_with(given.plan);
  const uint64_t a = p->allocate_planned(1000);
  REQUIRE(a != 0);
  CHECK(p->allocate_planned(1000) == 0);
  p->free(a);
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->ledger.reserved.get() == 0);
}

TEST_CASE("plan arena: a place whose last work is done is asked for, and taken", "[plan]") {
  const OfRequests given = three();
  auto p = pool_with(given.plan);
  const uint64_t a = p->allocate_planned(1000);
  REQUIRE(p->allocate_planned(3000) != 0);
  p->free(a);  // nothing synchronises
  CHECK(p->allocate_planned(4000) == a);
}

TEST_CASE("plan arena: an iteration that is left in its middle keeps its chunk", "[plan]") {
  const OfRequests given = three();
  auto p = pool_with(given.plan);
  for (int i = 0; i < 5; ++i) {
    const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
    for (const uint64_t address : {a, b}) {
      if (address != 0) p->free(address);
    }
    p->synchronise();
    for (const uint64_t bytes : {77, 78}) CHECK(p->allocate_planned(bytes) == 0);
    p->pool.release_excess();
    for (const uint64_t bytes : {4000, 1000, 3000, 4000}) CHECK(p->allocate_planned(bytes) == 0);
  }
  CHECK(p->source.asked == std::vector<uint64_t>{kDriverPage});
  CHECK(p->ledger.plan_entered.get() == 5);
}

TEST_CASE("plan arena: one request more than the plan has leaves it, and the next goes on",
          "[plan]") {
  const OfRequests given = three();
  auto p = pool_with(given.plan);
  const uint64_t a = p->allocate_planned(1000);
  CHECK(p->allocate_planned(77) == 0);
  CHECK(p->allocate_planned(3000) == a + 4096);
  CHECK((p->ledger.plan_left.get() == 1 && p->ledger.plan_entered.get() == 2));
}

TEST_CASE("plan arena: threads follow plans of their own, in any order and each in its memory",
          "[plan]") {
  OfRequests one({at(0, 1000), at(1024, 2000), at(3072, 500)}, 4096);
  OfRequests other({at(0, 1000), at(1024, 7000)}, 8192);
  std::vector<plan::Plan> plans;
  for (OfRequests* each : {&one, &other}) {
    plan::PlanHead head = each->plan.head();
    head.period = plan::Period::thread;
    plans.emplace_back(head, each->requests.data());
  }
  auto p = std::make_unique<Pool>();
  p->set_plans(plans);
  std::mt19937_64 random(1);
  uint64_t base = 0, next[2] = {};
  std::vector<uint64_t> live[2];
  for (int i = 0; i < 1000; ++i) {
    const unsigned thread = i < 4 ? static_cast<unsigned>(i) / 2 : random() % 2;
    const plan::Plan& plan = plans[thread];
    const plan::PlannedRequest request = plan.request(next[thread] % plan.head().requests);
    const uint64_t address = p->allocate_planned(request.bytes, thread);
    if (i == 0) base = address;
    REQUIRE(address == base + thread * 4096 + request.offset);
    live[thread].push_back(address);
    if (++next[thread] % plan.head().requests != 0) continue;
    for (const uint64_t each : live[thread]) p->free(each);
    live[thread].clear();
    p->synchronise();
  }
  CHECK(p->source.asked == std::vector<uint64_t>{kDriverPage});
  CHECK((p->ledger.plan_served.get() == 1000 && p->ledger.plan_entered.get() == 2));
  CHECK(p->ledger.plan_left.get() == 0);
}

TEST_CASE("plan arena: another thread takes over the plan of one that is silent for long",
          "[plan]") {
  OfRequests one({at(0, 1000), at(1024, 2000)}, 4096);
  plan::PlanHead head = one.plan.head();
  head.period = plan::Period::thread;
  const std::vector<plan::Plan> plans{plan::Plan(head, one.requests.data())};
  auto p = std::make_unique<Pool>();
  p->set_plans(plans);
  CHECK(p->allocate_planned(1000, 5) != 0);  // in the middle of its period
  uint64_t served = 0;
  for (int i = 0; i < 20; ++i) {
    for (const uint64_t bytes : {1000, 2000}) {
      const uint64_t address = p->allocate_planned(bytes, 6);
      if (address == 0) continue;
      ++served;
      p->free(address);
      p->synchronise();
    }
    CHECK((i >= 3 || served == 0));
  }
  CHECK(served == 16);  // the place of the first request is not free
  CHECK(p->ledger.plan_entered.get() == 2);
}

TEST_CASE("plan arena: blocks are aligned as the setting says, or not served here", "[plan]") {
  const OfRequests given({at(512, 8192), at(16384, 8192)}, 65536);
  auto p = std::make_unique<Pool>(uint64_t{1} << 40,
                                  ChunkSizes{StrategyKind::auto_growth, 0, 0, 4096, false, false});
  p->set_plan(&given.plan);
  CHECK(p->allocate_planned(8192) == 0);
  const uint64_t aligned = p->allocate_planned(8192);
  CHECK((aligned != 0 && aligned % 4096 == 0));
}

TEST_CASE("plan arena: in a shortage its free memory serves other requests", "[plan]") {
  const OfRequests given({at(0, kMiB)}, 64 * kMiB);
  auto p = std::make_unique<Pool>(66 * kMiB);
  p->set_plan(&given.plan);
  REQUIRE(p->allocate_planned(kMiB) != 0);
  CHECK(p->allocate(32 * kMiB) != 0);
  CHECK(p->ledger.out_of_memory.get() == 0);
}

TEST_CASE("plan arena: random plans, which may be wrong, never put a block on another", "[plan]") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr uint64_t kBytes = 64 * 1024;
    std::vector<plan::PlannedRequest> requests;
    for (int i = 0; i < 200; ++i) {
      const uint64_t bytes = 1 + random() % 8000;
      const uint64_t offset = random() % ((kBytes - bytes) / 512 + 1) * 512;
      requests.push_back(at(offset, bytes));
    }
    const OfRequests given(requests, kBytes);
    auto p = pool_with(given.plan);
    std::map<uint64_t, uint64_t> live;  // by address
    uint64_t served = 0;
    for (int i = 0; i < 2000; ++i) {
      const uint64_t bytes = requests[static_cast<size_t>(i) % requests.size()].bytes;
      const uint64_t address = p->allocate_planned(bytes);
      if (address != 0) {
        ++served;
        const auto after = live.lower_bound(address);
        if (after != live.end() && after->first < address + bytes) FAIL("on the next block");
        if (after != live.begin() && std::prev(after)->second > address) FAIL("on the last block");
        live[address] = address + bytes;
      }
      while (!live.empty() && random() % 8 != 0) {
        const auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
        REQUIRE(p->free(victim->first) == Freed::done);
        live.erase(victim);
      }
      if (random() % 4 == 0) p->synchronise();
    }
    CHECK(served > 400);
    for (const auto& [address, end] : live) p->free(address);
    p->synchronise();
    CHECK(p->ledger.live.get() == 0);
  }
}

TEST_CASE("plan arena: an exported place ends its chunk, and the next request takes another",
          "[plan]") {
  const OfRequests given({at(0, 1000)}, 8192);
  auto p = pool_with(given.plan);
  const uint64_t a = p->allocate_planned(1000);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  p->free(a);
  p->synchronise();
  CHECK(p->ledger.chunks.get() == 0);
  CHECK(p->allocate_planned(1000) != 0);
  CHECK(p->source.asked == std::vector<uint64_t>{kDriverPage, kDriverPage});
}

}  // namespace plan_arena_test
