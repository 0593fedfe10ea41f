// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context.h"

#include <atomic>
#include <thread>

#include "allocator/base/os.h"
#include "tests/catch.h"
#include "tests/unit/test_clock.h"

using namespace cistern::shim;
using cistern::test::kMs;
using cistern::test::until_someone_waits;
using cistern::test::wait_for_the_clock;

namespace {

constexpr CUdevice kDevice = 3;

bool release_may_end() { return PrimaryRelease(kDevice).may_end(); }

void retain(int times) {
  for (int i = 0; i < times; ++i) primary_retained(kDevice, reinterpret_cast<CUcontext>(8));
}

}  // namespace

TEST_CASE("of the releases of a primary context the last by count may end it") {
  CHECK(release_may_end());  // nothing was seen
  retain(3);
  CHECK(primary_of(kDevice) == reinterpret_cast<CUcontext>(8));
  CHECK_FALSE(release_may_end());
  CHECK_FALSE(release_may_end());
  CHECK(release_may_end());
  CHECK(release_may_end());
}

TEST_CASE("what retained a primary context before it ended counts no more") {
  retain(5);
  primary_ended(kDevice);
  retain(1);
  CHECK(release_may_end());
}

TEST_CASE("the last release of a primary context waits for those that began before") {
  const cistern::test::StoppedClock clock;
  retain(2);
  std::atomic<bool> began{false};
  std::thread last;
  {
    const PrimaryRelease spare(kDevice);
    REQUIRE_FALSE(spare.may_end());
    const uint64_t waits = test_clock_waits();
    last = std::thread([&] {
      wait_for_the_clock();
      began = release_may_end();
    });
    until_someone_waits(waits, [&] { return began.load(); });
    CHECK_FALSE(began);
    clock.move_ns(1000 * kMs);  // half of its patience
    test_clock_settle();
    CHECK_FALSE(began);
  }
  clock.move_ns(kMs);
  last.join();
  CHECK(began);
}

TEST_CASE("no device has no primary context") {
  primary_retained(-1, reinterpret_cast<CUcontext>(8));
  primary_ended(-1);
  CHECK(primary_of(-1) == nullptr);
  CHECK(PrimaryRelease(1000).may_end());
}
