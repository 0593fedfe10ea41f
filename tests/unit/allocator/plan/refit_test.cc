// SPDX-License-Identifier: Apache-2.0
// Packings under a ceiling: no two blocks share a byte, and they end where they have to.
#include "allocator/plan/refit.h"

#include <vector>

#include "allocator/plan/greedy.h"
#include "tests/catch.h"
#include "tests/unit/allocator/plan/cases.h"

namespace cistern::alloc::plan {
namespace {

constexpr uint64_t kEffort = 1'000'000;

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

Tried tried(Case& given, double ceiling, double limit, uint64_t steps = UINT64_MAX) {
  auto& [lives, problem, placement] = given;
  Refit refit;
  REQUIRE(refit.make(problem, placement, kEffort));
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

TEST_CASE("refit: all neighbours of a block are found once, by offset", "[plan]") {
  auto all = usual_lives(4, 600, 30);
  all.push_back({0, 1100, 4096});  // in many buckets
  all.push_back({0, 300, 4096});
  Case given(std::move(all));
  given.pack_greedily();
  auto& [lives, problem, placement] = given;
  Array<Placement::Neighbour> found, other;
  REQUIRE((found.make(lives.size()) && other.make(lives.size())));
  for (uint32_t i = 0; i < lives.size(); ++i) {
    CAPTURE(i);
    placement.remove(i);
    std::vector<std::pair<uint64_t, uint32_t>> expected, seen;
    for (uint32_t j = 0; j < lives.size(); ++j) {
      if (j == i || !problem.blocks()[i].overlaps(problem.blocks()[j])) continue;
      expected.emplace_back(placement.offset(j), j);
    }
    const size_t count = placement.neighbours(i, found, other);
    REQUIRE(count <= found.size());
    for (size_t n = 0; n < count; ++n) seen.emplace_back(found[n].offset, found[n].block);
    CHECK(std::is_sorted(seen.begin(), seen.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; }));
    std::sort(expected.begin(), expected.end());
    std::sort(seen.begin(), seen.end());
    CHECK(seen == expected);
    placement.insert(i, placement.offset(i));
  }
  // More of them than there is room for.
  Array<Placement::Neighbour> few;
  REQUIRE((few.make(5) && other.make(5)));
  placement.remove(static_cast<uint32_t>(lives.size() - 2));
  CHECK(placement.neighbours(static_cast<uint32_t>(lives.size() - 2), few, other) > few.size());
}

}  // namespace
}  // namespace cistern::alloc::plan
