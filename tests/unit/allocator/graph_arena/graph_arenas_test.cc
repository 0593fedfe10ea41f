// SPDX-License-Identifier: Apache-2.0
// Arenas of graphs, seen through the pool: how much they take, when they are taken anew, and what
// stays out of them. A graph is a number here, and so is its run.
#include "allocator/graph_arena/graph_arenas.h"

#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/graph_arena/random_graphs.h"

namespace graph_arenas_test {

using namespace cistern::alloc;
using namespace cistern::test;

TEST_CASE("graphs that run one after the other share an arena as large as the largest") {
  auto p = arenas();
  uint32_t number = 1;
  for (int round = 0; round < 2; ++round) {
    run(*p, number++, kSmall, 3);
    run(*p, number++, kLarge, 8);
  }
  CHECK(p->ledger.arena_bytes.get() == 32 * kMiB);
  CHECK(p->source.held() == 32 * kMiB);
  CHECK(p->ledger.graphs.get() == 2);
  CHECK(p->ledger.graph_bytes.get() == 44 * kMiB);
  const int obtained = p->source.obtained;
  for (int round = 0; round < 10; ++round) {
    run(*p, number++, kSmall, 3);
    run(*p, number++, kLarge, 8);
  }
  CHECK(p->source.obtained == obtained);
  CHECK(p->ledger.arena_peak.get() == 32 * kMiB);
}

TEST_CASE("where the coming graph is known to need more, the arena goes first and is taken once") {
  auto p = arenas(/*capacity_mib=*/40);
  for (const uint32_t number : {1u, 2u}) run(*p, number, kSmall, 2);
  REQUIRE(p->source.held() == 8 * kMiB);
  run(*p, 3, kLarge, 8);
  p->source.asked.clear();
  run(*p, 4, kLarge, 8);
  CHECK(p->source.asked == Sizes{32 * kMiB});
  CHECK(p->source.held() == 32 * kMiB);
  CHECK(p->ledger.arenas_taken.get() == 2);
}

TEST_CASE("with gathered fills arenas fold and are shared as without, in one fill each") {
  auto p = arenas(4096, 0, 0, FillMode::gathered);
  uint32_t number = 1;
  for (int round = 0; round < 3; ++round) {
    run(*p, number++, kSmall, 10);
    run(*p, number++, kLarge, 15);
  }
  CHECK(p->ledger.arena_bytes.get() == 60 * kMiB);
  CHECK(p->source.held() == 60 * kMiB);
  run(*p, number++, kSmall, 20);
  p->source.filled.clear();
  run(*p, number++, kSmall, 20);
  CHECK(p->source.held() == 80 * kMiB);
  REQUIRE(p->source.filled.size() == 1);
  CHECK(p->source.filled[0].bytes == 80 * kMiB);
  run(*p, number++, kSmall, 20);
  REQUIRE(p->source.filled.size() == 2);
  CHECK(p->source.filled[1].bytes == 80 * kMiB);  // what was freed, as one run
}

TEST_CASE("with gathered fills what goes at a synchronisation goes, too") {
  auto p = arenas(4096, 0, 0, FillMode::gathered);
  run(*p, 1, kLarge, 8);
  p->source.passed_mark = 0;  // work goes on
  for (const uint32_t number : {2u, 3u}) {
    p->source.open_graphs = {number};
    REQUIRE(p->free(p->allocate_in_graph(4 * kMiB, number, kLarge)) == Freed::done);
  }
  p->source.passed_mark = ~Mark{0};
  p->source.open_graphs.clear();
  p->synchronise();
  p->pool.release_excess();
  run(*p, 4, kLarge, 8);
  CHECK(p->source.held() == 32 * kMiB);
}

TEST_CASE("a graph that outgrows what it needed takes increments, and the next run one arena") {
  auto p = arenas();
  run(*p, 1, kSmall, 4);
  run(*p, 2, kSmall, 4);
  const uint64_t increments = p->ledger.arena_increments.get();
  run(*p, 3, kSmall, 7);
  CHECK(p->ledger.arena_increments.get() == increments + 3);
  p->source.asked.clear();
  run(*p, 4, kSmall, 7);
  CHECK(p->source.asked == Sizes{28 * kMiB});
  CHECK(p->source.held() == 28 * kMiB);
  run(*p, 5, kSmall, 7);
  CHECK(p->source.asked.size() == 1);
}

TEST_CASE("a run that finds another one open gets an arena of its own") {
  auto p = arenas();
  run(*p, 1, kSmall, 2);
  p->source.open_graphs = {2, 3};
  const uint64_t a = p->allocate_in_graph(4 * kMiB, 2, kSmall);
  CHECK(p->source.overlaps == 0);
  const uint64_t b = p->allocate_in_graph(4 * kMiB, 3, kOther);
  CHECK(p->source.overlaps == 1);
  CHECK(p->ledger.graphs_apart.get() == 1);
  CHECK(p->shared.index.find(a)->at().shard() != p->shared.index.find(b)->at().shard());
  const uint64_t c = p->allocate_in_graph(4 * kMiB, 3, kOther);
  CHECK(p->source.overlaps == 1);
  p->source.open_graphs.clear();
  for (const uint64_t address : {a, b, c}) REQUIRE(p->free(address) == Freed::done);
  p->synchronise();
  run(*p, 4, kOther, 2);
  CHECK(p->ledger.graphs_apart.get() == 1);
}

TEST_CASE("a request of a run that has just ended is served outside, and overlaps nothing") {
  auto p = arenas();
  run(*p, 1, kSmall, 2);
  p->source.open_graphs = {3};
  REQUIRE(p->allocate_in_graph(4 * kMiB, 3, kSmall) != 0);
  const uint64_t late = p->allocate_in_graph(4 * kMiB, 2, kSmall);
  CHECK(p->shared.index.find(late)->is() == Role::whole);
  CHECK(p->source.overlaps == 0);
}

TEST_CASE("a known graph that meets work under way needs what the arena came to") {
  auto p = arenas();
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
  p->source.asked.clear();
  run(*p, 4, kSmall, 1);
  CHECK(p->source.asked == Sizes{16 * kMiB});
}

TEST_CASE("what is parked when a run ends was needed by it, and is not in use") {
  auto p = arenas();
  GraphLives& captured = p->shared.reclaim.graphs();
  p->source.open_graphs = {1};
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(p->allocate_in_graph(4 * kMiB, 1, kSmall));
  captured.capturing(captured.begin(), 0);
  for (const uint64_t address : blocks) REQUIRE(p->free(address) == Freed::done);
  REQUIRE(p->pool.usage().parked == 16 * kMiB);
  p->source.open_graphs = {2};
  REQUIRE(p->allocate_in_graph(4 * kMiB, 2, kOther) != 0);
  CHECK(p->ledger.graph_bytes.get() == 16 * kMiB);
}

TEST_CASE("a graph that is not known yet keeps the arena as it is") {
  auto p = arenas();
  run(*p, 1, kSmall, 3);
  const int released = p->source.released;
  run(*p, 2, kLarge, 3);
  CHECK(p->source.released == released);
  CHECK(p->source.held() == 12 * kMiB);
}

TEST_CASE("an arena is not taken apart while its graph runs, and is kept when it is idle") {
  auto p = arenas();
  run(*p, 1, kLarge, 40);
  p->source.may_take_clean = false;
  p->source.open_graphs = {2};
  const uint64_t a = p->allocate_in_graph(4 * kMiB, 2, kLarge);
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->source.held() == 160 * kMiB);
  REQUIRE(p->free(a) == Freed::done);
  p->source.open_graphs.clear();
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->source.held() == 0);
  run(*p, 3, kLarge, 40);
  REQUIRE(p->free(p->allocate(40 * kMiB)) == Freed::done);
  p->synchronise();
  p->pool.release_excess();
  CHECK(p->source.held() == 200 * kMiB);
}

TEST_CASE("more graphs at once than there are arenas are served without one") {
  auto p = arenas();
  std::vector<uint64_t> live;
  for (uint32_t number = 1; number <= 6; ++number) {
    p->source.open_graphs.insert(number);
    live.push_back(p->allocate_in_graph(4 * kMiB, number, number));
    REQUIRE(live.back() != 0);
  }
  CHECK(p->shared.index.find(live[3])->is() == Role::split);
  CHECK(p->shared.index.find(live[4])->is() == Role::whole);
}

TEST_CASE("what is not clean when a graph begins stays, and goes at the next synchronisation") {
  auto p = arenas();
  run(*p, 1, kLarge, 8);
  p->source.passed_mark = 0;  // work goes on
  p->source.open_graphs = {2};
  std::vector<uint64_t> live;
  for (int i = 0; i < 2; ++i) live.push_back(p->allocate_in_graph(4 * kMiB, 2, kLarge));
  for (const uint64_t address : live) REQUIRE(p->free(address) == Freed::done);
  p->source.open_graphs = {3};
  const int released = p->source.released;
  const uint64_t a = p->allocate_in_graph(4 * kMiB, 3, kLarge);
  REQUIRE(p->free(a) == Freed::done);
  CHECK(p->source.released == released);
  p->source.passed_mark = ~Mark{0};
  p->source.open_graphs.clear();
  p->synchronise();
  p->pool.release_excess();
  run(*p, 4, kLarge, 8);
  CHECK(p->source.held() == 32 * kMiB);
  CHECK(p->ledger.arena_bytes.get() == 32 * kMiB);
}

TEST_CASE(
    "an arena that its run has taken anew stays, also where a synchronisation finds it empty") {
  auto p = arenas();
  run(*p, 1, kLarge, 8);
  p->source.asked.clear();
  p->source.open_graphs = {2};
  for (int step = 0; step < 3; ++step) {
    std::vector<uint64_t> live;
    for (int i = 0; i < 8; ++i) live.push_back(p->allocate_in_graph(4 * kMiB, 2, kLarge));
    for (const uint64_t address : live) REQUIRE(p->free(address) == Freed::done);
    p->synchronise();
    p->pool.release_excess();
  }
  CHECK(p->source.asked == Sizes{32 * kMiB});
  CHECK(p->source.held() == 32 * kMiB);
  CHECK(p->ledger.arenas_taken.get() == 1);
}

TEST_CASE("what went back for want of memory is no arena's any more") {
  auto p = arenas();
  run(*p, 1, kLarge, 8);
  REQUIRE(p->ledger.arena_bytes.get() == 32 * kMiB);
  REQUIRE(p->pool.release_returnable(0));
  CHECK(p->source.held() == 0);
  CHECK(p->ledger.arena_bytes.get() == 0);
}

TEST_CASE("of an arena that is clean in part nothing goes back") {
  auto p = arenas();
  p->source.open_graphs = {1};
  std::vector<uint64_t> live;
  for (int i = 0; i < 3; ++i) live.push_back(p->allocate_in_graph(4 * kMiB, 1, kSmall));
  for (int i = 0; i < 2; ++i) REQUIRE(p->free(live[static_cast<size_t>(i)]) == Freed::done);
  p->synchronise();
  p->source.passed_mark = 0;  // work goes on
  REQUIRE(p->free(live[2]) == Freed::done);
  p->source.open_graphs = {2};
  const int obtained = p->source.obtained, released = p->source.released;
  for (int i = 0; i < 2; ++i) REQUIRE(p->allocate_in_graph(4 * kMiB, 2, kSmall) != 0);
  CHECK(p->source.obtained == obtained);
  CHECK(p->source.released == released);
}

TEST_CASE("the settings say what an arena takes at first, and its step") {
  auto p = arenas(4096, /*first_mib=*/64, /*later_mib=*/16);
  run(*p, 1, kSmall, 3);
  CHECK(p->source.asked == Sizes{64 * kMiB});
  run(*p, 2, kSmall, 17);
  CHECK(p->source.asked == Sizes{64 * kMiB, 16 * kMiB});
}

TEST_CASE("memory is not out for want of an arena at its size") {
  auto p = arenas(/*capacity_mib=*/64);
  run(*p, 1, kLarge, 12);
  REQUIRE(p->pool.release_freed());
  uint64_t outside = p->allocate(20 * kMiB);
  REQUIRE(outside != 0);
  run(*p, 2, kLarge, 11);  // 48 MiB are not to be had, 44 are
  REQUIRE(p->free(outside) == Freed::done);
}

TEST_CASE("a request in no graph is the default strategy's") {
  auto p = arenas();
  run(*p, 1, kSmall, 2);
  const uint64_t a = p->allocate_in_graph(4 * kMiB, 0, 0);
  CHECK(p->shared.index.find(a)->is() == Role::whole);
  CHECK(p->shared.index.find(p->allocate(700))->is() == Role::slab);
}

TEST_CASE("under another strategy a graph's request is as any other") {
  Pool p(64 * kMiB);
  p.source.open_graphs = {1};
  const uint64_t a = p.allocate_in_graph(4 * kMiB, 1, kSmall);
  CHECK(p.shared.index.find(a)->is() == Role::whole);
}

TEST_CASE("bytes, counts and arenas go with their context") {
  auto p = arenas();
  run(*p, 1, kSmall, 2);
  run(*p, 2, kSmall, 2);
  p->pool.forget_all();
  CHECK(p->ledger.arena_bytes.get() == 0);
  CHECK(p->ledger.reserved.get() == 0);
  p->init();
  p->source.asked.clear();
  run(*p, 3, kSmall, 2);
  CHECK(p->source.asked == Sizes{4 * kMiB, 4 * kMiB});
  CHECK(p->ledger.arena_bytes.get() == 8 * kMiB);
}

TEST_CASE("random graphs on several threads: no two live blocks overlap, nothing is lost") {
  auto p = arenas();
  CHECK(RandomGraphs(*p).run(4));
  CHECK(p->pool.usage().live == 0);
  p->synchronise();
  CHECK(p->pool.release_freed());
  CHECK(p->source.held() == 0);
}

TEST_CASE("a forked child begins runs of graphs, though another thread was about to") {
  auto p = arenas();
  CHECK(child_begins_a_run(*p));
}

}  // namespace graph_arenas_test
