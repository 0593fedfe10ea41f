// SPDX-License-Identifier: Apache-2.0
// The rows "GPU pool: chunks" of the settings page as tables: fraction, initial and reallocate on
// devices of several sizes, and what each strategy makes of them.
#include "allocator/strategy/chunk_sizes.h"

#include <catch2/catch.hpp>

#include "config/load.h"

using namespace cistern::alloc;
using cistern::config::Policy;
using cistern::config::StaticMode;
using cistern::config::Strategy;

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = kMiB << 10;
constexpr uint64_t kSmall = 256 * kMiB, kMiddle = 8 * kGiB, kLarge = 139 * kGiB;

struct Flags {
  double fraction = -1;  // below 0: not set
  uint64_t initial_mb = 0, reallocate_mb = 0;
  Strategy strategy = Strategy::kOnDemand;
  uint64_t auto_growth_mb = 0;
};

Policy policy_of(const Flags& flags) {
  Policy policy = cistern::config::default_policy();
  if (flags.fraction >= 0) policy.fraction_of_gpu_memory_to_use = {flags.fraction, true};
  if (flags.initial_mb != 0) policy.initial_gpu_memory_in_mb = {flags.initial_mb, true};
  if (flags.reallocate_mb != 0) {
    policy.reallocate_gpu_memory_in_mb = {static_cast<int64_t>(flags.reallocate_mb), true};
  }
  if (flags.strategy != Strategy::kOnDemand) policy.allocator_strategy = {flags.strategy, true};
  policy.auto_growth_chunk_size_in_mb.value = flags.auto_growth_mb;
  return policy;
}

ChunkSizes sizes_of(const Flags& flags, uint64_t total, unsigned cpus = 4) {
  return chunk_sizes(policy_of(flags), total, cpus);
}

// The sizes of the first chunk and the next, for a small request.
struct Two {
  uint64_t first, later;
  bool operator==(const Two&) const = default;
};

Two two(const ChunkSizes& sizes, uint64_t need = 512) {
  return {sizes.chunk_for(need, true), sizes.chunk_for(need, false)};
}

constexpr Strategy kLegacy = Strategy::kLegacy;

}  // namespace

TEST_CASE("fraction, initial and reallocate in all combinations") {
  struct Row {
    Flags flags;
    uint64_t total, first, later;
  };
  const uint64_t default_small = 234 * kMiB;     // 0.92 * 256 = 235.5
  const uint64_t default_middle = 7536 * kMiB;   // 0.92 * 8192 = 7536.6
  const uint64_t default_large = 130948 * kMiB;  // 0.92 * 142336 = 130949.1
  const Row rows[] = {
      {{.strategy = kLegacy}, kSmall, default_small, default_small},
      {{.strategy = kLegacy}, kMiddle, default_middle, default_middle},
      {{.strategy = kLegacy}, kLarge, default_large, default_large},
      {{.fraction = 0.5}, kSmall, 128 * kMiB, 128 * kMiB},
      {{.fraction = 0.5}, kMiddle, 4 * kGiB, 4 * kGiB},
      {{.fraction = 1}, kLarge, kLarge, kLarge},
      {{.initial_mb = 64}, kSmall, 64 * kMiB, default_small},
      {{.initial_mb = 64}, kLarge, 64 * kMiB, default_large},
      {{.reallocate_mb = 32}, kSmall, default_small, 32 * kMiB},
      {{.reallocate_mb = 32}, kMiddle, default_middle, 32 * kMiB},
      {{.initial_mb = 64, .reallocate_mb = 32}, kMiddle, 64 * kMiB, 32 * kMiB},
      {{.fraction = 0.5, .initial_mb = 64}, kMiddle, 64 * kMiB, 4 * kGiB},
      {{.fraction = 0.5, .reallocate_mb = 32}, kMiddle, 4 * kGiB, 32 * kMiB},
      {{.fraction = 0.5, .initial_mb = 64, .reallocate_mb = 32}, kSmall, 64 * kMiB, 32 * kMiB},
      // Never so small that nothing could be cut from it, and odd sizes as they were asked for.
      {{.fraction = 1e-6}, kSmall, 2 * kMiB, 2 * kMiB},
      {{.initial_mb = 1, .reallocate_mb = 3}, kSmall, kMiB, 3 * kMiB},
      // A fraction of 0 has no chunk of its own, the others remain.
      {{.fraction = 0, .initial_mb = 64}, kSmall, 64 * kMiB, 512},
      {{.fraction = 0, .reallocate_mb = 32}, kSmall, 512, 32 * kMiB},
  };
  for (const Row& row : rows) {
    CAPTURE(row.flags.fraction, row.flags.initial_mb, row.flags.reallocate_mb, row.total);
    const ChunkSizes sizes = sizes_of(row.flags, row.total);
    CHECK(sizes.kind == StrategyKind::legacy);
    CHECK(two(sizes) == Two{row.first, row.later});
    CHECK_FALSE(sizes.initial_clamped);
    CHECK_FALSE(sizes.later_clamped);
  }
}

TEST_CASE("naming a strategy or setting a chunk flag selects chunk pools, nothing else does") {
  struct Row {
    Flags flags;
    StrategyKind kind;
  };
  const Row rows[] = {
      {{}, StrategyKind::on_demand},
      {{.auto_growth_mb = 64}, StrategyKind::on_demand},
      {{.fraction = 0.92}, StrategyKind::legacy},
      {{.initial_mb = 1}, StrategyKind::legacy},
      {{.reallocate_mb = 1}, StrategyKind::legacy},
      {{.strategy = kLegacy}, StrategyKind::legacy},
      {{.strategy = Strategy::kNaiveBestFit}, StrategyKind::naive_best_fit},
      {{.strategy = Strategy::kAutoGrowth}, StrategyKind::auto_growth},
      {{.strategy = Strategy::kThreadLocal}, StrategyKind::thread_local_},
      {{.fraction = 0}, StrategyKind::none},
      {{.fraction = 0, .strategy = kLegacy}, StrategyKind::none},
      {{.fraction = 0, .strategy = Strategy::kAutoGrowth}, StrategyKind::none},
      {{.fraction = 0, .strategy = Strategy::kThreadLocal}, StrategyKind::none},
      {{.fraction = 0, .reallocate_mb = 8, .strategy = Strategy::kNaiveBestFit},
       StrategyKind::none},
  };
  for (const Row& row : rows) {
    CAPTURE(row.flags.fraction, row.flags.initial_mb, row.flags.reallocate_mb);
    CHECK(sizes_of(row.flags, kMiddle).kind == row.kind);
  }
}

TEST_CASE("with a static memory mode the chunk flags are not the chunk pools'") {
  Policy policy = policy_of({.fraction = 0.5, .initial_mb = 64});
  policy.ge_use_static_memory = {StaticMode::kStatic, true};
  CHECK(chunk_sizes(policy, kMiddle, 4).kind == StrategyKind::on_demand);
}

TEST_CASE("all chunks of naive_best_fit have the first one's size") {
  const auto naive = Strategy::kNaiveBestFit;
  const Flags initial{.initial_mb = 64, .reallocate_mb = 32, .strategy = naive};
  CHECK(two(sizes_of(initial, kMiddle)) == Two{64 * kMiB, 64 * kMiB});
  const Flags fraction{.fraction = 0.25, .reallocate_mb = 32, .strategy = naive};
  CHECK(two(sizes_of(fraction, kMiddle)) == Two{2 * kGiB, 2 * kGiB});
}

TEST_CASE("an auto_growth chunk is as large as the request, or as its setting where that is more") {
  const ChunkSizes plain = sizes_of({.strategy = Strategy::kAutoGrowth}, kMiddle);
  CHECK(two(plain, 5 * kMiB + 512) == Two{5 * kMiB + 512, 5 * kMiB + 512});
  CHECK(two(plain, 512) == Two{2 * kMiB, 2 * kMiB});
  const ChunkSizes set =
      sizes_of({.strategy = Strategy::kAutoGrowth, .auto_growth_mb = 64}, kMiddle);
  CHECK(two(set, 512) == Two{64 * kMiB, 64 * kMiB});
  CHECK(two(set, 65 * kMiB) == Two{65 * kMiB, 65 * kMiB});
}

TEST_CASE("thread_local divides its chunks by the processors, at most 16") {
  const Flags flags{.initial_mb = 64, .reallocate_mb = 33, .strategy = Strategy::kThreadLocal};
  CHECK(two(sizes_of(flags, kMiddle, 1)) == Two{64 * kMiB, 32 * kMiB});
  CHECK(two(sizes_of(flags, kMiddle, 4)) == Two{16 * kMiB, 8 * kMiB});
  CHECK(two(sizes_of(flags, kMiddle, 16)) == Two{4 * kMiB, 2 * kMiB});
  CHECK(two(sizes_of(flags, kMiddle, 64)) == Two{4 * kMiB, 2 * kMiB});
  const Flags fraction{.fraction = 0.5, .strategy = Strategy::kThreadLocal};
  CHECK(two(sizes_of(fraction, kMiddle, 4)) == Two{kGiB, kGiB});
}

TEST_CASE("a chunk larger than the device is clamped to it, and that is told") {
  const ChunkSizes initial = sizes_of({.initial_mb = 300, .reallocate_mb = 32}, kSmall);
  CHECK(initial.initial_clamped);
  CHECK_FALSE(initial.later_clamped);
  CHECK(two(initial) == Two{kSmall, 32 * kMiB});
  const ChunkSizes later = sizes_of({.initial_mb = 32, .reallocate_mb = 300}, kSmall + kMiB);
  CHECK_FALSE(later.initial_clamped);
  CHECK(later.later_clamped);
  CHECK(two(later) == Two{32 * kMiB, kSmall});
  CHECK_FALSE(sizes_of({.initial_mb = 256}, kSmall).initial_clamped);
}

TEST_CASE("a request larger than a chunk gets one of its own size") {
  const ChunkSizes sizes = sizes_of({.initial_mb = 64, .reallocate_mb = 32}, kMiddle);
  CHECK(two(sizes, 100 * kMiB + 512) == Two{100 * kMiB + 512, 100 * kMiB + 512});
}
