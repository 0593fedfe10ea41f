// SPDX-License-Identifier: Apache-2.0
// What the expandable strategy promises, seen through the pool: which units are behind which
// addresses, when they move, and that none is lost.
#include <iterator>
#include <random>
#include <vector>

#include "tests/unit/allocator/expandable/adversary.h"
#include "tests/unit/allocator/expandable/expandable_pool.h"

namespace expandable_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

using Call = FakeUnits::Call;

}  // namespace

TEST_CASE("a request of a unit and more owns whole units, which stay when it is freed") {
  auto p = expandable(64);
  const uint64_t a = p->take(kUnit), b = p->take(kUnit + 1), c = p->take(5 * kUnit);
  CHECK(b == a + kUnit);
  CHECK(c == b + 2 * kUnit);
  CHECK(p->units().units.size() == 8);
  CHECK(p->ledger.reserved.get() == 8 * kUnit);
  CHECK(p->pool.usage().live == 7 * kUnit + 1);
  p->give(c);
  CHECK(p->units().units.size() == 8);
  const auto calls = p->units().calls;
  CHECK(p->take(4 * kUnit) == c);
  CHECK(p->take(kUnit) == c + 4 * kUnit);
  CHECK(p->units().calls == calls);
}

TEST_CASE("smaller requests share units of their own") {
  auto p = expandable(64);
  const uint64_t a = p->take(1), b = p->take(700), large = p->take(kUnit);
  CHECK(b == a + 512);
  CHECK(large / kUnit != a / kUnit);
  for (int i = 0; i < 3; ++i) REQUIRE(p->take(1900 * 1024) != 0);
  // Side by side, across the borders of units.
  CHECK(p->units().units.size() == 4);
  CHECK(p->free(a + 1) == Freed::invalid);
  CHECK(p->free(large + 512) == Freed::invalid);
  CHECK(p->free(a) == Freed::done);
  CHECK(p->free(a) == Freed::invalid);
}

TEST_CASE("clean units from elsewhere come side by side for a request") {
  auto p = expandable(16);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(p->take(kUnit));
  for (int i = 0; i < 16; i += 2) p->give(blocks[i]);
  p->synchronise();
  const uint64_t large = p->take(8 * kUnit);
  REQUIRE(large != 0);
  CHECK(p->units().units.size() == 16);
  CHECK(p->ledger.remaps.get() == 1);
  CHECK(p->ledger.units_created.get() == 16);
  CHECK(p->take(kUnit) == 0);
  CHECK(p->code == kOutOfMemory);
  p->give(large);
  // Small requests, too, get what was large, and give it back.
  std::vector<uint64_t> small;
  for (int i = 0; i < 8 * 4; ++i) small.push_back(p->take(kUnit / 4));
  CHECK(p->take(1) == 0);
  for (const uint64_t address : small) p->give(address);
  CHECK(p->take(8 * kUnit) != 0);
  CHECK(p->units().broken == 0);
}

TEST_CASE("what earlier work may still use does not move") {
  auto p = expandable(8);
  p->source.patience = 1'000'000;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(p->take(kUnit));
  p->source.passed_mark = 0;
  for (int i = 0; i < 8; i += 2) p->give(blocks[i]);
  CHECK(p->take(2 * kUnit) == 0);
  CHECK(p->units().calls[Call::unmap] == 0);
  CHECK(p->units().units.size() == 8);
  p->source.passed_mark = ~Mark{0};
  CHECK(p->take(4 * kUnit) != 0);
}

TEST_CASE("memory is out only when units that hold a byte and units that are needed are too many") {
  const uint64_t units = GENERATE(16, 100);
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  auto p = expandable(units);
  Adversary adversary(*p, units, seed);
  for (int round = 0; round < 60; ++round) {
    const uint64_t bytes = adversary.fill();
    REQUIRE(p->code == kOutOfMemory);
    REQUIRE(p->live.units_held() + units_for(bytes) > units);
    adversary.pin();
  }
  CHECK(p->units().broken == 0);
  CHECK(p->units().units.size() <= units);
  p->pool.forget_all();
  CHECK(p->units().units.empty());
  CHECK(p->units().mapped.empty());
  CHECK(p->units().ranges.empty());
  CHECK(p->units().broken == 0);
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->ledger.units.get() == 0);
}

TEST_CASE("each call of the source fails once: no unit and no range is lost") {
  const Call call = GENERATE(Call::reserve, Call::create, Call::map, Call::unmap);
  for (uint64_t nth = 1; nth <= 20; ++nth) {
    auto p = expandable(24);
    p->units().fail_at[call] = nth;
    std::mt19937 random(7);
    for (int i = 0; i < 200; ++i) {
      const uint64_t bytes = random() % 3 == 0 ? 1 + random() % kUnit : random() % (6 * kUnit) + 1;
      p->take(bytes);
      while (p->live.blocks().size() > 6) {
        const auto any = static_cast<long>(random() % p->live.blocks().size());
        p->give(std::next(p->live.blocks().begin(), any)->first);
      }
    }
    INFO("call " << static_cast<int>(call) << ", use " << nth);
    p->units().fail_at.clear();
    while (!p->live.blocks().empty()) p->give(p->live.blocks().begin()->first);
    CHECK(p->take(24 * kUnit) != 0);
    CHECK(p->units().units.size() == p->ledger.units.get());
    CHECK(p->units().mapped.size() == p->units().units.size());
    p->pool.forget_all();
    CHECK(p->units().units.empty());
    CHECK(p->units().ranges.empty());
    CHECK(p->units().broken == 0);
    CHECK(p->ledger.reserved.get() == 0);
  }
}

TEST_CASE("units whose unmapping fails at a context's end stay counted, and go later") {
  auto p = expandable(8);
  REQUIRE(p->take(kUnit) != 0);
  REQUIRE(p->take(1) != 0);
  p->units().fail_at[Call::unmap] = 1;
  p->pool.forget_all();
  CHECK(p->units().units.size() == 1);
  CHECK(p->units().ranges.size() == 1);
  CHECK(p->ledger.lost.get() == 1);
  CHECK(p->ledger.reserved.get() == kUnit);
  p->units().fail_at[Call::unmap] = p->units().calls[Call::unmap] + 1;
  CHECK_FALSE(p->shared.left_units.try_again());
  CHECK(p->ledger.lost.get() == 1);
  p->init();  // another context has the place
  REQUIRE(p->take(kUnit) != 0);
  CHECK(p->shared.left_units.try_again());
  CHECK_FALSE(p->shared.left_units.try_again());
  CHECK(p->units().units.size() == 1);
  CHECK(p->units().ranges.size() == 1);
  CHECK(p->ledger.lost.get() == 0);
  CHECK(p->ledger.reserved.get() == kUnit);
  CHECK(p->ledger.units.get() == 1);
  p->pool.forget_all();
  CHECK(p->units().units.empty());
  CHECK(p->units().broken == 0);
}

TEST_CASE("a shorter range of addresses is taken where the process may not have a long one") {
  auto p = expandable(64);
  p->units().most_range = 20 * kUnit;
  uint64_t taken = 0;
  while (p->take(7 * kUnit) != 0) ++taken;
  CHECK(taken == 9);
  CHECK(p->units().ranges.size() >= 4);
  CHECK(p->take(21 * kUnit) == 0);
  CHECK(p->units().broken == 0);
}

TEST_CASE("within a cap, which units are charged to and refunded from") {
  auto p = expandable(64);
  p->cap.set_limit(10 * kUnit);
  const uint64_t a = p->take(6 * kUnit);
  REQUIRE(a != 0);
  CHECK(p->take(5 * kUnit) == 0);
  CHECK(p->cap.charged() == 6 * kUnit);
  p->give(a);
  CHECK(p->take(10 * kUnit) != 0);
  p->pool.forget_all();
  CHECK(p->cap.charged() == 0);
}

TEST_CASE("what it takes at first and what it grows by, where settings say so") {
  auto p = std::make_unique<ExpandablePool>(64, /*first_mib=*/16, /*step_mib=*/8);
  CHECK(p->units().units.empty());
  REQUIRE(p->take(1) != 0);
  CHECK(p->units().units.size() == 8);
  REQUIRE(p->take(7 * kUnit) != 0);
  CHECK(p->units().units.size() == 8);
  REQUIRE(p->take(kUnit) != 0);
  CHECK(p->units().units.size() == 12);
  REQUIRE(p->take(3 * kUnit) != 0);
  CHECK(p->units().units.size() == 12);
  // More than there is: what there is.
  auto q = std::make_unique<ExpandablePool>(10, /*first_mib=*/64);
  REQUIRE(q->take(10 * kUnit) != 0);
  CHECK(q->units().broken == 0);
}

TEST_CASE("blocks are aligned as asked, however units lie") {
  auto p = std::make_unique<ExpandablePool>(64, 0, 0, /*align=*/8 * kMiB);
  for (int i = 0; i < 4; ++i) {
    REQUIRE(p->take(kUnit) % kUnit == 0);
    REQUIRE(p->take(5 * kUnit) % (8 * kMiB) == 0);
  }
  CHECK(p->units().units.size() == 24);
  auto q = std::make_unique<ExpandablePool>(64, 0, 0, /*align=*/65536);
  for (int i = 0; i < 40; ++i) {
    REQUIRE(q->take(512) != 0);
    REQUIRE(q->take(70000) % 65536 == 0);
  }
  CHECK(q->units().broken == 0);
}

TEST_CASE("free memory is told as what requests can have") {
  auto p = expandable(16);
  const uint64_t large = p->take(4 * kUnit), small = p->take(1000);
  REQUIRE(p->take(1000) != 0);
  CHECK(p->pool.returnable_bytes() == 0);
  p->give(large);
  CHECK(p->pool.returnable_bytes() == 4 * kUnit);
  p->give(small);
  CHECK(p->pool.returnable_bytes() == 4 * kUnit);
}

TEST_CASE("clean units go back where another pool needs them, and nothing else does") {
  auto p = expandable(16);
  const uint64_t a = p->take(4 * kUnit), b = p->take(2 * kUnit), c = p->take(1000);
  p->give(a);
  p->synchronise();
  p->source.passed_mark = 0;
  p->give(b);
  CHECK(p->pool.release_returnable(0));
  CHECK(p->units().units.size() == 3);
  p->source.passed_mark = ~Mark{0};
  p->give(c);
  CHECK(p->pool.release_returnable(0));
  CHECK(p->units().units.empty());
  CHECK(p->take(16 * kUnit) != 0);
  CHECK(p->units().broken == 0);
}

TEST_CASE("during a capture nothing is unmapped") {
  auto p = expandable(8);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(p->take(kUnit));
  for (int i = 0; i < 8; i += 2) p->give(blocks[i]);
  p->units().capturing = true;
  p->source.capturing = true;
  CHECK(p->take(2 * kUnit) == 0);
  CHECK(p->units().units.size() == 8);
  p->units().capturing = false;
  p->source.capturing = false;
  CHECK(p->take(4 * kUnit) != 0);
  CHECK(p->units().broken == 0);
}

TEST_CASE(
    "what is known outside the process goes back when it is freed, and nothing else uses it") {
  auto p = expandable(16);
  const auto known = [&](uint64_t address) {
    return p->pool.mark_exported(p->shared.index.find(address), address);
  };
  const uint64_t large = p->take(3 * kUnit), other = p->take(kUnit);
  std::vector<uint64_t> small;
  for (int i = 0; i < 12; ++i) small.push_back(p->take(kUnit / 4));
  REQUIRE(p->units().units.size() == 7);
  REQUIRE(known(large + kUnit));
  REQUIRE(known(small[5]));
  p->give(large);
  p->give(small[5]);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == 3 * kUnit);
  // Units in which it alone was; but not those in which others are.
  CHECK(p->pool.release_returnable(0));
  CHECK(p->units().units.size() == 4);
  CHECK(p->pool.usage().quarantined == kUnit / 4);
  CHECK(p->take(3 * kUnit) != 0);
  for (int i = 0; i < 20; ++i) CHECK(p->take(kUnit / 4) != small[5]);
  const auto before = p->units().units.size();
  for (const int i : {4, 6, 7}) p->give(small[i]);
  p->give(other);
  p->synchronise();
  CHECK(p->pool.release_returnable(0));
  CHECK(p->pool.usage().quarantined == 0);
  CHECK(p->units().units.size() == before - 2);
  CHECK(!p->units().has(small[5], 512));
  CHECK(p->units().broken == 0);
  p->pool.forget_all();
  CHECK(p->units().units.empty());
  CHECK(p->units().broken == 0);
}

TEST_CASE("a source that fails otherwise than for want of memory serves requests whole") {
  const bool no_addresses = GENERATE(true, false);
  auto p = std::make_unique<ExpandablePool>(16, 0, 0, 512, FillMode::off, 64 * kMiB);
  if (no_addresses) p->units().most_range = 0;
  p->units().fail_at[Call::map] = 1;
  const uint64_t a = p->allocate(kUnit);
  REQUIRE(a != 0);
  CHECK(p->source.asked == std::vector<uint64_t>{kUnit});
  CHECK(p->units().units.empty());
  CHECK(p->free(a) == Freed::done);
  CHECK(p->source.held() == 0);
  p->units().fail_at.clear();
  p->units().most_range = UINT64_MAX;
  CHECK(p->take(kUnit) != 0);
  CHECK(p->units().units.size() == 1);
}

}  // namespace expandable_test
