// SPDX-License-Identifier: Apache-2.0
// Plans in which memory goes from block to block of the same size alone.
#include "allocator/plan/planner.h"

#include <map>

#include "tests/catch.h"
#include "tests/unit/allocator/plan/cases.h"

namespace cistern::alloc::plan::same_size_test {
namespace {

struct Answer {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;
};

Answer planned_by_size(const std::vector<Lifetime>& lives, uint64_t alignment) {
  Problem problem;
  REQUIRE(problem.build(lives, alignment) == Built::yes);
  Planned planned;
  REQUIRE(plan_same_size(problem, lives, planned));
  return {{planned.offsets.begin(), planned.offsets.end()}, planned.bytes};
}

// The most blocks of each size that live at a time, counted in another way.
uint64_t least_bytes_by_size(const std::vector<Lifetime>& lives, uint64_t alignment) {
  std::map<uint64_t, uint64_t> most;
  for (const Lifetime& at : lives) {
    uint64_t live = 0;
    for (const Lifetime& life : lives) {
      live += life.bytes == at.bytes && life.from <= at.from && at.from < life.to;
    }
    most[at.bytes] = std::max(most[at.bytes], live);
  }
  uint64_t bytes = 0;
  for (const auto& [size, count] : most) {
    bytes += count * ((size + alignment - 1) / alignment * alignment);
  }
  return bytes;
}

// Blocks that share a byte, at whatever time, have one size and one offset.
bool only_same_sizes_meet(const std::vector<Lifetime>& lives, const std::vector<uint64_t>& at) {
  for (size_t a = 0; a < lives.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      if (at[a] >= at[b] + lives[b].bytes || at[b] >= at[a] + lives[a].bytes) continue;
      if (lives[a].bytes != lives[b].bytes || at[a] != at[b]) return false;
    }
  }
  return true;
}

TEST_CASE("level 0: dead memory goes to the next block of its size, and to no smaller one",
          "[plan]") {
  const Answer answer = planned_by_size({{0, 2, 8}, {2, 4, 8}, {4, 6, 4}}, 1);
  CHECK(answer.offsets[0] == answer.offsets[1]);
  CHECK(answer.bytes == 12);
}

TEST_CASE("level 0: sizes that are rounded up to the same are not the same", "[plan]") {
  CHECK(planned_by_size({{0, 1, 5}, {1, 2, 6}}, 8).bytes == 16);
}

TEST_CASE("level 0: random lifetimes take as few places of each size as they can", "[plan]") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const uint64_t alignment = seed % 2 == 0 ? 1 : 4;
    const auto lives = test::random_lives(seed, 1 + seed, 60, 6);
    const Answer answer = planned_by_size(lives, alignment);
    CHECK(test::wrong_with(lives, answer.offsets, answer.bytes, alignment).empty());
    CHECK(only_same_sizes_meet(lives, answer.offsets));
    CHECK(answer.bytes == least_bytes_by_size(lives, alignment));
  }
}

TEST_CASE("level 0: no blocks take no bytes", "[plan]") {
  CHECK(planned_by_size({}, 1).bytes == 0);
}

}  // namespace
}  // namespace cistern::alloc::plan::same_size_test
