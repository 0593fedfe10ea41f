// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/chunk_pools.h"

#include <thread>
#include <vector>

#include "tests/catch.h"

namespace thread_numbers_test {

using namespace cistern::alloc;

TEST_CASE("a released thread number is the next one given") {
  ThreadNumbers numbers;
  for (unsigned i = 0; i < 100; ++i) CHECK(numbers.acquire() == i);
  numbers.release(70);
  numbers.release(3);
  CHECK(numbers.acquire() == 3);
  CHECK(numbers.acquire() == 70);
  CHECK(numbers.acquire() == 100);
}

TEST_CASE("threads beyond the pools share the last number, which stays") {
  ThreadNumbers numbers;
  for (unsigned i = 0; i < ThreadNumbers::kCommon; ++i) REQUIRE(numbers.acquire() == i);
  CHECK(numbers.acquire() == ThreadNumbers::kCommon);
  CHECK(numbers.acquire() == ThreadNumbers::kCommon);
  numbers.release(ThreadNumbers::kCommon);
  CHECK(numbers.acquire() == ThreadNumbers::kCommon);
}

TEST_CASE("no two threads have the same number at once") {
  ThreadNumbers numbers;
  std::vector<std::atomic<int>> users(kMostThreads);
  std::atomic<int> wrong{0};
  auto work = [&] {
    for (int i = 0; i < 20000; ++i) {
      const unsigned number = numbers.acquire();
      if (users[number].fetch_add(1) != 0) ++wrong;
      users[number].fetch_sub(1);
      numbers.release(number);
    }
  };
  std::thread other(work), third(work);
  work();
  other.join();
  third.join();
  CHECK(wrong == 0);
}

}  // namespace thread_numbers_test
