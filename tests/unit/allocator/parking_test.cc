// SPDX-License-Identifier: Apache-2.0
// Blocks that a living graph may hold, see allocator/reclaim/graph_lives.h.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace parking_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;

namespace {

GraphLives& graphs(Pool& p) { return p.shared.reclaim.graphs(); }

// One that may hold everything handed out before it was made.
class Graph {
 public:
  explicit Graph(Pool& p, Epoch begin = 0) : reclaim_(p.shared.reclaim) { update(begin); }
  ~Graph() { destroy(); }
  void update(Epoch begin) { reclaim_.graphs().hold(&life_, begin, reclaim_.open()); }
  void destroy() { reclaim_.graphs().release(&life_, reclaim_.open()); }

 private:
  Reclaim& reclaim_;
  GraphLife life_ = {};
};

bool comes_back(Pool& p, uint64_t freed, uint64_t bytes, int many = 4) {
  p.synchronise();
  std::vector<uint64_t> blocks;
  bool back = false;
  for (int i = 0; i < many; ++i) {
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
  Graph graph(*p);
  REQUIRE(p->free(block) == Freed::done);
  CHECK(p->pool.usage().parked >= bytes);
  CHECK_FALSE(comes_back(*p, block, bytes));
  graph.destroy();
  CHECK(comes_back(*p, block, bytes));
  CHECK(p->pool.usage().parked == 0);
}

TEST_CASE("a block born after a graph is not held by it") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const Graph graph(*p);
  const uint64_t block = p->allocate(bytes);
  REQUIRE(p->free(block) == Freed::done);
  CHECK(p->pool.usage().parked == 0);
  CHECK(comes_back(*p, block, bytes));
}

TEST_CASE("an older graph that still lives goes on holding what the newer one held too") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t early = p->allocate(bytes);
  const Graph older(*p);
  const uint64_t late = p->allocate(bytes);
  Graph newer(*p);
  REQUIRE(p->free(early) == Freed::done);
  REQUIRE(p->free(late) == Freed::done);
  newer.destroy();
  CHECK_FALSE(comes_back(*p, early, bytes));
  CHECK(comes_back(*p, late, bytes));
}

TEST_CASE("everything freed during a capture is parked until the capture is over") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  graphs(*p).capturing(graphs(*p).begin(), 0);
  const uint64_t inside = p->allocate(bytes);
  REQUIRE(p->free(block) == Freed::done);
  REQUIRE(p->free(inside) == Freed::done);
  CHECK_FALSE(comes_back(*p, block, bytes));
  CHECK_FALSE(comes_back(*p, inside, bytes));
  graphs(*p).capturing(GraphLives::kEverything, p->shared.reclaim.open());
  CHECK(comes_back(*p, block, bytes));
}

TEST_CASE("the last launch of a graph that has gone may still run") {
  auto p = std::make_unique<Pool>();
  p->source.passed_mark = 0;  // nothing passes by itself
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  Graph graph(*p);
  REQUIRE(p->free(block) == Freed::done);
  graph.destroy();
  CHECK(p->allocate(bytes) != block);
  CHECK(p->allocate(bytes) != block);
}

TEST_CASE("parked chunks beyond the idle budget go back to the driver") {
  auto p = std::make_unique<Pool>();
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(p->allocate(4 * kMiB));
  const Graph graph(*p);
  for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
  // What leaves waits like any free, and half of the budget is kept free of what is parked.
  for (int i = 0; i < 3; ++i) {
    p->synchronise();
    p->pass_a_second();
    p->pool.release_excess();
  }
  CHECK(p->source.held() <= 64 * kMiB);
  CHECK(p->source.held() >= 32 * kMiB);
}

TEST_CASE("parked memory serves when there is no other") {
  auto p = std::make_unique<Pool>(64 * kMiB);
  std::vector<uint64_t> blocks;
  SECTION("large blocks, by way of the driver") {
    for (int i = 0; i < 16; ++i) blocks.push_back(p->allocate(4 * kMiB));
    const Graph graph(*p);
    for (const uint64_t block : blocks) REQUIRE(p->free(block) == Freed::done);
    CHECK(p->allocate(60 * kMiB) != 0);
  }
  SECTION("small ones in slabs that are partly live") {
    for (int i = 0; i < 64 * 4; ++i) blocks.push_back(p->allocate(kMiB / 4));
    const Graph graph(*p);
    for (size_t i = 0; i < blocks.size(); i += 2) REQUIRE(p->free(blocks[i]) == Freed::done);
    CHECK(p->allocate(kMiB / 4) != 0);
  }
}

// --- what a graph holds ---

TEST_CASE("what was freed before a graph was begun is not held by it, however late it is made") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t early = p->allocate(bytes), late = p->allocate(bytes);
  Graph first(*p);
  REQUIRE(p->free(early) == Freed::done);
  const Epoch begin = graphs(*p).begin();
  REQUIRE(p->free(late) == Freed::done);
  first.update(begin);
  CHECK(comes_back(*p, early, bytes));
  CHECK_FALSE(comes_back(*p, late, bytes));
}

TEST_CASE("a program that updates its graph with each step holds the blocks of one step") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const bool beside = GENERATE(false, true);
  const uint64_t held = p->allocate(bytes);
  const Graph long_lived(*p);
  if (beside) REQUIRE(p->free(held) == Freed::done);
  Graph updated(*p);
  for (int step = 0; step < 1000; ++step) {
    const Epoch begin = graphs(*p).begin();
    const uint64_t block = p->allocate(bytes);
    updated.update(begin);
    p->synchronise();
    REQUIRE(p->free(block) == Freed::done);
    REQUIRE(p->pool.usage().parked <= 3 * (bytes + 512));
  }
  CHECK(p->source.held() <= 12 * kMiB);
  if (beside) CHECK_FALSE(comes_back(*p, held, bytes));
}

TEST_CASE("a graph goes on holding its own blocks when others come and go") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  std::vector<std::unique_ptr<Graph>> living;
  std::vector<uint64_t> held;
  for (int i = 0; i < 8; ++i) {
    const Epoch begin = graphs(*p).begin();
    held.push_back(p->allocate(bytes));
    living.push_back(std::make_unique<Graph>(*p, begin));
    REQUIRE(p->free(held.back()) == Freed::done);
  }
  for (size_t i = 0; i < living.size(); ++i) {
    CHECK_FALSE(comes_back(*p, held[i], bytes));
    living[i]->destroy();
    CHECK(comes_back(*p, held[i], bytes, /*many=*/16));
  }
}

TEST_CASE("a capture holds nothing that was freed before it began") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(3000, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  Graph graph(*p);
  REQUIRE(p->free(block) == Freed::done);
  graphs(*p).capturing(graphs(*p).begin(), 0);
  CHECK_FALSE(comes_back(*p, block, bytes));
  graph.destroy();
  CHECK(comes_back(*p, block, bytes));
}

// --- the bound ---

TEST_CASE("more than 64 MiB and an eighth of what is live is not parked, the oldest leaves first") {
  auto p = std::make_unique<Pool>();
  const uint64_t live = GENERATE(0, 1024) * kMiB;
  const uint64_t limit = live == 0 ? 64 * kMiB : live / 8;
  if (live != 0) REQUIRE(p->allocate(live) != 0);
  const uint64_t bytes = GENERATE(kMiB / 2, 4 * kMiB);
  std::vector<uint64_t> blocks;
  for (uint64_t all = 0; all < 256 * kMiB; all += bytes) blocks.push_back(p->allocate(bytes));
  const Graph graph(*p);
  for (const uint64_t block : blocks) {
    const uint64_t live_before = p->pool.usage().live;
    REQUIRE(p->free(block) == Freed::done);
    REQUIRE(p->pool.usage().parked <= std::max(64 * kMiB, live_before / 8));
  }
  CHECK(p->pool.usage().parked == limit);
  p->synchronise();
  CHECK_FALSE(comes_back(*p, blocks.back(), bytes));
}

TEST_CASE("what leaves early is clean no earlier than any block that was parked before it") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = 40 * kMiB, first = p->allocate(bytes), second = p->allocate(bytes);
  const Ticket known = p->synchronise();
  p->source.passed_mark = 0;
  const Graph graph(*p);
  REQUIRE(p->free(first) == Freed::done);          // behind work that goes on
  REQUIRE(p->free(second, known) == Freed::done);  // too much: the first one leaves
  REQUIRE(p->pool.usage().parked < 2 * bytes);
  CHECK(p->allocate(bytes) != first);
  p->synchronise();
  CHECK(p->allocate(bytes) == first);
}

TEST_CASE("a parked block that leaves early waits for no work after its free") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = 40 * kMiB, first = p->allocate(bytes), second = p->allocate(bytes);
  const Ticket known = p->shared.reclaim.close();
  p->source.passed_mark = 0;
  const Graph graph(*p);
  REQUIRE(p->free(first, known) == Freed::done);
  p->shared.reclaim.close();  // later work
  REQUIRE(p->free(second, known) == Freed::done);
  CHECK(p->allocate(bytes) != first);
  p->shared.reclaim.passed(0, known);
  CHECK(p->allocate(bytes) == first);
}

TEST_CASE("the bound is on all pools of a context together") {
  auto p = std::make_unique<Pool>();
  std::vector<uint64_t> large, small;
  for (int i = 0; i < 12; ++i) large.push_back(p->allocate(4 * kMiB));
  for (unsigned i = 0; i < 128; ++i) small.push_back(p->allocate(kMiB / 2, i % 4));
  const Graph graph(*p);
  for (const uint64_t block : large) REQUIRE(p->free(block) == Freed::done);
  for (const uint64_t block : small) REQUIRE(p->free(block) == Freed::done);
  CHECK(p->pool.usage().parked <= 64 * kMiB);
  CHECK(p->pool.usage().parked >= 48 * kMiB);
}

TEST_CASE("short of memory, nothing stays parked") {
  for (const StrategyKind kind : {StrategyKind::on_demand, StrategyKind::legacy}) {
    const ChunkSizes sizes{kind, 64 * kMiB, 64 * kMiB, 512, false, false};
    auto p = std::make_unique<Pool>(64 * kMiB, sizes);
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 30; ++i) blocks.push_back(p->allocate(2 * kMiB));
    const Graph graph(*p);
    for (size_t i = 0; i + 1 < blocks.size(); ++i) REQUIRE(p->free(blocks[i]) == Freed::done);
    CHECK(p->allocate(40 * kMiB) != 0);
    CHECK(p->pool.usage().parked == 0);
  }
}

// Another thread frees while a shortage returns memory, and then the source takes none.
TEST_CASE("what is parked stays so in memory that the driver does not take back") {
  const StrategyKind kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy,
                                     StrategyKind::auto_growth, StrategyKind::thread_local_);
  const uint64_t bytes = GENERATE(uint64_t{3000}, kMiB / 2);
  auto p = std::make_unique<Pool>(uint64_t{1} << 40,
                                  ChunkSizes{kind, 2 * kMiB, 2 * kMiB, 512, false, false});
  const uint64_t waits = p->allocate(bytes), block = p->allocate(bytes);
  Graph graph(*p);
  REQUIRE(p->free(waits) == Freed::done);
  p->source.capturing = true;
  p->source.on_refuses_release = [&] { REQUIRE(p->free(block) == Freed::done); };
  p->pool.release_returnable(1'000'000);
  REQUIRE(p->source.on_refuses_release == nullptr);
  REQUIRE(p->source.held() != 0);
  p->source.capturing = false;
  CHECK(p->pool.usage().parked == p->source.held());
  const auto inside = [&](uint64_t address) {
    return address >= block / (2 * kMiB) * (2 * kMiB) && address < block + 2 * kMiB;
  };
  p->synchronise();
  for (const uint64_t size : {bytes, 2 * kMiB}) CHECK_FALSE(inside(p->allocate(size)));
  graph.destroy();
  p->synchronise();
  p->pool.release_returnable(1'000'000);
  CHECK(p->pool.usage().parked == 0);
  CHECK(p->shared.index.find(block) == nullptr);
}

}  // namespace parking_test
