// SPDX-License-Identifier: Apache-2.0
// Packings under a ceiling: no two blocks share a byte, and they end where they have to.
#include "allocator/plan/packings.h"

#include <cmath>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/plan/cases.h"
#include "tests/unit/test_clock.h"

namespace cistern::alloc::plan::refit_test {
namespace {

using cistern::test::kMs;
using cistern::test::StoppedClock;

// As programs have them: few blocks are large, and one begins at a time.
std::vector<Lifetime> usual_lives(uint64_t seed, size_t count, uint64_t live) {
  std::mt19937_64 random(seed);
  std::vector<Lifetime> lives(count);
  for (size_t i = 0; i < count; ++i) {
    lives[i].from = 2 * i;
    lives[i].to = 2 * i + 1 + 2 * (random() % (2 * live));
    const uint64_t octave = uint64_t{512} << random() % 17;
    lives[i].bytes = octave + random() % octave;
  }
  return lives;
}

// Lifetimes, and where their blocks are placed: nowhere at first.
struct Case {
  explicit Case(std::vector<Lifetime> all) : lives(std::move(all)) {
    REQUIRE(problem.build(lives, 1) == Built::yes);
    REQUIRE(placement.make(problem));
  }

  // As the first greedy packing does it; where the highest block ends.
  uint64_t pack_greedily() {
    Budget budget(UINT64_MAX, UINT64_MAX);
    REQUIRE(pack(problem, kPackings[0], placement, budget));
    return height_of(problem.blocks(), placement.offsets());
  }

  std::vector<Lifetime> lives;
  Problem problem;
  Placement placement;
};

struct Tried {
  bool packed;
  uint64_t bytes;
};

Tried tried(Case& given, double ceiling, double limit, uint64_t steps = 100'000'000) {
  auto& [lives, problem, placement] = given;
  Refit refit;
  REQUIRE(refit.make(problem, placement));
  Budget budget(steps, UINT64_MAX);
  const auto bound = static_cast<double>(problem.lower_bound());
  const auto bytes = [&](double part) { return static_cast<uint64_t>(bound * part); };
  if (!refit.run(bytes(ceiling), bytes(limit), budget)) return {false, 0};
  const std::vector<uint64_t> offsets(placement.offsets().begin(), placement.offsets().end());
  const uint64_t height = height_of(problem.blocks(), placement.offsets());
  REQUIRE(test::wrong_with(lives, offsets, height, 1).empty());
  CHECK(height < bytes(limit));
  return {true, height - problem.lower_bound()};
}

TEST_CASE("refit: packings under a ceiling are right", "[plan]") {
  int packed = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Case given(test::random_lives(seed, 20 + 10 * seed, 1 + seed % 90, 5000));
    packed += tried(given, 1, 1.1, 3'000'000).packed ? 1 : 0;
  }
  CHECK(packed > 20);
}

TEST_CASE("refit: many blocks take a hundredth more than the lower bound", "[plan]") {
  Case given(usual_lives(2, 6000, 200));
  const uint64_t bound = given.problem.lower_bound();
  CHECK(given.pack_greedily() > bound + bound / 50);
  const Tried tight = tried(given, 1.005, 1.02, 400'000'000);
  REQUIRE(tight.packed);
  CHECK(tight.bytes <= bound / 100);
}

TEST_CASE("refit: a ceiling that blocks do not fit under rises, and no higher than the limit",
          "[plan]") {
  // The least is 7/6 of the lower bound.
  Case given(test::above_bound());
  CHECK(tried(given, 1, 1.5).packed);
  CHECK(!tried(given, 1, 7.0 / 6).packed);
}

TEST_CASE("refit: a budget that is over ends it", "[plan]") {
  Case given(usual_lives(3, 2000, 100));
  CHECK(!tried(given, 1, 2, 1000).packed);
  // What is left of it after the search is enough for a packing.
  CHECK(tried(given, 1, 2, 20'000'000).packed);
}

// What its neighbours cost that have bytes in a block's place at `offset`, and which these are.
struct Way {
  double price = 0;
  std::vector<uint32_t> blocks;
};

double price_of(uint32_t block) { return 1 + block % 7; }

Way in_the_way(const Case& given, uint32_t block, uint64_t offset) {
  Way way;
  const std::span<const Block> blocks = given.problem.blocks();
  for (uint32_t other = 0; other < blocks.size(); ++other) {
    const uint64_t begin = given.placement.offset(other);
    if (other == block || !blocks[block].overlaps(blocks[other])) continue;
    if (begin >= offset + blocks[block].bytes || begin + blocks[other].bytes <= offset) continue;
    way.price += price_of(other);
    way.blocks.push_back(other);
  }
  return way;
}

// Its lowest place is at 0 or where another block ends.
uint64_t lowest_cheapest(const Case& given, uint32_t block, uint64_t ceiling) {
  const std::span<const Block> blocks = given.problem.blocks();
  std::vector<uint64_t> offsets = {0};
  for (uint32_t i = 0; i < blocks.size(); ++i) {
    const uint64_t end = given.placement.offset(i) + blocks[i].bytes;
    const bool fits = i != block && end + blocks[block].bytes <= ceiling;
    if (fits && blocks[i].overlaps(blocks[block])) offsets.push_back(end);
  }
  std::sort(offsets.begin(), offsets.end());
  return *std::min_element(offsets.begin(), offsets.end(), [&](uint64_t one, uint64_t other) {
    return in_the_way(given, block, one).price < in_the_way(given, block, other).price;
  });
}

TEST_CASE("refit: the cheapest place of a block is found, with all that is in its way", "[plan]") {
  auto all = usual_lives(4, 600, 30);
  all.push_back({0, 1100, 4096});  // in many buckets
  all.push_back({0, 300, 4096});
  Case given(std::move(all));
  const uint64_t ceiling = given.pack_greedily();
  auto& [lives, problem, placement] = given;
  const auto insert = [&](uint32_t block) {
    placement.insert(block, placement.offset(block), static_cast<float>(price_of(block)));
  };
  for (uint32_t i = 0; i < lives.size(); ++i) placement.remove(i), insert(i);
  std::vector<uint32_t> found(lives.size());
  int displacing = 0;
  for (uint32_t i = 0; i < lives.size(); ++i) {
    CAPTURE(i);
    const uint64_t end = placement.end(i);
    // The place that it has is free and counts as the others.
    placement.remove(i);
    for (const uint64_t below : {ceiling, std::max(end - 1, lives[i].bytes)}) {
      const uint64_t expected = lowest_cheapest(given, i, below);
      const Way way = in_the_way(given, i, expected);
      const auto place = placement.cheapest_place(i, below, HUGE_VAL, found);
      CHECK(place.offset == expected);
      CHECK(place.price == way.price);
      std::sort(found.begin(), found.begin() + static_cast<ptrdiff_t>(place.in_the_way));
      CHECK(std::equal(way.blocks.begin(), way.blocks.end(), found.begin(),
                       found.begin() + static_cast<ptrdiff_t>(place.in_the_way)));
      // With a limit it is found where it costs less.
      CHECK(placement.cheapest_place(i, below, way.price + 1, found).offset == expected);
      if (way.price == 0) continue;
      ++displacing;
      const auto none = placement.cheapest_place(i, below, way.price, found);
      CHECK(none.price == way.price);
      CHECK(none.in_the_way == 0);
    }
    insert(i);
  }
  CHECK(displacing > 50);
}

TEST_CASE("refit: a budget knows what part of it is left, of its steps or its time", "[plan]") {
  const StoppedClock clock;
  Budget steps(1000, UINT64_MAX);
  CHECK(steps.left_part() == 1);
  steps.spend(250);
  CHECK(steps.left_part() == 0.75);
  steps.spend(750);
  CHECK(steps.left_part() == 0);
  Budget time(1 << 30, StoppedClock::now_ns() + 100 * kMs);
  StoppedClock::move_ns(25 * kMs);
  time.spend(1);
  CHECK(time.left_part() == 0.75);
  CHECK(time.less_time(70 * kMs).left_ns() == 5 * kMs);
  Budget over = time.less_time(80 * kMs);
  over.spend(1);
  CHECK(over.over());
  CHECK(over.left_part() == 0);
  CHECK(!time.over());
}

}  // namespace
}  // namespace cistern::alloc::plan::refit_test
