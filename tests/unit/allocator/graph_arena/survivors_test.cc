// SPDX-License-Identifier: Apache-2.0
// Blocks that outlive their graph: how they are known, and what becomes of the arena they lie in.
#include "allocator/graph_arena/graph_arenas.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/graph_arena/arena_pool.h"

namespace survivors_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

// A block that stays, of a size that no run had before, and two that need more room than it leaves.
void run_with_a_new_survivor(Pool& p, uint32_t number, uint64_t mib, uint64_t* survivor) {
  p.source.open_graphs = {number};
  *survivor = p.allocate_in_graph(kMiB + 512 * number, number, kSmall);
  const uint64_t a = p.allocate_in_graph(mib * kMiB, number, kSmall);
  const uint64_t b = p.allocate_in_graph(mib * kMiB, number, kSmall);
  REQUIRE(p.free(a) == Freed::done);
  REQUIRE(p.free(b) == Freed::done);
  p.source.open_graphs.clear();
  p.synchronise();
  p.pool.release_excess();
}

}  // namespace

TEST_CASE("what outlives its graph leaves the arena, and stays outside from then on") {
  auto p = arenas();
  std::vector<uint64_t> weights;
  const auto step = [&](uint32_t number) {
    p->source.open_graphs = {number};
    const uint64_t a = p->allocate_in_graph(8 * kMiB, number, kSmall);
    weights.push_back(p->allocate_in_graph(kMiB, number, kSmall));
    const uint64_t b = p->allocate_in_graph(8 * kMiB, number, kSmall);
    REQUIRE(p->free(a) == Freed::done);
    REQUIRE(p->free(b) == Freed::done);
    p->source.open_graphs.clear();
    p->synchronise();
  };
  step(1);
  step(2);
  CHECK(p->ledger.arenas_left.get() == 1);
  CHECK(p->ledger.arena_bytes.get() == 16 * kMiB);
  for (uint32_t number = 3; number < 20; ++number) step(number);
  CHECK(p->ledger.arenas_left.get() == 1);
  CHECK(p->ledger.arena_bytes.get() == 16 * kMiB);
  CHECK(p->source.held() <= 16 * kMiB + 2 * weights.size() * kMiB);
  for (const uint64_t address : weights) REQUIRE(p->free(address) == Freed::done);
}

TEST_CASE("of requests that are alike only the one that stays is kept out") {
  auto p = arenas();
  const auto step = [&](uint32_t number) {
    p->source.open_graphs = {number};
    for (int i = 0; i < 3; ++i) {
      const uint64_t passing = p->allocate_in_graph(4 * kMiB, number, kSmall);
      if (i == 1) REQUIRE(p->allocate_in_graph(4 * kMiB, number, kSmall) != 0);  // stays
      REQUIRE(p->free(passing) == Freed::done);
    }
    p->source.open_graphs.clear();
    p->synchronise();
  };
  for (uint32_t number = 1; number <= 5; ++number) step(number);
  CHECK(p->ledger.arena_bytes.get() == 4 * kMiB);
  CHECK(p->source.held() == 4 * kMiB + 5 * 4 * kMiB);
}

TEST_CASE("of blocks that had the same address only the last one outlives its graph") {
  auto p = arenas();
  for (uint32_t number = 1; number <= 2; ++number) {
    p->source.open_graphs = {number};
    const uint64_t passing = p->allocate_in_graph(4 * kMiB, number, kSmall);
    if (number == 2) CHECK(p->shared.index.find(passing)->is() == Role::split);
    REQUIRE(p->free(passing) == Freed::done);
    p->synchronise();
    const uint64_t staying = p->allocate_in_graph(4 * kMiB, number, kSmall);
    if (number == 1) CHECK(staying == passing);
    if (number == 2) CHECK(p->shared.index.find(staying)->is() == Role::whole);
    p->source.open_graphs.clear();
    p->synchronise();
  }
}

TEST_CASE("of thousands of blocks only those that stay are kept out of the arena") {
  constexpr unsigned kSizes = 256, kOfEach = 30, kCount = kSizes * kOfEach;
  auto p = arenas(4096, /*first_mib=*/1024);
  const auto allocate = [&](uint32_t number) {
    std::vector<uint64_t> blocks;
    for (unsigned i = 0; i < kCount; ++i) {
      blocks.push_back(p->allocate_in_graph(512 * (1 + i % kSizes), number, kSmall));
    }
    return blocks;
  };
  const auto in_arena = [&](const std::vector<uint64_t>& blocks) {
    return std::ranges::count_if(blocks, [&](uint64_t address) {
      return p->shared.index.find(address)->is() == Role::split;
    });
  };
  for (uint32_t number = 1; number <= 2; ++number) {
    p->source.open_graphs = {number};
    const std::vector<uint64_t> passing = allocate(number);
    CHECK(in_arena(passing) == kCount);
    for (const uint64_t address : passing) REQUIRE(p->free(address) == Freed::done);
    p->synchronise();
    const std::vector<uint64_t> staying = allocate(number);
    if (number == 1) CHECK(staying == passing);
    CHECK(in_arena(staying) == (number == 1 ? kCount : 0));
    p->source.open_graphs.clear();
    p->synchronise();
  }
}

TEST_CASE("arenas are not left where that would waste more than an arena") {
  auto p = arenas(8192, /*first_mib=*/256);
  uint64_t survivor;
  for (uint32_t number = 1; number <= 8; ++number) {
    run_with_a_new_survivor(*p, number, 128, &survivor);
  }
  CHECK(p->ledger.arenas_left.get() == 1);
  CHECK(p->source.held() < 1024 * kMiB);
}

TEST_CASE("an arena that was left and is empty makes way for another") {
  auto p = arenas();
  uint64_t before = 0, survivor;
  for (uint32_t number = 1; number <= 100; ++number) {
    run_with_a_new_survivor(*p, number, 4, &survivor);
    if (before != 0) REQUIRE(p->free(before) == Freed::done);
    before = survivor;
    p->synchronise();
  }
  CHECK(p->ledger.arenas_left.get() == 99);
  CHECK(p->source.held() <= 32 * kMiB);
}

TEST_CASE("no more than 31 arenas are there at a time, with those that were left") {
  auto p = arenas();
  for (uint32_t number = 1; number <= 40; ++number) {
    p->source.open_graphs = {number};
    REQUIRE(p->allocate_in_graph(16 * kMiB + 512 * number, number, kSmall) != 0);  // stays
    const uint64_t passing = p->allocate_in_graph(2 * kMiB, number, kSmall);
    REQUIRE(p->free(passing) == Freed::done);
    p->source.open_graphs.clear();
    p->synchronise();
    p->pool.release_excess();
  }
  CHECK(p->ledger.arenas_left.get() == 30);
}

TEST_CASE("what ends during a request is not noted in the next run") {
  Pool p(4096 * kMiB, sizes(StrategyKind::graph_arena, 0, 0), GarbageRules{}, FillMode::separate);
  p.source.may_take_clean = true;
  p.source.open_graphs = {1};
  uint64_t next = 0;
  bool begun = false;
  p.source.on_fill = [&](const FillRange&) {
    if (std::exchange(begun, true)) return;
    p.source.end_graph(1);
    p.source.begin_graph(2);
    next = p.allocate_in_graph(4 * kMiB, 2, kSmall);
    p.allocate_in_graph(8 * kMiB, 2, kSmall);  // stays
  };
  REQUIRE(p.allocate_in_graph(4 * kMiB, 1, kSmall) != 0);
  REQUIRE(p.free(next) == Freed::done);
  p.source.end_graph(2);
  p.synchronise();
  p.source.begin_graph(3);
  const uint64_t a = p.allocate_in_graph(4 * kMiB, 3, kSmall);
  CHECK(p.shared.index.find(a)->is() == Role::split);
}

TEST_CASE("free memory of an arena that was left serves requests outside") {
  auto p = arenas(4096, /*first_mib=*/32);
  p->source.open_graphs = {1};
  const uint64_t weight = p->allocate_in_graph(kMiB, 1, kSmall);
  const uint64_t a = p->allocate_in_graph(40 * kMiB, 1, kSmall);
  REQUIRE(p->free(a) == Freed::done);
  p->source.open_graphs.clear();
  p->synchronise();
  run(*p, 2, kSmall, 1);
  REQUIRE(p->ledger.arenas_left.get() == 1);
  const int obtained = p->source.obtained;
  const uint64_t outside = p->allocate(20 * kMiB);
  CHECK(p->source.obtained == obtained);
  REQUIRE(p->free(outside) == Freed::done);
  REQUIRE(p->free(weight) == Freed::done);
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->source.held() == p->ledger.arena_bytes.get());
}

}  // namespace survivors_test
