// SPDX-License-Identifier: Apache-2.0
// Expandable memory beside the default and the chunk strategies: how much of the device a program
// holds when the adversary is refused something, and how often it is refused too early. On a device
// of few units what requests lose to rounding up to units is more than what gaps take, and `legacy`
// holds more there: so the device here has many.
#include "tests/unit/allocator/expandable/adversary.h"

#include <memory>

#include "tests/unit/allocator/expandable/expandable_pool.h"
#include "tests/unit/allocator/packed_driver.h"

namespace adversary_test {

using namespace cistern::alloc;
using namespace cistern::test;

namespace {

constexpr uint64_t kUnits = 100;
constexpr int kRounds = 60;
constexpr auto kDefault = StrategyKind::on_demand, kLegacy = StrategyKind::legacy,
               kGrowth = StrategyKind::auto_growth;

// A pool over as many pages as the expandable one has units, which are of the same size.
class PagedPool {
 public:
  explicit PagedPool(const ChunkSizes& sizes) {
    shared_->reclaim.join(0, &driver_);
    pool_->init(shared_.get(), &driver_, {&ledger_, &cap_}, 0, sizes);
  }

  uint64_t take(uint64_t bytes) {
    uint64_t address = 0;
    if (pool_->allocate(bytes, 0, &address) != kSuccess) return 0;
    if (!live.add(address, bytes)) FAIL("not the program's alone");
    return address;
  }
  void give(uint64_t address) {
    int code = kSuccess;
    if (pool_->free(shared_->index.find(address), address, &code) != Freed::done) FAIL("not freed");
    live.remove(address);
  }

  LiveBlocks live;

 private:
  PackedDriver driver_{kUnits};
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
  Ledger ledger_{};
  Cap cap_{};
  std::unique_ptr<ContextPool> pool_ = std::make_unique<ContextPool>();
};

struct Figures {
  int too_early;        // refusals though units enough held no byte
  double live_refused;  // live bytes over the device's, when it was refused, on average
};

template <typename Memory>
Figures play(Memory& memory, unsigned seed) {
  Adversary adversary(memory, kUnits, seed);
  Figures figures{};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t bytes = adversary.fill();
    figures.too_early += memory.live.units_held() + units_for(bytes) <= kUnits ? 1 : 0;
    const auto live = static_cast<double>(memory.live.bytes());
    figures.live_refused += live / static_cast<double>(kUnits * kUnit) / kRounds;
    adversary.pin();
  }
  return figures;
}

// Refused too early so many times at least and at most.
struct Other {
  const char* name;
  StrategyKind kind;
  uint64_t first, later;
  int least_early, most_early;
};

}  // namespace

// tests/bench/README.md has the figures; -s prints them.
TEST_CASE("an adversary gets more out of expandable memory than out of any other strategy") {
  const auto other = GENERATE(Other{"default", kDefault, 0, 0, 0, 0},
                              Other{"legacy, all in one chunk", kLegacy, kUnits * kUnit, 0, 15, 60},
                              Other{"auto_growth, chunks as asked", kGrowth, 0, 0, 25, 60},
                              Other{"auto_growth, 8 MiB", kGrowth, 0, 8 * kMiB, 20, 60});
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  auto p = expandable(kUnits);
  PagedPool q({other.kind, other.first, other.later, 512, false, false});
  const Figures ours = play(*p, seed), theirs = play(q, seed);
  INFO("seed " << seed << ": expandable " << ours.live_refused << "; " << other.name << " "
               << theirs.live_refused << ", too early " << theirs.too_early << " times of 60");
  CHECK(ours.too_early == 0);
  CHECK(theirs.too_early >= other.least_early);
  CHECK(theirs.too_early <= other.most_early);
  CHECK(ours.live_refused >= theirs.live_refused + 0.03);
}

}  // namespace adversary_test
