// SPDX-License-Identifier: Apache-2.0
// What a plan that is made while the program runs may take: steps, time and memory. The clock moves
// when it is looked at, so that time passes with the search, and as fast as a test says.
#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "allocator/plan/period.h"
#include "allocator/plan/planner.h"
#include "tests/catch.h"
#include "tests/unit/allocator/no_more_memory.h"
#include "tests/unit/allocator/plan/cases.h"
#include "tests/unit/test_clock.h"

namespace cistern::alloc::plan::auto_bounds_test {
namespace {

using cistern::test::kMayBeOut;
using cistern::test::kMs;
using cistern::test::StoppedClock;

constexpr uint64_t kAlignment = 512, kMostSteps = 2'000'000, kMostNs = 20 * kMs;

// Random lifetimes, by calls, in the order of the requests. All is freed at the end.
std::vector<Lifetime> iteration(size_t requests, uint64_t times) {
  const auto lives = test::random_lives(3, requests, times, 100'000);
  struct Call {
    uint64_t time;
    bool begins;
    size_t block;
    auto operator<=>(const Call&) const = default;
  };
  std::vector<Call> calls;
  for (size_t i = 0; i < requests; ++i) {
    calls.push_back({lives[i].from, true, i});
    calls.push_back({lives[i].to, false, i});
  }
  std::sort(calls.begin(), calls.end());
  std::vector<Lifetime> out;
  std::vector<size_t> place(requests);
  for (uint64_t call = 0; call < calls.size(); ++call) {
    const Call& now = calls[call];
    if (now.begins) {
      place[now.block] = out.size();
      out.push_back({.from = call, .to = 0, .bytes = lives[now.block].bytes});
    } else {
      out[place[now.block]].to = call;
    }
  }
  return out;
}

void observe(Observer& observer, const std::vector<Lifetime>& lives, int times) {
  struct Freed {
    uint64_t call, address;
    auto operator<=>(const Freed&) const = default;
  };
  std::vector<Freed> frees;
  for (size_t i = 0; i < lives.size(); ++i) frees.push_back({lives[i].to, (i + 1) * 512});
  std::sort(frees.begin(), frees.end());
  for (; times > 0; --times) {
    size_t next = 0;
    for (size_t i = 0; i < lives.size(); ++i) {
      for (; frees[next].call < lives[i].from; ++next) observer.freed(frees[next].address);
      observer.allocated(lives[i].bytes, {0, 0, 0}, (i + 1) * 512);
    }
    for (; next < frees.size(); ++next) observer.freed(frees[next].address);
  }
}

// Three iterations were observed.
struct Seen {
  explicit Seen(const std::vector<Lifetime>& lives) : observer(std::make_unique<Observer>()) {
    REQUIRE(observer->start());
    observe(*observer, lives, 3);
  }
  ~Seen() { observer->stop(); }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;

  std::unique_ptr<Observer> observer;
};

std::vector<uint64_t> offsets_of(const Plan& plan, const std::vector<Lifetime>& lives) {
  std::vector<uint64_t> offsets;
  REQUIRE(plan.head().requests == lives.size());
  for (uint64_t i = 0; i < lives.size(); ++i) {
    REQUIRE((plan.request(i).bytes == lives[i].bytes && plan.request(i).outside == 0));
    offsets.push_back(plan.request(i).offset);
  }
  CHECK(test::wrong_with(lives, offsets, plan.head().bytes, kAlignment).empty());
  return offsets;
}

// As the planner itself finds them within these bounds.
std::vector<uint64_t> found_within(const std::vector<Lifetime>& lives, uint64_t steps,
                                   uint64_t ns) {
  Problem problem;
  REQUIRE(problem.build(lives, kAlignment) == Built::yes);
  PlannerOptions options;
  options.steps = steps;
  options.deadline_ns = StoppedClock::now_ns() + ns;
  Planned planned;
  REQUIRE(plan(problem, options, planned));
  return {planned.offsets.begin(), planned.offsets.end()};
}

TEST_CASE("auto plan: the search ends after two million steps", "[plan]") {
  const auto lives = iteration(2500, 600);
  const Seen seen(lives);
  const StoppedClock clock;
  StoppedClock::look_takes(kMostNs / 200);  // it is looked at a few times in all those steps
  OwnPlans own;
  REQUIRE(own.make(*seen.observer, kAlignment));
  const auto offsets = offsets_of(own.plans()[0], lives);
  CHECK(offsets == found_within(lives, kMostSteps, kMostNs));
  CHECK(offsets != found_within(lives, 2 * kMostSteps, kMostNs));
}

TEST_CASE("auto plan: the search ends after twenty milliseconds", "[plan]") {
  const auto lives = iteration(2500, 600);
  const Seen seen(lives);
  const StoppedClock clock;
  StoppedClock::look_takes(kMostNs / 20);
  OwnPlans own;
  REQUIRE(own.make(*seen.observer, kAlignment));
  const auto offsets = offsets_of(own.plans()[0], lives);
  CHECK(offsets == found_within(lives, kMostSteps, kMostNs));
  CHECK(offsets != found_within(lives, kMostSteps, 2 * kMostNs));
}

TEST_CASE("auto plan: there is a whole plan, however slow the machine is", "[plan]") {
  const auto lives = iteration(2500, 600);
  const Seen seen(lives);
  const StoppedClock clock;
  StoppedClock::look_takes(1000 * kMostNs);
  OwnPlans own;
  REQUIRE(own.make(*seen.observer, kAlignment));
  offsets_of(own.plans()[0], lives);
}

// Private memory that may be written, as RLIMIT_DATA counts it.
uint64_t mapped_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmData:" && status >> kib) return kib * 1024;
  }
  return 0;
}

// Limits this process to so many more bytes of it while it lives.
class AtMost {
 public:
  explicit AtMost(uint64_t bytes) {
    getrlimit(RLIMIT_DATA, &before_);
    const rlimit now{mapped_bytes() + bytes, before_.rlim_max};
    setrlimit(RLIMIT_DATA, &now);
  }
  ~AtMost() { setrlimit(RLIMIT_DATA, &before_); }
  AtMost(const AtMost&) = delete;
  AtMost& operator=(const AtMost&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE("observer: its tables take 8 MiB, however much it sees, and go with its end", "[plan]") {
  if (!kMayBeOut) return;  // a sanitizer maps memory as it likes
  const uint64_t before = mapped_bytes();
  auto observer = std::make_unique<Observer>();
  REQUIRE(observer->start());
  for (uint64_t i = 0; i < 5 * Observer::kMost; ++i) {
    if (i % Observer::kMost == 0) CHECK(mapped_bytes() <= before + (8 << 20));
    observer->allocated(1000 + i, {0, 0, 0}, i * 512);  // and nothing is freed
  }
  CHECK(mapped_bytes() <= before + (8 << 20));
  CHECK(mapped_bytes() > before + (7 << 20));
  observer->stop();
  CHECK(mapped_bytes() < before + (1 << 20));  // the test's own
}

// The most that is observed at a time, and the most that the exact search takes on, whose tables
// are the larger ones.
TEST_CASE("auto plan: what it is made with stays within its bounds", "[plan]") {
  if (!kMayBeOut) return;
  const struct {
    size_t requests;
    uint64_t most_bytes;
  } cases[] = {{Observer::kMost / 3, 16 << 20}, {2048, 100 << 20}, {2049, 2 << 20}};
  for (const auto& one : cases) {
    CAPTURE(one.requests);
    const Seen seen(iteration(one.requests, 600));
    const StoppedClock clock;
    StoppedClock::look_takes(kMostNs / 200);
    OwnPlans own;
    bool made = false;
    {
      const AtMost limit(one.most_bytes);
      made = own.make(*seen.observer, kAlignment);
    }
    CHECK(made);
  }
}

}  // namespace
}  // namespace cistern::alloc::plan::auto_bounds_test
