// SPDX-License-Identifier: Apache-2.0
#include "allocator/slab.h"

#include <bit>
#include <cstring>

namespace cistern::alloc {

Block* Slab::open(Chunk* owner, SlabPool* in) {
  chunk = owner;
  pool = in;
  base = owner->base();
  live = waiting = 0;
  unused = nullptr;
  records = 0;
  memset(starts, 0, sizeof starts);
  memset(tags, 0, sizeof tags);
  Block* all = new_record();
  all->start = 0;
  all->granules = kGranules;
  set(starts, 0);
  set_tags(all);
  return all;
}

Block* Slab::new_record() {
  if (unused == nullptr) return &blocks[records++];
  Block* block = unused;
  unused = block->next;
  return block;
}

void Slab::set_tags(Block* block) {
  block->become(BlockState::clean);
  const uint32_t last = block->start + block->granules - 1u;
  map[block->start] = map[last] = number(block);
  set(tags, block->start);
  set(tags, last);
}

void Slab::clear_tags(const Block* block) {
  clear(tags, block->start);
  clear(tags, block->start + block->granules - 1u);
}

void Slab::split(Block* block, uint32_t granules, Block** rest) {
  clear_tags(block);
  *rest = nullptr;
  if (block->granules == granules) return;
  Block* tail = new_record();
  tail->start = static_cast<uint16_t>(block->start + granules);
  tail->granules = static_cast<uint16_t>(block->granules - granules);
  block->granules = static_cast<uint16_t>(granules);
  set(starts, tail->start);
  set_tags(tail);
  *rest = tail;
}

Block* Slab::clean_before(const Block* block) {
  const uint32_t end = block->start - 1u;
  return block->start != 0 && test(tags, end) ? &blocks[map[end]] : nullptr;
}

Block* Slab::clean_after(const Block* block) {
  const uint32_t begin = block->start + block->granules;
  return begin != kGranules && test(tags, begin) ? &blocks[map[begin]] : nullptr;
}

void Slab::join(Block* first, Block* second) {
  clear(starts, second->start);
  first->granules = static_cast<uint16_t>(first->granules + second->granules);
  second->next = unused;
  unused = second;
}

Block* Slab::live_at(uint64_t address) {
  const uint64_t offset = address - base;
  if (offset % kGranuleBytes != 0) return nullptr;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  if (!test(starts, granule)) return nullptr;
  Block* block = &blocks[map[granule]];
  return block->is() == BlockState::live ? block : nullptr;
}

Block* Slab::live_around(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  int word = static_cast<int>(granule / 64);
  uint64_t bits = starts[word] & (~uint64_t{0} >> (63 - granule % 64));
  while (bits == 0 && word > 0) bits = starts[--word];
  if (bits == 0) return nullptr;
  const auto start = static_cast<uint32_t>(word * 64 + std::bit_width(bits) - 1);
  Block* block = &blocks[map[start]];
  const bool inside = offset - uint64_t{start} * kGranuleBytes < block->requested;
  return block->is() == BlockState::live && inside ? block : nullptr;
}

}  // namespace cistern::alloc
