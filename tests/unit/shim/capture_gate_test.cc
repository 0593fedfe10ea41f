// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/capture_gate.h"

#include <atomic>
#include <memory>
#include <thread>
#include "tests/catch.h"

#include "allocator/reclaim/graph_lives.h"
#include "tests/unit/test_clock.h"

using cistern::shim::CaptureGate;
using cistern::test::kMs;

namespace {

CUstream stream(uintptr_t n) { return reinterpret_cast<CUstream>(n); }
CUcontext context(uintptr_t n) { return reinterpret_cast<CUcontext>(n); }

bool open(CaptureGate& gate) {
  const bool entered = gate.enter();
  if (entered) gate.leave();
  return entered && !gate.capturing();
}

void begin(CaptureGate& gate, uintptr_t stream_number, uintptr_t context_number) {
  gate.announce();
  gate.began(stream(stream_number), context(context_number));
}

}  // namespace

TEST_CASE("no call of ours is made from before a capture begins to its end") {
  CaptureGate& gate = cistern::shim::capture_gate();
  REQUIRE(open(gate));
  gate.announce();
  CHECK_FALSE(gate.enter());
  gate.began(stream(16), context(1));
  CHECK_FALSE(gate.enter());
  gate.ended(stream(16));
  CHECK(open(gate));
}

TEST_CASE("a capture that could not begin leaves the gate open") {
  CaptureGate& gate = cistern::shim::capture_gate();
  gate.announce();
  gate.withdraw();
  CHECK(open(gate));
}

TEST_CASE("the gate opens with the last capture, and the end of another stream means nothing") {
  CaptureGate& gate = cistern::shim::capture_gate();
  begin(gate, 16, 1);
  begin(gate, 32, 1);
  gate.ended(stream(48));
  gate.ended(stream(16));
  CHECK_FALSE(open(gate));
  gate.ended(stream(32));
  CHECK(open(gate));
}

TEST_CASE("the gate knows which streams capture") {
  CaptureGate& gate = cistern::shim::capture_gate();
  CHECK_FALSE(gate.capturing(stream(16)));
  begin(gate, 16, 1);
  CHECK(gate.capturing(stream(16)));
  CHECK_FALSE(gate.capturing(stream(32)));
  gate.ended(stream(16));
  CHECK_FALSE(gate.capturing(stream(16)));
}

TEST_CASE("a context takes its captures along and no others") {
  CaptureGate& gate = cistern::shim::capture_gate();
  begin(gate, 16, 1);
  begin(gate, 32, 1);
  begin(gate, 48, 2);
  gate.context_gone(context(1));
  CHECK_FALSE(open(gate));
  gate.context_gone(context(2));
  CHECK(open(gate));
}

TEST_CASE("a capture does not begin while a call of ours is under way") {
  CaptureGate& gate = cistern::shim::capture_gate();
  const cistern::test::StoppedClock clock;
  REQUIRE(gate.enter());
  std::atomic<bool> begun{false};
  const uint64_t waits = test_clock_waits();
  std::thread capturing([&] {
    cistern::test::wait_for_the_clock();
    gate.announce();
    begun = true;
  });
  cistern::test::until_someone_waits(waits, [&] { return begun.load(); });
  CHECK_FALSE(begun);
  clock.move_ns(100 * kMs);  // half of its patience
  test_clock_settle();
  CHECK_FALSE(begun);
  gate.leave();
  clock.move_ns(kMs);
  capturing.join();
  gate.withdraw();
  CHECK(open(gate));
}

TEST_CASE("a capture does not wait for ever for a call that may be waiting for it") {
  CaptureGate& gate = cistern::shim::capture_gate();
  REQUIRE(gate.enter());
  gate.announce();
  CHECK(gate.capturing());
  gate.leave();
  gate.withdraw();
  CHECK(open(gate));
}

// The per-thread default stream of each thread has one handle.
TEST_CASE("of captures with one handle the oldest is told, and the youngest taken to end first") {
  CaptureGate& gate = cistern::shim::capture_gate();
  const auto begin_at = [&](cistern::alloc::Epoch since, bool into_graph) {
    gate.announce();
    gate.began(stream(16), context(1), since, into_graph);
  };
  // In the order in which they are noted, which need not be that in which they began.
  const bool older_first = GENERATE(true, false);
  begin_at(older_first ? 5 : 9, !older_first);
  begin_at(older_first ? 9 : 5, older_first);
  begin(gate, 32, 1);  // of another handle, and older than all
  CHECK(gate.capture_of(stream(16)).since == 5);
  CHECK_FALSE(gate.capture_of(stream(16)).into_graph);
  gate.ended(stream(32));
  CHECK(gate.oldest() == 5);
  gate.ended(stream(16));
  CHECK(gate.oldest() == 5);
  CHECK(gate.capture_of(stream(16)).since == 5);
  CHECK(gate.capturing(stream(16)));
  gate.ended(stream(16));
  CHECK(gate.capture_of(stream(16)).stream == nullptr);
  CHECK(open(gate));
}

TEST_CASE("the oldest capture is told, everything where one is not listed yet") {
  using cistern::alloc::GraphLives;
  CaptureGate& gate = cistern::shim::capture_gate();
  CHECK(gate.oldest() == GraphLives::kEverything);
  gate.announce();
  CHECK(gate.oldest() == 0);
  gate.began(stream(16), context(1), 7);
  CHECK(gate.oldest() == 7);
  gate.ended(stream(16));
  CHECK(gate.oldest() == GraphLives::kEverything);
}

TEST_CASE("a capture that finds no room in the list keeps the gate closed") {
  const auto gate = std::make_unique<CaptureGate>();
  constexpr uintptr_t kListed = 1024;
  for (uintptr_t n = 1; n <= kListed + 1; ++n) begin(*gate, 16 * n, 1);
  gate->context_gone(context(1));
  CHECK_FALSE(open(*gate));
  CHECK(gate->oldest() == 0);
}
