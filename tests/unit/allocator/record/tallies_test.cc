// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tallies.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/allocator/record/events.h"

namespace tallies_test {

using namespace cistern::alloc;
using test::allocation;
using test::free_of;

namespace {

Tally of(const Tallies& tallies, uint32_t number, TallyBy by = TallyBy::site, uint32_t place = 0) {
  Tally found{};
  int visits = 0;
  tallies.for_each(place, by, [&](uint32_t at, const Tally& tally) {
    if (at != number) return;
    found = tally;
    ++visits;
  });
  CHECK(visits <= 1);
  return found;
}

size_t live(const Tallies& tallies) {
  size_t count = 0;
  tallies.for_each_live([&](const Event&) { ++count; });
  return count;
}

}  // namespace

TEST_CASE("tallies: before the first allocation there is nothing") {
  Tallies tallies;
  CHECK_FALSE(tallies.freed(free_of(allocation(1, 1)), nullptr));
  tallies.context_ended(allocation(0, 0));
  CHECK(live(tallies) == 0);
  CHECK(tallies.total(0).allocations == 0);
  CHECK(tallies.lost() == 0);
}

TEST_CASE("tallies: a block is counted by its site, its range and its place") {
  Tallies tallies;
  Event first = allocation(0x1000, 100, 7), second = allocation(0x2000, 50, 7);
  first.range = 3;
  tallies.allocated(first);
  tallies.allocated(second);
  CHECK(of(tallies, 7).allocations == 2);
  CHECK(of(tallies, 7).live_bytes == 150);
  CHECK(of(tallies, 3, TallyBy::range).live_bytes == 100);
  CHECK(of(tallies, 0, TallyBy::range).live_bytes == 50);
  CHECK(tallies.total(0).live_blocks == 2);
  Event block{};
  REQUIRE(tallies.freed(free_of(first), &block));
  CHECK(test::same(block, first));
  CHECK(of(tallies, 7).live_blocks == 1);
  CHECK(of(tallies, 7).bytes == 150);
  CHECK(of(tallies, 3, TallyBy::range).live_bytes == 0);
  CHECK(live(tallies) == 1);
  CHECK_FALSE(tallies.freed(free_of(first), nullptr));
}

TEST_CASE("tallies: at the peak counts what was live then, also where nothing changed since") {
  Tallies tallies;
  const Event a = allocation(1, 100, 1), b = allocation(2, 30, 2), c = allocation(3, 60, 3);
  tallies.allocated(a);
  tallies.allocated(b);  // the peak: 130
  tallies.freed(free_of(a), nullptr);
  tallies.allocated(c);  // 90
  CHECK(tallies.total(0).peak_bytes == 130);
  CHECK(of(tallies, 1).peak_bytes == 100);
  CHECK(of(tallies, 2).peak_bytes == 30);
  CHECK(of(tallies, 3).peak_bytes == 0);
  tallies.allocated(allocation(4, 100, 3));  // a new one: 190
  CHECK(tallies.total(0).peak_bytes == 190);
  CHECK(of(tallies, 1).peak_bytes == 0);
  CHECK(of(tallies, 2).peak_bytes == 30);
  CHECK(of(tallies, 3).peak_bytes == 160);
}

TEST_CASE("tallies: each place has its own peak") {
  Tallies tallies;
  Event pinned = allocation(2, 70, 1), other = allocation(3, 40, 1);
  pinned.memory = Memory::pinned;
  other.device = 1;
  tallies.allocated(allocation(1, 100, 1));
  tallies.allocated(pinned);
  tallies.allocated(other);
  CHECK(of(tallies, 1).peak_bytes == 100);
  CHECK(of(tallies, 1, TallyBy::site, 1).peak_bytes == 40);
  CHECK(of(tallies, 1, TallyBy::site, kPinnedPlace).peak_bytes == 70);
  CHECK(tallies.total(kPinnedPlace).live_bytes == 70);
  other.device = 1000;
  CHECK(place_of(other) == kPinnedPlace - 1);
}

TEST_CASE("tallies: after a free that failed all is as before it, and the next free counts alike") {
  const bool temporary = GENERATE(true, false), within_phase = GENERATE(true, false);
  Tallies tallies;
  Event a = allocation(1, 100, 1), b = allocation(2, 30, 1);
  a.phase = 5;
  Event freeing = free_of(a), block{};
  freeing.phase = within_phase ? 5 : 6;
  tallies.allocated(a);
  if (!temporary) tallies.allocated(b);
  const auto of_site = [&] { return of(tallies, 1); };
  const auto total = [&] { return tallies.total(0); };
  const auto unchanged_by_it = [&](auto sums) {
    const Tally before = sums();
    REQUIRE(tallies.freed(freeing, &block));
    tallies.not_freed(block);
    const Tally after = sums();
    CHECK(after.allocations == before.allocations);
    CHECK(after.bytes == before.bytes);
    CHECK(after.live_blocks == before.live_blocks);
    CHECK(after.live_bytes == before.live_bytes);
    CHECK(after.peak_bytes == before.peak_bytes);
    CHECK(after.temporary == 0);
    CHECK(after.within_phase == 0);
  };
  unchanged_by_it(of_site);
  unchanged_by_it(total);
  tallies.freed(freeing, nullptr);
  CHECK(of(tallies, 1).temporary == (temporary ? 1 : 0));
  CHECK(of(tallies, 1).within_phase == (within_phase ? 1 : 0));
}

TEST_CASE("tallies: temporary is what is freed before its thread allocates again") {
  Tallies tallies;
  const Event a = allocation(1, 10, 1), b = allocation(2, 10, 1);
  Event elsewhere = allocation(3, 10, 2);
  elsewhere.thread = 2;
  tallies.allocated(a);
  tallies.allocated(elsewhere);
  tallies.freed(free_of(a), nullptr);
  CHECK(of(tallies, 1).temporary == 1);
  tallies.allocated(a);
  tallies.allocated(b);
  tallies.freed(free_of(a), nullptr);
  CHECK(of(tallies, 1).temporary == 1);
  Event by_another = free_of(b);
  by_another.thread = 2;
  tallies.freed(by_another, nullptr);
  CHECK(of(tallies, 1).temporary == 2);
  CHECK(tallies.total(0).temporary == 2);
}

TEST_CASE("tallies: within a phase is what is freed in the phase that allocated it") {
  Tallies tallies;
  Event block = allocation(1, 10, 1);
  tallies.allocated(block);
  tallies.freed(free_of(block), nullptr);
  CHECK(of(tallies, 1).within_phase == 0);  // no phase is known
  block.phase = 4;
  tallies.allocated(block);
  tallies.freed(free_of(block), nullptr);
  CHECK(of(tallies, 1).within_phase == 1);
  tallies.allocated(block);
  Event later = free_of(block);
  later.phase = 5;
  tallies.freed(later, nullptr);
  CHECK(of(tallies, 1).within_phase == 1);
}

TEST_CASE("tallies: handles of arrays and of physical memory are no addresses") {
  Tallies tallies;
  Event linear = allocation(0x1000, 1), array = linear, physical = linear, managed = linear;
  array.memory = Memory::array;
  physical.memory = Memory::physical;
  managed.memory = Memory::managed;
  tallies.allocated(linear);
  tallies.allocated(array);
  tallies.allocated(physical);
  CHECK(live(tallies) == 3);
  Event block{};
  REQUIRE(tallies.freed(free_of(array), &block));
  CHECK(block.memory == Memory::array);
  REQUIRE(tallies.freed(free_of(managed), &block));  // a free does not always know the kind
  CHECK(block.memory == Memory::linear);
  REQUIRE(tallies.freed(free_of(physical), &block));
  CHECK(block.memory == Memory::physical);
}

TEST_CASE("tallies: a block at the address of one that is live replaces it") {
  Tallies tallies;
  tallies.allocated(allocation(1, 100, 1));
  tallies.allocated(allocation(1, 30, 2));
  CHECK(live(tallies) == 1);
  CHECK(of(tallies, 1).live_bytes == 0);
  CHECK(of(tallies, 1).temporary == 0);
  CHECK(tallies.total(0).live_bytes == 30);
  CHECK(tallies.total(0).peak_bytes == 100);
}

TEST_CASE("tallies: what is gone without a free is not temporary") {
  Tallies tallies;
  const Event block = allocation(1, 10, 1);
  tallies.gone(block);
  tallies.allocated(block);
  tallies.gone(block);
  CHECK(live(tallies) == 0);
  CHECK(of(tallies, 1).temporary == 0);
  CHECK(of(tallies, 1).live_bytes == 0);
}

TEST_CASE("tallies: with a context goes its memory, but for what is the device's") {
  Tallies tallies;
  uint64_t address = 0;
  for (int memory = 0; memory < kMemories; ++memory) {
    for (const uint64_t context : {0xAAAA, 0xBBBB}) {
      Event block = allocation(++address, 10, 1);
      block.memory = static_cast<Memory>(memory);
      block.context = context;
      tallies.allocated(block);
    }
  }
  Event ended = allocation(0, 0);
  ended.type = EventType::context_ended;
  ended.context = 0xAAAA;
  tallies.context_ended(ended);
  CHECK(live(tallies) == kMemories + 2);
  tallies.for_each_live([](const Event& block) {
    CHECK((block.context == 0xBBBB || block.memory == Memory::stream_ordered ||
           block.memory == Memory::physical));
  });
  CHECK(tallies.total(kPinnedPlace).live_bytes == 10);
  CHECK(of(tallies, 1).live_blocks == kMemories + 1);
}

TEST_CASE("tallies: each order is by its own figure") {
  const Tally tally{.allocations = 1,
                    .bytes = 2,
                    .live_blocks = 3,
                    .live_bytes = 4,
                    .peak_bytes = 5,
                    .temporary = 6,
                    .within_phase = 7};
  CHECK(figure_of(tally, TallyOrder::peak) == 5);
  CHECK(figure_of(tally, TallyOrder::end) == 4);
  CHECK(figure_of(tally, TallyOrder::temporary) == 6);
  CHECK(figure_of(tally, TallyOrder::calls) == 1);
  CHECK(figure_of(tally, TallyOrder::bytes) == 2);
}

TEST_CASE("tallies: random events give what a plain model gives") {
  const auto seed = static_cast<uint32_t>(std::random_device{}());
  INFO("seed " << seed);
  std::mt19937 random(seed);
  Tallies tallies;
  std::vector<Event> blocks;
  std::map<uint32_t, uint64_t> bytes_of, at_peak;
  uint64_t sum = 0, peak = 0;
  for (int i = 0; i < 20000; ++i) {
    if (blocks.empty() || random() % 20 < 11) {
      Event block = allocation(uint64_t{0x7F0000000000} + static_cast<uint64_t>(i) * 512,
                               random() % 4096, static_cast<uint32_t>(random() % 20));
      block.thread = static_cast<uint32_t>(random() % 5);
      tallies.allocated(block);
      blocks.push_back(block);
      bytes_of[block.site] += block.bytes;
      sum += block.bytes;
      if (sum > peak) peak = sum, at_peak = bytes_of;
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      REQUIRE(tallies.freed(free_of(blocks.back()), nullptr));
      bytes_of[blocks.back().site] -= blocks.back().bytes;
      sum -= blocks.back().bytes;
      blocks.pop_back();
    }
  }
  CHECK(tallies.total(0).live_bytes == sum);
  CHECK(tallies.total(0).peak_bytes == peak);
  CHECK(live(tallies) == blocks.size());
  for (const auto& [site, bytes] : bytes_of) {
    CHECK(of(tallies, site).live_bytes == bytes);
    CHECK(of(tallies, site).peak_bytes == at_peak[site]);
  }
}

}  // namespace tallies_test
