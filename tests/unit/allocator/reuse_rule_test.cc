// SPDX-License-Identifier: Apache-2.0
// CISTERN_MEMORY_OPTIMIZE, seen through the pool: which freed block serves which request under each
// strategy, what memory that is short takes, and that nothing is reused before it is clean.
#include "allocator/chunk/chunk.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace reuse_rule_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr uint64_t kKiB = 1024;

constexpr StrategyKind kAll[] = {StrategyKind::on_demand, StrategyKind::legacy,
                                 StrategyKind::naive_best_fit, StrategyKind::auto_growth,
                                 StrategyKind::thread_local_};

std::unique_ptr<Pool> pool_of(StrategyKind kind, ReuseRule rule, uint64_t chunk_mib = 64,
                              uint64_t capacity_mib = 4096) {
  const uint64_t chunk = kind == StrategyKind::auto_growth ? 0 : chunk_mib * kMiB;
  auto p = std::make_unique<Pool>(capacity_mib * kMiB, sizes(kind, chunk, chunk));
  p->set_rule(rule);
  return p;
}

std::vector<uint64_t> allocate_all(Pool& p, const std::vector<uint64_t>& bytes) {
  std::vector<uint64_t> all;
  for (const uint64_t n : bytes) {
    all.push_back(p.allocate(n));
    REQUIRE(all.back() != 0);
  }
  return all;
}

}  // namespace

TEST_CASE("level 0: a freed block serves its own size and no other, under every strategy") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  const uint64_t unit = GENERATE(4 * kKiB, 4 * kMiB);
  auto p = pool_of(kind, ReuseRule::same_size);
  const uint64_t freed = p->allocate(unit), other = p->allocate(unit / 2);
  free_and_synchronise(*p, {freed});
  for (const uint64_t bytes : {unit / 2, unit - 1, unit - 512, unit + 512, uint64_t{512}}) {
    const uint64_t a = p->allocate(bytes);
    CHECK((a + bytes <= freed || a >= freed + unit));
  }
  CHECK(p->allocate(unit) == freed);
  free_and_synchronise(*p, {freed, other});
  CHECK(p->allocate(unit / 2) == other);
  CHECK(p->allocate(unit) == freed);
  CHECK(p->ledger.sizes_forgotten.get() == 0);
}

TEST_CASE("level 0: freed neighbours are not merged for a larger request") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  auto p = pool_of(kind, ReuseRule::same_size);
  const auto small = allocate_all(*p, std::vector<uint64_t>(16, 16 * kKiB));
  for (const uint64_t a : small) p->free(a);
  p->synchronise();
  const uint64_t large = p->allocate(64 * kKiB);
  CHECK((large + 64 * kKiB <= small.front() || large >= small.back() + 16 * kKiB));
  std::set<uint64_t> again;
  for (size_t i = 0; i < small.size(); ++i) again.insert(p->allocate(16 * kKiB));
  CHECK(again == std::set<uint64_t>(small.begin(), small.end()));
}

TEST_CASE("level 0: sizes of blocks outlast the emptying of their slabs") {
  auto p = pool_of(StrategyKind::on_demand, ReuseRule::same_size);
  const auto blocks = allocate_all(*p, std::vector<uint64_t>(12, 512 * kKiB));
  const int obtained = p->source.obtained;
  for (const uint64_t a : blocks) p->free(a);
  p->synchronise();
  p->allocate(100 * kKiB);
  CHECK(p->source.obtained == obtained + 1);
  std::set<uint64_t> again;
  for (size_t i = 0; i < blocks.size(); ++i) again.insert(p->allocate(512 * kKiB));
  CHECK(again == std::set<uint64_t>(blocks.begin(), blocks.end()));
  CHECK(p->source.obtained == obtained + 1);
}

TEST_CASE("level 0: an emptied slab serves no whole request, a freed chunk becomes no slab") {
  auto p = pool_of(StrategyKind::on_demand, ReuseRule::same_size);
  const auto slabs = allocate_all(*p, std::vector<uint64_t>(80, 512 * kKiB));  // 20 slabs
  const uint64_t chunk = p->allocate(2 * kMiB);
  for (const uint64_t a : slabs) p->free(a);
  free_and_synchronise(*p, {chunk});
  p->allocate(512);
  const int obtained = p->source.obtained;
  CHECK(p->allocate(2 * kMiB) == chunk);
  CHECK(p->source.obtained == obtained);
  p->allocate(2 * kMiB);
  CHECK(p->source.obtained == obtained + 1);
}

TEST_CASE("level 0: with memory short, what was freed goes back or serves other sizes") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  const bool refuses = GENERATE(false, true);  // the source takes nothing back
  auto p = pool_of(kind, ReuseRule::same_size, 64, 64);
  std::vector<uint64_t> small;
  while (const uint64_t a = p->allocate(256 * kKiB)) small.push_back(a);
  CHECK(p->code == kOutOfMemory);
  CHECK(small.size() == 256);
  p->source.capturing = refuses;
  for (const uint64_t a : small) p->free(a);
  p->synchronise();
  for (const uint64_t bytes : {100 * kKiB, 600 * kKiB, 2 * kMiB}) {
    CAPTURE(bytes, refuses, strategy_name(kind));
    const uint64_t a = p->allocate(bytes);
    REQUIRE(a != 0);
    free_and_synchronise(*p, {a});
  }
}

TEST_CASE("level 0: with memory short, free parts of slabs in use are merged for other sizes") {
  auto p = pool_of(StrategyKind::on_demand, ReuseRule::same_size, 64, 64);
  std::vector<uint64_t> small;
  while (const uint64_t a = p->allocate(256 * kKiB)) small.push_back(a);
  for (size_t i = 0; i < small.size(); ++i) {
    if (i % 8 != 0) p->free(small[i]);  // something stays in every slab
  }
  p->synchronise();
  CHECK(p->allocate(600 * kKiB) != 0);
  CHECK(p->ledger.sizes_forgotten.get() == 1);
}

TEST_CASE("level 0: what was kept for its size goes with its chunk") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  auto p = pool_of(kind, ReuseRule::same_size);
  const auto blocks = allocate_all(*p, std::vector<uint64_t>(12, 512 * kKiB));
  for (const uint64_t a : blocks) p->free(a);
  p->synchronise();
  p->pool.release_returnable(1'000'000);
  CHECK(p->source.released == p->source.obtained);
  CHECK(p->pool.usage().idle == 0);
  const int obtained = p->source.obtained;
  CHECK(p->allocate(512 * kKiB) != 0);
  CHECK(p->source.obtained == obtained + 1);
}

TEST_CASE("level 0: memory that merging makes room in is counted, and has sizes again") {
  auto p = pool_of(StrategyKind::legacy, ReuseRule::same_size, 64, 64);
  std::vector<uint64_t> small;
  while (const uint64_t a = p->allocate(kMiB)) small.push_back(a);
  REQUIRE(small.size() == 64);
  free_and_synchronise(*p, {small[10], small[11], small[20]});
  CHECK(p->allocate(2 * kMiB) == small[10]);
  CHECK(p->ledger.sizes_forgotten.get() == 1);
  free_and_synchronise(*p, {small[10]});
  CHECK(p->allocate(kMiB) == small[20]);
  CHECK(p->allocate(2 * kMiB) == small[10]);
  CHECK(p->ledger.sizes_forgotten.get() == 1);
}

TEST_CASE("level 1: the smallest freed block that is large enough serves") {
  auto p = pool_of(StrategyKind::on_demand, ReuseRule::any_that_fits);
  const auto freed = allocate_all(*p, {64 * kMiB, 10 * kMiB + 200 * kKiB, 10 * kMiB, 9 * kMiB});
  for (const uint64_t a : freed) p->free(a);
  p->synchronise();
  const int obtained = p->source.obtained;
  CHECK(p->allocate(9 * kMiB + 1) == freed[2]);
  CHECK(p->allocate(9 * kMiB + 1) == freed[1]);
  CHECK(p->allocate(kMiB) == freed[3]);
  CHECK(p->allocate(kMiB) == freed[0]);
  CHECK(p->source.obtained == obtained);
  CHECK(found(*p, freed[0]) == std::pair{freed[0], kMiB});
  CHECK(p->pool.usage().live == 2 * (9 * kMiB + 1) + 2 * kMiB);
  CHECK(p->allocate(kMiB) != 0);
  CHECK(p->source.obtained == obtained + 1);
}

TEST_CASE("level 1: so does the smallest free part of a chunk, exactly") {
  const StrategyKind kind = GENERATE(StrategyKind::legacy, StrategyKind::naive_best_fit);
  auto p = pool_of(kind, ReuseRule::any_that_fits, 1024);
  std::vector<uint64_t> holes, walls;
  for (const uint64_t bytes : {10 * kMiB + 200 * kKiB, 10 * kMiB, 10 * kMiB + 100 * kKiB}) {
    holes.push_back(p->allocate(bytes));
    walls.push_back(p->allocate(512));
  }
  free_and_synchronise(*p, {holes[1], holes[0], holes[2]});
  CHECK(p->allocate(9 * kMiB + 900 * kKiB) == holes[1]);
}

TEST_CASE("level 1: a small request is cut from slabs, never a whole chunk") {
  auto p = pool_of(StrategyKind::on_demand, ReuseRule::any_that_fits);
  const uint64_t whole = p->allocate(8 * kMiB);
  free_and_synchronise(*p, {whole});
  CHECK(p->allocate(4096) != whole);
  CHECK(p->allocate(8 * kMiB) == whole);
}

TEST_CASE("under either level a block is reused only once it is clean") {
  const ReuseRule rule = GENERATE(ReuseRule::same_size, ReuseRule::any_that_fits);
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  const uint64_t bytes = GENERATE(4 * kKiB, 4 * kMiB);
  auto p = pool_of(kind, rule);
  p->source.passed_mark = 0;
  const uint64_t a = p->allocate(bytes);
  p->free(a);
  CHECK(p->allocate(bytes) != a);
  p->synchronise();
  CHECK(p->allocate(bytes) == a);
}

// A model: at any moment each freed range has the size that it was last asked for, until memory is
// short, which it never is here.
TEST_CASE("level 0: whatever the order of calls, a block lies where none was or one of its size") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  const uint32_t seed = GENERATE(1u, 2u, 3u);
  auto p = pool_of(kind, ReuseRule::same_size, 512, 1 << 20);
  std::mt19937 random(seed);
  std::map<uint64_t, uint64_t> live, was;  // start -> bytes
  for (int i = 0; i < 6000; ++i) {
    if (live.size() < 200 && random() % 2 == 0) {
      const uint64_t bytes =
          random() % 4 == 0 ? kMiB * (1 + random() % 6) + random() % 3 : 1 + random() % 64 * 700;
      const uint64_t a = p->allocate(bytes);
      REQUIRE(a != 0);
      const auto known = was.find(a);
      if (known != was.end()) REQUIRE(known->second == bytes);
      if (known == was.end()) {
        const auto after = was.lower_bound(a);
        if (after != was.end()) REQUIRE(a + bytes <= after->first);
        if (after != was.begin()) REQUIRE(std::prev(after)->first + std::prev(after)->second <= a);
        was[a] = bytes;
      }
      REQUIRE(live.emplace(a, bytes).second);
    } else if (!live.empty()) {
      const auto it = std::next(live.begin(), static_cast<long>(random() % live.size()));
      REQUIRE(p->free(it->first) == Freed::done);
      live.erase(it);
    }
    if (random() % 20 == 0) p->synchronise();
  }
  CHECK(p->ledger.sizes_forgotten.get() == 0);
}

}  // namespace reuse_rule_test
