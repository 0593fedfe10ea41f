// SPDX-License-Identifier: Apache-2.0
//
// Expandable memory (GE_USE_STATIC_MEMORY=3) beside the default and chunks of 64 MiB: how much is
// reserved, how many of the driver's calls are left, and what an operation takes, and what it takes
// to tell how much memory is free. tests/bench/run
// compares the figures with their goals; the same with fewer iterations is a unit test
// (tests/unit/allocator/expandable/expandable_loops_test.cc).
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/bench_pool.h"
#include "tests/bench/loops.h"

namespace cistern::bench {
namespace {

alloc::ChunkSizes sizes_of(alloc::StrategyKind kind) {
  const uint64_t later = kind == alloc::StrategyKind::auto_growth ? 64 * kMiB : 0;
  return {.kind = kind,
          .first = 0,
          .later = later,
          .align = 512,
          .initial_clamped = false,
          .later_clamped = false};
}

template <typename Play>
void show(benchmark::State& state, alloc::StrategyKind kind, Play play) {
  Figures figures{};
  for (auto _ : state) {
    BenchPool pool(sizes_of(kind));
    figures = play(pool);
  }
  state.counters["reserved_per_live"] = figures.reserved_per_live;
  state.counters["calls"] = figures.calls;
  state.counters["per_op"] = {static_cast<double>(figures.operations),
                              benchmark::Counter::kIsRate | benchmark::Counter::kInvert};
}

void closed_loop(benchmark::State& state, alloc::StrategyKind kind) {
  show(state, kind, [](BenchPool& pool) { return training_loop(pool, false, 10'000); });
}
void changing_lengths(benchmark::State& state, alloc::StrategyKind kind) {
  show(state, kind, [](BenchPool& pool) { return training_loop(pool, true, 10'000); });
}
void random_to(benchmark::State& state, alloc::StrategyKind kind) {
  const uint64_t most = static_cast<uint64_t>(state.range(0)) * kMiB;
  show(state, kind, [=](BenchPool& pool) { return random_sizes(pool, most, 1'000'000, 1); });
}

void pair(benchmark::State& state, alloc::StrategyKind kind) {
  BenchPool pool(sizes_of(kind));
  const auto bytes = static_cast<uint64_t>(state.range(0));
  for (int i = 0; i < 100; ++i) pool.allocate(bytes);
  for (auto _ : state) {
    uint64_t block = pool.allocate(bytes);
    benchmark::DoNotOptimize(block);
    pool.free(block);
  }
}

// Among so many blocks, of which one was known outside the process and is freed: what it leaves of
// its unit is not free, so that the units have to be looked at.
void free_memory(benchmark::State& state, alloc::StrategyKind kind) {
  BenchPool pool(sizes_of(kind));
  std::vector<uint64_t> blocks;
  for (int64_t i = 0; i < state.range(0); ++i) blocks.push_back(pool.allocate(4 * kKiB));
  const uint64_t known = blocks[blocks.size() / 2];
  pool.mark_exported(known);
  pool.free(known);
  for (auto _ : state) {
    uint64_t bytes = pool.returnable_bytes();
    benchmark::DoNotOptimize(bytes);
  }
}

const bool registered = [] {
  using enum alloc::StrategyKind;
  struct {
    const char* name;
    alloc::StrategyKind kind;
  } const strategies[] = {
      {"expandable", expandable}, {"on_demand", on_demand}, {"auto_growth", auto_growth}};
  for (const auto& [strategy, kind] : strategies) {
    const auto add = [&](const std::string& name, auto* function) {
      return benchmark::RegisterBenchmark((name + "/" + strategy).c_str(), function, kind);
    };
    add("closed_loop", closed_loop)->Iterations(1)->Unit(benchmark::kMillisecond);
    add("changing_lengths", changing_lengths)->Iterations(1)->Unit(benchmark::kMillisecond);
    add("random_to", random_to)->Arg(16)->Arg(64)->Iterations(1)->Unit(benchmark::kMillisecond);
    add("pair", pair)->Arg(4 * kKiB)->Arg(4 * kMiB);
    add("free_memory", free_memory)->Arg(1'000)->Arg(1'000'000);
  }
  return true;
}();

}  // namespace
}  // namespace cistern::bench

BENCHMARK_MAIN();
