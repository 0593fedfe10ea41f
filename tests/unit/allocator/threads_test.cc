// SPDX-License-Identifier: Apache-2.0
// What several threads may do at once; meant for the thread sanitizer.
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/allocator/fake_source.h"

using namespace cistern::alloc;
using cistern::test::kMiB;
using cistern::test::Pool;

TEST_CASE("threads allocate, free each other's blocks and synchronise without a loss") {
  constexpr int kThreads = 4, kSteps = 3000;
  auto p = std::make_unique<Pool>();
  std::vector<std::atomic<uint64_t>> exchange(64);
  std::atomic<int> wrong{0};
  auto work = [&](unsigned me) {
    std::mt19937 random(me);
    for (int i = 0; i < kSteps; ++i) {
      const uint64_t bytes =
          random() % 8 == 0 ? kMiB + random() % (3 * kMiB) : 1 + random() % 60000;
      uint64_t address = 0;
      if (p->pool.allocate(bytes, me % DevicePool::kShards, &address) != kSuccess) ++wrong;
      uint64_t start, size;
      if (!p->pool.find(p->shared.index.find(address), address, &start, &size) || size != bytes) {
        ++wrong;
      }
      const uint64_t other = exchange[random() % exchange.size()].exchange(address);
      int code;
      if (other != 0 && p->pool.free(p->shared.index.find(other), other, &code) != Freed::done) {
        ++wrong;
      }
      if (i % 64 == 0) p->synchronise();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  for (const auto& slot : exchange) {
    if (slot != 0) CHECK(p->free(slot) == Freed::done);
  }
  CHECK(p->pool.usage().live == 0);
  CHECK(p->pool.allocations() == kThreads * kSteps);
  CHECK(p->pool.frees() == kThreads * kSteps);
}

TEST_CASE("of two threads that free the same block one is told that it is invalid") {
  auto p = std::make_unique<Pool>();
  const uint64_t bytes = GENERATE(4096, 4 * kMiB);
  for (int round = 0; round < 200; ++round) {
    const uint64_t a = p->allocate(bytes);
    std::atomic<int> done{0};
    auto free_it = [&] {
      Chunk* chunk = p->shared.index.find(a);
      int code;
      if (p->pool.free(chunk, a, &code) == Freed::done) ++done;
    };
    std::thread other(free_it);
    free_it();
    other.join();
    REQUIRE(done == 1);
    p->synchronise();
  }
}
