// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context_slot.h"

#include <vector>

#include "tests/catch.h"

using cistern::shim::ContextSet;

namespace {

std::vector<uint32_t> members(const ContextSet& set) {
  std::vector<uint32_t> found;
  set.for_each([&](uint32_t number) { found.push_back(number); });
  return found;
}

constexpr uint32_t kLast = cistern::alloc::Reclaim::kMaxContexts - 1;

}  // namespace

TEST_CASE("a set of contexts has what was added, in every word") {
  ContextSet set;
  CHECK(members(set).empty());
  for (const uint32_t number : {0u, 63u, 64u, 130u, kLast}) {
    CHECK_FALSE(set.has(number));
    set.add(number);
    CHECK(set.has(number));
  }
  set.add(64);
  CHECK(members(set) == std::vector<uint32_t>{0, 63, 64, 130, kLast});
}

TEST_CASE("a set of contexts with one member is not several") {
  ContextSet set;
  CHECK_FALSE(set.several());
  set.add(kLast);
  set.add(kLast);
  CHECK_FALSE(set.several());
  set.add(0);
  CHECK(set.several());
}

TEST_CASE("sets of contexts add up") {
  ContextSet low, high;
  low.add(1);
  high.add(1);
  high.add(200);
  low.add(high);
  CHECK(members(low) == std::vector<uint32_t>{1, 200});
  CHECK(low == high);
}

// It is copied and walked with each piece of work that is handed over.
TEST_CASE("a set of contexts takes a bit for each that there can be") {
  CHECK(sizeof(ContextSet) * 8 == cistern::alloc::Reclaim::kMaxContexts);
}
