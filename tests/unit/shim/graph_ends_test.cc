// SPDX-License-Identifier: Apache-2.0
// Until when the process's graphs hold blocks: what ends with a destroyed graph, a context, a
// capture; many graphs, threads and forks.
#include <random>
#include <thread>
#include <vector>

#include "shim/order/captures/graphs.h"
#include "tests/catch.h"
#include "tests/unit/shim/forked.h"
#include "tests/unit/shim/graph_blocks.h"

using namespace cistern::shim;
using namespace cistern::test;
using namespace cistern::test::graph_blocks;
using cistern::alloc::Epoch;
using cistern::alloc::Ticket;

TEST_CASE("a graph that is about to be destroyed counts until it is") {
  const Graphs none;
  const Block block;
  capture(graph(1));
  {
    GraphLeaving leaving(graph(1));
    CHECK(block.held());
  }  // the driver refused
  CHECK(block.held());
  graph_instantiated(exec(1), graph(1));  // it is known as before
  {
    GraphLeaving leaving(exec(1));
    CHECK(block.held());
    leaving.destroyed();
    CHECK_FALSE(block.held());
  }
  GraphLeaving(exec(1)).destroyed();  // never seen, or gone
  CHECK_FALSE(block.held());
}

// The driver may give the handle to a new graph before the call that destroys the old one is back.
TEST_CASE("a handle given out anew while its graph is destroyed is the new graph's") {
  const Graphs none;
  const Block block;
  SECTION("of a graph") {
    capture(graph(1));
    GraphLeaving leaving(graph(1));
    const Epoch since = graph_begins();
    const Block late;
    capture(graph(1), context(2), since);
    leaving.destroyed();
    CHECK(late.held());
    GraphLeaving(graph(1)).destroyed();
    CHECK_FALSE(late.held());
  }
  SECTION("of an executable graph") {
    capture(graph(1));
    graph_instantiated(exec(1), graph(1));
    GraphLeaving leaving(exec(1));
    create(graph(2));
    const Block late;
    graph_instantiated(exec(1), graph(2));
    leaving.destroyed();
    CHECK(late.held());
  }
}

TEST_CASE("a handle whose graph ended out of sight is what was made of it last") {
  const Graphs none;
  capture(graph(1));
  create(graph(1));  // no capture, and later
  const Block block;
  CHECK_FALSE(block.held());
  graph_instantiated(exec(1), graph(1));
  create(graph(2));
  const Block late;
  graph_instantiated(exec(1), graph(2));
  GraphLeaving(exec(1)).destroyed();
  CHECK_FALSE(late.held());
  CHECK(lives().none());
}

// --- contexts ---

TEST_CASE("a context takes along the graphs captured in it, and what was made of them") {
  const Graphs none;
  const Block block;
  const bool instantiated = GENERATE(true, false), cloned = GENERATE(true, false);
  capture(graph(1), context(1));
  if (cloned) graph_cloned(graph(2), graph(1));
  if (cloned) GraphLeaving(graph(1)).destroyed();
  fakes().current = context(1);
  if (instantiated) graph_instantiated(exec(1), graph(cloned ? 2 : 1));
  graphs_of_context_gone(context(2));
  CHECK(block.held());
  graphs_of_context_gone(context(1));
  CHECK_FALSE(block.held());
}

TEST_CASE("a graph belongs to the context of its capture, wherever it is instantiated") {
  const Graphs none;
  const Block block;
  capture(graph(1), context(1));
  fakes().current = context(2);
  graph_instantiated(exec(1), graph(1));
  graphs_of_context_gone(context(2));
  CHECK(block.held());
  graphs_of_context_gone(context(1));
  CHECK_FALSE(block.held());
}

TEST_CASE("a graph built node by node is of no context, one never seen of that of its use") {
  const Graphs none;
  const Block block;
  const bool seen = GENERATE(true, false);
  if (seen) create(graph(1));
  fakes().current = context(2);
  graph_instantiated(exec(1), graph(1));
  graphs_of_context_gone(context(1));
  CHECK(block.held());
  graphs_of_context_gone(context(2));
  CHECK(block.held() == seen);
}

// --- captures in progress, launches ---

TEST_CASE("what is freed while something captures is parked, from the oldest capture on") {
  const Graphs none;
  const Freed before;
  CaptureGate& gate = capture_gate();
  gate.announce();
  const Epoch first = graph_begins();
  gate.began(stream(1), context(1), first);
  captures_changed();
  const Freed during;
  gate.announce();
  gate.began(stream(2), context(1), graph_begins());
  captures_changed();
  const Freed both;
  CHECK(during.held());
  CHECK_FALSE(before.held());
  gate.ended(stream(1));
  captures_changed();
  CHECK_FALSE(during.held());
  CHECK(both.held());
  SECTION("they end") {
    gate.ended(stream(2));
    captures_changed();
  }
  SECTION("they go with their context") {
    gate.context_gone(context(1));
    graphs_of_context_gone(context(1));
  }
  CHECK_FALSE(both.held());
}

TEST_CASE("a capture that is announced and not listed yet holds everything") {
  const Graphs none;
  const Freed before;
  capture_gate().announce();
  captures_changed();
  CHECK(before.held());
  capture_gate().withdraw();
  captures_changed();
  CHECK_FALSE(before.held());
}

TEST_CASE("what a graph held waits for its launches, not for what came after them") {
  const Graphs none;
  capture(graph(1));
  graph_instantiated(exec(1), graph(1));
  const Ticket launched = shared().reclaim.open();
  graph_launched();
  for (int i = 0; i < 5; ++i) shared().reclaim.close();
  GraphLeaving(exec(1)).destroyed();
  CHECK(lives().covers_gone() == launched);
  graph_launched();  // of another graph: that one may hold the same
  CHECK(lives().covers_gone() == launched);
  capture(graph(1));
  GraphLeaving(graph(1)).destroyed();
  CHECK(lives().covers_gone() == shared().reclaim.open());
}

// --- many, threads, forks ---

TEST_CASE("many graphs are found by their handles") {
  const Graphs none;
  constexpr uintptr_t kMany = 20'000;
  const Block block;
  for (uintptr_t n = 1; n <= kMany; ++n) capture(graph(n));
  for (uintptr_t n = 1; n <= kMany; ++n) graph_instantiated(exec(n), graph(n));
  for (uintptr_t n = kMany; n >= 1; --n) {
    REQUIRE(block.held());
    GraphLeaving(exec(n)).destroyed();
  }
  CHECK_FALSE(block.held());
  for (uintptr_t n = 1; n <= kMany; ++n) GraphLeaving(graph(n)).destroyed();
}

TEST_CASE("threads capture, make, change and destroy graphs, and nothing stays held") {
  const Graphs none;
  const auto work = [](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 5000; ++i) {
      const CUgraph one = graph(1 + random() % 8), other = graph(1 + random() % 8);
      const CUgraphExec made = exec(1 + random() % 8);
      switch (random() % 10) {
        case 0:
          capture(one, context(1 + random() % 2));
          break;
        case 1:
          create(one);
          break;
        case 2:
          graph_cloned(one, other);
          break;
        case 3:
          child_added(one, other);
          break;
        case 4:
          graph_instantiated(made, one);
          break;
        case 5:
          graph_updated(made, one);
          break;
        case 6:
          graph_exec_edited(made, random() % 2 == 0 ? one : nullptr);
          break;
        case 7:
          graph_launched();
          if (random() % 8 == 0) graphs_of_context_gone(context(1 + random() % 2));
          break;
        case 8:
          GraphLeaving(one).destroyed();
          break;
        default:
          GraphLeaving leaving(made);
          if (random() % 4 != 0) leaving.destroyed();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  // A refused destruction may have left two records with one handle.
  for (int i = 0; i < 20'000 && !lives().none(); ++i) {
    GraphLeaving(graph(1 + i % 8)).destroyed();
    GraphLeaving(exec(1 + i % 8)).destroyed();
  }
}

TEST_CASE("a forked child's graphs are free, whatever other threads held") {
  const Graphs none;
  const auto busy = [] {
    capture(graph(1));
    GraphLeaving(graph(1)).destroyed();
  };
  CHECK(children_that_fail(busy, [] {
          shared().reset_after_fork();
          reset_graphs_after_fork();
          const Block block;
          capture(graph(2));
          return block.held();
        }) == 0);
}
