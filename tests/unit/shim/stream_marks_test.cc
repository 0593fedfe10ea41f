// SPDX-License-Identifier: Apache-2.0
// Marks on drivers that record events for streams only: what they cover, and when they cannot be
// made.
#include "shim/order/streams/stream_marks.h"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "shim/order/captures/capture_gate.h"
#include "tests/catch.h"
#include "tests/unit/shim/fake_events.h"
#include "tests/unit/shim/fake_shim.h"

using namespace cistern::shim;
using cistern::alloc::Mark;
using cistern::alloc::MarkState;
using cistern::alloc::MemorySource;
using cistern::test::FakeEvents;
using cistern::test::fakes;

namespace {

constexpr size_t kMostEvents = 8192;  // of a context, for all its marks and last events

CUstream stream(uintptr_t n) { return reinterpret_cast<CUstream>(16 * n); }
CUcontext context(uintptr_t n) { return reinterpret_cast<CUcontext>(n); }

const CUcontext kOurs = context(7), kOther = context(8);

// The marks of a context that is not current, and the driver's events.
struct Marks {
  Marks() {
    fakes().current = kOther;
    marks->init(kOurs);
  }
  ~Marks() {
    CHECK(fakes().current == kOther);
    CHECK(events.stack.empty());
    for (const auto& event : events.all) {
      CHECK(event.owner == kOurs);
      CHECK((event.recorded_in == nullptr || event.recorded_in == kOurs));
    }
    for (CUcontext each : {kOurs, kOther}) streams().context_gone(each);
    while (!streams().complete()) streams().unlisted_gone();
  }

  StreamMarks* operator->() { return marks.get(); }

  void add(uintptr_t number, bool blocking = false, CUcontext of = kOurs) {
    streams().add({stream(number), of, blocking});
  }
  // 0: it cannot be made.
  Mark make() {
    Mark mark = 0;
    return marks->mark(&mark) ? mark : 0;
  }
  bool passed(Mark mark) { return marks->query(mark) == MarkState::passed; }

  FakeEvents events;
  std::unique_ptr<StreamMarks> marks = std::make_unique<StreamMarks>();
};

}  // namespace

// --- what a mark covers ---

TEST_CASE("a mark is an event on the legacy stream and on each non-blocking one of its context") {
  Marks marks;
  marks.add(1);
  marks.add(2, /*blocking=*/true);
  marks.add(3, false, kOther);
  marks.add(4);
  const Mark mark = marks.make();
  REQUIRE(mark != 0);
  CHECK(marks.events.recorded == std::vector<CUstream>{CU_STREAM_LEGACY, stream(1), stream(4)});
  std::vector<CUstream> order = marks.events.recorded;
  std::rotate(order.begin(), order.begin() + GENERATE(0, 1, 2), order.end());
  for (const CUstream each : order) {
    CHECK(marks->query(mark) == MarkState::pending);
    marks.events.pass(each);
  }
  CHECK(marks.passed(mark));
  CHECK(marks.passed(mark));  // and stays so
}

TEST_CASE("a mark one of whose events fails has failed") {
  Marks marks;
  marks.add(1);
  const Mark mark = marks.make();
  marks.events.pass_all();
  marks.events.set(GENERATE(CU_STREAM_LEGACY, stream(1)), FakeEvents::State::failed);
  CHECK(marks->query(mark) == MarkState::failed);
}

TEST_CASE("in its own context a mark changes none") {
  Marks marks;
  fakes().current = kOurs;
  CHECK(marks.make() != 0);
  CHECK(marks.events.stack.empty());
  fakes().current = kOther;
}

TEST_CASE("events are used again") {
  Marks marks;
  marks.add(1);
  for (int i = 0; i < 100; ++i) {
    const Mark mark = marks.make();
    REQUIRE(mark != 0);
    if (i % 2 == 0) marks.events.pass_all();
    if (i % 3 == 0) CHECK(marks.passed(mark) == (i % 2 == 0));
    marks->forget(mark);
  }
  CHECK(marks.events.all.size() == 2);
}

TEST_CASE("as many marks as a source may have outstanding, and one, can be made at a time") {
  Marks marks;
  std::vector<Mark> all;
  for (int i = 0; i <= MemorySource::kMostMarks; ++i) {
    all.push_back(marks.make());
    REQUIRE(all.back() != 0);
  }
  CHECK(std::set<Mark>(all.begin(), all.end()).size() == all.size());
  CHECK(marks.make() == 0);
  marks->forget(all[3]);
  CHECK(marks.make() == all[3]);
}

// --- streams that were destroyed ---

TEST_CASE("a mark waits for streams destroyed before it, and for none destroyed later") {
  Marks marks;
  const Mark before = marks.make();
  REQUIRE(marks->stream_leaves(stream(1)));
  const Mark between = marks.make();
  REQUIRE(marks->stream_leaves(stream(2)));
  const Mark after = marks.make();
  marks.events.pass(CU_STREAM_LEGACY);
  CHECK(marks.passed(before));
  CHECK_FALSE(marks.passed(between));
  marks.events.pass(stream(2));
  CHECK_FALSE(marks.passed(between));
  CHECK_FALSE(marks.passed(after));  // stream 1 goes on
  marks.events.pass(stream(1));
  CHECK(marks.passed(between));
  CHECK(marks.passed(after));
}

TEST_CASE("a last event that fails holds up the next mark as well") {
  Marks marks;
  REQUIRE(marks->stream_leaves(stream(1)));
  const Mark failed = marks.make();
  marks.events.pass(CU_STREAM_LEGACY);
  marks.events.set(stream(1), FakeEvents::State::failed);
  CHECK(marks->query(failed) == MarkState::failed);
  marks->forget(failed);
  const Mark next = marks.make();
  marks.events.pass(CU_STREAM_LEGACY);
  CHECK(marks->query(next) == MarkState::failed);
  marks.events.pass(stream(1));
  CHECK(marks.passed(next));
}

TEST_CASE("the queue of last events does not grow without marks") {
  Marks marks;
  for (uintptr_t n = 1; n <= 20'000; ++n) {
    REQUIRE(marks->stream_leaves(stream(n)));
    marks.events.pass(stream(n));
  }
  CHECK(marks.events.all.size() <= 2);
}

TEST_CASE("more streams than there are events can leave only once earlier ones are done") {
  Marks marks;
  for (uintptr_t n = 1; n <= kMostEvents; ++n) REQUIRE(marks->stream_leaves(stream(n)));
  CHECK_FALSE(marks->stream_leaves(stream(kMostEvents + 1)));
  CHECK(marks.make() == 0);
  CHECK(marks.events.all.size() == kMostEvents);
  marks.events.pass(stream(1));
  CHECK(marks->stream_leaves(stream(kMostEvents + 1)));
  CHECK_FALSE(marks->stream_leaves(stream(kMostEvents + 2)));
  marks.events.pass_all();
  CHECK(marks->stream_leaves(stream(1)));
  const Mark mark = marks.make();
  REQUIRE(mark != 0);
  marks.events.pass_all();
  CHECK(marks.passed(mark));
  CHECK(marks.events.all.size() == kMostEvents);
}

// --- what makes marks impossible ---

TEST_CASE("a mark that cannot be made whole leaves nothing behind") {
  Marks marks;
  marks.add(1);
  SECTION("an event is refused") { marks.events.refused = {stream(1)}; }
  SECTION("so is the first") { marks.events.refused = {CU_STREAM_LEGACY}; }
  SECTION("there is no further event") { marks.events.creations_left = 1; }
  SECTION("the context cannot be made current") { marks.events.push_fails = true; }
  for (int i = 0; i < 2 * MemorySource::kMostMarks; ++i) REQUIRE(marks.make() == 0);
  CHECK(marks.events.all.size() <= 2);
  marks.events.refused.clear();
  marks.events.push_fails = false;
  marks.events.creations_left = 2;
  const Mark mark = marks.make();
  REQUIRE(mark != 0);
  marks.events.pass_all();
  CHECK(marks.passed(mark));
}

TEST_CASE("a stream whose last event cannot be recorded is told as such") {
  Marks marks;
  SECTION("it is refused") { marks.events.refused = {stream(1)}; }
  SECTION("there is no event") { marks.events.creations_left = 0; }
  SECTION("the context cannot be made current") { marks.events.push_fails = true; }
  CHECK_FALSE(marks->stream_leaves(stream(1)));
  marks.events.push_fails = false;
  marks.events.creations_left = 1;
  const Mark mark = marks.make();
  REQUIRE(mark != 0);  // nothing was queued for it
  marks.events.pass_all();
  CHECK(marks.passed(mark));
}

TEST_CASE("a stream that is not listed makes marks impossible until it is gone, and waited for") {
  Marks marks;
  for (uintptr_t n = 1; n <= StreamRegistry::kMaxStreams + 1; ++n) marks.add(n, true, kOther);
  CHECK(marks.make() == 0);
  const uint64_t before = streams().losses();
  REQUIRE(streams().unlisted_gone());
  CHECK(marks.make() == 0);
  marks->synchronised(before);
  CHECK(marks.make() == 0);
  marks->synchronised(streams().losses());
  CHECK(marks.make() != 0);
  CHECK(marks.events.recorded.size() == 1);
}

TEST_CASE("a loss counts until the program has waited for the whole context since") {
  Marks marks;
  const uint64_t before = streams().losses();
  CHECK(marks->possible());
  streams().lose();
  CHECK_FALSE(marks->possible());
  CHECK(marks.make() == 0);
  marks->synchronised(before);  // a wait that had begun earlier
  CHECK_FALSE(marks->possible());
  CHECK(marks.make() == 0);
  marks->synchronised(before + 1);
  CHECK(marks->possible());
  CHECK(marks.make() != 0);
  marks->synchronised(before);  // two waits may end in either order
  CHECK(marks.make() != 0);
  streams().lose();
  CHECK(marks.make() == 0);
}

TEST_CASE("losses of before a context began are none of its own") {
  Marks marks;
  streams().lose();
  CHECK(marks.make() == 0);
  marks->init(kOurs);
  CHECK(marks.make() != 0);
}

TEST_CASE("while something captures, or when the process ends, the driver is not called") {
  Marks marks;
  REQUIRE(marks->stream_leaves(stream(1)));
  const Mark mark = marks.make();
  marks.events.pass_all();
  const int calls = marks.events.calls;
  const bool captures = GENERATE(true, false);
  if (captures) capture_gate().announce();
  fakes().may_call = captures;
  CHECK(marks.make() == 0);
  CHECK(marks->query(mark) == MarkState::pending);
  CHECK_FALSE(marks->stream_leaves(stream(2)));
  CHECK(marks.events.calls == calls);
  if (captures) capture_gate().withdraw();
  fakes().may_call = true;
  // What may not pop a context at the process's end leaves it on the stack.
  if (!captures) {
    fakes().current = kOther;
    marks.events.stack.clear();
  }
  CHECK(marks.passed(mark));
  CHECK(marks.make() != 0);
}

TEST_CASE("the next context of a slot begins without the events of the last one") {
  Marks marks;
  REQUIRE(marks->stream_leaves(stream(1)));
  REQUIRE(marks.make() != 0);
  const size_t created = marks.events.all.size();
  marks->init(kOurs);
  const Mark mark = marks.make();
  REQUIRE(mark != 0);
  CHECK(marks.events.all.size() == created + 1);
  marks.events.all.back().state = FakeEvents::State::passed;
  CHECK(marks.passed(mark));
}
