// SPDX-License-Identifier: Apache-2.0
#include "allocator/slab.h"

#include <bit>
#include <cstring>

namespace cistern::alloc {

Block* Slab::open(Chunk* owner) {
  chunk = owner;
  base = owner->base();
  live = waiting = 0;
  unused = nullptr;
  records = 0;
  words = 0;
  memset(starts, 0, sizeof starts);
  memset(clean, 0, sizeof clean);
  Block* all = new_record();
  all->start = 0;
  all->granules = kGranules;
  add_start(all);
  set_clean(all);
  return all;
}

Block* Slab::new_record() {
  if (unused == nullptr) return &blocks[records++];
  Block* block = unused;
  unused = block->next;
  return block;
}

// The granule of the only start in a word.
uint32_t Slab::start_in(uint32_t word) const {
  return word * 64 + static_cast<uint32_t>(std::countr_zero(starts[word]));
}

void Slab::add_start(const Block* block) {
  const uint32_t word = block->start / 64;
  if (starts[word] == 0) {
    only[word] = number(block);
    words |= uint64_t{1} << word;
  } else {
    if (lone(word)) map[start_in(word)] = only[word];
    map[block->start] = number(block);
  }
  set(starts, block->start);
}

void Slab::remove_start(uint32_t granule) {
  const uint32_t word = granule / 64;
  clear(starts, granule);
  if (starts[word] == 0) {
    words &= ~(uint64_t{1} << word);
  } else if (lone(word)) {
    only[word] = map[start_in(word)];
  }
}

// The last block start below `granule` > 0; there is always one, at 0.
uint32_t Slab::last_start_before(uint32_t granule) const {
  uint32_t word = (granule - 1) / 64;
  uint64_t bits = starts[word] & (~uint64_t{0} >> (63 - (granule - 1) % 64));
  if (bits == 0) {
    const uint64_t below = words & ((uint64_t{1} << word) - 1);
    word = static_cast<uint32_t>(std::bit_width(below)) - 1;
    bits = starts[word];
  }
  return word * 64 + static_cast<uint32_t>(std::bit_width(bits)) - 1;
}

void Slab::set_clean(Block* block) {
  block->become(BlockState::clean);
  set(clean, block->start);
}

Block* Slab::split(Block* block, uint32_t granules) {
  clear(clean, block->start);
  if (block->granules == granules) return nullptr;
  Block* rest = new_record();
  rest->start = static_cast<uint16_t>(block->start + granules);
  rest->granules = static_cast<uint16_t>(block->granules - granules);
  block->granules = static_cast<uint16_t>(granules);
  add_start(rest);
  set_clean(rest);
  return rest;
}

Block* Slab::clean_before(const Block* block) {
  if (block->start == 0) return nullptr;
  const uint32_t before = last_start_before(block->start);
  return test(clean, before) ? starting_at(before) : nullptr;
}

Block* Slab::clean_after(const Block* block) {
  const uint32_t after = block->start + block->granules;
  return after != kGranules && test(clean, after) ? starting_at(after) : nullptr;
}

void Slab::join(Block* first, Block* second) {
  clear(clean, first->start);
  clear(clean, second->start);
  remove_start(second->start);
  first->granules = static_cast<uint16_t>(first->granules + second->granules);
  second->next = unused;
  unused = second;
}

Block* Slab::live_at(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  if (offset % kGranuleBytes != 0 || !test(starts, granule)) return nullptr;
  Block* block = starting_at(granule);
  return block->is() == BlockState::live ? block : nullptr;
}

Block* Slab::live_around(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  const uint32_t start = last_start_before(granule + 1);
  Block* block = starting_at(start);
  const bool inside = offset - uint64_t{start} * kGranuleBytes < block->requested;
  return block->is() == BlockState::live && inside ? block : nullptr;
}

}  // namespace cistern::alloc
