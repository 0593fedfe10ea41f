// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/chunk_supply.h"

#include "tests/catch.h"

namespace fastest_of_late_test {

using cistern::alloc::FastestOfLate;

TEST_CASE("what a call takes is the least of its last times") {
  FastestOfLate time;
  CHECK(time.ns() == 0);
  time.note(70);
  CHECK(time.ns() == 70);
  time.note(50);
  time.note(90);
  CHECK(time.ns() == 50);
  for (int i = 0; i < 29; ++i) time.note(80);
  CHECK(time.ns() == 50);
  for (int i = 0; i < 31; ++i) time.note(80);
  CHECK(time.ns() == 50);
  time.note(80);
  time.note(80);
  CHECK(time.ns() == 80);
  time.reset();
  CHECK(time.ns() == 0);
}

}  // namespace fastest_of_late_test
