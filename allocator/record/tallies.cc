// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tallies.h"

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

constexpr size_t kPage = 4096;

// Handles of arrays and of physical memory are numbers of their own, which addresses may equal.
enum class KeySpace : uint8_t { addresses, arrays, physical };

KeySpace space_of(Memory memory) {
  if (memory == Memory::array) return KeySpace::arrays;
  return memory == Memory::physical ? KeySpace::physical : KeySpace::addresses;
}

// Physical memory and pools belong to the device.
bool ends_with_context(Memory memory) {
  return memory != Memory::stream_ordered && memory != Memory::physical;
}

}  // namespace

bool Tallies::set_up() {
  if (tables_ == nullptr) tables_ = static_cast<Tables*>(os::map(sizeof(Tables), kPage));
  return tables_ != nullptr;
}

Tallies::Block* Tallies::find(const Event& event) const {
  const KeySpace space = space_of(event.memory);
  return tables_->blocks.find(
      event.address, [=](const Block& block) { return space_of(block.event.memory) == space; });
}

Tallies::Sums* Tallies::sums_of(const Place& place, uint32_t number, TallyBy by) {
  const auto index = static_cast<uint64_t>(&place - places_);
  const uint64_t key = index << 33 | uint64_t{by == TallyBy::range} << 32 | number;
  Sums* sums = tables_->sums.find(key);
  if (sums != nullptr) return sums;
  sums = sums_arena_.take();
  if (sums == nullptr) return nullptr;
  *sums = {.next = nullptr,
           .key = key,
           .place = &place,
           .number = number,
           .by = by,
           .peak = place.peaks,
           .tally = {}};
  tables_->sums.insert(sums);
  return sums;
}

Tallies::Thread* Tallies::thread_of(uint32_t number) {
  Thread* thread = tables_->threads.find(number);
  if (thread != nullptr) return thread;
  thread = thread_arena_.take();
  if (thread == nullptr) return nullptr;
  *thread = {.next = nullptr, .key = number, .allocations = 0};
  tables_->threads.insert(thread);
  return thread;
}

void Tallies::settle(Sums& sums) {
  if (sums.peak == sums.place->peaks) return;
  sums.peak = sums.place->peaks;
  sums.tally.peak_bytes = sums.tally.live_bytes;
}

void Tallies::allocated(const Event& event) {
  if (!set_up()) [[unlikely]] {
    ++lost_;
    return;
  }
  Block* block = find(event);
  if (block != nullptr) [[unlikely]] {
    tables_->blocks.remove(block);
    end(*block);
  } else {
    block = block_arena_.take();
  }
  Place& place = places_[place_of(event)];
  Sums* site = sums_of(place, event.site, TallyBy::site);
  Sums* range = sums_of(place, event.range, TallyBy::range);
  Thread* thread = thread_of(event.thread);
  if (block == nullptr || site == nullptr || range == nullptr || thread == nullptr) [[unlikely]] {
    if (block != nullptr) block_arena_.give_back(block);
    ++lost_;
    return;
  }
  *block = {.next = nullptr,
            .key = event.address,
            .site = site,
            .range = range,
            .place = &place,
            .thread = thread,
            .allocation = ++thread->allocations,
            .event = event};
  tables_->blocks.insert(block);
  settle(*site);
  settle(*range);
  for (Tally* tally : {&site->tally, &range->tally, &place.total}) {
    ++tally->allocations;
    tally->bytes += event.bytes;
    ++tally->live_blocks;
    tally->live_bytes += event.bytes;
  }
  if (place.total.live_bytes > place.total.peak_bytes) {
    place.total.peak_bytes = place.total.live_bytes;
    ++place.peaks;
  }
}

bool Tallies::freed(const Event& event, Event* out) {
  Block* block = tables_ == nullptr ? nullptr : find(event);
  if (block == nullptr) return false;
  tables_->blocks.remove(block);
  const bool temporary = block->thread->allocations == block->allocation;
  const bool within_phase = event.phase != 0 && event.phase == block->event.phase;
  for (Tally* tally : {&block->site->tally, &block->range->tally, &block->place->total}) {
    tally->temporary += temporary;
    tally->within_phase += within_phase;
  }
  end(*block);
  if (out != nullptr) *out = block->event;
  block_arena_.give_back(block);
  return true;
}

void Tallies::not_freed(const Event& event) {
  allocated(event);
  const Block* block = tables_ == nullptr ? nullptr : find(event);
  if (block == nullptr) return;
  --block->thread->allocations;
  for (Tally* tally : {&block->site->tally, &block->range->tally, &block->place->total}) {
    --tally->allocations;
    tally->bytes -= event.bytes;
  }
}

void Tallies::end(Block& block) {
  settle(*block.site);
  settle(*block.range);
  for (Tally* tally : {&block.site->tally, &block.range->tally, &block.place->total}) {
    --tally->live_blocks;
    tally->live_bytes -= block.event.bytes;
  }
}

void Tallies::context_ended(const Event& event) {
  if (tables_ == nullptr) return;
  Block* gone = tables_->blocks.remove_all([&](const Block& block) {
    return block.event.context == event.context && ends_with_context(block.event.memory);
  });
  while (gone != nullptr) {
    Block* next = gone->next;
    end(*gone);
    block_arena_.give_back(gone);
    gone = next;
  }
}

}  // namespace cistern::alloc
