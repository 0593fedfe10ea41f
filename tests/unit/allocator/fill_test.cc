// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/fill.h"

#include <algorithm>
#include <memory>
#include <random>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"
#include "tests/unit/allocator/filled_memory.h"
#include "tests/unit/test_clock.h"

namespace fill_test {

using namespace cistern::alloc;
using cistern::test::FilledMemory;
using cistern::test::kMiB;
using cistern::test::Pool;
using cistern::test::sizes;

namespace {

constexpr uint64_t kBlock = kMiB / 2;  // four to a slab

// Nothing passes before the test lets it.
std::unique_ptr<Pool> filled_pool(FillMode mode, const ChunkSizes& chunk_sizes = {}) {
  auto p = std::make_unique<Pool>(uint64_t{1} << 40, chunk_sizes, GarbageRules{}, mode);
  p->source.passed_mark = 0;
  return p;
}

ChunkSizes sizes_of(StrategyKind kind) {
  const bool sized = kind != StrategyKind::on_demand && kind != StrategyKind::auto_growth;
  return sizes(kind, sized ? 4 * kMiB : 0, sized ? 2 * kMiB : 0);
}

std::vector<std::pair<uint64_t, uint64_t>> fills(const Pool& p) {
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const FillRange& range : p.source.filled) ranges.emplace_back(range.address, range.bytes);
  return ranges;
}

using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

}  // namespace

TEST_CASE("without a fill mode nothing is filled") {
  auto p = filled_pool(FillMode::off);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{5000}, 3 * kMiB}) p->allocate(bytes);
  CHECK(p->source.fill_calls == 0);
}

TEST_CASE("filled separately, each block has its requested bytes filled, and no other") {
  auto p = filled_pool(FillMode::separate);
  Ranges wanted;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{5001}, kMiB, 3 * kMiB + 7}) {
    const uint64_t a = p->allocate(bytes);
    wanted.emplace_back(a, bytes);
    p->free(a);
    p->synchronise();
    CHECK(p->allocate(bytes) == a);
    wanted.emplace_back(a, bytes);
  }
  CHECK(fills(*p) == wanted);
  CHECK(p->ledger.fills.get() == 8);
  CHECK(p->ledger.fill_waits.get() == 8);
  CHECK(p->ledger.fill_bytes.get() == 2 * (1 + 5001 + kMiB + 3 * kMiB + 7));
}

TEST_CASE("gathered, a slab is filled once, a block of its own over its requested bytes") {
  auto p = filled_pool(FillMode::gathered);
  const uint64_t first = p->allocate(kBlock);
  for (int i = 0; i < 3; ++i) p->allocate(kBlock);
  CHECK(fills(*p) == Ranges{{first, kSlabBytes}});
  const uint64_t large = p->allocate(3 * kMiB + 7);
  CHECK(fills(*p) == Ranges{{first, kSlabBytes}, {large, 3 * kMiB + 7}});
}

TEST_CASE("gathered, a chunk that is cut up is filled once") {
  auto p = filled_pool(FillMode::gathered, sizes(StrategyKind::legacy, 8 * kMiB, 4 * kMiB));
  const uint64_t first = p->allocate(kBlock);
  for (int i = 0; i < 7; ++i) p->allocate(kMiB);
  CHECK(fills(*p) == Ranges{{first, 8 * kMiB}});
}

TEST_CASE("what was freed is filled in runs, at once, when nothing filled is left") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  const ChunkSizes two_mib = sizes(StrategyKind::legacy, 2 * kMiB, 2 * kMiB);
  auto p = filled_pool(FillMode::gathered, kind == StrategyKind::legacy ? two_mib : ChunkSizes{});
  std::vector<uint64_t> blocks(4);
  for (uint64_t& a : blocks) a = p->allocate(kBlock);
  REQUIRE(std::is_sorted(blocks.begin(), blocks.end()));
  for (const int i : {1, 3, 0}) p->free(blocks[i]);
  p->synchronise();
  p->source.filled.clear();
  const int before = p->source.fill_calls;
  for (int i = 0; i < 3; ++i) CHECK(p->allocate(kBlock) != 0);
  CHECK(fills(*p) == Ranges{{blocks[0], 2 * kBlock}, {blocks[3], kBlock}});
  CHECK(p->source.fill_calls == before + 1);
  CHECK(p->source.obtained == 1);
}

TEST_CASE("what earlier work may use is not filled") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  const ChunkSizes two_mib = sizes(StrategyKind::legacy, 2 * kMiB, 2 * kMiB);
  auto p = filled_pool(FillMode::gathered, kind == StrategyKind::legacy ? two_mib : ChunkSizes{});
  std::vector<uint64_t> blocks(4);
  for (uint64_t& a : blocks) a = p->allocate(kBlock);
  p->free(blocks[0]);
  p->synchronise();
  p->free(blocks[1]);
  p->source.filled.clear();
  CHECK(p->allocate(kBlock) == blocks[0]);
  CHECK(fills(*p) == Ranges{{blocks[0], kBlock}});
}

TEST_CASE("neighbours in different chunks are filled by themselves") {
  ChunkMap maps[2]{};
  maps[0].base = 1 << 20;
  maps[1].base = (1 << 20) + 1024;
  ChunkBlock blocks[4]{};
  for (uint32_t i = 0; i < 4; ++i) {
    blocks[i].start = i % 2;
    blocks[i].granules = 1;
    blocks[i].set_map(&maps[i / 2]);
    blocks[i].next = i == 3 ? nullptr : &blocks[i + 1];
  }
  cistern::test::FakeSource source;
  Ledger ledger{};
  Filler filler{};
  filler.init(&source, &ledger, FillMode::gathered);
  CHECK(fill_runs(sorted_by_address(blocks), filler));
  REQUIRE(source.filled.size() == 2);
  CHECK(source.filled[0].address == maps[0].base);
  CHECK(source.filled[1].address == maps[1].base);
  CHECK(source.filled[1].bytes == 1024);
}

TEST_CASE("any number of runs is filled, in any order they were freed") {
  ChunkMap map{};
  std::vector<ChunkBlock> blocks(GENERATE(1, 2, 127, 128, 129, 1000));
  std::vector<uint32_t> order(blocks.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  ChunkBlock* list = nullptr;
  for (const uint32_t i : order) {
    blocks[i].start = 2 * i;  // every other granule: no two are neighbours
    blocks[i].granules = 1;
    blocks[i].set_map(&map);
    blocks[i].next = list;
    list = &blocks[i];
  }
  cistern::test::FakeSource source;
  Ledger ledger{};
  Filler filler{};
  filler.init(&source, &ledger, FillMode::gathered);
  CHECK(fill_runs(sorted_by_address(list), filler));
  REQUIRE(source.filled.size() == blocks.size());
  for (uint64_t i = 0; i < blocks.size(); ++i) CHECK(source.filled[i].address == 2 * i * 512);
}

TEST_CASE("what a capture or a failure left unfilled is filled when it is handed out later") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  const bool captured = GENERATE(true, false);
  auto p = filled_pool(FillMode::gathered, sizes_of(kind));
  p->source.capturing = captured;
  p->source.fail_fill = captured ? 0 : 719;
  REQUIRE(p->allocate(5000) != 0);
  CHECK((captured ? p->ledger.fills_skipped : p->ledger.fills_failed).get() == 1);
  CHECK((captured ? p->ledger.fills_failed : p->ledger.fills_skipped).get() == 0);
  p->source.capturing = false;
  p->source.fail_fill = 0;
  const uint64_t next = p->allocate(6000);
  CHECK(fills(*p) == Ranges{{next, 6000}});
}

TEST_CASE("what is being filled is told as free") {
  auto p = filled_pool(FillMode::gathered, sizes(StrategyKind::legacy, 2 * kMiB, 2 * kMiB));
  std::vector<uint64_t> blocks(4);
  for (uint64_t& a : blocks) a = p->allocate(kBlock);
  for (const uint64_t a : {blocks[0], blocks[1], blocks[2]}) p->free(a);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == 3 * kBlock);
  int seen = 0;
  p->source.on_fill = [&](const FillRange&) {
    ++seen;
    CHECK(p->pool.returnable_bytes() == 3 * kBlock);
  };
  REQUIRE(p->allocate(kBlock) != 0);
  CHECK(seen == 1);
  CHECK(p->pool.returnable_bytes() == 2 * kBlock);
}

TEST_CASE("a slab that is being filled is not given away, and ends when it is exported meanwhile") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  const ChunkSizes two_mib = sizes(StrategyKind::legacy, 2 * kMiB, 2 * kMiB);
  auto p = filled_pool(FillMode::gathered, kind == StrategyKind::legacy ? two_mib : ChunkSizes{});
  std::vector<uint64_t> blocks(4);
  for (uint64_t& a : blocks) a = p->allocate(kBlock);
  p->free(blocks[0]);
  p->free(blocks[1]);
  p->synchronise();
  p->free(blocks[2]);
  Chunk* chunk = p->shared.index.find(blocks[3]);
  const bool exported = GENERATE(true, false);
  bool done = false;
  p->source.on_fill = [&](const FillRange&) {
    if (done) return;
    done = true;
    if (exported) p->pool.mark_exported(chunk, blocks[3]);
    CHECK(p->free(blocks[3]) == Freed::done);
    p->pool.release_returnable(1'000'000);
    CHECK(p->source.released == 0);
  };
  REQUIRE(p->allocate(kBlock) != 0);
  CHECK(p->source.released == (exported ? 1 : 0));
  CHECK(p->source.obtained == (exported ? 2 : 1));
  p->synchronise();
  for (int i = 0; i < 3; ++i) CHECK(p->allocate(kBlock) != 0);
  CHECK(p->source.obtained == (exported ? 2 : 1));
}

TEST_CASE("memory that waits to be filled is returned when the device has no more") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  const ChunkSizes two_mib = sizes(StrategyKind::legacy, 2 * kMiB, 2 * kMiB);
  Pool p(4 * kMiB, kind == StrategyKind::legacy ? two_mib : ChunkSizes{}, GarbageRules{},
         FillMode::gathered);
  std::vector<uint64_t> blocks(8);
  for (uint64_t& a : blocks) a = p.allocate(kBlock);
  for (const uint64_t a : blocks) p.free(a);
  p.synchronise();
  p.source.may_take_clean = GENERATE(true, false);
  CHECK(p.allocate(4 * kMiB) != 0);
}

TEST_CASE("memory is not out while another thread fills what would serve") {
  const auto kind =
      GENERATE(StrategyKind::on_demand, StrategyKind::legacy, StrategyKind::thread_local_);
  const bool fresh = kind != StrategyKind::legacy && GENERATE(true, false);
  const ChunkSizes two_mib = sizes(kind, 2 * kMiB, 2 * kMiB);
  Pool p(2 * kMiB, kind == StrategyKind::on_demand ? ChunkSizes{} : two_mib, GarbageRules{},
         FillMode::gathered);
  std::vector<uint64_t> blocks(fresh ? 0 : 4);
  for (uint64_t& a : blocks) a = p.allocate(kBlock);
  for (size_t i = 0; i < blocks.size() / 2; ++i) p.free(blocks[i]);
  p.synchronise();
  int code = -1;
  std::atomic<bool> begun{false}, done{false};
  std::atomic<int> asked{0};
  const cistern::test::StoppedClock clock;
  p.source.on_obtain = [&] { ++asked; };
  std::thread allocating;
  p.source.on_fill = [&](const FillRange&) {
    if (begun.exchange(true)) return;
    allocating = std::thread([&] {
      uint64_t a;
      code = p.pool.allocate(kBlock, kind == StrategyKind::thread_local_ ? 1 : 0, &a);
      done = true;
    });
    // It waits for the fill, or asks the source again and again.
    const uint64_t waits = test_clock_waits();
    const int before = asked;
    cistern::test::until_someone_waits(waits, [&] { return done || asked - before > 3; });
  };
  CHECK(p.allocate(kBlock) != 0);
  allocating.join();
  CHECK(code == kSuccess);
}

TEST_CASE("a context that ends waits for the fill of another thread") {
  const FillMode mode = GENERATE(FillMode::separate, FillMode::gathered);
  auto p = filled_pool(mode);
  std::atomic<bool> filling{false}, dropped{false};
  bool dropped_first = false;
  p->source.on_fill = [&](const FillRange&) {
    const uint64_t waits = test_clock_waits();
    filling = true;
    cistern::test::until_someone_waits(waits, [&] { return dropped.load(); });
    dropped_first = dropped;
  };
  std::thread allocating([&] { p->allocate(3 * kMiB); });
  while (!filling) std::this_thread::yield();
  p->pool.forget_all();
  dropped = true;
  allocating.join();
  CHECK_FALSE(dropped_first);
}

TEST_CASE("a new block is filled, and no other memory changes, in any order of calls",
          "[one-thread]") {
  const FillMode mode = GENERATE(FillMode::separate, FillMode::gathered);
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::none, StrategyKind::legacy,
                             StrategyKind::naive_best_fit, StrategyKind::auto_growth,
                             StrategyKind::thread_local_);
  const bool captures = GENERATE(false, true);
  auto p = filled_pool(mode, sizes_of(kind));
  FilledMemory memory;
  p->source.on_fill = [&](const FillRange& range) { memory.fill(range); };
  std::mt19937 random(static_cast<unsigned>(kind) + 17);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  uint64_t unfilled_outside = 0, blocks_unfilled = 0;
  for (int i = 0; i < 2000; ++i) {
    if (captures && random() % 100 == 0) p->source.capturing = !p->source.capturing;
    if (live.size() < 60 && random() % 2 == 0) {
      const bool large = random() % 30 == 0;
      const uint64_t bytes = 1 + random() % (large ? 3 * kMiB / 2 : 60'000);
      uint64_t a = 0;
      const auto shard = static_cast<unsigned>(random() % 3);
      const bool direct = p->source.capturing && random() % 2 == 0;
      REQUIRE((direct ? p->pool.allocate_direct(bytes, shard, true, &a)
                      : p->pool.allocate(bytes, shard, &a)) == kSuccess);
      const uint64_t unfilled = memory.hand_out(a, bytes);
      blocks_unfilled += unfilled != 0;
      if (!p->source.capturing) unfilled_outside += unfilled;
      live.emplace_back(a, bytes);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [a, bytes] = live.back();
      live.pop_back();
      memory.free(a, bytes);
      REQUIRE(p->free(a) == Freed::done);
    }
    if (random() % 40 == 0) {
      memory.finish_work();
      p->synchronise();
    }
    if (random() % 500 == 0) p->pool.release_returnable(1'000'000);
  }
  CHECK(unfilled_outside == 0);
  CHECK(memory.touched_others() == 0);
  CHECK(blocks_unfilled <= p->ledger.fills_skipped.get());
  CHECK(p->ledger.fills.get() > 0);
}

TEST_CASE("threads that fill beside each other leave each other's blocks alone") {
  const auto kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  auto p = filled_pool(FillMode::gathered, sizes_of(kind));
  FilledMemory memory;
  std::shared_mutex synchronising;
  std::atomic<uint64_t> unfilled{0};
  p->source.on_fill = [&](const FillRange& range) { memory.fill(range); };
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<uint64_t, uint64_t>> live;
    for (int i = 0; i < 1000; ++i) {
      if (live.size() < 30 && random() % 2 == 0) {
        const uint64_t bytes = 1 + random() % 30'000;
        uint64_t a = 0;
        if (p->pool.allocate(bytes, 0, &a) != kSuccess) continue;
        unfilled += memory.hand_out(a, bytes);
        live.emplace_back(a, bytes);
      } else if (!live.empty()) {
        const auto [a, bytes] = live.back();
        live.pop_back();
        const std::shared_lock guard(synchronising);
        memory.free(a, bytes);
        int code;
        p->pool.free(p->shared.index.find(a), a, &code);
      }
      if (random() % 50 == 0) {
        const std::unique_lock guard(synchronising);
        memory.finish_work();
        p->synchronise();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  CHECK(unfilled == 0);
  CHECK(memory.touched_others() == 0);
}

}  // namespace fill_test
