// SPDX-License-Identifier: Apache-2.0
// Charges that are kept until their memory is freed, whoever frees it: by key, with the context,
// with several threads and in a forked child.
#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/shim/charged_device.h"
#include "tests/unit/shim/forked.h"

using namespace cistern::shim;
using namespace cistern::test;
using namespace cistern::test::charged_device;

TEST_CASE("memory whose free nobody saw makes room when its address comes back") {
  Charges device(10 * kMiB);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(allocate(100, (1 + i % 2) * kPage, nullptr, MemoryKind::array));
    CHECK(device->cap.charged() == (1 + i % 2) * kPage);
    CHECK(taken(*device, MemoryKind::array) == (1 + i % 2) * kPage);
  }
  free_it(100);
  CHECK(take_charge(100) == nullptr);
}

// A free lets the driver give the address out anew before it returns to the caller.
TEST_CASE("the free of one block does not end the charge of the next at its address") {
  Charges device;
  REQUIRE(allocate(100, kPage));
  refunding(100, [&] {
    REQUIRE(allocate(100, 3 * kPage));
    CHECK(device->cap.charged() == 4 * kPage);
    return CUDA_SUCCESS;
  });
  CHECK(device->cap.charged() == 3 * kPage);
  free_it(100);
}

TEST_CASE("many charges are found by their keys, in any order") {
  Charges device(0);  // counted without a cap as well
  constexpr uint64_t kKeys = 100'000;
  std::vector<uint64_t> keys;
  for (uint64_t i = 1; i <= kKeys; ++i) keys.push_back(i * 512);
  for (const uint64_t key : keys) REQUIRE(allocate(key, key));
  std::shuffle(keys.begin(), keys.end(), std::mt19937(1));
  uint64_t left = taken(*device, MemoryKind::direct);
  CHECK(left == 512 * kKeys * (kKeys + 1) / 2);
  for (const uint64_t key : keys) {
    free_it(key);
    REQUIRE(taken(*device, MemoryKind::direct) == (left -= key));
  }
}

TEST_CASE("a context takes along what was allocated in it, and no more") {
  Charges device;
  REQUIRE(allocate(100, kPage, context(1)));
  REQUIRE(allocate(200, kPage, context(1)));
  REQUIRE(allocate(300, kPage, context(2)));
  REQUIRE(allocate(kPage, kPage, nullptr, MemoryKind::stream_ordered));  // the device's
  fakes().active = false;
  context_charges_gone(context(1));
  CHECK(device->cap.charged() == 4 * kPage);
  fakes().active = true;
  context_charges_gone(context(1));
  CHECK(device->cap.charged() == 2 * kPage);
  CHECK(take_charge(100) == nullptr);
  CHECK(free_it(300) == CUDA_SUCCESS);
  CHECK(free_it(kPage) == CUDA_SUCCESS);
}

TEST_CASE("threads allocate and free, some of it one another's and at the same address") {
  Charges device(40 * kMiB);
  const auto work = [](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 4000; ++i) {
      const uint64_t key = 1 + random() % 16;
      switch (random() % 8) {
        case 0:
          if (i % 32 == 0) context_charges_gone(context(1));  // it looks at every bucket
          break;
        case 1:
        case 2:
        case 3:
          allocate(key, kMiB * (1 + random() % 8), random() % 2 == 0 ? context(1) : nullptr);
          break;
        default:
          free_it(key, random() % 4 == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  CHECK(device->cap.charged() <= 40 * kMiB);
  // Refused frees may have left several records with one key.
  for (uint64_t key = 1; key <= 16; ++key) {
    while (ChargeRecord* record = take_charge(key)) settle_charge(record, true);
  }
}

TEST_CASE("a forked child's locks are free, whatever other threads held") {
  Charges device;
  const auto busy = [] {
    allocate(100, kPage);
    free_it(100);
  };
  CHECK(children_that_fail(busy, [&] {
          reset_charges_after_fork();
          return allocate(200, kPage) && free_it(200) == CUDA_SUCCESS;
        }) == 0);
}
