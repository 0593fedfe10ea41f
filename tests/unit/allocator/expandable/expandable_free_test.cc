// SPDX-License-Identifier: Apache-2.0
// What the expandable strategy tells as free where units have to be looked at: some of what was
// freed is known outside the process, or may still be in use.
#include <algorithm>
#include <random>
#include <vector>

#include "allocator/base/os.h"
#include "tests/unit/allocator/expandable/expandable_pool.h"

namespace expandable_free_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

void mark_known(ExpandablePool& p, uint64_t address) {
  REQUIRE(p.pool.mark_exported(p.shared.index.find(address), address));
}

// The least of several times that it takes to tell what is free of so many units full of small
// blocks. Of two units the end of the first and all of the second are freed, and one block that was
// known.
uint64_t ns_to_tell(uint64_t units, uint64_t bytes) {
  auto p = expandable(units);
  std::vector<uint64_t> blocks;
  for (uint64_t i = 0; i < units * kUnit / bytes; ++i) blocks.push_back(p->allocate(bytes));
  mark_known(*p, blocks[1]);
  for (const uint64_t address : blocks) {
    const bool goes = address == blocks[1] || (address - blocks[0]) % (2 * kUnit) >= kUnit / 8 * 7;
    if (goes && p->free(address) != Freed::done) FAIL("not freed");
  }
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 7; ++i) {
    const uint64_t start = os::now_ns();
    CHECK(p->pool.returnable_bytes() == units / 2 * kUnit);
    least = std::min(least, os::now_ns() - start);
  }
  return least;
}

}  // namespace

TEST_CASE("free memory is that of the units which hold no byte, however blocks lie in them") {
  constexpr uint64_t kUnits = 60;
  const bool finished = GENERATE(true, false);  // the work that used what is freed
  const uint64_t most = GENERATE(uint64_t{3000}, kUnit / 2, kUnit - 1, 3 * kUnit);
  const unsigned seed = GENERATE(1u, 2u, 3u);
  std::mt19937 random(seed);
  auto p = expandable(kUnits);
  for (int round = 0; round < 30; ++round) {
    p->source.lost = false;
    const uint64_t bytes = (1 + random() % 40) * kUnit;
    for (uint64_t taken = 0; taken < std::min<uint64_t>(bytes, 2000 * most);) {
      const uint64_t size = 1 + random() % most;
      if (p->take(size) == 0) break;
      taken += size;
    }
    p->source.lost = !finished;
    // Most of what lies side by side goes, and of the rest some.
    std::vector<uint64_t> given;
    const uint64_t kept_of = 1 + random() % 200;
    for (const auto& [address, size] : p->live.blocks()) {
      if (random() % kept_of != 0) given.push_back(address);
    }
    for (const uint64_t address : given) {
      if (random() % 20 == 0) mark_known(*p, address);
      p->give(address);
    }
    const uint64_t unused = p->units().units.size() - p->live.units_held();
    REQUIRE(p->pool.returnable_bytes() == unused * kUnit);
    if (random() % 4 == 0) p->pool.release_returnable(0);
  }
  CHECK(p->units().broken == 0);
}

TEST_CASE(
    "how long it takes to tell what is free depends on the units, not on the blocks in them") {
  const uint64_t few = ns_to_tell(200, kUnit / 8), many = ns_to_tell(200, 512);
  INFO(few << " and " << many << " ns");
  CHECK(many <= 10 * few + 200'000);
}

TEST_CASE("with everything clean a shortage waits for no work") {
  auto p = expandable(8);
  p->source.passed_mark = 0;  // work goes on
  const uint64_t live = p->take(3 * kUnit), small = p->take(kUnit / 4);
  const Mark before = p->source.last_mark;
  CHECK_FALSE(p->pool.release_returnable(/*patience_ns=*/200'000'000));
  CHECK(p->source.last_mark == before);
  p->give(small);
  p->source.passed_mark = ~Mark{0};
  CHECK(p->pool.release_returnable(/*patience_ns=*/200'000'000));
  p->give(live);
}

}  // namespace expandable_free_test
