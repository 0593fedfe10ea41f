// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/idle_release.h"

#include "tests/catch.h"

namespace recent_peak_test {

using cistern::alloc::RecentPeak;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

TEST_CASE("a peak counts for a second after it was last possible") {
  RecentPeak peak;
  peak.advance(5000 * kMs, 0);
  peak.note(100);
  peak.note(30);
  uint64_t now = 5000;
  for (; now < 6000; now += 50) {
    peak.advance(now * kMs, 10);
    CHECK(peak.get() == 100);
  }
  // The part with the peak ended at 5150 at the latest.
  for (; now <= 6300; now += 50) peak.advance(now * kMs, 10);
  CHECK(peak.get() == 10);
}

TEST_CASE("a part that nobody ended counts as of its end") {
  RecentPeak peak;
  peak.advance(1000 * kMs, 0);
  peak.note(100);
  peak.advance(9000 * kMs, 10);
  CHECK(peak.get() == 100);
  peak.advance(10'000 * kMs, 10);
  CHECK(peak.get() == 100);
  peak.advance(10'200 * kMs, 10);
  CHECK(peak.get() == 10);
}

TEST_CASE("a time before another thread's changes nothing") {
  RecentPeak peak;
  peak.note(1000);
  peak.advance(2000 * kMs, 0);
  peak.advance(1999 * kMs, 0);
  CHECK(peak.get() == 1000);
  peak.advance(2200 * kMs, 0);
  CHECK(peak.get() == 1000);
}

TEST_CASE("what is noted in the same part raises it") {
  RecentPeak peak;
  for (const uint64_t amount : {5, 3, 8, 7}) peak.note(amount);
  CHECK(peak.get() == 8);
  peak.reset();
  CHECK(peak.get() == 0);
}

}  // namespace recent_peak_test
