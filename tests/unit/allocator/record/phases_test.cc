// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/phases.h"

#include <memory>
#include <vector>

#include "tests/catch.h"

namespace phases_test {

namespace {

using cistern::alloc::Phases;
using Source = Phases::Source;

constexpr uint64_t kMiB = 1 << 20;
constexpr uint32_t kStart = 1, kAutomatic = 2, kStep = 3, kInner = 4;

struct Process {
  Phases phases;
  Phases::Thread thread{}, other{};

  Process() { phases.name_automatic(kStart, kAutomatic); }

  Phases::Figures figures(uint32_t name) {
    for (uint32_t n = 1; n <= phases.names(); ++n) {
      if (phases.figures(n).name == name) return phases.figures(n);
    }
    return {};
  }
  uint32_t now() { return phases.current(&thread); }
  uint32_t graph() { return phases.graph(&thread).run; }
  uint32_t begin_marker(Phases::Thread& of, uint32_t name = kStep) {
    return phases.begin(of, Source::kMarkers, name, 0);
  }
  // Up to `top` and back, in one block; whether a phase ended at the synchronisation.
  bool hill(uint64_t bytes) {
    phases.allocated(&thread, bytes);
    phases.freed(bytes);
    return phases.synchronised() != 0;
  }
};

std::unique_ptr<Process> process() { return std::make_unique<Process>(); }

TEST_CASE("an automatic phase ends at a synchronisation, at the minimum, after 16 MiB") {
  const auto p = process();
  CHECK(p->now() == 1);
  CHECK_FALSE(p->hill(16 * kMiB - 1));
  p->phases.allocated(nullptr, 16 * kMiB);
  CHECK(p->phases.synchronised() == 0);
  p->phases.freed(16 * kMiB);
  CHECK(p->now() == 1);
  CHECK(p->phases.synchronised() == 1);
  CHECK(p->now() == 2);
  CHECK(p->phases.synchronised() == 0);
  CHECK(p->phases.name_of(1) == kStart);
  CHECK(p->phases.name_of(2) == kAutomatic);
  CHECK(p->figures(kStart).peak_bytes == 16 * kMiB);
  CHECK(p->figures(kStart).last_peak_bytes == 16 * kMiB);
}

TEST_CASE("blocks whose sizes phases remember end phases as told sizes do") {
  using cistern::alloc::LiveBlocks;
  using cistern::alloc::Memory;
  const auto p = process();
  Phases& phases = p->phases;
  LiveBlocks::Block block;
  CHECK_FALSE(phases.block_freed(Memory::linear, 4096, &block));
  phases.block_allocated(&p->thread, Memory::linear, 4096, 8 * kMiB, 1);
  phases.block_allocated(&p->thread, Memory::array, 4096, 8 * kMiB, 1);  // a handle, no address
  CHECK_FALSE(phases.block_freed(Memory::physical, 4096, &block));
  CHECK(p->figures(kStart).peak_bytes == 16 * kMiB);
  SECTION("a free that fails changes nothing") {
    CHECK(phases.block_freed(Memory::linear, 4096, &block));
    phases.block_not_freed(&p->thread, block);
    CHECK(phases.synchronised() == 0);
    CHECK(phases.block_freed(Memory::linear, 4096, &block));
    CHECK(block.bytes == 8 * kMiB);
    CHECK_FALSE(phases.block_freed(Memory::linear, 4096, &block));
    CHECK(phases.block_freed(Memory::array, 4096, &block));
    CHECK(phases.synchronised() == 1);
  }
  SECTION("a block that lies where another one lay takes its place") {
    phases.block_allocated(&p->thread, Memory::linear, 4096, kMiB, 1);
    CHECK(phases.block_freed(Memory::pitched, 4096, &block));
    CHECK(block.bytes == kMiB);
    CHECK(phases.block_freed(Memory::array, 4096, &block));
    CHECK(phases.synchronised() == 1);
  }
  SECTION("a context takes its blocks along, but for what is the device's") {
    phases.block_allocated(&p->thread, Memory::stream_ordered, 8192, kMiB, 1);
    phases.block_allocated(&p->thread, Memory::linear, 12288, kMiB, 2);
    phases.context_ended(1);
    CHECK_FALSE(phases.block_freed(Memory::linear, 4096, &block));
    CHECK(phases.block_freed(Memory::linear, 12288, &block));
    CHECK(phases.synchronised() == 0);
    CHECK(phases.block_freed(Memory::stream_ordered, 8192, &block));
    CHECK(phases.synchronised() == 1);
  }
}

TEST_CASE("one percent above the minimum is back, more is not") {
  const auto p = process();
  p->phases.allocated(nullptr, 100 * kMiB);
  p->hill(20 * kMiB);
  REQUIRE(p->hill(20 * kMiB));  // twice at 100 MiB
  p->phases.allocated(nullptr, kMiB + 1);
  CHECK_FALSE(p->hill(15 * kMiB));
  p->phases.freed(1);
  CHECK(p->hill(15 * kMiB));
}

TEST_CASE("a level that is reached twice is the minimum of what follows") {
  const auto p = process();
  p->phases.allocated(nullptr, 1000 * kMiB);  // stays
  CHECK_FALSE(p->hill(300 * kMiB));
  CHECK(p->hill(300 * kMiB));
  CHECK(p->hill(300 * kMiB));
  CHECK(p->figures(kStart).runs == 1);
  CHECK(p->figures(kAutomatic).runs == 2);
  CHECK(p->figures(kAutomatic).peak_bytes == 1300 * kMiB);
}

TEST_CASE("a new minimum is what the next rise counts from") {
  const auto p = process();
  p->phases.allocated(nullptr, 100 * kMiB);
  p->hill(20 * kMiB);
  REQUIRE(p->hill(20 * kMiB));  // the minimum is 100 MiB
  p->phases.freed(90 * kMiB);
  CHECK(p->hill(16 * kMiB));
  p->phases.freed(5 * kMiB);
  CHECK_FALSE(p->hill(16 * kMiB - 1));
}

TEST_CASE("a level in the middle of a phase is no end") {
  const auto p = process();
  p->phases.allocated(nullptr, 1000 * kMiB);
  int ends = 0;
  for (int i = 0; i < 5; ++i) {
    p->phases.allocated(nullptr, 300 * kMiB);
    p->phases.freed(100 * kMiB);
    CHECK(p->phases.synchronised() == 0);
    p->phases.freed(200 * kMiB);
    ends += p->phases.synchronised() != 0;
  }
  CHECK(ends == 4);
}

TEST_CASE("a low level that never comes back is forgotten") {
  const auto p = process();
  REQUIRE_FALSE(p->hill(100 * kMiB) == false);  // back at nothing
  p->phases.allocated(nullptr, 50 * kMiB);
  CHECK_FALSE(p->hill(100 * kMiB));  // 50 MiB, the level that is waited for
  p->phases.allocated(nullptr, 500 * kMiB);
  int falls = 0;
  while (!p->hill(100 * kMiB)) REQUIRE(++falls < 40);
  CHECK(falls == 16);
}

TEST_CASE("the peak is the process's, while the thread is in the phase") {
  const auto p = process();
  p->phases.allocated(&p->thread, 5 * kMiB);
  const uint32_t run = p->phases.begin(p->thread, Source::kMarkers, kStep, 0);
  CHECK(p->now() == run);
  CHECK(p->phases.current(&p->other) == 0);
  CHECK(p->phases.current(nullptr) == 0);
  CHECK(p->figures(kStep).peak_bytes == 5 * kMiB);
  p->phases.allocated(&p->other, 100 * kMiB);
  p->phases.freed(100 * kMiB);
  p->phases.allocated(&p->thread, 10 * kMiB);
  p->phases.freed(15 * kMiB);
  CHECK(p->phases.end_marker(p->thread) == run);
  CHECK(p->figures(kStep).peak_bytes == 15 * kMiB);
  CHECK(p->figures(kStep).allocations == 1);
  CHECK(p->now() == 0);

  p->phases.begin(p->thread, Source::kMarkers, kStep, 0);
  p->phases.allocated(&p->thread, 3 * kMiB);
  p->phases.end_marker(p->thread);
  CHECK(p->figures(kStep).peak_bytes == 15 * kMiB);
  CHECK(p->figures(kStep).last_peak_bytes == 3 * kMiB);
  CHECK(p->figures(kStep).runs == 2);
}

TEST_CASE("markers nest, and what is inside counts outside") {
  const auto p = process();
  const uint32_t outer = p->phases.begin(p->thread, Source::kMarkers, kStep, 0);
  const uint32_t inner = p->phases.begin(p->thread, Source::kMarkers, kInner, 0);
  CHECK(p->now() == inner);
  p->phases.allocated(&p->thread, 7 * kMiB);
  p->phases.freed(7 * kMiB);
  CHECK(p->phases.end_marker(p->thread) == inner);
  CHECK(p->now() == outer);
  CHECK(p->phases.end_marker(p->thread) == outer);
  CHECK(p->figures(kStep).last_peak_bytes == 7 * kMiB);
  CHECK(p->phases.end_marker(p->thread) == 0);
}

TEST_CASE("markers come before ranges, ranges before synchronisations") {
  const auto p = process();
  const uint32_t range = p->phases.begin(p->thread, Source::kRanges, kInner, 1);
  CHECK(p->now() == range);
  CHECK_FALSE(p->hill(100 * kMiB));
  const uint32_t marker = p->phases.begin(p->thread, Source::kMarkers, kStep, 0);
  CHECK(p->now() == marker);
  CHECK(p->phases.begin(p->thread, Source::kRanges, kInner, 2) == 0);
  CHECK(p->now() == marker);
  CHECK(p->phases.end_marker(p->thread) == marker);
  CHECK(p->now() == 0);  // the range is open, and no longer counts
  CHECK(p->phases.end_range(p->thread, 2) == 0);
  CHECK(p->phases.end_range(p->thread, 1) == range);
}

TEST_CASE("ranges end in any order") {
  const auto p = process();
  const uint32_t first = p->phases.begin(p->thread, Source::kRanges, kStep, 1);
  const uint32_t second = p->phases.begin(p->thread, Source::kRanges, kInner, 2);
  CHECK(p->phases.end_range(p->thread, 1) == first);
  CHECK(p->now() == second);
  CHECK(p->phases.end_range(p->thread, 1) == 0);
  CHECK(p->phases.end_range(p->thread, 2) == second);
  CHECK(p->now() == 0);
}

TEST_CASE("markers that are too deep are counted") {
  const auto p = process();
  for (unsigned i = 0; i < Phases::kMostOpen; ++i) {
    REQUIRE(p->phases.begin(p->thread, Source::kMarkers, kStep, 0) != 0);
  }
  CHECK(p->phases.begin(p->thread, Source::kMarkers, kStep, 0) == 0);
  CHECK(p->phases.end_marker(p->thread) == 0);
  for (unsigned i = 0; i < Phases::kMostOpen; ++i) CHECK(p->phases.end_marker(p->thread) != 0);
  CHECK(p->now() == 0);
}

TEST_CASE("a thread that ends ends its phases") {
  const auto p = process();
  p->phases.begin(p->thread, Source::kMarkers, kStep, 0);
  p->phases.allocated(&p->thread, kMiB);
  CHECK(p->phases.end_any(p->thread) != 0);
  CHECK(p->phases.end_any(p->thread) == 0);
  CHECK(p->now() == 0);
  CHECK(p->figures(kStep).last_peak_bytes == kMiB);
}

TEST_CASE("names beyond the bound share figures") {
  const auto p = process();
  for (uint32_t i = 0; i < 2 * Phases::kMostNames; ++i) {
    p->phases.begin(p->thread, Source::kMarkers, 100 + i, 0);
    p->phases.end_marker(p->thread);
  }
  CHECK(p->phases.names() == Phases::kMostNames);
  CHECK(p->phases.runs() == 2 * Phases::kMostNames + 1);
  CHECK(p->phases.figures(Phases::kMostNames).runs > Phases::kMostNames);
}

TEST_CASE("runs beyond the bound have a number and no name") {
  const auto p = process();
  while (p->phases.runs() < Phases::kMostRuns) {
    p->phases.begin(p->thread, Source::kMarkers, kStep, 0);
    p->phases.end_marker(p->thread);
  }
  CHECK(p->phases.begin(p->thread, Source::kMarkers, kStep, 0) == Phases::kMostRuns + 1);
  CHECK(p->phases.name_of(Phases::kMostRuns) == kStep);
  CHECK(p->phases.name_of(Phases::kMostRuns + 1) == 0);
  CHECK(p->phases.name_of(0) == 0);
}

TEST_CASE("an automatic phase is a graph once two have ended") {
  const auto p = process();
  CHECK(p->graph() == 0);
  REQUIRE(p->hill(100 * kMiB));
  CHECK(p->graph() == 0);
  REQUIRE(p->hill(100 * kMiB));
  CHECK(p->graph() == 3);
  CHECK(p->phases.graph(nullptr).run == 3);
  CHECK(p->phases.graph(nullptr).name == kAutomatic);
  CHECK(p->phases.is_open(3));
  REQUIRE(p->hill(100 * kMiB));
  CHECK(p->graph() == 4);
  CHECK_FALSE(p->phases.is_open(3));
  p->begin_marker(p->other);
  CHECK(p->graph() == 0);
  CHECK_FALSE(p->phases.is_open(4));
}

TEST_CASE("the graph is the outermost marker of the thread") {
  const auto p = process();
  const uint32_t outer = p->begin_marker(p->thread, kStep);
  const uint32_t inner = p->begin_marker(p->thread, kInner);
  CHECK(p->graph() == outer);
  CHECK(p->phases.graph(&p->thread).name == kStep);
  CHECK(p->phases.graph(&p->other).run == 0);
  CHECK(p->phases.graph(nullptr).run == 0);
  CHECK(p->phases.is_open(outer));
  CHECK_FALSE(p->phases.is_open(inner));
  p->phases.end_marker(p->thread);
  CHECK(p->graph() == outer);
  CHECK(p->phases.is_open(outer));
  p->phases.end_marker(p->thread);
  CHECK(p->graph() == 0);
  CHECK_FALSE(p->phases.is_open(outer));
  CHECK_FALSE(p->phases.is_open(0));
}

TEST_CASE("graphs of two threads are open side by side") {
  const auto p = process();
  const uint32_t mine = p->begin_marker(p->thread);
  const uint32_t theirs = p->begin_marker(p->other);
  CHECK(p->graph() == mine);
  CHECK(p->phases.graph(&p->other).run == theirs);
  CHECK(p->phases.is_open(mine));
  CHECK(p->phases.is_open(theirs));
  p->phases.end_any(p->thread);
  CHECK_FALSE(p->phases.is_open(mine));
  CHECK(p->phases.is_open(theirs));
}

TEST_CASE("a thread that was in a graph leaves its place to others") {
  const auto p = process();
  p->begin_marker(p->thread);
  p->phases.end_marker(p->thread);
  const uint32_t theirs = p->begin_marker(p->other);
  p->begin_marker(p->thread);
  CHECK(p->phases.is_open(theirs));
  CHECK(p->phases.graph(&p->other).run == theirs);
}

TEST_CASE("a range is the graph from when it is the outermost, and while no marker counts") {
  const auto p = process();
  const uint32_t first = p->phases.begin(p->thread, Source::kRanges, kStep, 1);
  const uint32_t second = p->phases.begin(p->thread, Source::kRanges, kInner, 2);
  CHECK(p->graph() == first);
  p->phases.end_range(p->thread, 1);
  CHECK(p->graph() == second);
  CHECK(p->phases.graph(&p->thread).name == kInner);
  CHECK_FALSE(p->phases.is_open(first));
  CHECK(p->phases.is_open(second));
  const uint32_t marker = p->begin_marker(p->thread);
  CHECK(p->graph() == marker);
  CHECK_FALSE(p->phases.is_open(second));
  p->phases.end_marker(p->thread);
  CHECK(p->graph() == 0);
}

TEST_CASE("threads beyond the bound have no graph, and others none the less") {
  const auto p = process();
  std::vector<Phases::Thread> threads(Phases::kMostGraphs + 1);
  for (Phases::Thread& thread : threads) p->begin_marker(thread);
  CHECK(p->phases.graph(&threads[Phases::kMostGraphs - 1]).run != 0);
  CHECK(p->phases.graph(&threads[Phases::kMostGraphs]).run == 0);
  const uint32_t last = p->phases.current(&threads[Phases::kMostGraphs]);
  CHECK_FALSE(p->phases.is_open(last));
  for (Phases::Thread& thread : threads) p->phases.end_marker(thread);
  for (Phases::Thread& thread : threads) {
    const uint32_t run = p->begin_marker(thread);
    CHECK(p->phases.graph(&thread).run == run);
    p->phases.end_marker(thread);
  }
}

TEST_CASE("after a fork the graphs of the other threads are over") {
  const auto p = process();
  const uint32_t mine = p->begin_marker(p->thread);
  const uint32_t theirs = p->begin_marker(p->other);
  p->phases.reset_after_fork(&p->thread);
  CHECK(p->phases.is_open(mine));
  CHECK_FALSE(p->phases.is_open(theirs));
  p->phases.reset_after_fork(nullptr);
  CHECK_FALSE(p->phases.is_open(mine));
}

}  // namespace

}  // namespace phases_test
