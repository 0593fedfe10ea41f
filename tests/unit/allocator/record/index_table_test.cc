// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/recording.h"

#include <map>
#include <random>
#include <vector>

#include "tests/catch.h"

namespace index_table_test {

using cistern::alloc::tool::IndexTable;
using cistern::alloc::tool::kNone;

TEST_CASE("a table of numbers finds what a map finds") {
  std::mt19937_64 random(7);
  std::vector<uint64_t> keys;  // by number
  const auto key_of = [&](uint32_t number) { return keys[number]; };
  IndexTable table;
  std::map<uint64_t, uint32_t> expected;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t key = random() % 3000 << random() % 2 * 32;
    if (random() % 3 == 0) {
      table.remove(key, key_of);
      expected.erase(key);
    } else {
      const auto number = static_cast<uint32_t>(keys.size());
      keys.push_back(key);
      table.put(number, key_of);
      expected[key] = number;
    }
    const uint64_t asked = random() % 3000;
    const auto found = expected.find(asked);
    REQUIRE(table.find(asked, key_of) == (found == expected.end() ? kNone : found->second));
  }
  for (const auto& [key, number] : expected) REQUIRE(table.find(key, key_of) == number);
}

}  // namespace index_table_test
