// SPDX-License-Identifier: Apache-2.0
// The promise of the default strategy: a program never runs out of memory under the pool where the
// driver alone would still have served it. Strict for large requests. Small ones are packed into
// 2 MiB pages by both, in an order of their own: at the very edge either may need one page more
// than the other (the pool: 16 of 3000 such programs), so for them the promise is within one page,
// for each shard that threads allocate from.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/packed_driver.h"

namespace never_earlier_test {

using namespace cistern::alloc;
using cistern::test::PackedDriver;

namespace {

struct Mix {
  const char* name;
  unsigned small_percent;
  uint64_t smallest_small, largest_small, largest_large;
  uint64_t spare_pages;
  unsigned shards = 1;  // as many threads take turns
};

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

uint64_t draw_size(const Mix& mix, std::mt19937& random) {
  if (random() % 100 < mix.small_percent) {
    return mix.smallest_small + random() % (mix.largest_small - mix.smallest_small);
  }
  return kMiB + random() % (mix.largest_large - kMiB);
}

// The same requests to the driver alone and to a pool over such a driver, until the driver alone
// refuses one. Returns the step at which the pool refused earlier, or -1.
int first_early_refusal(const Mix& mix, unsigned seed, uint64_t pages) {
  PackedDriver alone(pages), below(pages + mix.spare_pages);
  auto shared = std::make_unique<Shared>();
  Ledger ledger;
  Cap cap;
  auto pool = std::make_unique<ContextPool>();
  shared->reclaim.join(0, &below);
  pool->init(shared.get(), &below, {&ledger, &cap}, 0, {});

  std::mt19937 random(seed);
  struct Pair {
    uint64_t alone, pooled;
  };
  std::vector<Pair> live;
  for (int step = 0; step < 4000; ++step) {
    if (!live.empty() && random() % 100 < 42) {
      const size_t victim = random() % live.size();
      alone.release(live[victim].alone);
      int code;
      Chunk* chunk = shared->index.find(live[victim].pooled);
      pool->free(chunk, live[victim].pooled, &code);
      live[victim] = live.back();
      live.pop_back();
      continue;
    }
    const uint64_t bytes = draw_size(mix, random);
    Pair pair;
    if (alone.obtain(bytes, &pair.alone) != kSuccess) return -1;
    const unsigned shard = static_cast<unsigned>(random()) % mix.shards;
    if (pool->allocate(bytes, shard, &pair.pooled) != kSuccess) return step;
    live.push_back(pair);
  }
  return -1;
}

}  // namespace

TEST_CASE("the pool never runs out of memory before the driver alone does") {
  const Mix mix = GENERATE(Mix{"large", 0, 1, 2, 40 * kMiB, 0}, Mix{"huge", 0, 1, 2, 150 * kMiB, 0},
                           Mix{"mixed", 50, 1, 900 * kKiB, 20 * kMiB, 1},
                           Mix{"mostly small", 95, 1, 64 * kKiB, 8 * kMiB, 1},
                           Mix{"awkward", 100, 400 * kKiB, 1000 * kKiB, 2 * kMiB, 1},
                           Mix{"tiny", 99, 1, 4 * kKiB, 4 * kMiB, 1},
                           Mix{"mixed, threads", 50, 1, 900 * kKiB, 20 * kMiB, 8, 8},
                           Mix{"mostly small, threads", 95, 1, 64 * kKiB, 8 * kMiB, 8, 8});
  int early = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    const int step = first_early_refusal(mix, seed, 100);
    if (step >= 0) UNSCOPED_INFO(mix.name << ": seed " << seed << " refused at step " << step);
    early += step >= 0 ? 1 : 0;
  }
  CHECK(early == 0);
}

}  // namespace never_earlier_test
