// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/reclaim.h"

#include <catch2/catch.hpp>
#include <memory>

#include "tests/unit/allocator/fake_source.h"

using namespace cistern::alloc;
using cistern::test::FakeSource;

namespace {

struct OneContext {
  OneContext() { source.passed_mark = 0; }
  FakeSource source;
  std::unique_ptr<Reclaim> reclaim = std::make_unique<Reclaim>();
  Timeline* timeline = reclaim->join(&source);
};

}  // namespace

TEST_CASE("without any context everything is clean") {
  Reclaim reclaim;
  CHECK(reclaim.clean() >= reclaim.stamp());
}

TEST_CASE("what is freed after a context appeared is not clean by itself") {
  OneContext c;
  CHECK(c.reclaim->clean() < c.reclaim->stamp());
}

TEST_CASE("a mark covers what was freed before it and nothing after it") {
  OneContext c;
  const Ticket before = c.reclaim->stamp();
  REQUIRE(c.reclaim->mark(before));
  const Ticket after = c.reclaim->stamp();
  CHECK(after > before);
  CHECK_FALSE(c.reclaim->poll());
  c.source.passed_mark = 1;
  CHECK(c.reclaim->poll());
  CHECK(c.reclaim->clean() >= before);
  CHECK(c.reclaim->clean() < after);
}

TEST_CASE("what is marked already is not marked again") {
  OneContext c;
  const Ticket t = c.reclaim->stamp();
  c.reclaim->mark(t);
  c.reclaim->mark(t);
  CHECK(c.source.last_mark == 1);
}

TEST_CASE("a later synchronisation also covers what an earlier mark was for") {
  OneContext c;
  const Ticket t = c.reclaim->stamp();
  c.reclaim->mark(t);
  c.reclaim->passed(c.timeline, c.reclaim->close());
  CHECK(c.reclaim->clean() >= t);
}

TEST_CASE("an event that fails proves nothing") {
  OneContext c;
  const Ticket t = c.reclaim->stamp();
  c.reclaim->mark(t);
  c.source.fail_query = true;
  c.reclaim->poll();
  CHECK(c.reclaim->clean() < t);
}

TEST_CASE("with no room for one more the newest mark gives way, but not to one that fails") {
  OneContext c;
  Ticket last = 0;
  for (int i = 0; i < Timeline::kMarks; ++i) {
    last = c.reclaim->stamp();
    REQUIRE(c.reclaim->mark(last));
  }
  const Ticket later = c.reclaim->stamp();
  SECTION("it covers what the other did") {
    REQUIRE(c.reclaim->mark(later));
    c.source.passed_mark = c.source.last_mark;
    c.reclaim->poll();
    CHECK(c.reclaim->clean() >= later);
  }
  SECTION("one that fails leaves the other") {
    c.source.capturing = true;
    CHECK_FALSE(c.reclaim->mark(later));
    c.source.capturing = false;
    REQUIRE(c.reclaim->mark(last));
    c.source.passed_mark = c.source.last_mark;
    c.reclaim->poll();
    CHECK(c.reclaim->clean() >= last);
    CHECK(c.reclaim->clean() < later);
  }
}

TEST_CASE("a context that cannot be marked keeps everything waiting") {
  OneContext c;
  c.source.capturing = true;
  const Ticket t = c.reclaim->stamp();
  CHECK_FALSE(c.reclaim->mark(t));
  c.source.capturing = false;
  CHECK(c.reclaim->mark(t));
}

TEST_CASE("a context that appears does not hold back what was freed before it") {
  OneContext c;
  const Ticket t = c.reclaim->stamp();
  FakeSource second;
  c.reclaim->join(&second);
  c.reclaim->passed(c.timeline, c.reclaim->close());
  CHECK(c.reclaim->clean() >= t);
}

TEST_CASE("after an event that failed the next one may succeed") {
  OneContext c;
  const Ticket t = c.reclaim->stamp();
  c.reclaim->mark(t);
  c.source.fail_query = true;
  c.reclaim->poll();
  c.source.fail_query = false;
  c.source.passed_mark = ~Mark{0};
  c.reclaim->mark(t);
  c.reclaim->poll();
  CHECK(c.source.last_mark == 2);
  CHECK(c.reclaim->clean() >= t);
}

TEST_CASE("a wait ends with the work or with its limit") {
  OneContext c;
  const Ticket t = c.reclaim->stamp();
  c.reclaim->mark(t);
  CHECK_FALSE(c.reclaim->wait(t, 1'000'000));
  c.source.passed_mark = 1;
  CHECK(c.reclaim->wait(t, 1'000'000'000));
}

TEST_CASE("with more contexts than can be followed nothing becomes clean") {
  OneContext c;
  auto many = std::make_unique<FakeSource[]>(Reclaim::kMaxContexts);
  for (int i = 1; i < Reclaim::kMaxContexts; ++i) REQUIRE(c.reclaim->join(&many[i]) != nullptr);
  CHECK(c.reclaim->join(&many[0]) == nullptr);
  const Ticket t = c.reclaim->stamp();
  c.source.passed_mark = ~Mark{0};
  c.reclaim->mark(t);
  c.reclaim->poll();
  CHECK(c.reclaim->clean() < t);
}

TEST_CASE("marks that go with their context leave the count of those to be asked right") {
  OneContext c;
  FakeSource ending;
  ending.passed_mark = 0;
  Timeline* gone = c.reclaim->join(&ending);
  for (int i = 0; i < Timeline::kMarks + 2; ++i) REQUIRE(c.reclaim->mark(c.reclaim->stamp()));
  c.reclaim->leave(gone);
  c.source.passed_mark = c.source.last_mark;
  CHECK(c.reclaim->poll());
  const Ticket later = c.reclaim->stamp();
  REQUIRE(c.reclaim->mark(later));
  CHECK_FALSE(c.reclaim->poll());
  c.source.passed_mark = c.source.last_mark;
  CHECK(c.reclaim->poll());
  CHECK(c.reclaim->clean() >= later);
}
