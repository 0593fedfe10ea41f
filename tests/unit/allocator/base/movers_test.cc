// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/threads.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace cistern::alloc::movers_test {
namespace {

constexpr uint64_t kShortNs = 2'000'000, kLongNs = 60'000'000'000;

TEST_CASE("movers: nobody is waited for where nobody moves anything", "[movers]") {
  Movers movers;
  CHECK(movers.now() == 0);
  CHECK(movers.await(0));
}

TEST_CASE("movers: one that is at it is waited for, wherever it was counted", "[movers]") {
  Movers movers;
  for (int turns = 0; turns < 4; ++turns) {
    std::optional<Movers::Moving> moving(movers);
    CHECK(movers.now() == 1);
    CHECK_FALSE(movers.await(kShortNs));
    moving.reset();
    CHECK(movers.await(0));
    CHECK(movers.begun() == static_cast<uint64_t>(turns) + 1);
  }
}

TEST_CASE("movers: those that come later are not waited for", "[movers]") {
  Movers movers;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::optional<Movers::Moving> first(movers);
      while (!over) {
        Movers::Moving next(movers);  // before the first one ends: never is nobody at it
        first.reset();
        first.emplace(movers);
      }
    });
  }
  for (int i = 0; i < 50; ++i) CHECK(movers.await(kLongNs));
  over = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("movers: all that were at it have ended, however many wait", "[movers]") {
  Movers movers;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> entered[4]{}, left[4]{};
  std::atomic<int> too_early{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      while (!over) {
        const Movers::Moving moving(movers);
        entered[i]++;
        left[i]++;
      }
    });
  }
  std::vector<std::thread> waiters;
  for (int w = 0; w < 3; ++w) {
    waiters.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        uint64_t before[4];
        for (int i = 0; i < 4; ++i) before[i] = entered[i];
        if (!movers.await(kLongNs)) ++too_early;
        for (int i = 0; i < 4; ++i) too_early += left[i] < before[i];
      }
    });
  }
  for (std::thread& waiter : waiters) waiter.join();
  over = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(too_early == 0);
}

}  // namespace
}  // namespace cistern::alloc::movers_test
