// SPDX-License-Identifier: Apache-2.0
// Plans that the arena makes itself: when it looks for one, when it does not, and what goes back to
// the driver once a plan is followed or was left. No thread is in the background: each test says
// when there is one.
#include <memory>
#include <random>
#include <vector>

#include "allocator/plan_arena.h"
#include "tests/catch.h"
#include "tests/unit/allocator/fake_source.h"
#include "tests/unit/test_clock.h"

namespace plan_arena_auto_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

struct Program {
  std::unique_ptr<Pool> p;

  explicit Program(uint64_t capacity = uint64_t{1} << 40) : p(std::make_unique<Pool>(capacity)) {
    p->set_plan(nullptr);
  }

  // As the hooks do it. `planned`: it has its place in a plan.
  uint64_t get(uint64_t bytes, bool* planned, uint32_t phase = 0, unsigned thread = 0) {
    uint64_t address = p->allocate_planned(bytes, thread, phase);
    *planned = address != 0;
    if (!*planned) address = p->allocate(bytes);
    REQUIRE(address != 0);
    if (p->pool.looks_for_plan()) p->pool.note_served(bytes, {thread, phase, 0}, address);
    return address;
  }
  void give_back(uint64_t address) {
    REQUIRE(p->free(address) == Freed::done);
    p->synchronise();
  }
  bool ask(uint64_t bytes, uint32_t phase = 0) {
    bool planned;
    give_back(get(bytes, &planned, phase));
    return planned;
  }

  // Each block lives until the one after it is there. How many had their places.
  int step(const std::vector<uint64_t>& sizes) {
    int served = 0;
    uint64_t last = 0;
    for (const uint64_t bytes : sizes) {
      bool planned;
      const uint64_t address = get(bytes, &planned);
      served += planned ? 1 : 0;
      if (last != 0) give_back(last);
      last = address;
    }
    give_back(last);
    return served;
  }

  // Sizes that never repeat.
  void something_else(int requests) {
    for (int i = 0; i < requests; ++i) CHECK_FALSE(ask(other += 1000));
  }
  // While a plan is made: no plan is there to follow them.
  void meanwhile(int steps, const std::vector<uint64_t>& sizes) {
    for (int i = 0; i < steps; ++i) {
      for (const uint64_t bytes : sizes) {
        const uint64_t address = p->allocate(bytes);
        p->pool.note_served(bytes, {0, 0, 0}, address);
        give_back(address);
      }
    }
  }

  // In the background: whether there is a new plan now.
  bool think() {
    const uint64_t before = p->ledger.plans_made.get();
    p->pool.work_in_background();
    return p->ledger.plans_made.get() != before;
  }
  int asked_to_think() const { return p->source.rung; }

  uint64_t other = uint64_t{1} << 20;
};

const std::vector<uint64_t> kShape = {1000, 3000, 9000, 5000};
const std::vector<uint64_t> kOther = {20000, 60000, 50000, 40000};
std::vector<uint64_t> times(uint64_t factor, std::vector<uint64_t> sizes) {
  for (uint64_t& bytes : sizes) bytes *= factor;
  return sizes;
}
constexpr int kSteps = 64;  // of four requests: as many as there are before the first look

}  // namespace

TEST_CASE("own plans: one is made when a look is due, and the next steps are served", "[plan]") {
  Program program;
  for (int i = 0; i < kSteps - 1; ++i) REQUIRE(program.step(kShape) == 0);
  for (int i = 0; i < 3; ++i) REQUIRE_FALSE(program.ask(kShape[static_cast<size_t>(i)]));
  CHECK(program.asked_to_think() == 0);
  CHECK_FALSE(program.think());
  CHECK_FALSE(program.ask(kShape[3]));
  CHECK(program.asked_to_think() == 1);
  CHECK(program.think());
  CHECK_FALSE(program.think());
  program.step(kShape);
  for (int i = 0; i < 5; ++i) CHECK(program.step(kShape) == 4);
  const Ledger& ledger = program.p->ledger;
  CHECK((ledger.plan_entered.get() == 1 && ledger.plan_left.get() == 0));
  CHECK(ledger.plan_occupied.get() == 0);
}

TEST_CASE("own plans: what never repeats gets none, and looks become rarer", "[plan]") {
  Program program;
  std::vector<int> asked_at;
  for (int i = 1; i <= 2048; ++i) {
    const int before = program.asked_to_think();
    program.something_else(1);
    if (program.asked_to_think() == before) continue;
    asked_at.push_back(i);
    CHECK_FALSE(program.think());
  }
  CHECK(asked_at == std::vector<int>{256, 512, 1024, 2048});
}

TEST_CASE("own plans: a plan that is followed is not looked beyond", "[plan]") {
  Program program;
  for (int i = 0; i < kSteps; ++i) program.step(kShape);
  REQUIRE(program.think());
  CHECK(program.p->pool.looks_for_plan());
  for (int i = 0; i < 2; ++i) program.step(kShape);
  CHECK_FALSE(program.think());
  CHECK_FALSE(program.p->pool.looks_for_plan());
  const int asked = program.asked_to_think();
  for (int i = 0; i < 1000; ++i) CHECK(program.step(kShape) == 4);
  CHECK(program.asked_to_think() == asked);
  // Nor once it is left for a moment.
  program.something_else(8);
  CHECK_FALSE(program.p->pool.looks_for_plan());
  CHECK_FALSE(program.think());
}

TEST_CASE("own plans: a plan that was left for good is followed by another, whose chunk is the one",
          "[plan]") {
  // Each plan takes more than a driver page.
  const std::vector<uint64_t> shape = times(1000, kShape), other = times(1000, kOther);
  Program program;
  for (int i = 0; i < kSteps; ++i) program.step(shape);
  REQUIRE(program.think());
  for (int i = 0; i < 5; ++i) program.step(shape);
  REQUIRE_FALSE(program.think());  // is served, and observed no more
  const uint64_t bytes = program.p->ledger.plan_bytes.get();
  for (int i = 0; i < kSteps + 8; ++i) program.step(other);
  REQUIRE(program.think());
  CHECK(program.p->ledger.plan_bytes.get() > bytes);
  for (int i = 0; i < 5; ++i) CHECK((program.step(other) == 4 || i == 0));
  CHECK(program.p->ledger.plan_entered.get() == 2);
  program.p->pool.release_excess();
  CHECK(program.p->source.asked.back() == program.p->ledger.plan_bytes.get());
  // The first one's shape again.
  REQUIRE_FALSE(program.think());
  for (int i = 0; i < kSteps + 8; ++i) program.step(shape);
  REQUIRE(program.think());
  for (int i = 0; i < 5; ++i) CHECK((program.step(shape) == 4 || i == 0));
}

TEST_CASE("own plans: a new plan has its chance before another is made", "[plan]") {
  Program program;
  for (int i = 0; i < kSteps; ++i) program.step(kShape);
  REQUIRE(program.think());
  program.meanwhile(1000, kOther);  // it was long in the making
  CHECK_FALSE(program.think());
  for (const uint64_t bytes : {20000, 60000, 50000}) CHECK_FALSE(program.ask(bytes));
  CHECK_FALSE(program.think());
  SECTION("it is entered") {
    for (int i = 0; i < 2; ++i) program.step(kShape);
    CHECK(program.step(kShape) == 4);
    CHECK_FALSE(program.think());
    CHECK_FALSE(program.p->pool.looks_for_plan());
  }
  SECTION("it is not") {
    CHECK_FALSE(program.ask(40000));
    CHECK(program.think());
    for (int i = 0; i < 3; ++i) {  // wherever the plan begins
      for (const uint64_t bytes : kOther) CHECK((program.ask(bytes) || i < 2));
    }
  }
}

TEST_CASE("own plans: where one of two threads goes on, the other's new steps are planned",
          "[plan]") {
  const std::vector<uint64_t> sizes[] = {kShape, kOther, {2500, 7000, 9500}};
  Program program;
  std::minstd_rand random(7);  // both in turn would have one plan together
  size_t at[2] = {};
  const auto ask = [&](size_t shape_of_second) {
    const unsigned thread = random() >> 8 & 1;
    const std::vector<uint64_t>& own = sizes[thread == 0 ? 0 : shape_of_second];
    bool planned;
    program.give_back(program.get(own[at[thread]++ % own.size()], &planned, 0, thread));
    program.think();
    return planned;
  };
  for (const size_t shape : {1, 2}) {
    for (int i = 0; i < 2000; ++i) ask(shape);
    int served = 0;
    for (int i = 0; i < 1000; ++i) served += ask(shape) ? 1 : 0;
    CHECK(served == 1000);
  }
}

// As a server does that gives each query to one of its workers.
TEST_CASE("own plans: where threads take turns, the one that changes its steps gets a new plan",
          "[plan]") {
  constexpr unsigned kWorkers = 15, kRestless = kWorkers;
  Program program;
  uint64_t odd = uint64_t{1} << 30;
  int asked = 0;
  const auto ask = [&](uint64_t bytes, unsigned thread) {
    bool planned;
    program.give_back(program.get(bytes, &planned, 0, thread));
    if (++asked % 64 == 0) program.think();
    return planned;
  };
  const auto round = [&](unsigned shape_of_first) {
    int served = 0;
    for (unsigned thread = 0; thread < kWorkers; ++thread) {
      const uint64_t shape = thread == 0 ? shape_of_first : thread;
      for (uint64_t i = 0; i < 60; ++i) {
        const bool planned = ask(512 * (1000 * shape + i + 1), thread);
        served += planned && thread == 0 ? 1 : 0;
      }
      if (thread % 5 == 0) ask(odd += 512, kRestless);  // or all threads have one plan together
    }
    return served;
  };
  for (int i = 0; i < 30; ++i) round(0);
  REQUIRE(round(0) == 60);
  for (int i = 0; i < 30; ++i) round(kWorkers);
  CHECK(round(kWorkers) == 60);
}

// As the steps of a training loop do where just the batch has another size.
TEST_CASE("own plans: steps that begin and end as the planned ones get a plan of their own",
          "[plan]") {
  const auto shape = [](uint64_t middle) {
    std::vector<uint64_t> sizes = {1000, 7000};
    for (uint64_t i = 0; i < 20; ++i) sizes.push_back(middle + 1000 * i);
    sizes.insert(sizes.end(), {3000, 9000, 5000, 4000});
    return sizes;
  };
  const std::vector<uint64_t> before = shape(20000), after = shape(80000);
  Program program;
  for (int i = 0; i < 20; ++i) program.step(before);
  REQUIRE(program.think());
  for (int i = 0; i < 3; ++i) program.step(before);
  REQUIRE_FALSE(program.think());
  bool again = false;
  for (int i = 0; i < 100 && !again; ++i) {
    program.step(after);
    again = program.think();
  }
  REQUIRE(again);
  for (int i = 0; i < 2; ++i) program.step(after);
  CHECK(program.step(after) == static_cast<int>(after.size()));
}

TEST_CASE("own plans: a look that comes to nothing leaves the plan as it is", "[plan]") {
  Program program;
  for (int i = 0; i < kSteps; ++i) program.step(kShape);
  REQUIRE(program.think());
  program.something_else(256);  // it is observed still, and the look is due
  CHECK_FALSE(program.think());
  for (int i = 0; i < 2; ++i) program.step(kShape);
  CHECK(program.step(kShape) == 4);
  CHECK(program.p->ledger.plans_made.get() == 1);
}

TEST_CASE("own plans: the refusals of one plan's chunk do not delay that of the next", "[plan]") {
  const StoppedClock clock;
  Program program;
  for (int i = 0; i < kSteps; ++i) program.step(kShape);
  REQUIRE(program.think());
  program.p->source.fail_obtain = kOutOfMemory;
  for (int i = 0; i < 600; ++i) CHECK(program.step(kShape) == 0);
  CHECK_FALSE(program.think());
  program.p->source.fail_obtain = 0;
  CHECK(program.step(kShape) == 0);  // it waits for hundreds of periods
  for (int i = 0; i < kSteps + 8; ++i) program.step(kOther);
  REQUIRE(program.think());
  for (int i = 0; i < 2; ++i) program.step(kOther);
  CHECK(program.step(kOther) == 4);
}

TEST_CASE("own plans: the pool goes back to its idle budget once a plan serves instead", "[plan]") {
  const std::vector<uint64_t> large = {40 * kMiB, 90 * kMiB, 200 * kMiB, 70 * kMiB};
  Program program;
  Pool& p = *program.p;
  for (int i = 0; i < kSteps; ++i) program.step(large);
  REQUIRE(p.ledger.reserved.get() >= 200 * kMiB);
  REQUIRE(program.think());
  for (int i = 0; i < 2; ++i) program.step(large);
  REQUIRE(program.step(large) == 4);
  const uint64_t planned = p.ledger.plan_bytes.get();
  CHECK(planned == 290 * kMiB);
  bool there;
  const uint64_t first = program.get(large[0], &there);  // the chunk is in use
  REQUIRE(there);
  p.pass_a_second();
  p.pass_a_second();
  p.pool.release_excess();
  CHECK(p.ledger.reserved.get() <= planned + 64 * kMiB);
  program.give_back(first);
}

TEST_CASE("own plans: a context that ends is thought about no more", "[plan]") {
  Program program;
  for (int i = 0; i < kSteps; ++i) program.step(kShape);
  CHECK(program.asked_to_think() == 1);
  program.p->pool.forget_all();
  CHECK_FALSE(program.think());
  CHECK_FALSE(program.p->pool.looks_for_plan());
}

}  // namespace plan_arena_auto_test
