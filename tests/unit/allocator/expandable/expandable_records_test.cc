// SPDX-License-Identifier: Apache-2.0
// What the bookkeeping of units that come and go takes of the host.
#include <fstream>

#include "tests/unit/allocator/expandable/expandable_pool.h"

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

// A sanitizer's own memory grows with what is touched.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsPages = false;
#else
constexpr bool kCountsPages = true;
#endif

uint64_t resident_bytes() {
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

}  // namespace

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
