// SPDX-License-Identifier: Apache-2.0
// Plans are right, whatever the lifetimes, and as small as possible where that is known.
#include "allocator/plan/planner.h"

#include <algorithm>
#include <string>
#include <vector>

#include "allocator/plan/packings.h"
#include "tests/catch.h"
#include "tests/unit/allocator/plan/cases.h"

namespace cistern::alloc::plan::planner_test {
namespace {

constexpr uint64_t kSteps = 20'000'000;

struct Made {
  std::vector<uint64_t> offsets;
  uint64_t bytes, lower_bound;
  std::string winner;
  uint64_t memory_bytes;
};

Made made(const std::vector<Lifetime>& lives, uint64_t alignment, uint64_t steps,
          const std::vector<uint64_t>& last = {}) {
  Problem problem;
  REQUIRE(problem.build(lives, alignment) == Built::yes);
  PlannerOptions options;
  options.steps = steps;
  options.last_plan = last;
  Planned planned;
  REQUIRE(plan(problem, options, planned));
  std::vector<uint64_t> offsets(planned.offsets.begin(), planned.offsets.end());
  REQUIRE(test::wrong_with(lives, offsets, planned.bytes, alignment).empty());
  REQUIRE(planned.bytes >= problem.lower_bound());
  return {offsets, planned.bytes, problem.lower_bound(), planned.winner, planned.memory_bytes};
}

TEST_CASE("plan: random lifetimes give plans without a common byte", "[plan]") {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto lives = test::random_lives(seed, 1 + seed, 1 + seed % 90, 1 + (seed * seed) % 5000);
    made(lives, seed % 2 == 0 ? 1 : 512, 200'000);
  }
}

TEST_CASE("plan: a few blocks take the least bytes possible", "[plan]") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const auto lives = test::random_lives(seed, 2 + seed % 6, 6, 9);
    const Made plan = made(lives, 1, kSteps);
    CHECK(plan.bytes == test::least_bytes(lives));
  }
  // Between the bounds, in bytes and with a coarser unit.
  auto lives = test::above_bound();
  CHECK(made(lives, 1, kSteps).bytes == 7);
  for (Lifetime& life : lives) life.bytes *= 1000;
  CHECK(made(lives, 1, kSteps).bytes == 7000);
}

TEST_CASE("plan: blocks cut from a rectangle fill it again", "[plan]") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const Made plan = made(test::cut_lives(seed, 60, 1000, 1 << 20), 1, 10 * kSteps);
    CHECK(plan.bytes == uint64_t{1} << 20);
  }
}

TEST_CASE("plan: where nothing lives the plan begins anew", "[plan]") {
  std::vector<Lifetime> lives;
  for (uint64_t part = 0; part < 40; ++part) {
    for (Lifetime life : test::cut_lives(part, 20, 100, 4096)) {
      life.from += part * 1000;
      life.to += part * 1000;
      lives.push_back(life);
    }
  }
  CHECK(made(lives, 1, 20 * kSteps).bytes == 4096);
}

TEST_CASE("plan: what ends when another block begins makes room for it", "[plan]") {
  CHECK(made({{0, 5, 100}, {5, 9, 100}}, 1, kSteps).bytes == 100);
  CHECK(made({{0, 6, 100}, {5, 9, 100}}, 1, kSteps).bytes == 200);
}

TEST_CASE("plan: sizes count in the alignment", "[plan]") {
  CHECK(made({{0, 1, 1}, {0, 1, 513}, {0, 1, 512}}, 512, kSteps).bytes == 2048);
}

TEST_CASE("plan: a budget that is over at once gives a whole plan", "[plan]") {
  for (const uint64_t steps : {0, 1, 1000}) made(test::random_lives(7, 3000, 500, 100), 1, steps);
}

TEST_CASE("plan: the same steps give the same plan", "[plan]") {
  const auto lives = test::random_lives(11, 3000, 900, 100'000);
  const Made one = made(lives, 1, kSteps), other = made(lives, 1, kSteps);
  CHECK(one.offsets == other.offsets);
  CHECK(one.winner == other.winner);
}

TEST_CASE("plan: a ceiling lowers what greedy packings leave", "[plan]") {
  const auto lives = test::random_lives(3, 2500, 600, 100'000);  // too many for exact search
  const Made plan = made(lives, 1, 8 * kSteps);
  CHECK(plan.winner == "under a ceiling");
  CHECK(plan.bytes <= plan.lower_bound + plan.lower_bound / 125);
}

// Where the lowest of very many small blocks is, which live beside the smaller of two large ones.
uint64_t lowest_of_many(uint64_t small_bytes, uint64_t large_bytes) {
  constexpr size_t kMany = 23'400;
  std::vector<Lifetime> lives(kMany, {.from = 0, .to = 1, .bytes = small_bytes});
  lives.push_back({.from = 0, .to = 1, .bytes = large_bytes / 2});
  lives.push_back({.from = 1, .to = 2, .bytes = large_bytes});
  Problem problem;
  Placement placement;
  Budget budget(UINT64_MAX, UINT64_MAX);
  REQUIRE(problem.build(lives, 1) == Built::yes);
  REQUIRE(placement.make(problem));
  REQUIRE(pack(problem, {Order::bytes, Fit::first, ""}, placement, budget));
  const std::vector<uint64_t> offsets(placement.offsets().begin(), placement.offsets().end());
  const uint64_t bytes = height_of(problem.blocks(), placement.offsets());
  CHECK(test::wrong_with(lives, offsets, bytes, 1).empty());
  return *std::min_element(offsets.begin(), offsets.begin() + kMany);
}

TEST_CASE("plan: the small ones of very many blocks lie beside the large ones", "[plan]") {
  constexpr uint64_t kLarge = uint64_t{1} << 40;
  CHECK(lowest_of_many(64 << 10, kLarge) == kLarge / 2);
  CHECK(lowest_of_many(512 << 10, kLarge) == kLarge / 2);
}

TEST_CASE("plan: the place of a small block is searched for near the one before it", "[plan]") {
  constexpr size_t kLarge = 1000, kSmall = 10'000;
  std::vector<Lifetime> lives(kLarge, {.from = 1, .to = 2, .bytes = 1 << 20});
  lives.resize(kLarge + kSmall, {.from = 0, .to = 1, .bytes = 64 << 10});
  Problem problem;
  Placement placement;
  Budget budget(UINT64_MAX, UINT64_MAX);
  REQUIRE(problem.build(lives, 1) == Built::yes);
  REQUIRE(placement.make(problem));
  REQUIRE(pack(problem, {Order::bytes, Fit::first, ""}, placement, budget));
  const std::vector<uint64_t> offsets(placement.offsets().begin(), placement.offsets().end());
  CHECK(test::wrong_with(lives, offsets, problem.lower_bound(), 1).empty());
  CHECK(budget.spent() < kSmall * kSmall / 50);  // half the square, if all were looked at
}

TEST_CASE("plan: an earlier plan that fits is never made worse", "[plan]") {
  const auto lives = test::cut_lives(5, 80, 1000, 1 << 20);
  const Made first = made(lives, 1, 10 * kSteps);
  CHECK(first.bytes == uint64_t{1} << 20);
  const Made second = made(lives, 1, 20'000, first.offsets);
  CHECK(second.bytes == first.bytes);
  CHECK(second.winner == "last plan");
}

TEST_CASE("plan: behind a spent budget nothing is begun, with an earlier plan or without",
          "[plan]") {
  const auto lives = test::random_lives(7, 3000, 500, 100'000);
  const Made first = made(lives, 1, 1);
  CHECK(made(lives, 1, 1, first.offsets).memory_bytes == first.memory_bytes);
}

TEST_CASE("plan: a ceiling lowers an earlier plan, too", "[plan]") {
  const auto lives = test::random_lives(3, 2500, 600, 100'000);
  const Made plan = made(lives, 1, 8 * kSteps, made(lives, 1, 1).offsets);
  CHECK(plan.winner == "under a ceiling");
  CHECK(plan.bytes <= plan.lower_bound + plan.lower_bound / 125);
}

TEST_CASE("plan: an earlier plan of other lifetimes is mended", "[plan]") {
  auto lives = test::random_lives(6, 200, 100, 1000);
  const Made first = made(lives, 1, kSteps);
  for (Lifetime& life : lives) life.bytes = 1001 - life.bytes;
  made(lives, 1, kSteps, first.offsets);
}

TEST_CASE("plan: lifetimes that make no sense are refused", "[plan]") {
  Problem problem;
  const auto built = [&](std::vector<Lifetime> lives) { return problem.build(lives, 1); };
  CHECK(built({{3, 3, 1}}) == Built::bad_lifetime);
  CHECK(built({{4, 3, 1}}) == Built::bad_lifetime);
  CHECK(built({{0, 1, 0}}) == Built::bad_lifetime);
  CHECK(built({{0, 1, kMostBytes}}) == Built::too_many_bytes);
  CHECK(built({{0, 1, kMostBytes / 2}, {5, 6, kMostBytes / 2}}) == Built::too_many_bytes);
  CHECK(built({{0, 1, UINT64_MAX}}) == Built::too_many_bytes);
}

TEST_CASE("plan: the check of these tests finds what is wrong", "[plan]") {
  const std::vector<Lifetime> lives = {{0, 5, 10}, {4, 9, 10}, {5, 9, 10}};
  CHECK(test::wrong_with(lives, {0, 10, 0}, 20, 1).empty());
  CHECK(test::wrong_with(lives, {0, 9, 0}, 19, 1).find("bytes of another") != std::string::npos);
  CHECK(test::wrong_with(lives, {0, 10, 0}, 21, 1).find("other bytes") != std::string::npos);
  CHECK(test::wrong_with(lives, {0, 12, 0}, 32, 8).find("not aligned") != std::string::npos);
  CHECK(test::wrong_with(lives, {0, 10}, 20, 1).find("each block") != std::string::npos);
}

}  // namespace
}  // namespace cistern::alloc::plan::planner_test
