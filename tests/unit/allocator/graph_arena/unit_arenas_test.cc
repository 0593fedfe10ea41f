// SPDX-License-Identifier: Apache-2.0
// Arenas of graphs over units that move: how they grow, when their units go elsewhere and come
// back, and what stays where it was. A graph is a number, and so is its run.
#include "allocator/graph_arena/graph_arenas.h"

#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/expandable/expandable_pool.h"
#include "tests/unit/allocator/graph_arena/random_graphs.h"
#include "tests/unit/test_clock.h"

namespace unit_arenas_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

using Call = FakeUnits::Call;

std::unique_ptr<ExpandablePool> unit_arenas(uint64_t units, uint64_t first_mib = 0,
                                            uint64_t later_mib = 0,
                                            FillMode fill_mode = FillMode::off) {
  auto p = std::make_unique<ExpandablePool>(units, first_mib, later_mib, 512, fill_mode);
  p->sizes.kind = StrategyKind::unit_arena;
  p->init();
  return p;
}

uint64_t calls(ExpandablePool& p) {
  uint64_t sum = 0;
  for (const auto& [call, count] : p.units().calls) sum += count;
  return sum;
}

// As run(), and where its blocks were.
std::vector<uint64_t> addresses_of_run(Pool& p, uint32_t number, uint32_t graph, unsigned blocks) {
  p.source.open_graphs = {number};
  std::vector<uint64_t> addresses;
  for (unsigned i = 0; i < blocks; ++i) {
    addresses.push_back(p.allocate_in_graph(4 * kMiB, number, graph));
    REQUIRE(addresses.back() != 0);
  }
  for (const uint64_t address : addresses) REQUIRE(p.free(address) == Freed::done);
  p.source.open_graphs.clear();
  p.synchronise();
  return addresses;
}

void check_nothing_lost(ExpandablePool& p) {
  CHECK(p.units().units.size() == p.ledger.units.get());
  CHECK(p.units().mapped.size() == p.units().units.size());
  p.units().fail_at.clear();
  p.pool.forget_all();
  CHECK(p.units().units.empty());
  CHECK(p.units().ranges.empty());
  CHECK(p.units().broken == 0);
  CHECK(p.ledger.reserved.get() == 0);
  CHECK(p.ledger.arena_bytes.get() == 0);
}

}  // namespace

TEST_CASE("graphs in turn share an arena of units as large as the largest, and then call nothing") {
  auto p = unit_arenas(64);
  uint32_t number = 1;
  for (int round = 0; round < 2; ++round) {
    run(*p, number++, kSmall, 3);
    run(*p, number++, kLarge, 8);
  }
  CHECK(p->ledger.arena_bytes.get() == 32 * kMiB);
  CHECK(p->ledger.units.get() == 16);
  CHECK(p->ledger.graph_bytes.get() == 44 * kMiB);
  const uint64_t before = calls(*p);
  for (int round = 0; round < 10; ++round) {
    run(*p, number++, kSmall, 3);
    run(*p, number++, kLarge, 8);
  }
  CHECK(calls(*p) == before);
  CHECK(p->ledger.arena_peak.get() == 32 * kMiB);
  check_nothing_lost(*p);
}

TEST_CASE("an arena of units grows where it is: nothing of it goes back") {
  auto p = unit_arenas(64);
  const auto first = addresses_of_run(*p, 1, kSmall, 3);
  const auto larger = addresses_of_run(*p, 2, kLarge, 8);
  CHECK(larger[0] == first[0]);
  CHECK(p->ledger.units_released.get() == 0);
  CHECK(p->ledger.remaps.get() == 0);
  CHECK(p->units().ranges.size() == 1);
}

TEST_CASE("while the source has units an arena keeps its own, also when it is idle") {
  auto p = unit_arenas(64);
  run(*p, 1, kLarge, 8);
  const uint64_t outside = p->take(24 * kMiB);
  CHECK(p->ledger.remaps.get() == 0);
  CHECK(p->ledger.arena_bytes.get() == 32 * kMiB);
  CHECK(p->ledger.units.get() == 28);
  p->give(outside);
}

TEST_CASE(
    "an idle arena's units go where memory is short, and come back behind the same addresses") {
  auto p = unit_arenas(20);
  const auto before = addresses_of_run(*p, 1, kLarge, 8);
  const uint64_t outside = p->take(24 * kMiB);
  REQUIRE(outside != 0);
  CHECK(p->ledger.arena_bytes.get() == 16 * kMiB);
  CHECK(p->ledger.units.get() == 20);
  p->give(outside);
  p->synchronise();
  const uint64_t increments = p->ledger.arena_increments.get();
  CHECK(addresses_of_run(*p, 2, kLarge, 8) == before);
  CHECK(p->ledger.arena_increments.get() == increments);
  CHECK(p->ledger.arenas_taken.get() == 1);
  CHECK(p->ledger.units_created.get() == 20);
  CHECK(p->ledger.units_released.get() == 0);
  check_nothing_lost(*p);
}

TEST_CASE(
    "what arenas keep counts where the source has too few units, and moves only if it suffices") {
  auto p = unit_arenas(20);
  run(*p, 1, kLarge, 8);
  const uint64_t large = p->take(3 * kUnit), small = p->take(1000);
  for (const uint64_t address : {large, small}) p->give(address);
  p->synchronise();
  p->units().most_told = 0;
  CHECK(p->take(21 * kUnit) == 0);
  CHECK(p->ledger.remaps.get() == 0);
  CHECK(p->ledger.arena_bytes.get() == 16 * kUnit);
  CHECK(p->take(19 * kUnit) != 0);
  CHECK(p->ledger.arena_bytes.get() == kUnit);
}

TEST_CASE(
    "a source that fails for other reasons than memory is no reason to take an arena's units") {
  auto p = std::make_unique<ExpandablePool>(20, 0, 0, 512, FillMode::off, /*beside=*/64 * kMiB);
  p->sizes.kind = StrategyKind::unit_arena;
  p->init();
  run(*p, 1, kLarge, 8);
  p->units().create_fails_with = FakeUnits::kRefused;
  p->units().fail_at[Call::create] = p->units().calls[Call::create] + 1;
  const uint64_t outside = p->allocate(8 * kUnit);
  REQUIRE(outside != 0);
  CHECK(p->shared.index.find(outside)->is() != Role::range);
  CHECK(p->ledger.arena_bytes.get() == 16 * kUnit);
}

TEST_CASE("a known graph of units that meets work under way needs what the arena came to") {
  auto p = unit_arenas(64);
  run(*p, 1, kSmall, 1);
  run(*p, 2, kSmall, 1);
  p->source.passed_mark = 0;
  p->source.open_graphs = {3};
  for (int i = 0; i < 4; ++i) {
    REQUIRE(p->free(p->allocate_in_graph(4 * kMiB, 3, kSmall)) == Freed::done);
  }
  p->source.passed_mark = ~Mark{0};
  p->source.open_graphs.clear();
  p->synchronise();
  p->source.open_graphs = {4};
  REQUIRE(p->free(p->allocate_in_graph(4 * kMiB, 4, kSmall)) == Freed::done);  // run 3 has ended
  p->source.open_graphs.clear();
  p->synchronise();
  REQUIRE(p->pool.release_freed());
  REQUIRE(p->ledger.units.get() == 0);
  p->source.open_graphs = {5};
  REQUIRE(p->allocate_in_graph(4 * kMiB, 5, kSmall) != 0);
  CHECK(p->ledger.arena_bytes.get() == 16 * kMiB);
}

TEST_CASE("under a limit units move between an arena and the rest as on a small device") {
  auto p = unit_arenas(64);
  p->cap.set_limit(20 * kUnit);
  run(*p, 1, kLarge, 8);
  for (uint32_t number = 2; number < 10; ++number) {
    const uint64_t outside = p->take(24 * kMiB);
    REQUIRE(outside != 0);
    p->give(outside);
    p->synchronise();
    run(*p, number, kLarge, 8);
  }
  CHECK(p->ledger.units.get() == 20);
  check_nothing_lost(*p);
}

TEST_CASE("a growing arena takes what lies idle outside before new units") {
  auto p = unit_arenas(64);
  p->give(p->take(20 * kMiB));
  p->synchronise();
  run(*p, 1, kSmall, 4);
  CHECK(p->ledger.units_created.get() == 10);
  CHECK(p->ledger.remaps.get() != 0);
}

TEST_CASE("threads of one graph that miss at once take its arena once") {
  auto p = unit_arenas(64);
  run(*p, 1, kLarge, 8);
  REQUIRE(p->pool.release_freed());
  p->source.open_graphs = {2};
  std::thread other;
  p->units().on_create = [&] {
    const uint64_t waits = test_clock_waits();
    other = std::thread([&] {
      uint64_t address = 0;
      p->pool.allocate_in_graph(4 * kMiB, 1, {2, kLarge}, &address);
    });
    cistern::test::until_someone_waits(waits);
  };
  REQUIRE(p->allocate_in_graph(4 * kMiB, 2, kLarge) != 0);
  other.join();
  CHECK(p->ledger.arena_bytes.get() == 32 * kMiB);
  CHECK(p->ledger.arenas_taken.get() == 1);
  CHECK(p->ledger.arena_increments.get() == 8);  // of the first run
}

TEST_CASE("what an arena's request leaves of a unit is one with clean memory behind it") {
  auto p = unit_arenas(64);
  constexpr uint64_t kPart = kUnit / 4;
  p->source.open_graphs = {1};
  const auto take = [&](uint64_t parts) { return p->allocate_in_graph(parts * kPart, 1, kSmall); };
  const uint64_t stays = take(2), before = take(2), gone = take(4), after = take(2);
  REQUIRE(take(2) == stays + 10 * kPart);
  REQUIRE(p->free(gone) == Freed::done);
  REQUIRE(p->pool.release_returnable(0));
  for (const uint64_t address : {before, after}) REQUIRE(p->free(address) == Freed::done);
  p->synchronise();
  REQUIRE(take(5) == before);
  const uint64_t had = p->ledger.units.get();
  CHECK(take(3) == before + 5 * kPart);
  CHECK(p->ledger.units.get() == had);
}

TEST_CASE("what a graph needs is not more for free memory that is on its way meanwhile") {
  auto p = unit_arenas(40);
  p->source.open_graphs = {1};
  std::vector<uint64_t> live;
  for (int i = 0; i < 16; ++i) live.push_back(p->allocate_in_graph(4 * kMiB, 1, kLarge));
  std::swap(live[4], live.back());
  live.pop_back();  // stays, between what is free
  for (const uint64_t address : live) REQUIRE(p->free(address) == Freed::done);
  p->synchronise();
  p->source.open_graphs = {2};
  uint64_t meanwhile = 0;
  p->units().on_create = [&] { meanwhile = p->allocate_in_graph(4 * kMiB, 2, kSmall); };
  CHECK(p->allocate_in_graph(200 * kMiB, 2, kSmall) == 0);
  REQUIRE(meanwhile != 0);
  REQUIRE(p->free(meanwhile) == Freed::done);
  p->synchronise();
  run(*p, 3, kOther, 1);
  CHECK(p->ledger.graph_bytes.get() == (60 + 4) * kMiB);
}

TEST_CASE("what outlives its graph holds its own units, and the arena goes on beside it") {
  auto p = unit_arenas(64);
  p->source.open_graphs = {1};
  const uint64_t a = p->allocate_in_graph(8 * kMiB, 1, kSmall);
  const uint64_t stays = p->allocate_in_graph(kMiB, 1, kSmall);
  const uint64_t b = p->allocate_in_graph(8 * kMiB, 1, kSmall);
  for (const uint64_t address : {a, b}) REQUIRE(p->free(address) == Freed::done);
  p->source.open_graphs.clear();
  p->synchronise();
  const uint64_t had = p->ledger.units.get();
  for (uint32_t number = 2; number < 6; ++number) {
    p->source.open_graphs = {number};
    const uint64_t again = p->allocate_in_graph(8 * kMiB, number, kSmall);
    CHECK(again == a);
    const uint64_t outside = p->allocate_in_graph(kMiB, number, kSmall);
    CHECK(p->shared.index.find(outside) != p->shared.index.find(stays));
    for (const uint64_t address : {again, outside}) REQUIRE(p->free(address) == Freed::done);
    p->source.open_graphs.clear();
    p->synchronise();
  }
  CHECK(p->ledger.units.get() == had + 1);  // for the one outside
  CHECK(p->ledger.arenas_left.get() == 0);
  REQUIRE(p->free(stays) == Freed::done);
  check_nothing_lost(*p);
}

TEST_CASE("graphs that overlap have arenas of their own, whose units serve each other when short") {
  auto p = unit_arenas(20);
  p->source.open_graphs = {1, 2};
  const uint64_t a = p->allocate_in_graph(24 * kMiB, 1, kSmall);
  const uint64_t b = p->allocate_in_graph(4 * kMiB, 2, kOther);
  CHECK(p->source.overlaps == 1);
  CHECK(p->ledger.graphs_apart.get() == 1);
  CHECK(p->shared.index.find(a) != p->shared.index.find(b));
  REQUIRE(p->free(a) == Freed::done);
  p->synchronise();
  const uint64_t c = p->allocate_in_graph(30 * kMiB, 2, kOther);
  REQUIRE(c != 0);
  CHECK(p->units().has(c, 30 * kMiB));
  for (const uint64_t address : {b, c}) REQUIRE(p->free(address) == Freed::done);
  check_nothing_lost(*p);
}

TEST_CASE("more graphs at once than there are arenas of units are served from the rest") {
  auto p = unit_arenas(64);
  std::vector<uint64_t> live;
  for (uint32_t number = 1; number <= 6; ++number) {
    p->source.open_graphs.insert(number);
    live.push_back(p->allocate_in_graph(4 * kMiB, number, number));
    REQUIRE(live.back() != 0);
  }
  CHECK(p->shared.index.find(live[3]) != p->shared.index.find(live[4]));
  CHECK(p->shared.index.find(live[4]) == p->shared.index.find(live[5]));
}

TEST_CASE("the settings say what is taken at first, by the one that is used first, and the step") {
  const bool arena_first = GENERATE(true, false);
  auto p = unit_arenas(128, /*first_mib=*/64, /*later_mib=*/16);
  if (arena_first) {
    run(*p, 1, kSmall, 3);
    CHECK(p->ledger.arena_bytes.get() == 64 * kMiB);
  } else {
    p->give(p->take(kUnit));
    CHECK(p->ledger.arena_bytes.get() == 0);
    run(*p, 1, kSmall, 3);
    CHECK(p->ledger.arena_bytes.get() == 12 * kMiB);
  }
  CHECK(p->ledger.units.get() == 32);
  if (!arena_first) return;
  run(*p, 2, kSmall, 17);
  CHECK(p->ledger.arena_bytes.get() == 80 * kMiB);
}

TEST_CASE("where units cannot be had graphs have arenas of chunks") {
  Pool p(4096 * kMiB, sizes(StrategyKind::unit_arena, 0, 0));
  run(p, 1, kSmall, 2);
  CHECK(p.ledger.arena_bytes.get() == 8 * kMiB);
  CHECK(p.ledger.units.get() == 0);
}

TEST_CASE("an arena's memory is told as free where whole units of it are") {
  auto p = unit_arenas(20);
  run(*p, 1, kLarge, 8);
  CHECK(p->pool.returnable_bytes() == 32 * kMiB);
  p->source.open_graphs = {2};
  const uint64_t small = p->allocate_in_graph(512, 2, kLarge);
  CHECK(p->pool.returnable_bytes() == 30 * kMiB);
  REQUIRE(p->take(40 * kMiB) == 0);
  REQUIRE(p->take(38 * kMiB) != 0);
  REQUIRE(p->free(small) == Freed::done);
}

TEST_CASE("units of an arena and all of its figures go with their context") {
  auto p = unit_arenas(64);
  run(*p, 1, kSmall, 2);
  run(*p, 2, kSmall, 2);
  p->pool.forget_all();
  CHECK(p->ledger.arena_bytes.get() == 0);
  CHECK(p->ledger.units.get() == 0);
  p->init();
  run(*p, 3, kSmall, 2);
  CHECK(p->ledger.arena_bytes.get() == 8 * kMiB);
  check_nothing_lost(*p);
}

TEST_CASE("an arena that is taken ahead is filled at once") {
  auto p = unit_arenas(256, 0, 0, FillMode::gathered);
  run(*p, 1, kLarge, 90);
  REQUIRE(p->pool.release_freed());
  CHECK(p->ledger.units.get() == 0);
  const uint64_t fills = p->ledger.fills.get(), bytes = p->ledger.fill_bytes.get();
  p->source.open_graphs = {2};
  for (int i = 0; i < 90; ++i) REQUIRE(p->allocate_in_graph(4 * kMiB, 2, kLarge) != 0);
  CHECK(p->ledger.fills.get() == fills + 1);
  CHECK(p->ledger.fill_bytes.get() == bytes + 360 * kMiB);
  CHECK(p->ledger.arena_bytes.get() == 360 * kMiB);
}

TEST_CASE("each call of the source fails once under graphs: no unit and no range is lost") {
  const Call call = GENERATE(Call::reserve, Call::create, Call::map, Call::unmap);
  for (uint64_t nth = 1; nth <= 12; ++nth) {
    auto p = unit_arenas(24);
    p->units().fail_at[call] = nth;
    std::mt19937 random(7);
    for (uint32_t number = 1; number < 20; ++number) {
      p->source.open_graphs = {number};
      std::vector<uint64_t> live;
      for (int i = 0; i < 6; ++i) {
        const uint64_t bytes = random() % (4 * kUnit) + 1;
        const auto graph = 1 + static_cast<uint32_t>(random() % 3);
        live.push_back(p->allocate_in_graph(bytes, number, graph));
      }
      p->source.open_graphs.clear();
      if (const uint64_t outside = p->take(random() % (8 * kUnit) + 1)) p->give(outside);
      for (const uint64_t address : live) {
        if (address != 0) REQUIRE(p->free(address) == Freed::done);
      }
    }
    INFO("call " << static_cast<int>(call) << ", use " << nth);
    CHECK(p->take(kUnit) != 0);
    check_nothing_lost(*p);
  }
}

TEST_CASE("random graphs over units, on several threads and short of memory: none is lost") {
  const uint64_t units = GENERATE(256, 40);
  auto p = unit_arenas(units);
  CHECK(RandomGraphs(*p).run(4));
  CHECK(p->pool.usage().live == 0);
  check_nothing_lost(*p);
}

TEST_CASE("a forked child begins runs of graphs over units, though another thread was about to") {
  auto p = unit_arenas(64);
  CHECK(child_begins_a_run(*p));
}

}  // namespace unit_arenas_test
