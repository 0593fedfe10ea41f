// SPDX-License-Identifier: Apache-2.0
// A free with nothing pending before it, and the request after it: the block goes back and forth
// without being merged and cut off again, and nothing else waits for it.
#include <memory>
#include <vector>

#include "tests/unit/allocator/chunk_pool.h"

namespace freed_last_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

// As the shim frees where nothing was submitted since the context was seen empty.
constexpr Ticket kNothingPending = 0;

std::unique_ptr<Pool> pool_of(StrategyKind kind) {
  return kind == StrategyKind::on_demand ? std::make_unique<Pool>() : pool(kind, 16, 16);
}

const std::vector<StrategyKind> kKinds = {StrategyKind::on_demand, StrategyKind::legacy,
                                          StrategyKind::naive_best_fit, StrategyKind::auto_growth};

plan::PlannedRequest at(uint64_t offset, uint64_t bytes) {
  plan::PlannedRequest request{};
  request.offset = offset;
  request.bytes = bytes;
  return request;
}

plan::Plan plan_of(const std::vector<plan::PlannedRequest>& requests, uint64_t bytes) {
  plan::PlanHead head{};
  head.period = plan::Period::iteration;
  head.requests = requests.size();
  head.bytes = bytes;
  head.alignment = 512;
  return {head, requests.data()};
}

uint64_t waiting_bytes(Pool& p) { return p.pool.usage().waiting; }

}  // namespace

TEST_CASE("the block freed last serves the next request of its size", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    const uint64_t below = p->allocate(4096), a = p->allocate(512), above = p->allocate(4096);
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    REQUIRE(p->free(a, kNothingPending) == Freed::invalid);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(p->allocate(500) == a);
      CHECK(found(*p, a) == std::pair<uint64_t, uint64_t>{a, 500});
      REQUIRE(p->free(a, kNothingPending) == Freed::done);
    }
    REQUIRE(p->free(below, kNothingPending) == Freed::done);
    REQUIRE(p->free(above, kNothingPending) == Freed::done);
    // It is one with its neighbours for another size, unless only a miss merges.
    const bool merges = kind != StrategyKind::naive_best_fit;
    CHECK((p->allocate(4096 + 512 + 4096) == below) == merges);
    CHECK(waiting_bytes(*p) == 0);
  }
}

TEST_CASE("what waits beside a pair that repeats itself becomes clean", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    std::vector<uint64_t> others;
    for (int i = 0; i < 40; ++i) others.push_back(p->allocate(4096));
    const uint64_t a = p->allocate(512);
    for (const uint64_t other : others) REQUIRE(p->free(other, kNothingPending) == Freed::done);
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    for (int i = 0; i < 4; ++i) {
      const uint64_t again = p->allocate(512);
      REQUIRE(p->free(again, kNothingPending) == Freed::done);
    }
    CHECK(waiting_bytes(*p) <= 512);
  }
}

TEST_CASE("the block freed last is not handed out while earlier work may use it", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    const uint64_t a = p->allocate(512);
    p->source.passed_mark = 0;
    REQUIRE(p->free(a) == Freed::done);
    const uint64_t b = p->allocate(512);
    CHECK(b != a);
    p->source.passed_mark = ~Mark{0};
    p->synchronise();
    CHECK(p->allocate(512) == a);
  }
}

TEST_CASE("the block freed last serves no other size", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    const uint64_t a = p->allocate(512);
    p->allocate(512);
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(p->allocate(513) != a);
    CHECK(p->allocate(512) == a);
  }
}

TEST_CASE("the block freed last keeps its size where the rule says so", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    p->set_rule(ReuseRule::same_size);
    const uint64_t a = p->allocate(512);
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(p->allocate(500) != a);
    CHECK(p->allocate(512) == a);
  }
}

TEST_CASE("a place of a plan is clean once it is freed with nothing pending",
          "[freed_last][plan]") {
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000), at(1024, 3000), at(0, 4096)};
  const plan::Plan plan = plan_of(requests, 8192);
  auto p = std::make_unique<Pool>();
  p->set_plan(&plan);
  for (int i = 0; i < 3; ++i) {
    const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
    REQUIRE((a != 0 && b == a + 1024));
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(waiting_bytes(*p) == 0);
    REQUIRE(p->free(b, kNothingPending) == Freed::done);
    const uint64_t both = p->allocate_planned(4096);
    REQUIRE(both == a);
    CHECK(p->pool.largest_free() == 4096);
    REQUIRE(p->free(both, kNothingPending) == Freed::done);
    REQUIRE(p->free(both, kNothingPending) == Freed::invalid);
    CHECK(p->pool.largest_free() == 4096);  // parts are merged when a place needs it
  }
  CHECK(p->ledger.plan_occupied.get() == 0);
  CHECK(p->ledger.plan_served.get() == 9);
}

TEST_CASE("with memory short, what a plan does not use serves others", "[freed_last][plan]") {
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000)};
  const plan::Plan plan = plan_of(requests, 8 * kMiB);
  auto p = std::make_unique<Pool>(8 * kMiB);
  p->set_plan(&plan);
  const uint64_t planned = p->allocate_planned(1000);
  REQUIRE(planned != 0);
  const uint64_t other = p->allocate(4 * kMiB);
  CHECK((other > planned && other < planned + 8 * kMiB));
  CHECK(p->allocate(4 * kMiB) == 0);
}

}  // namespace freed_last_test
