// SPDX-License-Identifier: Apache-2.0
// What the expandable strategy reserves, and which calls it makes, in the loops of
// tests/bench/expandable_bench.cc, with fewer iterations.
#include "tests/bench/loops.h"

#include "tests/unit/allocator/expandable/expandable_pool.h"

namespace expandable_loops_test {

using namespace cistern::test;
using cistern::bench::Figures;
using cistern::bench::random_sizes;
using cistern::bench::training_loop;

namespace {

struct CountedPool {
  std::unique_ptr<ExpandablePool> p = expandable(/*units=*/4096);

  uint64_t allocate(uint64_t bytes) {
    const uint64_t address = p->allocate(bytes);
    REQUIRE(address != 0);
    return address;
  }
  void free(uint64_t address) {
    if (p->free(address) != cistern::alloc::Freed::done) FAIL("not freed");
  }
  uint64_t reserved_peak() const { return p->ledger.reserved_peak.get(); }
  uint64_t calls() const {
    uint64_t all = p->ledger.units_released.get();
    for (const auto& [call, times] : p->units().calls) all += times;
    return all;
  }
};

}  // namespace

TEST_CASE("a loop whose sizes come back reserves what it needs, and makes no calls") {
  CountedPool pool;
  const Figures figures = training_loop(pool, /*lengths_change=*/false, 40);
  CHECK(figures.reserved_per_live <= 1.01);
  CHECK(figures.calls == 0);
  CHECK(pool.p->units().broken == 0);
}

TEST_CASE("a loop of changing lengths reserves what it needs") {
  CountedPool pool;
  const Figures figures = training_loop(pool, /*lengths_change=*/true, 100);
  CHECK(figures.reserved_per_live <= 1.01);
  CHECK(pool.p->units().broken == 0);
}

TEST_CASE("random sizes leave next to no gaps") {
  const uint64_t most = GENERATE(16, 64);
  const unsigned seed = GENERATE(1u, 2u);
  CountedPool pool;
  const Figures figures = random_sizes(pool, most * kMiB, 10'000, seed);
  CHECK(figures.reserved_per_live <= 1.03);
  CHECK(pool.p->units().broken == 0);
}

}  // namespace expandable_loops_test
