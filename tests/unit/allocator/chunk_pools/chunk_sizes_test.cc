// SPDX-License-Identifier: Apache-2.0
// The rows "GPU pool: chunks" of the settings page as tables: fraction, initial and reallocate on
// devices of several sizes, and what each strategy makes of them.
#include "allocator/chunk_pools/chunk_sizes.h"

#include <algorithm>

#include "config/load.h"
#include "tests/catch.h"

namespace chunk_sizes_test {

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

TEST_CASE("fraction, initial and reallocate in all combinations, on devices of several sizes") {
  struct Row {
    Flags flags;
    Two small, odd, middle, large;
  };
  const auto mib = [](uint64_t first, uint64_t later) { return Two{first * kMiB, later * kMiB}; };
  // Where no fraction is set it is 0.92: of 256 MiB 235.5, of 9217 MiB 8479.6, of 8192 MiB 7536.6,
  // of 142336 MiB 130949.1; of the odd device a half is 4608.5. Whole 2 MiB of that.
  // clang-format off
  const Row rows[] = {
      // fraction, initial, reallocate     256 MiB        9 GiB + 1 MiB      8 GiB            139 GiB
      {{.strategy = kLegacy},              mib(234, 234), mib(8478, 8478), mib(7536, 7536), mib(130948, 130948)},
      {{.fraction = 0.5},                  mib(128, 128), mib(4608, 4608), mib(4096, 4096), mib(71168, 71168)},
      {{.initial_mb = 64},                 mib(64, 234),  mib(64, 8478),   mib(64, 7536),   mib(64, 130948)},
      {{.reallocate_mb = 32},              mib(234, 32),  mib(8478, 32),   mib(7536, 32),   mib(130948, 32)},
      {{.fraction = 0.5, .initial_mb = 64},
                                           mib(64, 128),  mib(64, 4608),   mib(64, 4096),   mib(64, 71168)},
      {{.fraction = 0.5, .reallocate_mb = 32},
                                           mib(128, 32),  mib(4608, 32),   mib(4096, 32),   mib(71168, 32)},
      {{.initial_mb = 64, .reallocate_mb = 32},
                                           mib(64, 32),   mib(64, 32),     mib(64, 32),     mib(64, 32)},
      {{.fraction = 0.5, .initial_mb = 64, .reallocate_mb = 32},
                                           mib(64, 32),   mib(64, 32),     mib(64, 32),     mib(64, 32)},
      // The whole device, and sizes in MB as they were asked for.
      {{.fraction = 1},                    mib(256, 256), mib(9216, 9216), mib(8192, 8192), mib(142336, 142336)},
      {{.initial_mb = 1, .reallocate_mb = 3},
                                           mib(1, 3),     mib(1, 3),       mib(1, 3),       mib(1, 3)},
      // Never so small that nothing could be cut from it.
      {{.fraction = 1e-6},                 mib(2, 2),     mib(2, 2),       mib(2, 2),       mib(2, 2)},
      // More than the device has is clamped to that, and it is told.
      {{.initial_mb = 9217},               mib(256, 234), mib(9217, 8478), mib(8192, 7536), mib(9217, 130948)},
      {{.reallocate_mb = 10000},           mib(234, 256), mib(8478, 9216), mib(7536, 8192), mib(130948, 10000)},
      {{.fraction = 0.5, .initial_mb = 20000, .reallocate_mb = 10000},
                                           mib(256, 256), mib(9216, 9216), mib(8192, 8192), mib(20000, 10000)},
  };
  // clang-format on
  const uint64_t totals[] = {kSmall, 9 * kGiB + kMiB, kMiddle, kLarge};
  for (const Row& row : rows) {
    const Two wanted[] = {row.small, row.odd, row.middle, row.large};
    for (int i = 0; i < 4; ++i) {
      const Flags& flags = row.flags;
      CAPTURE(flags.fraction, flags.initial_mb, flags.reallocate_mb, totals[i]);
      const ChunkSizes sizes = sizes_of(flags, totals[i]);
      CHECK(sizes.kind == StrategyKind::legacy);
      CHECK(two(sizes) == wanted[i]);
      CHECK(sizes.initial_clamped == (flags.initial_mb * kMiB > totals[i]));
      CHECK(sizes.later_clamped == (flags.reallocate_mb * kMiB > totals[i]));
      // A request larger than a chunk gets its own size, one that is not larger the chunk's.
      for (const bool is_first : {true, false}) {
        const uint64_t chunk = is_first ? wanted[i].first : wanted[i].later;
        CHECK(sizes.chunk_for(chunk, is_first) == chunk);
        CHECK_FALSE(sizes.exceeds(chunk, is_first));
        CHECK(sizes.chunk_for(chunk + 512, is_first) == chunk + 512);
        CHECK(sizes.exceeds(chunk + 512, is_first));
      }
    }
  }
}

TEST_CASE("a fraction of 0 has no chunk of its own, the others remain") {
  const uint64_t large = 5 * kMiB + 512;
  const ChunkSizes first = sizes_of({.fraction = 0, .initial_mb = 64}, kSmall);
  CHECK(two(first, large) == Two{64 * kMiB, large});
  const ChunkSizes later = sizes_of({.fraction = 0, .reallocate_mb = 32}, kSmall);
  CHECK(two(later, large) == Two{large, 32 * kMiB});
  CHECK_FALSE(later.exceeds(kMiB, true));
  CHECK(later.kind == StrategyKind::legacy);
}

TEST_CASE("a chunk by the request shares no driver page with what the pool does not know") {
  const ChunkSizes first = sizes_of({.fraction = 0, .initial_mb = 64}, kSmall);
  CHECK(two(first, 512) == Two{64 * kMiB, 2 * kMiB});
  CHECK(two(first, kMiB - 512) == Two{64 * kMiB, 2 * kMiB});
  CHECK(two(first, kMiB) == Two{64 * kMiB, kMiB});
  const ChunkSizes later = sizes_of({.fraction = 0, .reallocate_mb = 32}, kSmall);
  CHECK(two(later, 512) == Two{2 * kMiB, 32 * kMiB});
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
  const ChunkSizes arena = chunk_sizes(policy, kMiddle, 4);
  CHECK(arena.kind == StrategyKind::graph_arena);
  CHECK(arena.first == 64 * kMiB);
  CHECK(arena.later == 0);
  policy = policy_of({});
  policy.static_memory_policy = {StaticMode::kStaticOld, true};
  CHECK(chunk_sizes(policy, kMiddle, 4).kind == StrategyKind::graph_arena);
  CHECK(chunk_sizes(policy, kMiddle, 4).first == 0);
}

TEST_CASE("an alignment that no request can have keeps none out of the chunks") {
  Policy policy = policy_of({.strategy = Strategy::kAutoGrowth});
  const uint64_t tib = kGiB << 10;
  for (const uint64_t align : {tib, 2 * tib, 4 * tib, uint64_t{1} << 63}) {
    policy.align = {align, true};
    CHECK(chunk_sizes(policy, kMiddle, 4).align == tib);
  }
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

TEST_CASE("thread_local's shares are whole driver pages, however odd the size and the processors") {
  for (uint64_t mb = 1; mb <= 33; ++mb) {
    for (unsigned cpus = 1; cpus <= 17; ++cpus) {
      CAPTURE(mb, cpus);
      const Flags flags{.initial_mb = mb, .reallocate_mb = mb, .strategy = Strategy::kThreadLocal};
      const Two sizes = two(sizes_of(flags, kMiddle, cpus));
      CHECK(sizes.first % kDriverPage == 0);
      CHECK(sizes.later == sizes.first);
      CHECK(sizes.first <= std::max(mb * kMiB / std::min(cpus, 16u), kDriverPage));
      CHECK(sizes.first + kDriverPage > mb * kMiB / std::min(cpus, 16u));
    }
  }
}

}  // namespace chunk_sizes_test
