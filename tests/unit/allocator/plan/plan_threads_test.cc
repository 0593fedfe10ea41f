// SPDX-License-Identifier: Apache-2.0
// Many threads that follow plans at once, while plans are made and exchanged; meant for the thread
// sanitizer.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "allocator/plan/replay.h"
#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"

namespace cistern::alloc::plan::plan_threads_test {
namespace {

constexpr unsigned kThreadCount = 32;
constexpr uint64_t kPlace = 4096;  // bytes from one place to the next

// No other thread, and no other `version`, asks for any of them.
std::vector<uint64_t> sizes_of(unsigned thread, uint64_t version) {
  std::vector<uint64_t> sizes;
  for (uint64_t i = 0; i < 3 + thread % 5; ++i) {
    sizes.push_back(1000 * version + 20 * thread + i + 1);
  }
  return sizes;
}

// For every other thread a plan, whose k-th request lies at k * kPlace of the plan's memory.
struct PlansOfThreads {
  std::vector<std::vector<PlannedRequest>> requests;
  std::vector<Plan> plans;
  uint64_t bytes = 0;                   // of all
  std::map<uint64_t, uint64_t> places;  // offsets by size

  explicit PlansOfThreads(uint64_t version) {
    for (unsigned thread = 0; thread < kThreadCount; thread += 2) {
      std::vector<PlannedRequest>& own = requests.emplace_back();
      for (const uint64_t size : sizes_of(thread, version)) {
        places[size] = bytes + own.size() * kPlace;
        own.push_back({size, own.size() * kPlace, 0, 0, 0, 0});
      }
      bytes += own.size() * kPlace;
    }
    for (const std::vector<PlannedRequest>& own : requests) {
      PlanHead head{};
      head.period = Period::thread;
      head.requests = own.size();
      head.bytes = own.size() * kPlace;
      plans.emplace_back(head, own.data());
    }
  }

  // Where the request lies if `served`, as far as these plans know.
  bool right(uint64_t size, bool served, const PlanPlace& place) const {
    const auto found = places.find(size);
    if (!served || found == places.end()) return !served && found == places.end();
    return place.offset == found->second && place.plan_bytes == bytes;
  }
};

template <typename Work>
void in_threads(Work work) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreadCount; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

// Lets other threads go on until it holds.
template <typename Holds>
void wait_until(Holds holds) {
  while (!holds()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("replay: each of many threads follows its plan, and those without one follow none",
          "[plan]") {
  constexpr uint64_t kPeriods = 300;
  const PlansOfThreads given(1);
  auto ledger = std::make_unique<Ledger>();
  auto replay = std::make_unique<Replay>();
  replay->follow(given.plans, ledger.get());
  std::atomic<uint64_t> wrong{0};
  in_threads([&](unsigned me) {
    const std::vector<uint64_t> sizes = sizes_of(me, 1);
    for (uint64_t period = 0; period < kPeriods; ++period) {
      for (const uint64_t size : sizes) {
        PlanPlace place{};
        const bool served = replay->next(size, me, 0, &place);
        if (!given.right(size, served, place)) ++wrong;
        if (served && place.first != (size == sizes[0])) ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
  CHECK(ledger->plan_periods.get() == given.plans.size() * kPeriods);
  CHECK((ledger->plan_entered.get() == given.plans.size() && ledger->plan_left.get() == 0));
  CHECK_FALSE(replay->left());
}

TEST_CASE("replay: plans are exchanged while many threads follow them", "[plan]") {
  constexpr int kTimes = 20;
  const PlansOfThreads given[] = {PlansOfThreads(1), PlansOfThreads(2)};
  auto ledger = std::make_unique<Ledger>();
  auto replay = std::make_unique<Replay>();
  std::atomic<uint64_t> wrong{0}, served_by[2] = {};
  std::atomic<bool> stop{false};
  std::thread exchanger([&] {
    for (int i = 0; i < kTimes; ++i) {
      const std::atomic<uint64_t>& served = served_by[i % 2];
      replay->follow(given[i % 2].plans, ledger.get());
      const uint64_t before = served;
      wait_until([&] { return served > before + 1000; });
    }
    stop = true;
  });
  in_threads([&](unsigned me) {
    while (!stop) {
      // A plan that was left is entered behind four of its requests.
      for (int period = 0; period < 8; ++period) {
        const size_t version = period / 4;
        for (const uint64_t size : sizes_of(me, version + 1)) {
          PlanPlace place{};
          if (!replay->next(size, me, 0, &place)) continue;
          ++served_by[version];
          if (!given[version].right(size, true, place)) ++wrong;
        }
      }
    }
  });
  exchanger.join();
  CHECK(wrong == 0);
}

// What says of all threads' blocks that none has bytes of another one.
class Checker {
 public:
  bool add(uint64_t address, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    const auto after = live_.lower_bound(address);
    const bool apart = (after == live_.end() || address + bytes <= after->first) &&
                       (after == live_.begin() || std::prev(after)->second <= address);
    live_[address] = address + bytes;
    return apart;
  }
  void remove(uint64_t address) {
    const std::lock_guard guard(mutex_);
    live_.erase(address);
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> live_;
};

TEST_CASE("own plans: they are made and left while many threads allocate", "[plan]") {
  auto p = std::make_unique<cistern::test::Pool>();
  p->set_plan(nullptr);
  Checker checker;
  std::atomic<uint64_t> wrong{0}, version{1};
  std::atomic<bool> stop{false};
  // As the hooks do it.
  const auto get = [&](uint64_t bytes, unsigned me) {
    uint64_t address = 0;
    const bool planned = p->pool.allocate_planned(bytes, me, 0, &address);
    if (!planned && p->pool.allocate(bytes, me % ContextPool::kShards, &address) != kSuccess)
      ++wrong;
    if (p->pool.looks_for_plan()) p->pool.note_served(bytes, {me, 0, 0}, address);
    if (!checker.add(address, bytes)) ++wrong;
    return address;
  };
  const auto give_back = [&](uint64_t address) {
    checker.remove(address);
    int code;
    if (p->pool.free(p->shared.index.find(address), address, &code) != Freed::done) ++wrong;
  };
  std::thread background([&] {
    while (!stop) p->pool.work_in_background();
  });
  std::thread changes([&] {
    for (int shape = 1; shape <= 3; ++shape) {
      version = static_cast<uint64_t>(shape);
      const uint64_t made = p->ledger.plans_made.get();
      wait_until([&] { return p->ledger.plans_made.get() > made; });
      const uint64_t served = p->ledger.plan_served.get();
      wait_until([&] { return p->ledger.plan_served.get() > served + 2000; });
    }
    stop = true;
  });
  in_threads([&](unsigned me) {
    while (!stop) {
      std::vector<uint64_t> blocks;
      for (const uint64_t size : sizes_of(me, version)) blocks.push_back(get(size, me));
      for (const uint64_t address : blocks) give_back(address);
    }
  });
  changes.join();
  background.join();
  CHECK(wrong == 0);
  p->synchronise();
  CHECK(p->pool.usage().live == 0);
}

}  // namespace cistern::alloc::plan::plan_threads_test
