// SPDX-License-Identifier: Apache-2.0
// Threads that share the expandable strategy over few units: no two have the same byte, each has
// memory behind what it got, and no unit is lost.
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/allocator/expandable/expandable_pool.h"
#include "tests/unit/test_clock.h"

namespace expandable_threads_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

// What all threads hold.
class Holdings {
 public:
  // False where some of it is another thread's.
  bool add(uint64_t address, uint64_t bytes) {
    std::lock_guard guard(mutex_);
    const auto [here, added] = live_.emplace(address, bytes);
    if (!added) return false;
    const auto after = std::next(here);
    const bool apart = after == live_.end() || address + bytes <= after->first;
    const auto before = here == live_.begin() ? here : std::prev(here);
    return apart && (before == here || before->first + before->second <= address);
  }
  void remove(uint64_t address) {
    std::lock_guard guard(mutex_);
    live_.erase(address);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> live_;
};

}  // namespace

TEST_CASE("threads that move units beside each other have their memory to themselves") {
  constexpr uint64_t kUnits = 16;
  constexpr unsigned kThreads = 8;
  const unsigned seed = GENERATE(1u, 2u);
  auto p = expandable(kUnits);
  p->cap.set_limit(kUnits * kUnit);
  p->source.patience = 0;
  Holdings holdings;
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned thread) {
    std::mt19937 random(kThreads * seed + thread);
    std::vector<uint64_t> blocks;
    const auto give = [&](size_t at) {
      const uint64_t address = blocks[at];
      blocks[at] = blocks.back();
      blocks.pop_back();
      holdings.remove(address);
      int code = 0;
      Chunk* chunk = p->shared.index.find(address);
      if (chunk == nullptr || p->pool.free(chunk, address, &code) != Freed::done) ++wrong;
    };
    for (int i = 0; i < 1500; ++i) {
      const uint64_t bytes =
          random() % 3 == 0 ? 1 + random() % (5 * kUnit) : 1 + random() % (kUnit / 2);
      uint64_t address = 0;
      if (p->pool.allocate(bytes, thread, &address) == kSuccess) {
        if (!p->units().has(address, bytes) || !holdings.add(address, bytes)) ++wrong;
        blocks.push_back(address);
      } else if (!blocks.empty()) {
        give(0);
      }
      while (blocks.size() > 4) give(random() % blocks.size());
      if (thread == 0 && random() % 16 == 0) p->synchronise();
      if (thread == 1 && random() % 64 == 0) p->pool.release_returnable(0);
    }
    while (!blocks.empty()) give(0);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  INFO("seed " << seed);
  CHECK(wrong == 0);
  CHECK(p->ledger.remaps.get() != 0);
  CHECK(p->units().broken == 0);
  CHECK(p->units().units.size() == p->ledger.units.get());
  CHECK(p->units().mapped.size() == p->units().units.size());
  p->synchronise();
  CHECK(p->take(kUnits * kUnit) != 0);
  CHECK(p->cap.charged() == p->units().units.size() * kUnit);
  p->pool.forget_all();
  CHECK(p->units().units.empty());
  CHECK(p->units().broken == 0);
  CHECK(p->cap.charged() == 0);
}

TEST_CASE(
    "a request that fails while another thread looks at all that is mapped waits for nobody") {
  auto p = expandable(6);
  REQUIRE(p->take(4 * kUnit) != 0);
  std::thread looker;
  uint64_t seen = 0;
  p->units().on_create = [&] {
    looker = std::thread(
        [&] { p->pool.for_each_mapped([&](uint64_t, uint64_t bytes) { seen += bytes; }); });
    // It waits for this request. One that comes late finds it over, and sees as much.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  CHECK(p->allocate(3 * kUnit) == 0);
  looker.join();
  CHECK(seen >= 4 * kUnit);
  CHECK(p->units().broken == 0);
}

TEST_CASE("of threads that find no addresses at once one reserves them, for all") {
  constexpr unsigned kThreads = 4;
  auto p = expandable(2 * kThreads);
  // The others find none meanwhile, and wait.
  const uint64_t waits = test_clock_waits();
  p->units().on_reserve = [=] { cistern::test::until_someone_waits(waits + kThreads - 2); };
  const uint64_t bytes = GENERATE(1000, kUnit);
  std::atomic<unsigned> served{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      uint64_t address = 0;
      if (p->pool.allocate(bytes, i, &address) == kSuccess) ++served;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(served == kThreads);
  CHECK(p->units().ranges.size() == 1);
}

}  // namespace expandable_threads_test
