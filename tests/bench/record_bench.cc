// SPDX-License-Identifier: Apache-2.0
//
// What an event costs: put into a recording, and added to the tallies. tests/bench/run compares the
// figures with their goals.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "allocator/base/os.h"
#include "allocator/record/recorder.h"
#include "allocator/record/tallies.h"

namespace cistern::bench {
namespace {

using alloc::Event;
using alloc::EventType;

constexpr uint64_t kBase = 0x7F0000000000;

struct NoFile final : alloc::RecordingSink {
  bool write(const void*, size_t, uint64_t) override { return true; }
};

struct NoDefinitions final : alloc::Definitions {
  uint32_t names() override { return 0; }
  const char* name(uint32_t) override { return ""; }
  uint32_t ranges() override { return 0; }
  void range(uint32_t, uint32_t*, uint32_t*) override {}
  uint32_t phases() override { return 0; }
  uint32_t phase_name(uint32_t) override { return 0; }
  uint32_t sites() override { return 0; }
  int frames(uint32_t, alloc::Frame*) override { return 0; }
};

Event event_of(EventType type, uint64_t block) {
  Event event{};
  event.type = type;
  event.time_ns = alloc::os::now_ns();
  event.address = kBase + block * 512;
  event.bytes = 512;
  event.context = 0x5555'5555'0000;
  event.thread = 4711;
  event.site = static_cast<uint32_t>(block % 100);
  event.range = static_cast<uint32_t>(block % 10);
  return event;
}

// The clock is read, the block goes to no file.
void record_put(benchmark::State& state) {
  static NoFile file;
  static NoDefinitions definitions;
  static alloc::Recorder* recorder = [] {
    auto* made = new alloc::Recorder;
    made->begin(&file, &definitions, {}, 0);
    return made;
  }();
  const auto shard = static_cast<unsigned>(state.thread_index());
  uint64_t i = 0;
  for (auto _ : state) {
    recorder->put(shard,
                  event_of(i % 2 == 0 ? EventType::allocated : EventType::freed, i / 2 % 64));
    ++i;
  }
}
BENCHMARK(record_put);
BENCHMARK(record_put)->Threads(2)->UseRealTime();

// Frees a block anywhere and allocates it again; half of the figure is one event.
void tally_pair(benchmark::State& state) {
  const auto live = static_cast<uint64_t>(state.range(0));
  auto tallies = std::make_unique<alloc::Tallies>();
  for (uint64_t i = 0; i < live; ++i) tallies->allocated(event_of(EventType::allocated, i));
  std::mt19937_64 random(1);
  std::vector<uint32_t> order(1 << 20);
  for (uint32_t& block : order) block = static_cast<uint32_t>(random() % live);
  Event allocated = event_of(EventType::allocated, 0), freed = event_of(EventType::freed, 0);
  uint64_t i = 0;
  for (auto _ : state) {
    const uint64_t block = order[i++ % order.size()];
    freed.address = allocated.address = kBase + block * 512;
    allocated.site = static_cast<uint32_t>(block % 100);
    tallies->freed(freed, nullptr);
    tallies->allocated(allocated);
  }
  state.counters["per_event"] = {static_cast<double>(2 * state.iterations()),
                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert};
}
BENCHMARK(tally_pair)->Arg(1000)->Arg(1'000'000)->MinTime(0.2);

}  // namespace
}  // namespace cistern::bench

BENCHMARK_MAIN();
