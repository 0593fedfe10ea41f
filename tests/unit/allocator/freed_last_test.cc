// SPDX-License-Identifier: Apache-2.0
// A free with nothing pending before it, and the request after it: the block goes back and forth
// without being merged and cut off again, and nothing else waits for it.
#include <memory>
#include <vector>

#include "tests/unit/allocator/chunk_pool.h"
#include "tests/unit/allocator/expandable/expandable_pool.h"
#include "tests/unit/allocator/planned.h"

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
  constexpr uint64_t kRest = kDriverPage - 4096;
  const plan::Plan plan = plan_of(requests, kDriverPage);
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
    CHECK(p->pool.largest_free() == kRest);
    REQUIRE(p->free(both, kNothingPending) == Freed::done);
    REQUIRE(p->free(both, kNothingPending) == Freed::invalid);
    CHECK(p->pool.largest_free() == kRest);  // parts are merged when a place needs it
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

// A graph that may hold every block handed out before it was made.
class Graph {
 public:
  explicit Graph(Pool& p) : reclaim_(p.shared.reclaim) {
    reclaim_.graphs().hold(&life_, 0, reclaim_.open());
  }
  ~Graph() { reclaim_.graphs().release(&life_, reclaim_.open()); }

 private:
  Reclaim& reclaim_;
  GraphLife life_ = {};
};

TEST_CASE("a block is not clean before the synchronisation is over that covers its free",
          "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    p->source.passed_mark = 0;
    const uint64_t a = p->allocate(512);
    const Ticket ticket = p->shared.reclaim.close();
    REQUIRE(p->free(a, ticket) == Freed::done);
    CHECK(p->allocate(512) != a);
    p->shared.reclaim.passed(0, ticket);
    CHECK(p->allocate(512) == a);
  }
}

TEST_CASE("a block that a graph may hold is not clean once it is freed", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    const uint64_t a = p->allocate(512);
    {
      const Graph graph(*p);
      REQUIRE(p->free(a, kNothingPending) == Freed::done);
      CHECK(p->pool.usage().parked == 512);
      CHECK(p->allocate(512) != a);
    }
    p->synchronise();
    CHECK(p->allocate(512) == a);
  }
}

TEST_CASE("what a setting keeps back is not clean once it is freed", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    const ChunkSizes of_kind =
        kind == StrategyKind::on_demand ? ChunkSizes{} : sizes(kind, 16 * kMiB, 16 * kMiB);
    auto p = std::make_unique<Pool>(uint64_t{1} << 40, of_kind,
                                    GarbageRules{GarbageRules::When::at_synchronise});
    const uint64_t a = p->allocate(512);
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(p->pool.usage().garbage == 512);
    CHECK(p->allocate(512) != a);
    p->synchronise();
    CHECK(p->allocate(512) == a);
  }
}

TEST_CASE("what goes back and forth leaves its chunk idle in the end", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    p->source.may_take_clean = true;
    for (int i = 0; i < 3; ++i) {
      const uint64_t a = p->allocate(512);
      REQUIRE(p->free(a, kNothingPending) == Freed::done);
    }
    p->pool.release_clean();
    CHECK(p->source.held() == 0);
    CHECK(p->pool.usage().idle == 0);
  }
}

TEST_CASE("the block freed last is filled before it is handed out", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    for (const FillMode fill : {FillMode::separate, FillMode::gathered}) {
      CAPTURE(static_cast<int>(kind), static_cast<int>(fill));
      const ChunkSizes of_kind =
          kind == StrategyKind::on_demand ? ChunkSizes{} : sizes(kind, 16 * kMiB, 16 * kMiB);
      auto p = std::make_unique<Pool>(uint64_t{1} << 40, of_kind, GarbageRules{}, fill);
      const uint64_t a = p->allocate(512);
      REQUIRE(p->free(a, kNothingPending) == Freed::done);
      p->source.filled.clear();
      const uint64_t b = p->allocate(512);
      bool filled = false;
      for (const FillRange& range : p->source.filled) {
        filled |= range.address <= b && b + 512 <= range.address + range.bytes;
      }
      CHECK((b != a || filled));
    }
  }
}

TEST_CASE("a place of a plan is not clean before work is over that may use it",
          "[freed_last][plan]") {
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000), at(1024, 3000)};
  const plan::Plan plan = plan_of(requests, 8192);
  auto p = std::make_unique<Pool>();
  p->set_plan(&plan);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate_planned(1000);
  REQUIRE(a != 0);
  REQUIRE(p->allocate_planned(3000) == a + 1024);
  SECTION("the synchronisation that covers the free") {
    const Ticket ticket = p->shared.reclaim.close();
    REQUIRE(p->free(a, ticket) == Freed::done);
    CHECK(p->allocate_planned(1000) == 0);
    REQUIRE(p->free(a + 1024, ticket) == Freed::done);
    p->shared.reclaim.passed(0, ticket);
  }
  SECTION("a graph that may hold it") {
    const Graph graph(*p);
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(p->pool.usage().parked == 1024);
    CHECK(p->allocate_planned(1000) == 0);
    REQUIRE(p->free(a + 1024, kNothingPending) == Freed::done);
  }
  SECTION("another process, which knows it") {
    REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(p->pool.usage().quarantined == 1024);
    CHECK(p->allocate_planned(1000) == 0);
    REQUIRE(p->free(a + 1024, kNothingPending) == Freed::done);
    CHECK(p->pool.usage().quarantined == 0);
    CHECK(p->source.held() == 0);  // its chunk went with it
    p->allocate_planned(3000);
    CHECK(p->allocate_planned(1000) != a);
    return;
  }
  p->synchronise();
  CHECK(p->allocate_planned(3000) == a + 1024);
  CHECK(p->allocate_planned(1000) == a);
}

TEST_CASE("the chunk of a plan counts as idle while none of it is live", "[freed_last][plan]") {
  constexpr uint64_t kBytes = 3 * kMiB, kCharged = 4 * kMiB;
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000), at(1024, 3000)};
  const plan::Plan plan = plan_of(requests, kBytes);
  auto p = std::make_unique<Pool>();
  p->set_plan(&plan);
  p->source.may_take_clean = true;
  for (int i = 0; i < 3; ++i) {
    const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
    REQUIRE((a != 0 && b != 0));
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    CHECK(p->pool.returnable_bytes() == kBytes - 3072);
    REQUIRE(p->free(b, kNothingPending) == Freed::done);
    CHECK(p->pool.returnable_bytes() == kCharged);
    CHECK(p->pool.usage().idle == kBytes);
  }
  CHECK(p->pool.release_clean());
  CHECK(p->pool.returnable_bytes() == 0);
  CHECK(p->source.held() == 0);
  REQUIRE(p->allocate_planned(1000) != 0);
  CHECK(p->pool.returnable_bytes() == kBytes - 1024);
}

TEST_CASE("what goes back and forth ages once it is idle", "[freed_last]") {
  for (const StrategyKind kind : kKinds) {
    CAPTURE(static_cast<int>(kind));
    auto p = pool_of(kind);
    cistern::config::Policy policy = cistern::config::default_policy();
    policy.free_idle_memory = {true, true};
    policy.idle_ms = {800, true};  // a tick is 100 ms
    policy.idle_keep_mb = {0, true};
    p->set_idle_release(policy);
    p->init();
    const auto pass = [&](uint64_t ms) {
      bool more = true;
      for (const uint64_t end = virtual_ms + ms; virtual_ms < end;) {
        virtual_ms += 100;
        more = p->pool.work_in_background();
      }
      return more;
    };
    for (int i = 0; i < 5; ++i) {
      const uint64_t a = p->allocate(512);
      pass(200);
      REQUIRE(p->free(a, kNothingPending) == Freed::done);
      REQUIRE(p->allocate(512) == a);  // its age begins anew
      REQUIRE(p->free(a, kNothingPending) == Freed::done);
      pass(500);
    }
    CHECK(p->source.obtained == 1);
    CHECK(p->source.released == 0);
    CHECK_FALSE(pass(600));
    CHECK(p->source.held() == 0);
  }
}

TEST_CASE("neighbours that became clean in their frees serve a larger request together",
          "[freed_last]") {
  auto p = pool_of(StrategyKind::naive_best_fit);
  const uint64_t a = p->allocate(8 * kMiB), b = p->allocate(8 * kMiB);
  REQUIRE(b == a + 8 * kMiB);
  REQUIRE(p->free(a, kNothingPending) == Freed::done);
  REQUIRE(p->free(b, kNothingPending) == Freed::done);
  CHECK(p->pool.usage().waiting == 0);
  CHECK(p->allocate(16 * kMiB) == a);
  CHECK(p->source.obtained == 1);
}

TEST_CASE("the idle chunk of a plan stays while the plan is followed", "[freed_last][plan]") {
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000), at(1024, 3000)};
  const plan::Plan plan = plan_of(requests, 3 * kMiB);
  auto p = std::make_unique<Pool>();
  p->set_plan(&plan);
  p->source.may_take_clean = true;
  for (int i = 0; i < 3; ++i) {
    const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
    REQUIRE((a != 0 && b != 0));
    REQUIRE(p->free(a, kNothingPending) == Freed::done);
    REQUIRE(p->free(b, kNothingPending) == Freed::done);
    p->pool.release_excess();
    CHECK_FALSE(p->pool.work_in_background());
    CHECK(p->source.held() == 3 * kMiB);
  }
}

TEST_CASE("a plan that is over keeps nobody busy with its chunk while some of it is live",
          "[freed_last][plan]") {
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000), at(1024, 3000)};
  plan::PlanHead head{};
  head.period = plan::Period::run;
  head.requests = requests.size();
  head.bytes = 3 * kMiB;
  head.alignment = 512;
  const plan::Plan plan(head, requests.data());
  auto p = std::make_unique<Pool>();
  p->set_plan(&plan);
  p->source.may_take_clean = true;
  const uint64_t a = p->allocate_planned(1000), b = p->allocate_planned(3000);
  REQUIRE((a != 0 && b != 0));
  REQUIRE(p->free(a, kNothingPending) == Freed::done);
  CHECK_FALSE(p->pool.work_in_background());
  REQUIRE(p->free(b, kNothingPending) == Freed::done);
  p->pool.release_excess();
  CHECK(p->source.held() == 0);
}

TEST_CASE("a range does not hand out the block freed last that another process knows",
          "[freed_last]") {
  auto p = expandable(16);
  const uint64_t live = p->take(kUnit / 2), a = p->take(kUnit / 4);
  REQUIRE(a == live + kUnit / 2);  // so that its unit stays
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  REQUIRE(p->free(a, kNothingPending) == Freed::done);
  CHECK(p->allocate(kUnit / 4) != a);
}

TEST_CASE("a place of a plan is filled each time it is handed out", "[freed_last][plan]") {
  const std::vector<plan::PlannedRequest> requests = {at(0, 1000), at(1024, 3000), at(4096, 500)};
  const plan::Plan plan = plan_of(requests, 8192);
  for (const FillMode fill : {FillMode::separate, FillMode::gathered}) {
    CAPTURE(static_cast<int>(fill));
    auto p = std::make_unique<Pool>(uint64_t{1} << 40, ChunkSizes{}, GarbageRules{}, fill);
    p->set_plan(&plan);
    for (int i = 0; i < 3; ++i) {
      std::vector<uint64_t> blocks;
      for (const plan::PlannedRequest& request : requests) {
        p->source.filled.clear();
        blocks.push_back(p->allocate_planned(request.bytes));
        REQUIRE(blocks.back() != 0);
        bool filled = false;
        for (const FillRange& range : p->source.filled) {
          filled |= range.address <= blocks.back() &&
                    blocks.back() + request.bytes <= range.address + range.bytes;
        }
        CHECK(filled);
      }
      for (const uint64_t block : blocks) REQUIRE(p->free(block, kNothingPending) == Freed::done);
    }
  }
}

}  // namespace freed_last_test
