// SPDX-License-Identifier: Apache-2.0
// Units that lay idle for the delay go back (FLAGS_free_idle_memory), and those in use by turns
// stay.
#include "config/load.h"
#include "tests/unit/allocator/expandable/expandable_pool.h"

namespace expandable_idle_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

// Idle memory goes back after 800 ms: a tick is 100 ms.
std::unique_ptr<ExpandablePool> aging(uint64_t units, uint64_t keep_mb = 0) {
  virtual_ms = 1000;
  cistern::config::Policy policy = cistern::config::default_policy();
  policy.free_idle_memory = {true, true};
  policy.idle_ms = {800, true};
  policy.idle_keep_mb = {keep_mb, true};
  auto p = expandable(units);
  p->set_idle_release(policy);
  p->init();
  return p;
}

// As the background thread does: a look each tick. True as long as there is more to do.
bool pass(ExpandablePool& p, uint64_t ms) {
  bool more = true;
  for (const uint64_t end = virtual_ms + ms; virtual_ms < end;) {
    virtual_ms += 100;
    more = p.pool.work_in_background();
  }
  return more;
}

uint64_t tended(const ExpandablePool& p) {
  return p.ledger.aged_bytes[static_cast<int>(WorkedBy::background)].get();
}

}  // namespace

TEST_CASE("units go back once they were idle for the delay, and not before") {
  auto p = aging(16);
  const uint64_t bytes = GENERATE(1000, 5 * kUnit);
  const uint64_t units = (bytes + kUnit - 1) / kUnit;
  p->give(p->take(bytes));
  CHECK(pass(*p, 800));
  CHECK(p->units().units.size() == units);
  CHECK_FALSE(pass(*p, 300));
  CHECK(p->units().units.empty());
  CHECK(tended(*p) == units * kUnit);
  CHECK(p->ledger.idle_chunks.get() == 0);
  CHECK(p->take(16 * kUnit) != 0);
  CHECK(p->units().broken == 0);
}

TEST_CASE("units of which as many are used again within the delay stay, whichever they are") {
  auto p = aging(16);
  const uint64_t a = p->take(2 * kUnit), b = p->take(2 * kUnit), c = p->take(2 * kUnit);
  for (const uint64_t block : {a, b, c}) p->give(block);
  for (int i = 0; i < 30; ++i) {
    const uint64_t used = p->take(4 * kUnit);
    pass(*p, 300);
    p->give(used);
    pass(*p, 200);
  }
  CHECK(p->units().units.size() == 4);
  CHECK(tended(*p) == 2 * kUnit);
  CHECK_FALSE(pass(*p, 1100));
  CHECK(p->units().units.empty());
}

TEST_CASE("an allocation between two looks counts as use of what it had") {
  auto p = aging(16);
  p->give(p->take(4 * kUnit));
  for (int i = 0; i < 30; ++i) {
    pass(*p, 100);
    p->give(p->take(3 * kUnit));
  }
  CHECK(p->units().units.size() == 3);
  CHECK(tended(*p) == kUnit);
}

TEST_CASE(
    "of an arena as many units stay as graphs use between two looks, and none without graphs") {
  auto p = aging(16);
  p->sizes.kind = StrategyKind::unit_arena;
  p->init();
  const auto run = [&](uint32_t number, uint64_t units) {
    p->source.open_graphs = {number};
    const uint64_t address = p->allocate_in_graph(units * kUnit, number, /*name=*/1);
    REQUIRE(p->free(address) == Freed::done);
    p->source.open_graphs.clear();
    p->synchronise();
  };
  run(1, 6);
  for (uint32_t number = 2; number < 32; ++number) {
    pass(*p, 100);
    run(number, 4);
  }
  CHECK(p->ledger.arena_bytes.get() == 4 * kUnit);
  CHECK(p->units().units.size() == 4);
  CHECK_FALSE(pass(*p, 1100));
  CHECK(p->units().units.empty());
  CHECK(p->ledger.arena_bytes.get() == 0);
}

TEST_CASE("units with a live byte, and those that wait for earlier work, are not idle") {
  auto p = aging(16);
  const uint64_t small = p->take(1000), rest = p->take(kUnit - 1024), large = p->take(3 * kUnit);
  p->give(rest);
  p->synchronise();
  p->source.passed_mark = 0;
  p->give(large);
  pass(*p, 5000);
  CHECK(p->units().units.size() == 4);
  p->source.passed_mark = ~Mark{0};
  pass(*p, 800);
  CHECK(p->units().units.size() == 4);
  CHECK_FALSE(pass(*p, 300));
  CHECK(p->units().units.size() == 1);
  p->give(small);
  CHECK_FALSE(pass(*p, 1200));
  CHECK(p->units().units.empty());
  CHECK(p->units().broken == 0);
}

TEST_CASE("as many units stay as may be kept, and what becomes idle beside them goes") {
  auto p = aging(32, /*keep_mb=*/6);
  const uint64_t few = p->take(5 * kUnit), more = p->take(20 * kUnit);
  p->give(few);
  pass(*p, 3000);
  CHECK(p->units().units.size() == 23);
  p->give(more);
  pass(*p, 3000);
  CHECK(p->units().units.size() == 3);
  CHECK(p->pool.returnable_bytes() == 3 * kUnit);
}

TEST_CASE("no units go back during a capture, and all do after it") {
  auto p = aging(16);
  p->give(p->take(4 * kUnit));
  pass(*p, 100);
  p->source.capturing = true;
  p->units().capturing = true;
  CHECK(pass(*p, 3000));
  CHECK(p->units().units.size() == 4);
  p->source.capturing = false;
  p->units().capturing = false;
  CHECK_FALSE(pass(*p, 1100));
  CHECK(p->units().units.empty());
  CHECK(p->units().broken == 0);
}

}  // namespace expandable_idle_test
