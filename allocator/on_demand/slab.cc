// SPDX-License-Identifier: Apache-2.0
#include "allocator/on_demand/slab.h"

#include <bit>
#include <cstring>
#include <utility>

namespace cistern::alloc {
namespace {

uint16_t bit(size_t record) { return static_cast<uint16_t>(1u << record); }
uint16_t without(uint16_t bits, size_t record) {
  return static_cast<uint16_t>(bits & ~bit(record));
}

}  // namespace

Block* Slab::open(Chunk* owner) {
  chunk = owner;
  base = owner->base();
  live = waiting = filling = 0;
  used = clean = 0;
  memset(order, 0xff, sizeof order);
  Block* all = new_record();
  all->start = 0;
  all->granules = kGranules;
  add_clean(all);
  return all;
}

// Of few blocks: how many start below `granule`. Without branches, which would go either way.
[[gnu::noinline]] uint32_t Slab::position(uint32_t granule) const {
  const auto limit = static_cast<uint16_t>(granule << 4);
  uint16_t below = 0;
  for (const uint16_t entry : order) below = static_cast<uint16_t>(below + (entry < limit));
  return below;
}

inline Block* Slab::numbered(uint32_t number) {
  return number < kFew ? &records[number] : &many->blocks[number - kFew];
}

inline uint16_t Slab::number(const Block* block) const {
  const bool own = block >= records && block < records + kFew;
  return static_cast<uint16_t>(own ? block - records : block - many->blocks + kFew);
}

// nullptr when the system has no memory for more than a few.
inline Block* Slab::new_record() {
  if (many == nullptr && used != (1u << kFew) - 1) {
    const auto record = static_cast<size_t>(std::countr_one(used));
    used |= bit(record);
    records[record].slab = this;
    return &records[record];
  }
  if (many == nullptr && !spread()) return nullptr;
  Block* block = unused;
  if (block != nullptr) {
    unused = block->next;
    return block;
  }
  block = numbered(numbers++);
  block->slab = this;
  return block;
}

[[gnu::noinline]] bool Slab::spread() {
  many = arena->take();
  if (many == nullptr) return false;
  unused = nullptr;
  numbers = kFew;
  many->map.clear();
  for (uint16_t i = 0; i < kFew; ++i) {
    many->map.add_clean(records[i].start, i);
    if ((clean & bit(i)) == 0) many->map.set_taken(records[i].start);
  }
  return true;
}

inline void Slab::add_clean(Block* block) {
  block->become(BlockState::clean);
  if (many == nullptr) return add_to_few(block);
  many->map.add_clean(block->start, number(block));
}

[[gnu::noinline]] void Slab::add_to_few(const Block* block) {
  const auto record = static_cast<size_t>(block - records);
  clean |= bit(record);
  auto entry = static_cast<uint16_t>(block->start << 4 | record);
  for (uint32_t i = position(block->start); entry != kNone; ++i) std::swap(order[i], entry);
}

inline void Slab::remove_start(Block* block) {
  if (many == nullptr) return remove_from_few(block);
  many->map.remove(block->start);
  block->next = unused;
  unused = block;
}

[[gnu::noinline]] void Slab::remove_from_few(const Block* block) {
  const auto record = static_cast<size_t>(block - records);
  used = without(used, record);
  for (uint32_t i = position(block->start); order[i] != kNone; ++i) order[i] = order[i + 1];
}

void Slab::set_clean(Block* block) {
  block->become(BlockState::clean);
  if (many != nullptr) return many->map.set_clean(block->start);
  clean |= bit(static_cast<size_t>(block - records));
}

void Slab::set_taken(Block* block) {
  if (many != nullptr) return many->map.set_taken(block->start);
  clean = without(clean, static_cast<size_t>(block - records));
}

Block* Slab::split(Block* block, uint32_t granules) {
  set_taken(block);
  if (block->granules == granules) return nullptr;
  Block* rest = new_record();
  if (rest == nullptr) return nullptr;
  rest->start = static_cast<uint16_t>(block->start + granules);
  rest->granules = static_cast<uint16_t>(block->granules - granules);
  block->granules = static_cast<uint16_t>(granules);
  add_clean(rest);
  return rest;
}

Block* Slab::starting_at(uint32_t granule) {
  return many == nullptr ? at(position(granule)) : numbered(many->map.number_at(granule));
}

Block* Slab::clean_or_null(uint32_t position) {
  const uint16_t record = order[position] & 15;
  return (clean & bit(record)) != 0 ? &records[record] : nullptr;
}

Block* Slab::clean_before(const Block* block) {
  if (block->start == 0) return nullptr;
  if (many == nullptr) return clean_or_null(position(block->start) - 1);
  const uint32_t before = many->map.last_start_before(block->start);
  return many->map.clean_at(before) ? numbered(many->map.number_at(before)) : nullptr;
}

Block* Slab::clean_after(const Block* block) {
  const uint32_t after = block->start + block->granules;
  if (after == kGranules) return nullptr;
  if (many == nullptr) return clean_or_null(position(after));
  return many->map.clean_at(after) ? numbered(many->map.number_at(after)) : nullptr;
}

void Slab::join(Block* first, Block* second) {
  remove_start(second);
  first->granules = static_cast<uint16_t>(first->granules + second->granules);
}

Block* Slab::live_at(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  if (offset % kGranuleBytes != 0) return nullptr;
  Block* block;
  if (many == nullptr) {
    const uint32_t i = position(granule);
    if (!starts(i, granule)) return nullptr;
    block = at(i);
  } else {
    if (!many->map.starts_at(granule)) return nullptr;
    block = numbered(many->map.number_at(granule));
  }
  return block->is() == BlockState::live ? block : nullptr;
}

Block* Slab::live_around(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  Block* block;
  if (many == nullptr) {
    const uint32_t i = position(granule);
    block = at(starts(i, granule) ? i : i - 1);
  } else {
    const bool exact = many->map.starts_at(granule);
    block = starting_at(exact ? granule : many->map.last_start_before(granule));
  }
  const bool inside = offset - uint64_t{block->start} * kGranuleBytes < block->requested;
  return block->is() == BlockState::live && inside ? block : nullptr;
}

}  // namespace cistern::alloc
