// SPDX-License-Identifier: Apache-2.0
// Exact search answers what it was asked, and proves what is impossible.
#include "allocator/plan/exact.h"

#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/plan/cases.h"

namespace cistern::alloc::plan::exact_test {
namespace {

struct Answer {
  Searched searched;
  std::vector<uint64_t> offsets;
};

Answer search(const std::vector<Lifetime>& lives, uint64_t capacity, uint64_t steps = UINT64_MAX) {
  Problem problem;
  REQUIRE(problem.build(lives, 1) == Built::yes);
  Exact exact;
  REQUIRE(exact.make(lives.size(), problem.live().size()));
  Budget budget(steps, UINT64_MAX);
  Answer answer{exact.search(problem.blocks(), capacity, budget), {}};
  for (size_t i = 0; i < lives.size(); ++i) answer.offsets.push_back(exact.offset(i));
  return answer;
}

TEST_CASE("exact search: it finds the least capacity, and that less is impossible", "[plan]") {
  for (uint64_t seed = 1000; seed < 1100; ++seed) {
    CAPTURE(seed);
    const auto lives = test::random_lives(seed, 2 + seed % 6, 6, 9);
    const uint64_t least = test::least_bytes(lives);
    const Answer found = search(lives, least);
    REQUIRE(found.searched == Searched::solved);
    CHECK(test::wrong_with(lives, found.offsets, least, 1).empty());
    CHECK(search(lives, least - 1).searched == Searched::impossible);
  }
}

TEST_CASE("exact search: the lower bound may be impossible", "[plan]") {
  CHECK(test::least_bytes(test::above_bound()) == 7);
  CHECK(search(test::above_bound(), 6).searched == Searched::impossible);
  CHECK(search(test::above_bound(), 7).searched == Searched::solved);
}

TEST_CASE("exact search: parts that fall apart in time are searched by themselves", "[plan]") {
  // One block across the whole time; what lies beside it falls into many parts once it is placed.
  // Each part alone has thousands of orders, and all together more than can be tried.
  std::vector<Lifetime> lives = {{.from = 0, .to = 3000, .bytes = 7}};
  for (uint64_t part = 0; part < 30; ++part) {
    for (Lifetime life : test::cut_lives(part, 12, 100, 100)) {
      life.from += part * 100;
      life.to += part * 100;
      lives.push_back(life);
    }
  }
  const Answer found = search(lives, 107, 100'000'000);
  REQUIRE(found.searched == Searched::solved);
  CHECK(test::wrong_with(lives, found.offsets, 107, 1).empty());
}

TEST_CASE("exact search: a part that is impossible ends the search", "[plan]") {
  std::vector<Lifetime> lives = test::above_bound();
  for (uint64_t part = 1; part < 20; ++part) {
    for (Lifetime life : test::cut_lives(part, 12, 100, 6)) {
      life.from += part * 100;
      life.to += part * 100;
      lives.push_back(life);
    }
  }
  CHECK(search(lives, 6, 1'000'000).searched == Searched::impossible);
}

TEST_CASE("exact search: it gives up when the budget is over", "[plan]") {
  CHECK(search(test::cut_lives(1, 60, 1000, 1 << 20), 1 << 20, 1).searched == Searched::gave_up);
}

TEST_CASE("exact search: more blocks than it is made for are refused", "[plan]") {
  Exact exact;
  CHECK_FALSE(exact.make(Exact::kMostBlocks + 1, 1));
}

}  // namespace
}  // namespace cistern::alloc::plan::exact_test
