// SPDX-License-Identifier: Apache-2.0
// What was freed and not handed out again: each byte stands for the last free that it was part of.
#include "allocator/record/freed_map.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/catch.h"

namespace freed_map_test {

using namespace cistern::alloc;

namespace {

// Site, and bytes in the range, of each part.
using Parts = std::vector<std::pair<uint32_t, uint64_t>>;

Parts parts_in(FreedMap& map, uint64_t address, uint64_t bytes) {
  Parts parts;
  map.cut(address, bytes,
          [&](const FreedBlock& block, uint64_t of_it) { parts.emplace_back(block.site, of_it); });
  std::sort(parts.begin(), parts.end());
  return parts;
}

}  // namespace

TEST_CASE("a block in the middle of what was freed leaves both sides of it") {
  FreedMap map;
  map.add(1000, 100, 7, 0);
  CHECK(parts_in(map, 1040, 20) == Parts{{7, 20}});
  CHECK(parts_in(map, 1040, 20).empty());
  CHECK(parts_in(map, 900, 200) == Parts{{7, 40}, {7, 40}});
  CHECK(parts_in(map, 0, 5000).empty());
}

TEST_CASE("what a new block gets is told with what it had been asked for") {
  FreedMap map;
  map.add(1000, 100, 7, 0);
  map.add(1100, 50, 8, 0);
  uint64_t asked = 0;
  map.cut(1090, 20, [&](const FreedBlock& block, uint64_t) { asked += block.requested; });
  CHECK(asked == 150);
  map.cut(1000, 10, [&](const FreedBlock& block, uint64_t) { CHECK(block.requested == 100); });
  map.cut(1110, 10, [&](const FreedBlock& block, uint64_t) { CHECK(block.requested == 50); });
}

TEST_CASE("all that is left of a block is told with its range") {
  FreedMap map;
  map.add(1000, 100, 7, 3);
  map.cut(1040, 20, [](const FreedBlock& block, uint64_t) { CHECK(block.range == 3); });
  uint64_t sides = 0;
  map.cut(900, 200, [&](const FreedBlock& block, uint64_t) { sides += block.range; });
  CHECK(sides == 6);
}

TEST_CASE("frees and new blocks anywhere are told as a map of bytes tells them") {
  auto map = std::make_unique<FreedMap>();
  std::vector<uint32_t> last(2000, 0);  // by byte: whose free it was
  const auto seed = GENERATE(take(3, random(1, 1 << 30)));
  CAPTURE(seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (uint32_t site = 1; site < 3000; ++site) {
    const uint64_t begin = random() % 1900, bytes = 1 + random() % 100;
    if (random() % 2 == 0) {
      map->add(begin, bytes, site, 0);
      std::fill_n(last.begin() + static_cast<long>(begin), bytes, site);
      continue;
    }
    std::map<uint32_t, uint64_t> expected, told;
    for (uint64_t i = begin; i < begin + bytes; ++i) {
      if (last[i] != 0) ++expected[last[i]];
      last[i] = 0;
    }
    for (const auto& [whose, of_it] : parts_in(*map, begin, bytes)) told[whose] += of_it;
    REQUIRE(told == expected);
  }
}

}  // namespace freed_map_test
