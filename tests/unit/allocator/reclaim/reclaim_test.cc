// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/reclaim.h"

#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace reclaim_test {

using namespace cistern::alloc;
using cistern::test::FakeSource;

namespace {

struct OneContext {
  OneContext() {
    source.passed_mark = 0;
    reclaim->join(0, &source);
  }
  FakeSource source;
  std::unique_ptr<Reclaim> reclaim = std::make_unique<Reclaim>();
};

// Counts the marks that it was not told to forget.
struct CountingSource : FakeSource {
  bool mark(Mark* out) override {
    outstanding += FakeSource::mark(out) ? 1 : 0;
    return true;
  }
  void forget(Mark) override { --outstanding; }
  int outstanding = 0;
};

}  // namespace

TEST_CASE("without any context everything is clean") {
  Reclaim reclaim;
  CHECK(reclaim.clean(0) >= reclaim.stamp(0));
}

TEST_CASE("what is freed after a context appeared is not clean by itself") {
  OneContext c;
  CHECK(c.reclaim->clean(0) < c.reclaim->stamp(0));
}

TEST_CASE("a mark covers what was freed before it and nothing after it") {
  OneContext c;
  const Ticket before = c.reclaim->stamp(0);
  REQUIRE(c.reclaim->mark(0, before));
  const Ticket after = c.reclaim->stamp(0);
  CHECK(after > before);
  CHECK_FALSE(c.reclaim->poll(0));
  c.source.passed_mark = 1;
  CHECK(c.reclaim->poll(0));
  CHECK(c.reclaim->clean(0) >= before);
  CHECK(c.reclaim->clean(0) < after);
}

TEST_CASE("what is marked already is not marked again") {
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  c.reclaim->mark(0, t);
  c.reclaim->mark(0, t);
  CHECK(c.source.last_mark == 1);
}

TEST_CASE("a later synchronisation also covers what an earlier mark was for") {
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  c.reclaim->mark(0, t);
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(0) >= t);
}

TEST_CASE("an event that fails proves nothing") {
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  c.reclaim->mark(0, t);
  c.source.fail_query = true;
  c.reclaim->poll(0);
  CHECK(c.reclaim->clean(0) < t);
}

TEST_CASE("with no room for one more the newest mark gives way, but not to one that fails") {
  OneContext c;
  Ticket last = 0;
  for (int i = 0; i < FakeSource::kMostMarks; ++i) {
    last = c.reclaim->stamp(0);
    REQUIRE(c.reclaim->mark(0, last));
  }
  const Ticket later = c.reclaim->stamp(0);
  SECTION("it covers what the other did") {
    REQUIRE(c.reclaim->mark(0, later));
    c.source.passed_mark = c.source.last_mark;
    c.reclaim->poll(0);
    CHECK(c.reclaim->clean(0) >= later);
  }
  SECTION("one that fails leaves the other") {
    c.source.capturing = true;
    CHECK_FALSE(c.reclaim->mark(0, later));
    c.source.capturing = false;
    REQUIRE(c.reclaim->mark(0, last));
    c.source.passed_mark = c.source.last_mark;
    c.reclaim->poll(0);
    CHECK(c.reclaim->clean(0) >= last);
    CHECK(c.reclaim->clean(0) < later);
  }
}

TEST_CASE("no more marks are outstanding than a source may have, and the old ones still pass") {
  CountingSource source;
  source.passed_mark = 0;
  auto reclaim = std::make_unique<Reclaim>();
  reclaim->join(0, &source);
  std::vector<Ticket> freed;
  for (int i = 0; i < 2 * FakeSource::kMostMarks; ++i) {
    freed.push_back(reclaim->stamp(0));
    REQUIRE(reclaim->mark(0, freed.back()));
    REQUIRE(source.outstanding <= FakeSource::kMostMarks);
  }
  CHECK(source.outstanding == FakeSource::kMostMarks);
  for (size_t i = 0; i + 1 < FakeSource::kMostMarks; ++i) {
    source.passed_mark = i + 1;
    reclaim->poll(0);
    REQUIRE(reclaim->clean(0) == freed[i]);
  }
  source.passed_mark = source.last_mark;
  reclaim->poll(0);
  CHECK(reclaim->clean(0) == freed.back());
  CHECK(source.outstanding == 0);
}

TEST_CASE("a context that cannot be marked keeps everything waiting") {
  OneContext c;
  c.source.capturing = true;
  const Ticket t = c.reclaim->stamp(0);
  CHECK_FALSE(c.reclaim->mark(0, t));
  c.source.capturing = false;
  CHECK(c.reclaim->mark(0, t));
}

TEST_CASE("a context that appears does not hold back what was freed before it") {
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  FakeSource second;
  c.reclaim->join(1, &second);
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(0) >= t);
}

TEST_CASE("after an event that failed the next one may succeed") {
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  c.reclaim->mark(0, t);
  c.source.fail_query = true;
  c.reclaim->poll(0);
  c.source.fail_query = false;
  c.source.passed_mark = ~Mark{0};
  c.reclaim->mark(0, t);
  c.reclaim->poll(0);
  CHECK(c.source.last_mark == 2);
  CHECK(c.reclaim->clean(0) >= t);
}

TEST_CASE("a wait ends with the work or with its limit") {
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  c.reclaim->mark(0, t);
  CHECK_FALSE(c.reclaim->wait(0, t, 1'000'000));
  c.source.passed_mark = 1;
  CHECK(c.reclaim->wait(0, t, 1'000'000'000));
}

TEST_CASE("of the threads that wait for a context one asks, with pauses") {
  constexpr size_t kThreads = 16;
  OneContext c;
  const Ticket t = c.reclaim->stamp(0);
  REQUIRE(c.reclaim->mark(0, t));
  std::vector<std::thread> waiting;
  for (size_t i = 0; i < kThreads; ++i) {
    waiting.emplace_back([&] { c.reclaim->wait(0, t, 50'000'000); });
  }
  for (std::thread& thread : waiting) thread.join();
  // One makes fewer than a hundred; each of the others may ask when it takes over or gives up.
  CHECK(c.reclaim->queries_made() < 400);
}

TEST_CASE("marks that go with their context leave the count of those to be asked right") {
  OneContext c;
  FakeSource ending;
  ending.passed_mark = 0;
  c.reclaim->join(1, &ending);
  c.reclaim->reaches(0, 1, true);
  for (int i = 0; i < FakeSource::kMostMarks + 2; ++i)
    REQUIRE(c.reclaim->mark(0, c.reclaim->stamp(0)));
  c.reclaim->leave(1);
  c.source.passed_mark = c.source.last_mark;
  CHECK(c.reclaim->poll(0));
  const Ticket later = c.reclaim->stamp(0);
  REQUIRE(c.reclaim->mark(0, later));
  CHECK_FALSE(c.reclaim->poll(0));
  c.source.passed_mark = c.source.last_mark;
  CHECK(c.reclaim->poll(0));
  CHECK(c.reclaim->clean(0) >= later);
}

TEST_CASE("a context that has nothing to do with another does not delay it") {
  OneContext c;
  FakeSource other;
  other.passed_mark = 0;
  c.reclaim->join(1, &other);
  const Ticket t = c.reclaim->stamp(0);
  REQUIRE(c.reclaim->mark(0, t));
  CHECK(other.last_mark == 0);
  c.source.passed_mark = 1;
  CHECK(c.reclaim->poll(0));
  CHECK(c.reclaim->clean(0) >= t);
}

TEST_CASE("work that touched a context's memory ties until it is done") {
  OneContext c;
  FakeSource worker;
  worker.passed_mark = 0;
  c.reclaim->join(1, &worker);
  const Ticket before = c.reclaim->stamp(0);
  CHECK_FALSE(c.reclaim->unmarked(1));
  c.reclaim->touched(0, 1);
  CHECK(c.reclaim->unmarked(1));  // or its later work would keep the two tied
  const Ticket after = c.reclaim->stamp(0);
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(0) >= before);  // what was freed before, the work cannot touch
  CHECK(c.reclaim->clean(0) < after);
  SECTION("that is marked with it") {
    REQUIRE(c.reclaim->mark(0, after));
    CHECK(worker.last_mark == 1);
    worker.passed_mark = 1;
    CHECK(c.reclaim->poll(0));
    CHECK(c.reclaim->clean(0) >= after);
  }
  SECTION("or synchronised") {
    c.reclaim->passed(1, c.reclaim->close());
    CHECK(c.reclaim->clean(0) >= after);
  }
  SECTION("or ends with its context") {
    c.reclaim->leave(1);
    CHECK(c.reclaim->clean(0) >= after);
  }
  SECTION("and holds back nothing of later") {
    c.reclaim->passed(1, c.reclaim->close());
    const Ticket later = c.reclaim->stamp(0);
    c.reclaim->passed(0, c.reclaim->close());
    CHECK(c.reclaim->clean(0) >= later);
  }
}

TEST_CASE("a tie is over once the copies that made it are done, without a mark") {
  OneContext c;
  FakeSource worker;
  worker.passed_mark = 0;
  c.reclaim->join(1, &worker);
  c.reclaim->touched(0, 1);
  const Ticket freed = c.reclaim->stamp(0);
  const Ticket end = c.reclaim->close() + 1;
  c.reclaim->passed(0, c.reclaim->close());
  REQUIRE(c.reclaim->clean(0) < freed);
  SECTION("and no later ones") {
    c.reclaim->touched(0, 1);
    c.reclaim->copies_done(1, end);
    CHECK(c.reclaim->clean(0) < freed);
    c.reclaim->copies_done(1, c.reclaim->close() + 1);
  }
  SECTION("of this worker") {
    c.reclaim->copies_done(2, end);
    CHECK(c.reclaim->clean(0) < freed);
    c.reclaim->copies_done(1, end);
  }
  SECTION("but for those that were lost sight of, until a mark") {
    c.reclaim->only_marks_untie(1);
    c.reclaim->copies_done(1, end);
    CHECK(c.reclaim->clean(0) < freed);
    REQUIRE(c.reclaim->mark(0, freed));
    CHECK(worker.last_mark == 1);
    worker.passed_mark = 1;
    c.reclaim->poll(0);
  }
  SECTION("but not where peer access ended meanwhile") {
    c.reclaim->reaches(0, 1, true);
    c.reclaim->reaches(0, 1, false);
    c.reclaim->copies_done(1, c.reclaim->close() + 1);
    CHECK(c.reclaim->clean(0) < freed);
    c.reclaim->passed(1, c.reclaim->close());
  }
  CHECK(c.reclaim->clean(0) >= freed);
}

TEST_CASE("peer access ties until it is disabled, one way") {
  OneContext c;
  FakeSource peer;
  peer.passed_mark = 0;
  c.reclaim->join(1, &peer);
  c.reclaim->reaches(0, 1, true);
  const Ticket freed = c.reclaim->stamp(0);
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(0) < freed);
  const Ticket peers_own = c.reclaim->stamp(1);
  c.reclaim->passed(1, c.reclaim->close());
  CHECK(c.reclaim->clean(1) >= peers_own);
  CHECK(c.reclaim->clean(0) >= freed);
  c.reclaim->reaches(0, 1, false);
  const Ticket later = c.reclaim->stamp(0);
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(0) < later);  // the work under way when it was disabled
  c.reclaim->passed(1, c.reclaim->close());
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(0) >= later);
}

TEST_CASE("of a party without work only those count that it is tied to") {
  OneContext c;
  FakeSource none, other;
  other.passed_mark = 0;
  c.reclaim->join(1, &none);
  c.reclaim->reaches(1, 0, true);
  c.reclaim->has_no_work(1);
  const Ticket freed = c.reclaim->stamp(1);
  CHECK(c.reclaim->clean(1) < freed);
  SECTION("by a synchronisation") { c.reclaim->passed(0, c.reclaim->close()); }
  SECTION("by a mark, of the other's work alone") {
    REQUIRE(c.reclaim->mark_freed(1));
    CHECK_FALSE(c.reclaim->unmarked(1));
    CHECK(c.source.last_mark == 1);
    CHECK(none.last_mark == 0);
    c.source.passed_mark = 1;
    CHECK(c.reclaim->poll(1));
  }
  CHECK(c.reclaim->clean(1) >= freed);
  // One that comes later counts for what is freed from then on.
  c.reclaim->join(2, &other);
  c.reclaim->reaches(1, 2, true);
  const Ticket later = c.reclaim->stamp(1);
  c.reclaim->passed(0, c.reclaim->close());
  CHECK(c.reclaim->clean(1) < later);
  c.reclaim->passed(2, c.reclaim->close());
  CHECK(c.reclaim->clean(1) >= later);
}

TEST_CASE("what is freed is unmarked until a mark or a synchronisation covers it") {
  OneContext c;
  CHECK_FALSE(c.reclaim->any_unmarked());
  c.reclaim->stamp(0);
  CHECK(c.reclaim->any_unmarked());
  CHECK(c.reclaim->unmarked(0));
  SECTION("a mark") { REQUIRE(c.reclaim->mark_freed(0)); }
  SECTION("a synchronisation") { c.reclaim->passed(0, c.reclaim->close()); }
  CHECK_FALSE(c.reclaim->unmarked(0));
  c.reclaim->stamp(0);
  CHECK(c.reclaim->unmarked(0));
}

TEST_CASE("what stays unmarked when work goes on is late until it is clean") {
  OneContext c;
  c.reclaim->unmarked_is_late(0);
  CHECK_FALSE(c.reclaim->any_late(0));
  c.reclaim->stamp(0);
  CHECK_FALSE(c.reclaim->any_late(0));
  c.reclaim->unmarked_is_late(0);
  CHECK(c.reclaim->any_late(0));
  REQUIRE(c.reclaim->mark_freed(0));
  CHECK(c.reclaim->any_late(0));
  c.source.passed_mark = 1;
  c.reclaim->poll(0);
  CHECK_FALSE(c.reclaim->any_late(0));
}

}  // namespace reclaim_test
