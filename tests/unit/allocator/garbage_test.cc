// SPDX-License-Identifier: Apache-2.0
// Freed memory that settings hold back: when it may be used again, and which part of it.
#include "allocator/reclaim/garbage.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "config/load.h"
#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace garbage_test {

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;
using When = GarbageRules::When;

namespace {

constexpr uint64_t kGiB = 1024 * kMiB, kPlenty = uint64_t{1} << 40;
constexpr GarbageRules kNever{When::at_synchronise, 0, 1};

GarbageRules at(uint64_t bytes, double fraction = 1) {
  return {When::at_threshold, bytes, fraction};
}

ChunkSizes sizes_of(StrategyKind kind) { return {kind, 64 * kMiB, 64 * kMiB, 512, false, false}; }

StrategyKind any_strategy() {
  return GENERATE(StrategyKind::on_demand, StrategyKind::legacy, StrategyKind::naive_best_fit,
                  StrategyKind::auto_growth, StrategyKind::thread_local_);
}

std::unique_ptr<Pool> pool(const GarbageRules& rules, StrategyKind kind = StrategyKind::on_demand,
                           uint64_t capacity = kPlenty) {
  return std::make_unique<Pool>(capacity, sizes_of(kind), rules);
}

std::vector<uint64_t> blocks_of(Pool& p, const std::vector<uint64_t>& sizes) {
  std::vector<uint64_t> blocks;
  for (const uint64_t bytes : sizes) blocks.push_back(p.allocate(bytes));
  return blocks;
}

void free_all(Pool& p, const std::vector<uint64_t>& blocks) {
  for (const uint64_t block : blocks) REQUIRE(p.free(block) == Freed::done);
}

// Whether a request of this size gets just this block; it is freed again only by the caller.
bool serves(Pool& p, uint64_t block, uint64_t bytes) { return p.allocate(bytes) == block; }

}  // namespace

TEST_CASE("what the two settings say together") {
  struct Row {
    std::optional<double> gb, fraction;
    When when;
    uint64_t threshold;
  };
  constexpr double kHuge = std::numeric_limits<double>::max();
  const Row rows[] = {
      {{}, {}, When::off, 0},
      {-1, {}, When::at_synchronise, 0},
      {-0.0001, {}, When::at_synchronise, 0},
      {-0.0, {}, When::at_each_free, 0},
      {0, {}, When::at_each_free, 0},
      {1e-10, {}, When::at_each_free, 0},  // less than a byte
      {0.5, {}, When::at_threshold, kGiB / 2},
      {3, {}, When::at_threshold, 3 * kGiB},
      {kHuge, {}, When::at_threshold, uint64_t{1} << 62},
      {{}, 1, When::at_each_free, 0},
      {{}, 0.5, When::at_each_free, 0},
      {{}, 0, When::at_synchronise, 0},
      {1, 0, When::at_synchronise, kGiB},
      {1, 0.5, When::at_threshold, kGiB},
      {-1, 0.5, When::at_synchronise, 0},
      {0, 0.5, When::at_each_free, 0},
  };
  for (const Row& row : rows) {
    auto policy = cistern::config::default_policy();
    if (row.gb) policy.eager_delete_tensor_gb = {*row.gb, true};
    if (row.fraction) policy.memory_fraction_of_eager_deletion = {*row.fraction, true};
    const GarbageRules rules = garbage_rules(policy);
    CAPTURE(row.gb.value_or(99), row.fraction.value_or(99));
    CHECK(rules.when == row.when);
    CHECK(rules.threshold == row.threshold);
    CHECK(rules.fraction == row.fraction.value_or(1));
  }
}

TEST_CASE("collected blocks come back together, with the free that reaches the threshold") {
  const uint64_t bytes = GENERATE(512, 4096, kMiB / 2, 2 * kMiB, 8 * kMiB);
  auto p = pool(at(4 * bytes), any_strategy());
  const auto blocks = blocks_of(*p, {bytes, bytes, bytes, bytes, bytes});
  for (int i = 0; i < 3; ++i) {
    REQUIRE(p->free(blocks[i]) == Freed::done);
    p->synchronise();
    CHECK(p->garbage.until_threshold.get() == (i + 1) * bytes);
    CHECK(p->pool.usage().garbage == (i + 1) * bytes);
    const uint64_t other = p->allocate(bytes);
    for (const uint64_t block : blocks) CHECK(other != block);
  }
  CHECK(p->garbage.flushes.get() == 0);
  REQUIRE(p->free(blocks[3]) == Freed::done);
  CHECK(p->garbage.flushes.get() == 1);
  CHECK(p->garbage.until_threshold.get() == 0);
  CHECK(p->pool.usage().garbage == 0);
  p->synchronise();
  std::vector<uint64_t> again = blocks_of(*p, {bytes, bytes, bytes, bytes});
  std::sort(again.begin(), again.end());
  CHECK(again == std::vector<uint64_t>(blocks.begin(), blocks.begin() + 4));
}

TEST_CASE("a flushed block still waits for the work before its free") {
  auto p = pool(at(2 * kMiB), any_strategy());
  p->source.passed_mark = 0;  // nothing passes by itself
  const uint64_t block = p->allocate(2 * kMiB);
  REQUIRE(p->free(block) == Freed::done);
  REQUIRE(p->garbage.flushes.get() == 1);
  CHECK_FALSE(serves(*p, block, 2 * kMiB));
  p->synchronise();
  CHECK(serves(*p, block, 2 * kMiB));
}

TEST_CASE("a threshold of 0 counts each free and changes nothing else") {
  auto p = pool({When::at_each_free, 0, GENERATE(1.0, 0.3)}, any_strategy());
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  for (uint64_t n = 1; n <= 5; ++n) {
    REQUIRE(p->free(block) == Freed::done);
    CHECK(p->garbage.flushes.get() == n);
    CHECK(p->pool.usage().garbage == 0);
    p->synchronise();
    CHECK(serves(*p, block, bytes));
  }
}

TEST_CASE("below 0 only the program's own synchronisation makes blocks reusable") {
  auto p = pool(kNever, any_strategy());
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  const uint64_t block = p->allocate(bytes);
  REQUIRE(p->free(block) == Freed::done);
  // An event for another reason passes what came before it.
  REQUIRE(p->shared.reclaim.mark(0, p->shared.reclaim.stamp(0)));
  p->shared.reclaim.poll(0);
  CHECK_FALSE(serves(*p, block, bytes));
  CHECK(p->garbage.until_synchronise.get() == bytes);
  const Ticket began = p->shared.reclaim.close();
  const uint64_t late = p->allocate(bytes);
  REQUIRE(p->free(late) == Freed::done);
  p->shared.reclaim.passed(0, began);
  p->pool.synchronised(began);
  CHECK(p->garbage.until_synchronise.get() == bytes);  // freed after the synchronisation had begun
  CHECK(serves(*p, block, bytes));
  CHECK(p->garbage.flushes.get() == 0);
}

TEST_CASE("a synchronisation of one context does not let go what was freed in another") {
  auto p = pool(kNever);
  cistern::test::FakeSource other_source;
  auto other = std::make_unique<ContextPool>();
  other->init(&p->shared, &other_source, {&p->ledger, &p->cap, &p->garbage}, 1, sizes_of({}));
  p->shared.reclaim.join(1, &other_source);
  const uint64_t block = p->allocate(4 * kMiB);
  REQUIRE(p->free(block) == Freed::done);
  const Ticket ticket = p->shared.reclaim.close();
  p->shared.reclaim.passed(1, ticket);
  other->synchronised(ticket);
  CHECK_FALSE(serves(*p, block, 4 * kMiB));
  p->synchronise();
  CHECK(serves(*p, block, 4 * kMiB));
}

TEST_CASE("a flush releases the largest blocks first, the one that crosses the line included") {
  struct Row {
    double fraction;
    std::vector<int> released;
  };
  // 100 KiB in all: 24 (first), 24, 20, 16, 12, 4.
  const std::vector<uint64_t> sizes = {16 << 10, 24 << 10, 4 << 10, 24 << 10, 12 << 10, 20 << 10};
  const Row row = GENERATE(Row{0.01, {1}}, Row{0.24, {1}}, Row{0.2401, {1, 3}}, Row{0.48, {1, 3}},
                           Row{0.5, {1, 3, 5}}, Row{0.69, {0, 1, 3, 5}}, Row{0.9, {0, 1, 3, 4, 5}},
                           Row{0.97, {0, 1, 2, 3, 4, 5}}, Row{1, {0, 1, 2, 3, 4, 5}});
  auto p = pool(at(100 << 10, row.fraction), any_strategy());
  const auto blocks = blocks_of(*p, sizes);
  free_all(*p, blocks);
  REQUIRE(p->garbage.flushes.get() == 1);
  uint64_t released = 0;
  for (const int i : row.released) released += sizes[i];
  CHECK(p->garbage.until_synchronise.get() == (100 << 10) - released);
  CHECK(p->garbage.until_threshold.get() == 0);
  p->synchronise();
  CHECK(p->garbage.until_synchronise.get() == 0);
}

TEST_CASE("of blocks of one size the oldest go first, whatever pool they are in") {
  auto p = pool(at(8 * 4096, 0.5), GENERATE(StrategyKind::on_demand, StrategyKind::thread_local_));
  std::vector<uint64_t> blocks;
  for (unsigned i = 0; i < 8; ++i) blocks.push_back(p->allocate(4096, i * 5 % 8));
  free_all(*p, blocks);
  REQUIRE(p->garbage.until_synchronise.get() == 4 * 4096);
  // Waiting is what was released: it can be had again where it was, without a synchronisation.
  p->shared.reclaim.mark(0, p->shared.reclaim.stamp(0));
  p->shared.reclaim.poll(0);
  for (unsigned i = 0; i < 8; ++i) {
    const uint64_t again = p->allocate(4096, i * 5 % 8);
    CAPTURE(i);
    CHECK((again == blocks[i]) == (i < 4));
  }
}

TEST_CASE("what a flush keeps comes back with the program's synchronisation, not the next flush") {
  auto p = pool(at(12 * kMiB, 0.6), any_strategy());
  const auto blocks = blocks_of(*p, {8 * kMiB, 4 * kMiB, 8 * kMiB, 4 * kMiB});
  REQUIRE(p->free(blocks[0]) == Freed::done);
  REQUIRE(p->free(blocks[1]) == Freed::done);
  CHECK(p->garbage.until_synchronise.get() == 4 * kMiB);
  REQUIRE(p->free(blocks[2]) == Freed::done);
  CHECK(p->garbage.until_threshold.get() == 8 * kMiB);  // what is kept no longer counts
  REQUIRE(p->free(blocks[3]) == Freed::done);
  CHECK(p->garbage.flushes.get() == 2);
  CHECK(p->garbage.until_synchronise.get() == 8 * kMiB);
  p->synchronise();
  CHECK(p->garbage.until_synchronise.get() == 0);
  CHECK(p->pool.usage().garbage == 0);
}

TEST_CASE("a shortage flushes the garbage before memory is said to be out") {
  const GarbageRules rules = GENERATE(at(kGiB), at(kGiB, 0.5), kNever, at(40 * kMiB, 0.5));
  const StrategyKind kind = any_strategy();
  auto p = pool(rules, kind, 64 * kMiB);
  SECTION("large blocks") {
    for (int round = 0; round < 20; ++round) {
      const auto blocks = blocks_of(*p, {20 * kMiB, 20 * kMiB, 20 * kMiB});
      for (const uint64_t block : blocks) REQUIRE(block != 0);
      free_all(*p, blocks);
    }
  }
  SECTION("small ones between live neighbours") {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 64 * 4; ++i) blocks.push_back(p->allocate(kMiB / 4));
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < blocks.size(); i += 2) REQUIRE(p->free(blocks[i]) == Freed::done);
      for (size_t i = 0; i < blocks.size(); i += 2) {
        blocks[i] = p->allocate(kMiB / 4);
        REQUIRE(blocks[i] != 0);
      }
    }
  }
  CHECK(p->ledger.out_of_memory.get() == 0);
  CHECK(p->garbage.flushed_when_short.get() > 0);
}

TEST_CASE("garbage that is clean serves a shortage where it is, and stays from the driver") {
  auto p = pool(GENERATE(at(kGiB), at(50 * kMiB, 0.5)), any_strategy(), 64 * kMiB);
  free_all(*p, blocks_of(*p, {26 * kMiB, 26 * kMiB}));
  p->shared.reclaim.passed(0, p->shared.reclaim.close());
  const int released = p->source.released;
  CHECK(p->allocate(26 * kMiB) != 0);
  CHECK(p->allocate(26 * kMiB) != 0);
  CHECK(p->source.released == released);
  if (p->garbage.flushed_when_short.get() != 0) CHECK(p->source.ended == Step::clean);
}

TEST_CASE("a shortage under the cap flushes the garbage too") {
  auto p = pool(GENERATE(at(kGiB), kNever));
  p->cap.set_limit(32 * kMiB);
  const uint64_t block = p->allocate(20 * kMiB);
  REQUIRE(p->free(block) == Freed::done);
  CHECK(p->allocate(24 * kMiB) != 0);
  CHECK(p->garbage.flushed_when_short.get() == 20 * kMiB);
}

TEST_CASE("a direct request finds garbage that is clean when the driver has no more") {
  auto p = pool(GENERATE(at(kGiB), kNever), any_strategy(), 64 * kMiB);
  const auto blocks = blocks_of(*p, {60 * kMiB});
  free_all(*p, blocks);
  p->shared.reclaim.passed(0, p->shared.reclaim.close());
  uint64_t address = 0;
  CHECK(p->pool.allocate_direct(60 * kMiB, 0, /*pooled=*/true, &address) == kSuccess);
}

TEST_CASE("a request that is not pooled has the garbage returned to the driver first") {
  auto p = pool(GENERATE(at(kGiB), kNever), any_strategy(), 128 * kMiB);
  free_all(*p, blocks_of(*p, {60 * kMiB, 50 * kMiB}));
  uint64_t address = 0;
  CHECK(p->pool.allocate_unpooled(100 * kMiB, 0, &address) == kSuccess);
  CHECK(p->garbage.flushed_when_short.get() == 110 * kMiB);
}

TEST_CASE("other kinds of memory get what is garbage, wherever on the device it was freed") {
  auto p = pool(GENERATE(at(kGiB), kNever), any_strategy());
  const uint64_t large = p->allocate(20 * kMiB), small = p->allocate(4096);
  const uint64_t live = p->allocate(4096);
  REQUIRE(live != 0);
  const uint64_t before = p->pool.returnable_bytes();
  free_all(*p, {large, small});
  CHECK(p->pool.returnable_bytes() >= before + 20 * kMiB);
  p->pool.release_returnable(1'000'000);
  CHECK(p->pool.usage().garbage == 0);
  CHECK(p->garbage.flushed_when_short.get() == 20 * kMiB + 4096);
}

TEST_CASE("garbage does not count as waiting, nor as idle beyond the budget") {
  auto p = pool(GENERATE(at(4 * kGiB), kNever));
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(p->allocate(16 * kMiB));
  free_all(*p, blocks);
  p->pool.release_excess();
  CHECK(p->source.released == 0);
  CHECK(p->pool.usage().waiting == 0);
  p->source.passed_mark = 0;
  CHECK(p->allocate(16 * kMiB) != 0);
  CHECK(p->ledger.waits.get() == 0);  // not for the sake of 640 MiB that nobody may use
  CHECK(p->shared.reclaim.marks_made() == 0);
}

TEST_CASE("what was released together is kept for the program") {
  const GarbageRules rules = GENERATE(at(640 * kMiB), kNever);
  auto p = pool(rules);
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(p->allocate(16 * kMiB));
  for (int round = 0; round < 5; ++round) {
    free_all(*p, blocks);
    p->synchronise();
    p->pool.release_excess();
    for (uint64_t& block : blocks) block = p->allocate(16 * kMiB);
  }
  CHECK(p->source.obtained == 40);
  CHECK(p->source.released == 0);
}

TEST_CASE("what is flushed is marked before the next submission") {
  auto p = pool(at(64 * kMiB));
  p->source.passed_mark = 0;
  const auto blocks = blocks_of(*p, {32 * kMiB, 32 * kMiB});
  free_all(*p, blocks);
  CHECK_FALSE(p->pool.before_submission(false));
  CHECK(p->shared.reclaim.marks_made() == 1);
}

TEST_CASE("parked and exported memory keep their own rules") {
  auto p = pool(GENERATE(at(kGiB), kNever), any_strategy());
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  SECTION("a graph may hold it") {
    const uint64_t block = p->allocate(bytes);
    GraphLife graph = {};
    p->shared.reclaim.graphs().hold(&graph, 0, 0);
    REQUIRE(p->free(block) == Freed::done);
    CHECK(p->pool.usage().parked == bytes);
    CHECK(p->pool.usage().garbage == 0);
    p->shared.reclaim.graphs().release(&graph, p->shared.reclaim.open());
    p->synchronise();
    CHECK(serves(*p, block, bytes));
    // With the graph gone what is freed is garbage again.
    REQUIRE(p->free(block) == Freed::done);
    CHECK(p->pool.usage().garbage == bytes);
  }
  SECTION("known outside the process") {
    const uint64_t block = p->allocate(bytes), garbage = p->allocate(bytes);
    REQUIRE(p->free(garbage) == Freed::done);
    REQUIRE(p->pool.mark_exported(p->shared.index.find(block), block));
    REQUIRE(p->free(block) == Freed::done);
    const Usage usage = p->pool.usage();
    CHECK(usage.garbage + usage.quarantined <= 2 * bytes);
    CHECK(p->garbage.until_threshold.get() + p->garbage.until_synchronise.get() == usage.garbage);
    p->pool.release_returnable(1'000'000);
    CHECK(p->garbage.until_threshold.get() + p->garbage.until_synchronise.get() == 0);
  }
}

// Two of them find the threshold reached, and the second comes when the first has flushed.
TEST_CASE("a thread that comes too late for a flush flushes nothing") {
  auto p = pool(at(8 * kMiB), any_strategy());
  const auto blocks = blocks_of(*p, {2 * kMiB, 4096});
  free_all(*p, blocks);
  p->garbage.flush();
  CHECK(p->garbage.flushes.get() == 0);
  CHECK(p->garbage.until_threshold.get() == 2 * kMiB + 4096);
  CHECK(p->pool.usage().waiting == 0);
}

TEST_CASE("what was garbage in a slab that becomes known outside is never handed out again") {
  auto p = pool(GENERATE(at(kGiB), kNever, at(6000, 0.5)));
  const auto blocks = blocks_of(*p, {4096, 2048, 4096});
  REQUIRE(p->free(blocks[0]) == Freed::done);
  REQUIRE(p->free(blocks[1]) == Freed::done);
  const Usage before = p->pool.usage();
  REQUIRE(before.garbage != 0);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(blocks[2]), blocks[2]));
  const Usage usage = p->pool.usage();
  CHECK(usage.garbage + usage.waiting == 0);
  CHECK(usage.quarantined == before.garbage + before.waiting);
  CHECK(p->garbage.until_threshold.get() + p->garbage.until_synchronise.get() == 0);
  p->garbage.flush_all();
  p->synchronise();
  for (int i = 0; i < 600; ++i) {
    const uint64_t again = p->allocate(4096);
    for (const uint64_t block : blocks) REQUIRE(again != block);
  }
}

TEST_CASE("a chunk that the driver does not take back is no garbage") {
  auto p = pool(at(kGiB));
  const uint64_t block = p->allocate(4 * kMiB);
  REQUIRE(p->free(block) == Freed::done);
  p->source.capturing = true;
  p->pool.release_returnable(1'000'000);
  p->source.capturing = false;
  CHECK(p->garbage.until_threshold.get() == 0);
  CHECK(p->pool.usage().waiting == 4 * kMiB);
}

TEST_CASE("the garbage of a context goes with it") {
  auto p = pool(GENERATE(at(kGiB), kNever), any_strategy());
  free_all(*p, blocks_of(*p, {4096, 4 * kMiB, 700}));
  CHECK(p->pool.usage().garbage > 4 * kMiB);
  p->pool.forget_all();
  CHECK(p->garbage.until_threshold.get() + p->garbage.until_synchronise.get() == 0);
  p->init();
  free_all(*p, blocks_of(*p, {4096}));
  CHECK(p->garbage.until_threshold.get() + p->garbage.until_synchronise.get() == 4096);
}

TEST_CASE("a slot that another device's context takes over fills that device's garbage") {
  auto p = pool(at(kGiB));
  free_all(*p, blocks_of(*p, {4096}));
  p->pool.forget_all();
  Garbage other;
  other.init(at(kGiB), &p->shared.reclaim);
  p->pool.init(&p->shared, &p->source, {&p->ledger, &p->cap, &other}, 0, {});
  free_all(*p, blocks_of(*p, {8192}));
  CHECK(p->garbage.until_threshold.get() == 0);
  CHECK(other.until_threshold.get() == 8192);
  other.flush_all();
  CHECK(p->pool.usage().waiting == 8192);
  p->pool.forget_all();
  p->init();
}

}  // namespace garbage_test
