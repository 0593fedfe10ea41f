// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/cap.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace cap_test {

using cistern::alloc::Cap;

namespace {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

uint64_t charged_for(Cap::Weight weight) {
  Cap cap;
  cap.set_limit(uint64_t{1} << 50);
  REQUIRE(cap.charge(weight));
  return cap.charged();
}

}  // namespace

TEST_CASE("allocations of 1 MiB and more are charged in pages of 2 MiB") {
  CHECK(charged_for(Cap::alone(kMiB)) == 2 * kMiB);
  CHECK(charged_for(Cap::alone(2 * kMiB)) == 2 * kMiB);
  CHECK(charged_for(Cap::alone(2 * kMiB + 1)) == 4 * kMiB);
  CHECK(charged_for(Cap::alone(0)) == 0);
}

TEST_CASE("smaller allocations share pages, in granules of 512 bytes") {
  Cap cap;
  cap.set_limit(4 * kMiB);
  for (int i = 0; i < 32; ++i) REQUIRE(cap.charge(64 * kKiB - 1));
  CHECK(cap.charged() == 2 * kMiB);
  REQUIRE(cap.charge(1));
  CHECK(cap.charged() == 4 * kMiB);
  CHECK(cap.available(0) == 0);
  CHECK_FALSE(cap.charge(kMiB));
  CHECK(cap.charge(kMiB - 512));
  cap.refund(1);
  CHECK(cap.charged() == 4 * kMiB);
  cap.refund(kMiB - 512);
  CHECK(cap.charged() == 2 * kMiB);
}

TEST_CASE("a block takes at least the pages that it has to itself wherever it begins") {
  const auto to_itself = [](uint64_t begin, uint64_t bytes) {
    const uint64_t first = (begin + 2 * kMiB - 1) / (2 * kMiB), end = (begin + bytes) / (2 * kMiB);
    return end > first ? end - first : 0;
  };
  for (const uint64_t bytes : {uint64_t{1}, 512 * kKiB, 2 * kMiB, 2 * kMiB + 511, 4 * kMiB - 1024,
                               4 * kMiB - 512, 4 * kMiB, 5 * kMiB, 66 * kMiB}) {
    uint64_t least = UINT64_MAX;
    for (uint64_t begin = 0; begin < 2 * kMiB; begin += 512) {
      least = std::min(least, to_itself(begin, bytes));
    }
    CAPTURE(bytes);
    CHECK(charged_for(Cap::at_least(bytes)) == least * 2 * kMiB);
  }
}

TEST_CASE("what is available is whole pages, and idle memory counts") {
  Cap cap;
  cap.set_limit(11 * kMiB);
  CHECK(cap.available(0) == 10 * kMiB);
  REQUIRE(cap.charge(4 * kMiB));
  CHECK(cap.available(0) == 6 * kMiB);
  CHECK(cap.available(2 * kMiB) == 8 * kMiB);
  CHECK(cap.available(100 * kMiB) == 10 * kMiB);
  CHECK(cap.charge(cap.available(0)));
}

TEST_CASE("a weight is exchanged for another in one step") {
  Cap cap;
  cap.set_limit(10 * kMiB);
  REQUIRE(cap.charge(6 * kMiB));
  CHECK_FALSE(cap.exchange(Cap::alone(6 * kMiB), Cap::alone(12 * kMiB)));
  CHECK(cap.charged() == 6 * kMiB);
  CHECK(cap.exchange(Cap::alone(6 * kMiB), Cap::alone(10 * kMiB)));
  CHECK(cap.exchange(Cap::alone(10 * kMiB), Cap::alone(100)));
  CHECK(cap.charged() == 2 * kMiB);
}

TEST_CASE("sizes beyond any device are refused and change nothing") {
  Cap cap;
  cap.set_limit(uint64_t{1} << 40);
  for (const uint64_t bytes :
       {UINT64_MAX, UINT64_MAX - kMiB, uint64_t{1} << 60, uint64_t{1} << 41}) {
    CHECK_FALSE(cap.charge(bytes));
    CHECK_FALSE(cap.charge(Cap::at_least(bytes)));
  }
  CHECK(cap.charged() == 0);
}

TEST_CASE("without a limit nothing is charged and nothing refused") {
  Cap cap;
  CHECK(cap.charge(UINT64_MAX));
  cap.refund(UINT64_MAX);
  CHECK(cap.charged() == 0);
}

TEST_CASE("threads that race for the last bytes never pass the limit") {
  constexpr uint64_t kLimit = 20 * kMiB;
  Cap cap;
  cap.set_limit(kLimit);
  std::atomic<bool> stop{false};
  std::atomic<int> exceeded{0};
  std::thread watch([&] {
    while (!stop) exceeded += cap.charged() > kLimit ? 1 : 0;
  });
  const auto work = [&](uint64_t bytes) {
    for (int i = 0; i < 20'000; ++i) {
      const Cap::Weight weight = i % 2 == 0 ? Cap::alone(bytes) : Cap::at_least(bytes);
      if (!cap.charge(weight)) continue;
      exceeded += cap.charged() > kLimit ? 1 : 0;
      cap.refund(weight);
    }
  };
  std::vector<std::thread> threads;
  for (const uint64_t bytes : {700 * kKiB, 9 * kMiB, 6 * kMiB, 1000 * kKiB}) {
    threads.emplace_back(work, bytes);
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  watch.join();
  CHECK(exceeded == 0);
  CHECK(cap.charged() == 0);
}

}  // namespace cap_test
