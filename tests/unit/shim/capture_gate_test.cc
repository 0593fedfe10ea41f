// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/capture_gate.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

using cistern::shim::CaptureGate;

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
  REQUIRE(gate.enter());
  std::atomic<bool> begun{false};
  std::thread capturing([&] {
    gate.announce();
    begun = true;
  });
  while (!gate.capturing()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(begun);
  gate.leave();
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
