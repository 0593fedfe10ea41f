// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/os.h"

#include <string>

#include "tests/catch.h"

using cistern::alloc::os::read_number;

TEST_CASE("a number is read behind blanks, and the text moves on behind it") {
  const char* text = "         0\t 7 4294967295\n18446744073709551616,x";
  CHECK(read_number(&text) == 0);
  CHECK(read_number(&text) == 7);
  CHECK(read_number(&text) == 4294967295);
  CHECK(read_number(&text) == UINT64_MAX);  // one more than that
  CHECK(std::string(text) == ",x");
  CHECK(read_number(&text) == 0);
  CHECK(std::string(text) == ",x");
}
