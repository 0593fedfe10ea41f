// SPDX-License-Identifier: Apache-2.0
// What the bookkeeping of units that come and go takes of the host.
#include "tests/unit/allocator/expandable/expandable_pool.h"
#include "tests/unit/allocator/resident.h"

namespace expandable_records_test {

using namespace cistern::alloc;
using namespace cistern::test;

TEST_CASE("units that come and go again and again take no more bookkeeping than once") {
  if (!kCountsPages) return;
  auto p = expandable(16);
  uint64_t before = 0;
  for (int round = 0; round < 2000; ++round) {
    if (round == 100) before = resident_bytes();
    const uint64_t a = p->take(kUnit), b = p->take(3 * kUnit), c = p->take(kUnit / 4);
    p->give(a);
    p->give(c);
    p->pool.release_returnable(0);
    p->give(b);
    p->pool.release_returnable(0);
  }
  CHECK(p->units().units.empty());
  CHECK(resident_bytes() < before + kMiB);
}

}  // namespace expandable_records_test
