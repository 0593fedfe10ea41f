// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <memory>
#include <thread>
#include <vector>

#include "tests/catch.h"

namespace range_tree_test {

namespace {

using cistern::alloc::RangeTree;

TEST_CASE("the same names nested in the same order are the same range") {
  const auto tree = std::make_unique<RangeTree>();
  const auto outer = tree->range(0, 7);
  CHECK(outer.range == 1);
  CHECK(outer.added);
  const auto inner = tree->range(1, 8);
  CHECK(inner.range == 2);
  CHECK(tree->range(0, 8).range == 3);
  CHECK(tree->range(3, 7).range == 4);
  CHECK(tree->range(1, 8).range == 2);
  CHECK_FALSE(tree->range(1, 8).added);
  CHECK(tree->count() == 4);
  CHECK(tree->parent_of(2) == 1);
  CHECK(tree->name_of(2) == 8);
}

TEST_CASE("ranges beyond the bound are 0, known ones are still found") {
  const auto tree = std::make_unique<RangeTree>();
  for (uint32_t i = 1; i <= RangeTree::kMostRanges; ++i) REQUIRE(tree->range(0, i).range == i);
  CHECK(tree->range(0, RangeTree::kMostRanges + 1).range == 0);
  CHECK(tree->range(5, 5).range == 0);
  CHECK(tree->range(0, 1234).range == 1234);
  CHECK(tree->count() == RangeTree::kMostRanges);
}

TEST_CASE("threads that come together get the same ranges") {
  const auto tree = std::make_unique<RangeTree>();
  constexpr uint32_t kNames = 2000;
  std::vector<std::vector<uint32_t>> seen(4, std::vector<uint32_t>(kNames));
  std::vector<std::thread> threads;
  threads.reserve(seen.size());
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      for (uint32_t i = 0; i < kNames; ++i) mine[i] = tree->range(0, i).range;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(tree->count() == kNames);
  for (const auto& mine : seen) CHECK(mine == seen[0]);
  for (uint32_t i = 0; i < kNames; ++i) CHECK(tree->name_of(seen[0][i]) == i);
}

}  // namespace

}  // namespace range_tree_test
