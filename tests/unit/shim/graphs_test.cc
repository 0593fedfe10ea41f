// SPDX-License-Identifier: Apache-2.0
// Which blocks the process's graphs may hold, by what was captured, made and changed.
#include "shim/order/captures/graphs.h"

#include "tests/catch.h"
#include "tests/unit/shim/graph_blocks.h"

using namespace cistern::shim;
using namespace cistern::test;
using namespace cistern::test::graph_blocks;
using cistern::alloc::Epoch;

// --- what counts, and from when to when ---

TEST_CASE("a captured graph counts from the capture's beginning until it is destroyed") {
  const Graphs none;
  const Freed before;
  const Block early;
  const Epoch since = graph_begins();
  const Freed during;
  capture(graph(1), context(1), since);
  const Block late;
  CHECK_FALSE(before.held());
  CHECK(early.held());
  CHECK(during.held());
  CHECK_FALSE(late.held());
  GraphLeaving(graph(1)).destroyed();
  CHECK_FALSE(early.held());
}

TEST_CASE("a captured graph counts no more once its executable graph does") {
  const Graphs none;
  const Block block;
  capture(graph(1));
  const Block between;
  SECTION("instantiated") { graph_instantiated(exec(1), graph(1)); }
  SECTION("given to an update") { graph_updated(exec(1), graph(1)); }
  CHECK(block.held());
  CHECK(between.held());  // the executable graph was made later
  GraphLeaving(exec(1)).destroyed();
  CHECK_FALSE(block.held());
}

TEST_CASE("a graph built node by node counts from its creation, once it is instantiated") {
  const Graphs none;
  const Freed before;
  const Block early;
  create(graph(1));
  const Freed between;
  CHECK_FALSE(early.held());
  graph_instantiated(exec(1), graph(1));
  CHECK_FALSE(before.held());
  CHECK(early.held());
  CHECK(between.held());
  // It may be instantiated again, for another executable graph.
  const Block late;
  graph_instantiated(exec(2), graph(1));
  GraphLeaving(exec(1)).destroyed();
  CHECK(early.held());
  CHECK(late.held());
}

TEST_CASE("a graph never seen began with the process") {
  const Graphs none;
  const Freed long_ago;
  SECTION("instantiated") { graph_instantiated(exec(1), graph(1)); }
  SECTION("given to an update") { graph_updated(exec(1), graph(1)); }
  CHECK(long_ago.held());
}

TEST_CASE("an update holds what its own graph may, and no more what was held before") {
  const Graphs none;
  create(graph(1));
  const Freed first;
  graph_instantiated(exec(1), graph(1));
  create(graph(2));
  const Freed second;
  graph_updated(exec(1), graph(2));
  CHECK_FALSE(first.held());
  CHECK(second.held());
}

TEST_CASE("an edited executable graph may hold what is alive by then") {
  const Graphs none;
  create(graph(1));
  graph_instantiated(exec(1), graph(1));
  const Freed before;
  const Block late;
  CHECK_FALSE(late.held());
  graph_exec_edited(exec(1));
  CHECK(late.held());
  CHECK(before.held());  // freed after its beginning
  SECTION("one never seen, from the process's beginning") {
    GraphLeaving(exec(1)).destroyed();
    CHECK_FALSE(before.held());
    graph_exec_edited(exec(2));
    CHECK(before.held());
  }
}

// --- clones and children ---

TEST_CASE("a clone begins with its original, and counts if that does") {
  const Graphs none;
  const Freed before;
  const bool captured = GENERATE(true, false);
  captured ? capture(graph(1)) : create(graph(1));
  const Freed between;
  graph_cloned(graph(2), graph(1));
  GraphLeaving(graph(1)).destroyed();
  CHECK(between.held() == captured);
  graph_instantiated(exec(1), graph(2));
  CHECK(between.held());
  CHECK_FALSE(before.held());
}

TEST_CASE("the clone of a graph never seen began with the process") {
  const Graphs none;
  const Freed long_ago;
  graph_cloned(graph(2), graph(1));
  CHECK_FALSE(long_ago.held());
  graph_instantiated(exec(1), graph(2));
  CHECK(long_ago.held());
}

TEST_CASE("a graph with children begins with the oldest of them") {
  const Graphs none;
  const Freed before;
  create(graph(1));
  const Freed first;
  create(graph(2));
  const Freed second;
  create(graph(3));
  SECTION("of two") {
    child_added(graph(3), graph(1));
    child_added(graph(3), graph(2));
    graph_instantiated(exec(1), graph(3));
    CHECK(first.held());
    CHECK_FALSE(before.held());
  }
  SECTION("a younger child changes nothing") {
    child_added(graph(2), graph(3));
    graph_instantiated(exec(1), graph(2));
    CHECK(second.held());
    CHECK_FALSE(first.held());
  }
  SECTION("a child never seen") {
    child_added(graph(3), graph(9));
    graph_instantiated(exec(1), graph(3));
    CHECK(before.held());
  }
  SECTION("put into an executable graph") {
    graph_instantiated(exec(1), graph(3));
    CHECK_FALSE(first.held());
    graph_exec_edited(exec(1), graph(1));
    CHECK(first.held());
    CHECK_FALSE(before.held());
  }
}

TEST_CASE("what a captured child holds its parent holds from then on") {
  const Graphs none;
  create(graph(1));
  const Block block;
  capture(graph(2));
  child_added(graph(1), graph(2));
  GraphLeaving(graph(2)).destroyed();
  CHECK(block.held());
  graph_instantiated(exec(1), graph(1));
  GraphLeaving(exec(1)).destroyed();
  CHECK_FALSE(block.held());
  child_added(graph(9), graph(1));  // a parent never seen has no record to change
  CHECK_FALSE(block.held());
}

TEST_CASE("a capture into a graph makes that one count, from the earlier of both beginnings") {
  const Graphs none;
  const Freed before;
  create(graph(1));
  const Freed between;
  const Epoch since = graph_begins();
  capture(graph(1), context(1), since, /*into_graph=*/true);
  CHECK(between.held());
  CHECK_FALSE(before.held());
  // It is of no context in particular, as when it was created.
  graphs_of_context_gone(context(1));
  CHECK(between.held());
}

TEST_CASE("a capture into a part of a graph leaves the whole to be instantiated") {
  const Graphs none;
  const Block block;
  capture(graph(9), context(1), graph_begins(), /*into_graph=*/true);
  CHECK_FALSE(block.held());
}
