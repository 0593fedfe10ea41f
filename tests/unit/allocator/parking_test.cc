// SPDX-License-Identifier: Apache-2.0
// Blocks that an executable graph may hold, see allocator/reclaim/reclaim.h.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "tests/unit/allocator/fake_source.h"

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;

namespace {

Reclaim& reclaim_of(Pool& p) { return p.shared.reclaim; }

// A graph that may hold everything handed out so far.
Epoch make_graph(Pool& p) {
  const Epoch epoch = reclaim_of(p).graph_made();
  reclaim_of(p).set_newest_graph(epoch);
  return epoch;
}

bool comes_back(Pool& p, uint64_t freed, uint64_t bytes) {
  p.synchronise();
  std::vector<uint64_t> blocks;
  bool back = false;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(p.allocate(bytes));
    back |= blocks.back() == freed;
  }
  for (const uint64_t block : blocks) CHECK(p.free(block) == Freed::done);
  p.synchronise();
  return back;
}

}  // namespace

TEST_CASE("a block that a living graph may hold is not handed out again before the graph is gone") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  make_graph(*p);
  REQUIRE(p->free(block) == Freed::done);
  CHECK(p->pool.usage().parked >= bytes);
  CHECK_FALSE(comes_back(*p, block, bytes));
  reclaim_of(*p).set_newest_graph(0);
  CHECK(comes_back(*p, block, bytes));
  CHECK(p->pool.usage().parked == 0);
}

TEST_CASE("a block born after a graph is not held by it") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  make_graph(*p);
  const uint64_t block = p->allocate(bytes);
  REQUIRE(p->free(block) == Freed::done);
  CHECK(p->pool.usage().parked == 0);
  CHECK(comes_back(*p, block, bytes));
}

TEST_CASE("an older graph that still lives goes on holding what the newer one held too") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t early = p->allocate(bytes);
  const Epoch older = make_graph(*p);
  const uint64_t late = p->allocate(bytes);
  make_graph(*p);
  REQUIRE(p->free(early) == Freed::done);
  REQUIRE(p->free(late) == Freed::done);
  reclaim_of(*p).set_newest_graph(older);
  CHECK_FALSE(comes_back(*p, early, bytes));
  CHECK(comes_back(*p, late, bytes));
}

TEST_CASE("everything freed during a capture is parked until the capture is over") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  reclaim_of(*p).set_newest_graph(Reclaim::kEverything);
  const uint64_t inside = p->allocate(bytes);
  REQUIRE(p->free(block) == Freed::done);
  REQUIRE(p->free(inside) == Freed::done);
  CHECK_FALSE(comes_back(*p, block, bytes));
  CHECK_FALSE(comes_back(*p, inside, bytes));
  reclaim_of(*p).set_newest_graph(0);
  CHECK(comes_back(*p, block, bytes));
}

TEST_CASE("the last launch of a graph that has gone may still run") {
  auto p = std::make_unique<Pool>();
  p->source.passed_mark = 0;  // nothing passes by itself
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  make_graph(*p);
  REQUIRE(p->free(block) == Freed::done);
  reclaim_of(*p).set_newest_graph(0);
  CHECK(p->allocate(bytes) != block);
  CHECK(p->allocate(bytes) != block);
}

TEST_CASE("parked chunks beyond the idle budget go back to the driver in a free") {
  auto p = std::make_unique<Pool>();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(p->allocate(4 * kMiB));
  make_graph(*p);
  for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
  CHECK(p->source.held() <= 64 * kMiB);
  CHECK(p->source.held() >= 32 * kMiB);
}

TEST_CASE("parked memory serves when there is no other") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  std::vector<uint64_t> blocks;
  SECTION("large blocks, by way of the driver") {
    for (int i = 0; i < 16; ++i) blocks.push_back(p->allocate(4 * kMiB));
    make_graph(*p);
    for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
    CHECK(p->allocate(60 * kMiB) != 0);
  }
  SECTION("small ones in slabs that are partly live") {
    for (int i = 0; i < 64 * 4; ++i) blocks.push_back(p->allocate(kMiB / 4));
    make_graph(*p);
    for (size_t i = 0; i < blocks.size(); i += 2) REQUIRE(p->free(blocks[i]) == Freed::done);
    CHECK(p->allocate(kMiB / 4) != 0);
  }
}
