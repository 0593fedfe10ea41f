// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <memory>

#include "tests/catch.h"

namespace range_stack_test {

namespace {

using cistern::alloc::RangeStack;
using Entry = RangeStack::Entry;

std::unique_ptr<RangeStack> empty() { return std::make_unique<RangeStack>(); }

Entry pushed(uint32_t range, uint32_t domain = 0) { return {range, domain, 0, 0}; }
Entry started(uint32_t range, uint64_t start) { return {range, 0, start, 0}; }

TEST_CASE("push and pop answer the level, and the innermost is in force") {
  const auto stack = empty();
  CHECK(stack->range() == 0);
  CHECK(stack->push(pushed(1)) == 0);
  CHECK(stack->push(pushed(2)) == 1);
  CHECK(stack->range() == 2);
  CHECK(stack->pop(0).level == 1);
  CHECK(stack->range() == 1);
  CHECK(stack->pop(0).level == 0);
  CHECK(stack->range() == 0);
}

TEST_CASE("a pop of nothing is an error and takes nothing") {
  const auto stack = empty();
  CHECK(stack->pop(0).level == RangeStack::kNothingPushed);
  stack->push(pushed(1));
  CHECK(stack->pop(3).level == RangeStack::kNothingPushed);
  stack->pop(0);
  CHECK(stack->pop(0).level == RangeStack::kNothingPushed);
  stack->start(started(1, 9));
  CHECK(stack->pop(0).level == RangeStack::kNothingPushed);
  CHECK(stack->range() == 1);
}

TEST_CASE("each domain nests by itself") {
  const auto stack = empty();
  CHECK(stack->push(pushed(1)) == 0);
  CHECK(stack->push(pushed(2, 7)) == 0);
  CHECK(stack->push(pushed(3)) == 1);
  const auto popped = stack->pop(7);
  CHECK(popped.level == 0);
  CHECK(popped.entry.range == 2);
  CHECK(stack->range() == 3);
  CHECK(stack->pop(0).entry.range == 3);
  CHECK(stack->pop(0).entry.range == 1);
}

TEST_CASE("started ranges end in any order, and pops leave them alone") {
  const auto stack = empty();
  Entry out;
  stack->start(started(1, 11));
  stack->push(pushed(2));
  stack->start(started(3, 12));
  CHECK(stack->range() == 3);
  CHECK(stack->pop(0).entry.range == 2);
  CHECK(stack->range() == 3);
  CHECK(stack->end(11, &out));
  CHECK(out.range == 1);
  CHECK(stack->range() == 3);
  CHECK_FALSE(stack->end(11, &out));
  CHECK(stack->end(12, &out));
  CHECK(stack->range() == 0);
}

TEST_CASE("what is too deep is counted, for each domain") {
  const auto stack = empty();
  constexpr int kDeep = RangeStack::kMostDeep;
  for (int i = 0; i < kDeep; ++i) REQUIRE(stack->push(pushed(static_cast<uint32_t>(i + 1))) == i);
  CHECK_FALSE(stack->has_room(0));
  CHECK(stack->push(pushed(0)) == kDeep);
  CHECK(stack->push(pushed(0)) == kDeep + 1);
  CHECK(stack->push(pushed(0, 5)) == 0);
  CHECK_FALSE(stack->start(started(1, 9)));

  // Two of the domain 0 without room: a pop takes neither of those that have one.
  auto popped = stack->pop(0);
  CHECK(popped.level == kDeep + 1);
  CHECK_FALSE(popped.was_kept);
  CHECK_FALSE(stack->pop(0).was_kept);
  popped = stack->pop(0);
  CHECK(popped.was_kept);
  CHECK(popped.entry.range == kDeep);

  // There is room, and the next of domain 5 must not take it: its first has none.
  CHECK(stack->has_room(0));
  CHECK_FALSE(stack->has_room(5));
  CHECK(stack->push(pushed(9, 5)) == 1);
  CHECK_FALSE(stack->pop(5).was_kept);
  CHECK_FALSE(stack->pop(5).was_kept);
  CHECK(stack->pop(5).level == RangeStack::kNothingPushed);
  CHECK(stack->has_room(5));
}

TEST_CASE("domains in which nothing is pushed make room for others") {
  const auto stack = empty();
  for (uint32_t d = 0; d < RangeStack::kMostDomains; ++d) REQUIRE(stack->push(pushed(1, d)) == 0);
  CHECK(stack->push(pushed(2, 1000)) == RangeStack::kNotTracked);
  CHECK(stack->pop(1000).level == RangeStack::kNothingPushed);
  stack->pop(3);
  CHECK(stack->push(pushed(2, 1000)) == 0);
  CHECK(stack->pop(1000).entry.range == 2);
}

TEST_CASE("the end of a domain takes what is open in it") {
  const auto stack = empty();
  Entry out;
  stack->push(pushed(1));
  stack->push(pushed(2, 7));
  stack->push(pushed(3, 7));
  stack->push(pushed(4));
  CHECK(stack->end_of_domain(7, &out));
  CHECK(out.range == 3);
  CHECK(stack->end_of_domain(7, &out));
  CHECK(out.range == 2);
  CHECK_FALSE(stack->end_of_domain(7, &out));
  CHECK(stack->pop(7).level == RangeStack::kNothingPushed);
  CHECK(stack->range() == 4);
  CHECK(stack->pop(0).level == 1);
}

}  // namespace

}  // namespace range_stack_test
