// SPDX-License-Identifier: Apache-2.0
// Where the expandable strategy puts units that a request needs: beside clean memory that is there
// already, and in holes, which grow together.
#include "tests/unit/allocator/expandable/expandable_pool.h"

namespace expandable_gaps_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

using Call = FakeUnits::Call;

// Frees a block, and the units behind it.
void empty(ExpandablePool& p, uint64_t address) {
  p.give(address);
  REQUIRE(p.pool.release_returnable(0));
}

}  // namespace

TEST_CASE("holes side by side are one") {
  const bool first_goes_first = GENERATE(true, false);
  auto p = expandable(16);
  const uint64_t a = p->take(kUnit), b = p->take(kUnit);
  REQUIRE(p->take(kUnit) == b + kUnit);
  empty(*p, first_goes_first ? a : b);
  empty(*p, first_goes_first ? b : a);
  CHECK(p->take(2 * kUnit) == a);
}

TEST_CASE("clean memory grows into the hole behind it") {
  auto p = expandable(16);
  const uint64_t a = p->take(4 * kUnit);
  p->give(a);
  CHECK(p->take(6 * kUnit) == a);
  CHECK(p->units().units.size() == 6);
  CHECK(p->units().calls[Call::unmap] == 0);
}

TEST_CASE("a hole between clean memory is filled") {
  auto p = expandable(16);
  const uint64_t a = p->take(2 * kUnit), b = p->take(2 * kUnit), c = p->take(2 * kUnit);
  REQUIRE(p->take(kUnit) == c + 2 * kUnit);
  empty(*p, b);
  p->give(a);
  p->give(c);
  CHECK(p->take(6 * kUnit) == a);
  CHECK(p->units().units.size() == 7);
  CHECK(p->units().calls[Call::unmap] == 1);
}

TEST_CASE("clean memory around a hole that is more than a request needs fills the hole") {
  auto p = expandable(17);
  const uint64_t a = p->take(8 * kUnit), b = p->take(4 * kUnit), c = p->take(4 * kUnit);
  empty(*p, b);
  const uint64_t d = p->take(5 * kUnit);
  REQUIRE(d == c + 4 * kUnit);
  for (const uint64_t block : {a, c, d}) p->give(block);
  CHECK(p->take(17 * kUnit) == a);
  CHECK(p->units().units.size() == 17);
  CHECK(p->units().broken == 0);
}

TEST_CASE("clean memory that is not aligned as a request fills the gap beside it") {
  auto p = std::make_unique<ExpandablePool>(12, 0, 0, /*align=*/4 * kUnit);
  const uint64_t a = p->take(kUnit);
  uint64_t end = a;
  while (end - a < 11 * kUnit) REQUIRE((end = p->take(kUnit)) != 0);
  for (uint64_t block = a; block <= end; block += kUnit) p->give(block);
  CHECK(p->take(12 * kUnit) != 0);
  CHECK(p->units().broken == 0);
}

TEST_CASE("room beside small blocks is no whole unit, whatever large ones are aligned to") {
  auto p = std::make_unique<ExpandablePool>(12, 0, 0, /*align=*/GENERATE(1, 2, 4) * kUnit);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(p->take(kUnit / 4));
  for (int i = 0; i < 32; ++i) {
    if (i % 4 != 0) p->give(blocks[i]);
  }
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == 0);
  p->units().most_told = 4;
  CHECK(p->take(5 * kUnit) == 0);
  CHECK(p->units().calls[Call::create] == 8);
  CHECK(p->take(4 * kUnit) != 0);
}

TEST_CASE("no unit is asked for where there are too few for a request") {
  auto p = expandable(16);
  p->units().most_told = 2;
  CHECK(p->take(3 * kUnit) == 0);
  CHECK(p->units().calls[Call::create] == 0);
  CHECK(p->take(2 * kUnit) != 0);
}

TEST_CASE("a request that fails half way gives back what it took, and no clean unit beside it") {
  auto p = std::make_unique<ExpandablePool>(200, 0, 0, 512, FillMode::off, 1024 * kMiB);
  const uint64_t a = p->take(4 * kUnit);
  p->give(a);
  p->units().fail_at[Call::map] = p->units().calls[Call::map] + 2;
  CHECK(p->allocate(150 * kUnit) != 0);
  CHECK(p->source.asked == std::vector<uint64_t>{150 * kUnit});
  CHECK(p->units().calls[Call::create] > 4);
  CHECK(p->units().units.size() == 4);
}

TEST_CASE("a unit that the source refuses is charged to no cap") {
  auto p = expandable(16);
  p->cap.set_limit(16 * kUnit);
  p->units().fail_at[Call::create] = 2;
  p->take(3 * kUnit);
  CHECK(p->cap.charged() == p->units().units.size() * kUnit);
}

TEST_CASE("what is known, and clean only later, goes before new units come") {
  auto p = expandable(16);
  const uint64_t a = p->take(4 * kUnit);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  p->source.passed_mark = 0;
  p->give(a);
  CHECK(p->units().units.size() == 4);
  p->source.passed_mark = ~Mark{0};
  REQUIRE(p->take(5 * kUnit) != 0);
  CHECK(p->units().units.size() == 5);
}

TEST_CASE("the units that a live block lies in are told, and where it begins in them") {
  auto p = expandable(16);
  constexpr uint64_t kBytes = kUnit / 4 * 3;
  const uint64_t a = p->take(kBytes), b = p->take(kBytes), c = p->take(kBytes);
  REQUIRE(b == a + kBytes);
  REQUIRE(c == b + kBytes);
  std::vector<Unit> seen;
  uint64_t begins = 0;
  const auto told = [&](uint64_t address) {
    return p->pool.visit_units_of(p->shared.index.find(address), address,
                                  [&](const Unit* units, uint32_t count, uint64_t offset) {
                                    seen.assign(units, units + count);
                                    begins = offset;
                                  });
  };
  REQUIRE(told(b + 1));
  CHECK(begins == kBytes);
  REQUIRE(seen.size() == 2);
  const std::vector<Unit> of_both = seen;
  REQUIRE(told(a));
  CHECK(seen == std::vector<Unit>{of_both[0]});
  REQUIRE(told(c));
  CHECK(begins == kUnit / 2);
  CHECK(seen[0] == of_both[1]);
  p->give(b);
  CHECK_FALSE(told(b));
}

TEST_CASE("of a known block in two units the part beside live memory stays, and is nobody's") {
  auto p = expandable(16);
  constexpr uint64_t kBytes = kUnit / 4 * 3;
  const uint64_t a = p->take(kBytes), known = p->take(kBytes), live = p->take(kBytes);
  REQUIRE(known == a + kBytes);
  REQUIRE(live == known + kBytes);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(known), known));
  p->give(a);
  p->give(known);
  p->synchronise();
  CHECK(p->pool.release_returnable(0));
  CHECK(p->pool.usage().quarantined == kUnit / 2);
  const uint64_t again = p->take(kUnit / 4);
  CHECK((again + kUnit / 4 <= known || again >= live));
  p->give(live);
  p->give(again);
  p->synchronise();
  CHECK(p->pool.release_returnable(0));
  CHECK(p->pool.usage().quarantined == 0);
  CHECK(p->units().units.empty());
  CHECK(p->units().broken == 0);
}

TEST_CASE("of a known block in two units the part behind those that live memory is in goes") {
  auto p = expandable(16);
  const uint64_t live = p->take(kUnit / 2), known = p->take(kUnit / 4 * 3);
  REQUIRE(known == live + kUnit / 2);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(known), known));
  p->give(known);
  p->synchronise();
  CHECK(p->pool.release_returnable(0));
  CHECK(p->pool.usage().quarantined == kUnit / 2);
  CHECK(p->units().units.size() == 1);
  CHECK(p->units().has(live, kUnit / 2));
  CHECK(p->units().broken == 0);
}

}  // namespace expandable_gaps_test
