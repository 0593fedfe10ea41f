// SPDX-License-Identifier: Apache-2.0
// Groups, seen through the pool: which allocations lie side by side, what a group may come to, and
// where the room goes that it does not need. A site is a number here.
#include "allocator/chunk_pools/groups.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/chunk_pool.h"

namespace groups_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr uint64_t kKiB = 1024;
constexpr StrategyKind kAll[] = {StrategyKind::on_demand, StrategyKind::legacy,
                                 StrategyKind::naive_best_fit, StrategyKind::auto_growth,
                                 StrategyKind::thread_local_};

std::unique_ptr<Pool> grouped(StrategyKind kind, uint64_t members, uint64_t bytes = 0,
                              uint64_t capacity_mib = 4096, uint64_t chunk_mib = 64) {
  const uint64_t chunk = kind == StrategyKind::auto_growth ? 0 : chunk_mib * kMiB;
  auto p = std::make_unique<Pool>(capacity_mib * kMiB, sizes(kind, chunk, chunk));
  p->set_groups(members, bytes);
  return p;
}

// As many requests of other sites as end all groups that the thread has.
void leave_groups(Pool& p, uint64_t bytes = 512) {
  for (int i = 0; i < 17; ++i) REQUIRE(p.allocate_in_group(bytes, 8) != 0);
}

}  // namespace

TEST_CASE("members of a group lie side by side, each found by itself, under every strategy") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  const uint64_t bytes = GENERATE(uint64_t{700}, 3 * kMiB);
  auto p = grouped(kind, 3);
  const uint64_t step = (bytes + 511) / 512 * 512;
  const uint64_t a = p->allocate_in_group(bytes, 7), b = p->allocate_in_group(bytes, 7);
  const uint64_t c = p->allocate_in_group(bytes, 7), d = p->allocate_in_group(bytes, 7);
  REQUIRE(a != 0);
  CHECK(b == a + step);
  CHECK(c == b + step);
  CHECK(d != 0);
  for (const uint64_t at : {a, b, c, d}) CHECK(found(*p, at + bytes - 1) == std::pair{at, bytes});
  CHECK(p->ledger.groups.get() == 1);
  CHECK(p->ledger.group_members.get() == 3);
  CHECK(p->pool.usage().live == 4 * bytes);
}

TEST_CASE("a request in no group is its graph's") {
  Pool p(4096 * kMiB, sizes(StrategyKind::graph_arena, 0, 0));
  p.set_groups(3, 0);
  p.source.open_graphs = {1};
  for (uint32_t site = 7; site < 25; ++site) {
    CHECK(p.allocate_in_group(4 * kMiB, site, 0, {1, 1}) != 0);
  }
  CHECK(p.ledger.arena_bytes.get() == 0);
  CHECK(p.allocate_in_group(4 * kMiB, 7, 0, {1, 1}) != 0);  // known by now to come alone
  CHECK(p.ledger.arena_bytes.get() == 4 * kMiB);
}

TEST_CASE("members are freed in any order and reused only once they are clean") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  auto p = grouped(kind, 3);
  p->source.passed_mark = 0;
  uint64_t at[3];
  for (uint64_t& a : at) a = p->allocate_in_group(kMiB, 7);
  for (const int i : {1, 0, 2}) REQUIRE(p->free(at[i]) == Freed::done);
  CHECK(p->free(at[1]) == Freed::invalid);
  const uint64_t other = p->allocate_in_group(kMiB, 7);
  CHECK((other < at[0] || other >= at[0] + 3 * kMiB));
  leave_groups(*p);
  p->synchronise();
  CHECK(p->allocate_in_group(kMiB, 9) != 0);
}

TEST_CASE("what a group does not need is clean memory again, and counted") {
  auto p = grouped(StrategyKind::legacy, 8);
  const uint64_t a = p->allocate_in_group(kMiB, 7), b = p->allocate_in_group(kMiB, 7);
  CHECK(b == a + kMiB);
  const uint64_t idle = p->pool.usage().idle;
  p->allocate(512);
  CHECK(p->pool.usage().idle == idle - 512);  // no call of a group: it goes on
  leave_groups(*p);
  CHECK(p->ledger.group_room.get() == 6 * kMiB);
  CHECK(p->pool.usage().live == 2 * kMiB + 18 * 512);
}

TEST_CASE("sites that take turns have a group each, and memory for no more than those") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  auto p = grouped(kind, 3);
  constexpr int kSites = 8, kRounds = 9;
  uint64_t last[kSites] = {};
  for (int round = 0; round < kRounds; ++round) {
    for (int site = 0; site < kSites; ++site) {
      const uint64_t bytes = (2 + static_cast<uint64_t>(site)) * kMiB;
      const uint64_t a = p->allocate_in_group(bytes, 7 + static_cast<uint32_t>(site));
      if (round % 3 != 0) CHECK(a == last[site] + bytes);
      last[site] = a;
    }
  }
  CHECK(p->ledger.groups.get() == kSites * kRounds / 3);
  CHECK(p->ledger.group_members.get() == kSites * kRounds);
  CHECK(p->ledger.group_room.get() == 0);
  if (kind == StrategyKind::on_demand) CHECK(p->ledger.reserved.get() == p->pool.usage().live);
}

TEST_CASE("of more sites than a thread has groups those asked last keep theirs") {
  auto p = grouped(StrategyKind::auto_growth, 3);
  for (uint32_t site = 1; site <= 9; ++site) p->allocate_in_group(kMiB, site);
  CHECK(p->ledger.group_room.get() == 2 * kMiB);  // of the first site
  p->allocate_in_group(kMiB, 2);
  CHECK(p->ledger.groups.get() == 1);
}

TEST_CASE("a group comes to the limit in bytes, and no further") {
  const uint64_t members = GENERATE(uint64_t{0}, uint64_t{8});
  auto p = grouped(StrategyKind::legacy, members, 4 * kMiB);
  std::vector<uint64_t> at;
  for (int i = 0; i < 8; ++i) at.push_back(p->allocate_in_group(kMiB, 7));
  for (int i = 0; i < 8; ++i) {
    if (i % 4 != 0) CHECK(at[i] == at[i - 1] + kMiB);
  }
  CHECK(p->ledger.groups.get() == (members == 0 ? 3 : 2));  // its first one has room for two
  const uint64_t large = p->allocate_in_group(5 * kMiB, 7);
  CHECK(large != 0);
}

TEST_CASE("a site whose groups have members of unlike sizes has room for them the next time") {
  auto p = grouped(StrategyKind::on_demand, 3);
  const uint64_t sizes_of[] = {4 * kKiB, 4 * kMiB, 64 * kKiB};
  bool side_by_side = false;
  for (int round = 0; round < 4; ++round) {
    uint64_t at[3];
    for (int i = 0; i < 3; ++i) at[i] = p->allocate_in_group(sizes_of[i], 7);
    leave_groups(*p);
    side_by_side = at[1] == at[0] + sizes_of[0] && at[2] == at[1] + sizes_of[1];
  }
  CHECK(side_by_side);
}

TEST_CASE("without a limit in members groups of a site grow as it goes on") {
  auto p = grouped(StrategyKind::on_demand, 0);
  uint64_t longest = 0, run = 1, last = p->allocate_in_group(kMiB, 7);
  for (int i = 0; i < 64; ++i) {
    const uint64_t a = p->allocate_in_group(kMiB, 7);
    run = a == last + kMiB ? run + 1 : 1;
    longest = std::max(longest, run);
    last = a;
  }
  CHECK(longest >= 16);
}

TEST_CASE("a site that allocates once at a time is the strategy's own affair") {
  auto p = grouped(StrategyKind::on_demand, 3);
  for (int round = 0; round < 2; ++round) {
    for (uint32_t site = 7; site < 25; ++site) p->allocate_in_group(4 * kMiB, site);
  }
  p->source.asked.clear();
  const uint64_t a = p->allocate_in_group(4 * kMiB, 7);
  CHECK(p->shared.index.find(a)->is() == Role::whole);
}

TEST_CASE("each thread has a group of its own") {
  auto p = grouped(StrategyKind::legacy, 4);
  uint64_t at[2] = {p->allocate_in_group(kMiB, 7, 0), p->allocate_in_group(kMiB, 7, 1)};
  for (int i = 0; i < 3; ++i) {
    for (unsigned thread = 0; thread < 2; ++thread) {
      const uint64_t a = p->allocate_in_group(kMiB, 7, thread);
      CHECK(a == at[thread] + kMiB);
      at[thread] = a;
    }
  }
}

TEST_CASE("with memory short a group's room serves others, and members take no memory in vain") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  CAPTURE(strategy_name(kind));
  auto p = grouped(kind, 8, 0, 64);
  const uint64_t a = p->allocate_in_group(4 * kMiB, 7);
  REQUIRE(a != 0);
  std::vector<uint64_t> all{a};
  while (const uint64_t next = p->allocate_in_group(kMiB, 7 + static_cast<uint32_t>(all.size()))) {
    all.push_back(next);
  }
  CHECK(all.size() == 61);
  for (const uint64_t at : all) REQUIRE(p->free(at) == Freed::done);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == 64 * kMiB);
  CHECK(p->allocate(60 * kMiB) != 0);
}

TEST_CASE("a context that ends while groups are open leaves nothing behind") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  auto p = grouped(kind, 8);
  p->allocate_in_group(4 * kMiB, 7);
  p->pool.forget_all();
  CHECK(p->ledger.reserved.get() == 0);
  CHECK(p->ledger.live.get() == 0);
  p->init();
  const uint64_t a = p->allocate_in_group(4 * kMiB, 7);
  REQUIRE(a != 0);
  CHECK(p->free(a) == Freed::done);
}

TEST_CASE("a block of a group that became known outside goes back with its chunk") {
  auto p = grouped(StrategyKind::on_demand, 3);
  const uint64_t a = p->allocate_in_group(4 * kMiB, 7), b = p->allocate_in_group(4 * kMiB, 7);
  REQUIRE(p->pool.mark_exported(p->shared.index.find(a), a));
  p->free(a);
  p->free(b);
  const int released = p->source.released;
  leave_groups(*p, 5 * kMiB);  // no room for them between
  CHECK(p->source.released == released + 1);
  CHECK(p->pool.usage().quarantined == 0);
}

TEST_CASE("a group whose members are all freed does not keep its chunk from going back") {
  auto p = grouped(StrategyKind::on_demand, 8);
  const uint64_t a = p->allocate_in_group(4 * kMiB, 7);
  p->allocate_in_group(4 * kMiB, 7);
  p->pool.release_returnable(0);
  free_and_synchronise(*p, {a, a + 4 * kMiB});
  CHECK(p->pool.returnable_bytes() == p->ledger.reserved.get());
  CHECK(p->pool.release_returnable(0));
  CHECK(p->ledger.reserved.get() == 0);
}

TEST_CASE("idle chunks of groups count in the budget of idle memory of the default strategy") {
  auto p = grouped(StrategyKind::on_demand, 8);
  p->source.may_take_clean = true;
  const bool in_free = GENERATE(false, true);  // else when the program has waited
  p->source.attends = !in_free;
  std::vector<uint64_t> all;
  for (int i = 0; i < 64; ++i) all.push_back(p->allocate_in_group(16 * kMiB, 7));
  const uint64_t whole = p->allocate(48 * kMiB), last = p->allocate(kMiB);
  REQUIRE(p->ledger.reserved.get() >= 1073 * kMiB);
  const uint64_t budget = p->ledger.live_peak.get() / 8;
  p->free(whole);
  for (const uint64_t a : all) p->free(a);
  p->synchronise();
  p->pass_a_second();
  if (in_free) {
    p->free(last);
    p->synchronise();
  } else {
    p->pool.release_excess();
  }
  CHECK(p->ledger.reserved.get() <= budget);
  CHECK(p->ledger.reserved.get() >= 48 * kMiB);  // which serves any request
  CHECK(p->allocate_in_group(16 * kMiB, 7) != 0);
}

TEST_CASE("of idle chunks of groups no more go than are beyond the budget") {
  auto p = grouped(StrategyKind::on_demand, 4);
  p->source.may_take_clean = true;
  std::vector<uint64_t> all;
  for (int i = 0; i < 64; ++i) all.push_back(p->allocate_in_group(16 * kMiB, 7));
  for (const uint64_t a : all) p->free(a);
  p->synchronise();
  p->pass_a_second();
  p->pool.release_excess();
  const uint64_t budget = p->ledger.live_peak.get() / 8;
  CHECK(p->ledger.reserved.get() <= budget + 64 * kMiB);
  CHECK(p->ledger.reserved.get() + 64 * kMiB > budget);
}

TEST_CASE("idle chunks of groups within the budget stay, and serve the next round") {
  auto p = grouped(StrategyKind::on_demand, 4);
  int obtained = 0;
  for (int round = 0; round < 10; ++round) {
    uint64_t at[4];
    for (uint64_t& a : at) a = p->allocate_in_group(15 * kMiB, 7);
    for (const uint64_t a : at) p->free(a);
    p->synchronise();
    if (round == 0) obtained = p->source.obtained;
  }
  CHECK(p->source.obtained == obtained);
}

TEST_CASE("a chunk of groups that is in use again leaves the budget to others") {
  auto p = grouped(StrategyKind::on_demand, 4);
  p->source.may_take_clean = true;
  uint64_t at[4];
  for (int round = 0; round < 2; ++round) {
    for (uint64_t& a : at) a = p->allocate_in_group(15 * kMiB, 7);
    if (round == 0) free_and_synchronise(*p, {at[0], at[1], at[2], at[3]});
  }
  const uint64_t whole = p->allocate(60 * kMiB);
  free_and_synchronise(*p, {whole});
  p->pool.release_excess();
  CHECK(p->ledger.reserved.get() == 120 * kMiB);
}

TEST_CASE("level 0: members of groups serve their size again, so that memory does not grow") {
  const StrategyKind kind = GENERATE(from_range(std::begin(kAll), std::end(kAll)));
  auto p = grouped(kind, 3);
  p->set_rule(ReuseRule::same_size);
  uint64_t reserved = 0;
  for (int round = 0; round < 10; ++round) {
    std::vector<uint64_t> all;
    for (int i = 0; i < 6; ++i) all.push_back(p->allocate_in_group(kMiB, 7));
    for (const uint64_t a : all) p->free(a);
    p->synchronise();
    if (round == 1) reserved = p->ledger.reserved.get();
  }
  CHECK(p->ledger.reserved.get() == reserved);
  CHECK(p->ledger.sizes_forgotten.get() == 0);
}

TEST_CASE("level 0: room that a group gives up serves any size") {
  auto p = grouped(StrategyKind::legacy, 3, 0, 64);
  p->set_rule(ReuseRule::same_size);
  uint64_t at[3];
  for (uint64_t& a : at) a = p->allocate_in_group(kMiB, 7);
  free_and_synchronise(*p, {at[0], at[1], at[2]});
  REQUIRE(p->pool.release_returnable(0));  // the records of blocks with a size are unused now
  REQUIRE(p->allocate_in_group(4 * kMiB, 7) != 0);
  leave_groups(*p);
  const int obtained = p->source.obtained;
  CHECK(p->allocate(30 * kMiB) != 0);
  CHECK(p->allocate(5 * kMiB) != 0);
  CHECK(p->source.obtained == obtained);
  CHECK(p->ledger.sizes_forgotten.get() == 0);
}

TEST_CASE("groups of many threads, with frees by others") {
  const StrategyKind kind = GENERATE(StrategyKind::on_demand, StrategyKind::legacy);
  auto p = grouped(kind, 4, 0, 1 << 20);
  constexpr unsigned kThreads = 8;
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<uint64_t> live;
      for (int i = 0; i < 3000; ++i) {
        if (live.size() < 50 && random() % 2 == 0) {
          uint64_t a = 0;
          const uint64_t bytes = 1 + random() % 40000;
          const int code = p->pool.allocate_in_group(
              bytes, t, {t, static_cast<uint32_t>(1 + random() % 4)}, {}, &a);
          if (code != kSuccess) ++failed;
          live.push_back(a);
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          int code;
          Chunk* chunk = p->shared.index.find(live.back());
          if (p->pool.free(chunk, live.back(), &code) != Freed::done) ++failed;
          live.pop_back();
        }
      }
      for (const uint64_t a : live) {
        int code;
        if (p->pool.free(p->shared.index.find(a), a, &code) != Freed::done) ++failed;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failed == 0);
  CHECK(p->pool.usage().live == 0);
}

TEST_CASE("what the driver rounded a chunk up to is told as free when only room is left in it") {
  auto p = grouped(StrategyKind::auto_growth, 3);
  constexpr uint64_t kBytes = 3 * kMiB / 2;
  const uint64_t pages = FakeSource::charged(3 * kBytes);
  p->source.may_take_clean = true;
  const uint64_t a = p->allocate_in_group(kBytes, 7);
  REQUIRE(p->source.asked == Sizes{3 * kBytes});
  REQUIRE(p->free(a) == Freed::done);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == pages);
  const uint64_t b = p->allocate_in_group(kBytes, 7);
  CHECK(p->pool.returnable_bytes() < pages);
  REQUIRE(p->free(b) == Freed::done);
  p->synchronise();
  CHECK(p->pool.returnable_bytes() == pages);
  CHECK(p->pool.release_returnable(/*patience_ns=*/0));
  CHECK(p->pool.returnable_bytes() == 0);
}

}  // namespace groups_test
