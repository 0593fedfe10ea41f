// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tallies.h"

#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/record/event.h"

namespace cistern::alloc {
namespace {

// How a free was counted, in the code of the event that tells of its block.
constexpr uint32_t kTemporary = 1, kWithinPhase = 2;

constexpr uint64_t kMostBytes = (uint64_t{1} << 48) - 1;
constexpr uint32_t kMostDevices = (1 << 12) - 1;

}  // namespace

bool Tallies::set_up() {
  if (tables_ == nullptr) tables_ = static_cast<Tables*>(os::map_huge(sizeof(Tables)));
  return tables_ != nullptr;
}

Tallies::Block* Tallies::find(const Event& event) const {
  const KeySpace space = key_space_of(event.memory);
  return tables_->blocks.find(event.address, [=](const Block& block) {
    return key_space_of(static_cast<Memory>(block.memory)) == space;
  });
}

Tallies::Sums* Tallies::sums_of(const Place& place, uint32_t number, TallyBy by) {
  const auto index = static_cast<uint64_t>(&place - places_);
  const uint64_t key = index << 33 | uint64_t{by == TallyBy::range} << 32 | number;
  Sums* sums = tables_->sums.find(key);
  if (sums != nullptr) return sums;
  sums = sums_records_.take();
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
  thread = thread_records_.take();
  if (thread == nullptr) return nullptr;
  *thread = {.next = nullptr, .key = number, .last = nullptr};
  tables_->threads.insert(thread);
  return thread;
}

Event Tallies::event_of(const Block& block) {
  return {.type = EventType::allocated,
          .memory = static_cast<Memory>(block.memory),
          .time_ns = block.time_ns,
          .address = block.key,
          .bytes = block.bytes,
          .stream = block.stream,
          .context = block.context,
          .thread = block.thread,
          .device = static_cast<uint32_t>(block.device),
          .site = block.site,
          .range = block.range,
          .phase = block.phase,
          .code = 0};
}

Tallies::Changes Tallies::changes_of(const Block& block) {
  Place& place = places_[place_of(event_of(block))];
  return {.site = sums_of(place, block.site, TallyBy::site),
          .range = sums_of(place, block.range, TallyBy::range),
          .place = &place,
          .thread = thread_of(block.thread)};
}

template <typename Change>
void Tallies::Changes::each(Change change) const {
  for (Sums* sums : {site, range}) {
    if (sums->peak != place->peaks) {
      sums->peak = place->peaks;
      sums->tally.peak_bytes = sums->tally.live_bytes;
    }
    change(sums->tally);
  }
  change(place->total);
}

void Tallies::allocated(const Event& event) {
  if (!set_up()) [[unlikely]] {
    ++lost_;
    return;
  }
  Block* block = find(event);
  if (block != nullptr) [[unlikely]] {
    tables_->blocks.remove(block);
    end(*block, changes_of(*block));
  } else {
    block = block_records_.take();
  }
  if (block == nullptr) [[unlikely]] {
    ++lost_;
    return;
  }
  *block = {.next = nullptr,
            .key = event.address,
            .bytes = std::min(event.bytes, kMostBytes) & kMostBytes,
            .device = std::min(event.device, kMostDevices) & kMostDevices,
            .memory = static_cast<uint64_t>(event.memory) & 0xF,
            .time_ns = event.time_ns,
            .stream = event.stream,
            .context = event.context,
            .thread = event.thread,
            .site = event.site,
            .range = event.range,
            .phase = event.phase};
  const Changes changes = changes_of(*block);
  if (!changes.complete()) [[unlikely]] {
    block_records_.give_back(block);
    ++lost_;
    return;
  }
  tables_->blocks.insert(block);
  changes.thread->last = block;
  changes.each([&](Tally& tally) {
    ++tally.allocations;
    tally.bytes += block->bytes;
    ++tally.live_blocks;
    tally.live_bytes += block->bytes;
  });
  Place& place = *changes.place;
  if (place.total.live_bytes > place.total.peak_bytes) {
    place.total.peak_bytes = place.total.live_bytes;
    ++place.peaks;
  }
}

bool Tallies::freed(const Event& event, Event* out) {
  Block* block = tables_ == nullptr ? nullptr : find(event);
  if (block == nullptr) return false;
  tables_->blocks.remove(block);
  const Changes changes = changes_of(*block);
  const bool temporary = changes.thread->last == block;
  const bool within_phase = event.phase != 0 && event.phase == block->phase;
  end(*block, changes);
  changes.each([&](Tally& tally) {
    tally.temporary += temporary;
    tally.within_phase += within_phase;
  });
  if (out != nullptr) {
    *out = event_of(*block);
    out->code = (temporary ? kTemporary : 0) | (within_phase ? kWithinPhase : 0);
  }
  block_records_.give_back(block);
  return true;
}

void Tallies::not_freed(const Event& event) {
  allocated(event);
  const Block* block = tables_ == nullptr ? nullptr : find(event);
  if (block == nullptr) return;
  const Changes changes = changes_of(*block);
  if (!changes.complete()) return;
  if ((event.code & kTemporary) == 0) changes.thread->last = nullptr;
  changes.each([&](Tally& tally) {
    --tally.allocations;
    tally.bytes -= block->bytes;
    tally.temporary -= (event.code & kTemporary) != 0;
    tally.within_phase -= (event.code & kWithinPhase) != 0;
  });
}

void Tallies::gone(const Event& event) {
  Block* block = tables_ == nullptr ? nullptr : find(event);
  if (block == nullptr) return;
  tables_->blocks.remove(block);
  end(*block, changes_of(*block));
  block_records_.give_back(block);
}

void Tallies::end(const Block& block, const Changes& changes) {
  if (changes.thread != nullptr && changes.thread->last == &block) changes.thread->last = nullptr;
  changes.each([&](Tally& tally) {
    --tally.live_blocks;
    tally.live_bytes -= block.bytes;
  });
}

uint64_t Tallies::context_ended(const Event& event) {
  uint64_t bytes = 0;
  if (tables_ == nullptr) return bytes;
  Block* gone = tables_->blocks.remove_all([&](const Block& block) {
    return block.context == event.context && ends_with_context(static_cast<Memory>(block.memory));
  });
  while (gone != nullptr) {
    Block* next = gone->next;
    bytes += gone->bytes;
    end(*gone, changes_of(*gone));
    block_records_.give_back(gone);
    gone = next;
  }
  return bytes;
}

}  // namespace cistern::alloc
