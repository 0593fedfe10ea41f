// SPDX-License-Identifier: Apache-2.0
// The way of a program through its plan: where it goes on, leaves, comes back, and who follows.
#include "allocator/plan/replay.h"

#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace cistern::alloc::plan::replay_test {
namespace {

constexpr uint64_t kNone = ~uint64_t{0};
constexpr uint64_t kPlace = 4096;  // bytes from one place to the next

// The k-th request of the plan has its place at k * kPlace. The one at `outside` has none.
struct Following {
  std::vector<PlannedRequest> requests;
  std::unique_ptr<Ledger> ledger = std::make_unique<Ledger>();
  std::unique_ptr<Replay> replay{new Replay()};
  Plan plan;
  PlanPlace place{};

  Following(const std::vector<uint64_t>& sizes, Period period, uint64_t outside = kNone) {
    for (uint64_t i = 0; i < sizes.size(); ++i) {
      requests.push_back({sizes[i], i * kPlace, 0, 0, 0, i == outside});
    }
    PlanHead head{};
    head.period = period;
    head.requests = sizes.size();
    head.bytes = sizes.size() * kPlace;
    plan = Plan(head, requests.data());
    replay->follow({&plan, 1}, ledger.get());
  }

  // Which request of the plan it is, or kNone.
  uint64_t ask(uint64_t bytes, unsigned thread = 0, uint32_t phase = 0) {
    return replay->next(bytes, thread, phase, &place) ? place.offset / kPlace : kNone;
  }
};

TEST_CASE("replay: each request has its place, period by period; the first one is said", "[plan]") {
  Following program({10, 20, 30, 40, 50}, Period::iteration, /*outside=*/0);
  for (uint64_t period = 1; period <= 3; ++period) {
    CHECK(program.ask(10) == kNone);
    for (uint64_t i = 1; i < 5; ++i) {
      CHECK(program.ask(10 * (i + 1)) == i);
      CHECK(program.place.first == (i == 1));
      CHECK(program.place.plan_bytes == 5 * kPlace);
    }
    CHECK(program.ledger->plan_periods.get() == period);
  }
  CHECK(program.ledger->plan_entered.get() == 1);
}

TEST_CASE("replay: a request in the middle that has no place is followed, too", "[plan]") {
  Following program({10, 20, 30, 40, 50}, Period::iteration, /*outside=*/2);
  for (int period = 0; period < 3; ++period) {
    for (const uint64_t size : {10, 20}) CHECK(program.ask(size) == size / 10 - 1);
    CHECK(program.ask(30) == kNone);
    for (const uint64_t size : {40, 50}) CHECK(program.ask(size) == size / 10 - 1);
  }
  CHECK(program.ledger->plan_periods.get() == 3);
  CHECK(program.ledger->plan_left.get() == 0);
}

TEST_CASE("replay: one request more is passed over, two leave the plan until its end was seen",
          "[plan]") {
  Following program({10, 20, 30, 40, 50, 60}, Period::iteration);
  for (const uint64_t size : {10, 20, 30}) CHECK(program.ask(size) == size / 10 - 1);
  CHECK(program.ask(99) == kNone);
  CHECK(program.replay->left());
  CHECK(program.ask(40) == 3);
  CHECK_FALSE(program.replay->left());
  for (const uint64_t size : {50, 60, 10, 20}) CHECK(program.ask(size) == size / 10 - 1);
  for (const uint64_t size : {99, 99, 30, 40, 50, 60}) CHECK(program.ask(size) == kNone);
  for (const uint64_t size : {10, 20, 30, 40}) CHECK(program.ask(size) == size / 10 - 1);
  CHECK(program.ledger->plan_left.get() == 2);
  CHECK(program.ledger->plan_entered.get() == 3);
}

TEST_CASE("replay: what it went through in the plan counts as seen once it has left", "[plan]") {
  Following program({1, 2, 3, 99, 2, 3, 4, 5}, Period::iteration);
  for (const uint64_t size : {1, 2, 3}) CHECK(program.ask(size) == size - 1);
  for (const uint64_t size : {4, 5}) CHECK(program.ask(size) == kNone);
  CHECK(program.ask(1) == 0);  // behind 2, 3, 4 and 5, as at the end of the plan
}

TEST_CASE("replay: another thread takes over the plan of one that asks for nothing", "[plan]") {
  Following program({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  const auto others_ask = [&] {
    for (int i = 0; i < 30; ++i) CHECK(program.ask(99, 1) == kNone);
    for (const uint64_t size : {7, 8, 9, 10}) CHECK(program.ask(size, 1) == kNone);
    return program.ask(1, 1);
  };
  for (const uint64_t size : {1, 2, 3}) CHECK(program.ask(size) == size - 1);
  CHECK(program.ask(4) == 3);
  CHECK(others_ask() == kNone);
  CHECK(program.ask(5) == 4);
  CHECK(others_ask() == kNone);  // fewer than four periods' requests behind the last one
  CHECK(others_ask() == 0);
  CHECK(program.ask(6) == kNone);
  CHECK(program.ask(2, 1) == 1);
}

TEST_CASE("replay: a plan is followed as often as the requests of its threads say", "[plan]") {
  Following program({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  for (int period = 0; period < 6; ++period) {
    for (uint64_t size = 1; size <= 10; ++size) {
      CHECK(program.ask(size) == size - 1);
      for (uint64_t i = 0; i < 9; ++i) CHECK(program.ask(100 + i, /*thread=*/1) == kNone);
      CHECK_FALSE(program.replay->seldom_followed());
    }
  }
  // Once nobody follows it, every request counts.
  for (int i = 0; i < 3; ++i) CHECK(program.ask(99) == kNone);
  REQUIRE(program.replay->left());
  for (uint64_t i = 0; i < 41; ++i) program.ask(100 + i, /*thread=*/1);
  CHECK(program.replay->seldom_followed());
}

TEST_CASE("replay: the ends of one thread do not hide what another one no longer follows",
          "[plan]") {
  Following one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  Following other({21, 22, 23, 24, 25, 26, 27, 28, 29, 30}, Period::thread);
  const Plan plans[] = {one.plan, other.plan};
  one.replay->follow(plans, one.ledger.get());
  const auto both_ask = [&](uint64_t from) {
    for (uint64_t i = 0; i < 10; ++i) {
      CHECK(one.ask(1 + i, 0) == i);
      one.ask(from + i, 1);
    }
    return one.replay->seldom_followed();
  };
  for (int period = 0; period < 20; ++period) REQUIRE_FALSE(both_ask(21));
  for (int period = 0; period < 4; ++period) CHECK_FALSE(both_ask(101));
  CHECK(both_ask(101));
  CHECK(both_ask(21));
  both_ask(21);
  CHECK_FALSE(both_ask(21));  // it follows the plan again
}

TEST_CASE("replay: a thread that begins later gets its chance, ever more seldom in vain",
          "[plan]") {
  Following program({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  const auto periods_until_seldom = [&] {
    for (int period = 1; period < 20'000; ++period) {
      for (uint64_t size = 1; size <= 10; ++size) program.ask(size);
      for (uint64_t size = 1; size <= 10; ++size) program.ask(1000, /*thread=*/1);
      if (program.replay->seldom_followed()) return period;
    }
    return 0;
  };
  const auto replace = [&] {
    program.replay->follow({&program.plan, 1}, program.ledger.get());
    CHECK_FALSE(program.replay->seldom_followed());
  };
  for (const int expected : {1639, 3277, 6554}) {  // 16384 requests, and twice as many
    CHECK(periods_until_seldom() == expected);
    replace();
  }
  // Not where the plan served for long meanwhile.
  for (int period = 0; period < 16 * 16'384 * 8 / 10 + 1; ++period) {
    for (uint64_t size = 1; size <= 10; ++size) program.ask(size);
  }
  CHECK(periods_until_seldom() == 13'108);
  replace();
  CHECK(periods_until_seldom() == 6554);
}

TEST_CASE("replay: the requests before a thread entered its plan do not count against it",
          "[plan]") {
  Following one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  Following other({21, 22, 23, 24, 25, 26, 27, 28, 29, 30}, Period::thread);
  const Plan plans[] = {one.plan, other.plan};
  one.replay->follow(plans, one.ledger.get());
  for (int i = 0; i < 100; ++i) {
    one.ask(21 + static_cast<uint64_t>(i % 10), /*thread=*/1);
    one.ask(1000);
  }
  for (const uint64_t size : {7, 8, 9, 10}) one.ask(size);
  for (uint64_t size = 1; size <= 5; ++size) {
    REQUIRE(one.ask(size) == size - 1);
    CHECK_FALSE(one.replay->seldom_followed());
  }
}

// As the next thread that gets the number of one that ended.
TEST_CASE("replay: a thread whose plan another took is a thread without a plan", "[plan]") {
  Following program({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  const auto period = [&](unsigned thread) {
    for (uint64_t size = 1; size <= 10; ++size) program.ask(size, thread);
  };
  period(0);
  period(0);
  for (int i = 0; i < 10; ++i) period(1);
  REQUIRE(program.ask(1, 1) == 0);
  for (int i = 0; i < 1000; ++i) program.ask(3000, 0);
  CHECK_FALSE(program.replay->seldom_followed());
}

TEST_CASE("replay: a thread that asks for nothing more is not waited for", "[plan]") {
  Following one({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  Following other({21, 22, 23, 24, 25, 26, 27, 28, 29, 30}, Period::thread);
  const Plan plans[] = {one.plan, other.plan};
  one.replay->follow(plans, one.ledger.get());
  const auto periods = [&](unsigned thread, uint64_t from, int count) {
    for (int period = 0; period < count; ++period) {
      for (uint64_t i = 0; i < 10; ++i) one.ask(from + i, thread);
    }
    one.replay->pass_silent_threads();
    return one.replay->seldom_followed();
  };
  for (int i = 0; i < 3; ++i) periods(0, 1, 1), periods(1, 21, 1);
  REQUIRE(periods(1, 101, 5));
  CHECK(periods(0, 1, 1640));  // it asked before those 16384 requests
  CHECK(periods(0, 1, 1630));
  CHECK_FALSE(periods(0, 1, 20));
  one.ask(102, 1);  // it was only slow
  CHECK(one.replay->seldom_followed());
}

TEST_CASE("replay: what a thread asked for long ago is no use just now", "[plan]") {
  Following program({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, Period::thread);
  Following other({21, 22, 23, 24, 25, 26, 27, 28, 29, 30}, Period::thread);
  const Plan plans[] = {program.plan, other.plan};
  program.replay->follow(plans, program.ledger.get());
  for (const uint64_t size : {1, 2, 3, 4}) CHECK(program.ask(size, 0) == size - 1);
  for (int period = 0; period < 9; ++period) {  // more than four of both
    for (uint64_t size = 21; size <= 30; ++size) CHECK(program.ask(size, 1) == size - 21 + 10);
  }
  for (const uint64_t size : {7, 8, 9, 10}) CHECK(program.ask(size, 2) == kNone);
  CHECK(program.ask(1, 2) == 0);
}

TEST_CASE("replay: a phase that is not gone through is begun again by the next one", "[plan]") {
  Following program({1, 2, 3, 4}, Period::phase);
  for (const uint64_t size : {1, 2}) CHECK(program.ask(size, 0, 1) == size - 1);
  for (const uint64_t size : {1, 2}) CHECK(program.ask(size, 0, 2) == size - 1);
}

TEST_CASE("replay: a phase begins once, whatever its first request was taken for", "[plan]") {
  Following program({5, 5, 6, 7}, Period::phase);
  CHECK(program.ask(5, 0, 1) == 0);
  CHECK(program.ask(5, 0, 2) == 1);  // as if the first phase went on
  CHECK(program.ask(5, 0, 2) == kNone);
}

TEST_CASE("replay: between the requests of phases others pass, wherever the thread is", "[plan]") {
  Following program({1, 2, 3, 4}, Period::phase);
  for (uint32_t phase = 1; phase <= 3; ++phase) {
    for (uint64_t size = 1; size <= 4; ++size) {
      CHECK(program.ask(size, 0, phase) == size - 1);
      CHECK(program.ask(size % 4 + 1) == kNone);  // the size that comes next, but in no phase
    }
  }
  CHECK(program.ask(1, 0, 4) == 0);
  for (int round = 0; round < 3; ++round) {
    CHECK(program.ask(2, 0, 4) == (round == 0 ? 1 : kNone));
    for (uint64_t i = 0; i < Replay::kMostPassed * 4 - 1; ++i) program.ask(9);
    CHECK(program.replay->left_for_good() == false);
  }
  for (int i = 0; i < 2; ++i) program.ask(9);
  CHECK(program.replay->left_for_good());
}

}  // namespace
}  // namespace cistern::alloc::plan::replay_test
