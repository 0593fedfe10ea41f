// SPDX-License-Identifier: Apache-2.0
#include "allocator/on_demand/slab.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace cistern::alloc {

void SlabMap::clear() {
  some_ = 0;
  for (Word& word : all_) word.starts = word.clean = 0;
}

uint32_t SlabMap::last_start_before(uint32_t granule) const {
  uint32_t i = (granule - 1) / 64;
  uint64_t starts = all_[i].starts & (~uint64_t{0} >> (63 - (granule - 1) % 64));
  if (starts == 0) {
    const uint64_t below = some_ & ((uint64_t{1} << i) - 1);
    i = static_cast<uint32_t>(std::bit_width(below)) - 1;
    starts = all_[i].starts;
  }
  return i * 64 + static_cast<uint32_t>(std::bit_width(starts)) - 1;
}

void* SlabParts::take(uint32_t bytes) {
  LockGuard guard(mutex_);
  Link*& free = free_of(bytes);
  if (free != nullptr) {
    Link* part = free;
    free = part->next;
    return part;
  }
  // The end of a segment that is too short stays untouched, and so takes no memory.
  if (left_ < bytes) {
    void* segment = os::map(kSegmentBytes);
    if (segment == nullptr) return nullptr;
    next_ = static_cast<char*>(segment);
    left_ = kSegmentBytes;
  }
  void* part = next_;
  next_ += bytes;
  left_ -= bytes;
  return part;
}

void SlabParts::give_back(void* part, uint32_t bytes) {
  LockGuard guard(mutex_);
  push(free_of(bytes), part);
}

void SlabParts::give_back(Block** parts, size_t count, size_t stride, uint32_t bytes) {
  LockGuard guard(mutex_);
  Link*& free = free_of(bytes);
  for (size_t i = count; i-- > 0;) push(free, parts[i * stride]);
}

namespace {

uint16_t bit(const Block* block, const Block* first) {
  return static_cast<uint16_t>(1u << (block - first));
}

}  // namespace

Block* Slab::open(Chunk* owner) {
  chunk = owner;
  base = owner->base();
  order = own_order;
  half = kOwnHalf;
  pairs = nullptr;
  unused = nullptr;
  live = waiting = filling = numbers = count = last = clean = 0;
  memset(own_order, 0xff, sizeof own_order);
  Block* all = new_record();
  all->start = 0;
  all->granules = kGranules;
  insert(0, all, 0);
  set_clean(all);
  return all;
}

void Slab::close() {
  if (!few()) {
    const uint32_t by_two = std::min(uint32_t{numbers}, kMostInOrder);
    parts->give_back(pairs + kFew / 2, (by_two - kFew) / 2, 1, 2 * sizeof(Block));
    parts->give_back(pairs + by_two / 2, (numbers - by_two) / kAtATime, kAtATime / 2,
                     kAtATime * sizeof(Block));
    parts->give_back(pairs, pairs_bytes());
  }
  if (mapped()) {
    parts->maps.give_back(map);
  } else if (order != own_order) {
    parts->give_back(order, order_bytes());
  }
}

// It has room for the next power of two of records, at least sixteen.
uint32_t Slab::pairs_bytes() const {
  return std::max(std::bit_ceil(uint32_t{numbers}) / 2 * uint32_t{sizeof *pairs},
                  SlabParts::kLeastBytes);
}

inline Block* Slab::numbered(uint32_t number) { return &pairs[number / 2][number % 2]; }

inline Block* Slab::at(uint32_t position) {
  const uint32_t number = order[position] & UINT16_MAX;
  return few() ? &records[number] : numbered(number);
}

// nullptr when the system has no memory for more.
inline Block* Slab::new_record() {
  if (unused == nullptr && !add_records()) [[unlikely]]
    return nullptr;
  Block* block = unused;
  unused = block->next;
  return block;
}

// All records are blocks' now.
[[gnu::noinline]] bool Slab::add_records() {
  if (!mapped() && !make_room_in_order()) return false;
  const uint32_t more = mapped() ? kAtATime : 2;
  Block* fresh = numbers < kFew ? &records[numbers] : take_records(more);
  if (fresh == nullptr) return false;
  for (uint32_t i = more; i-- > 0;) {
    fresh[i].slab = this;
    fresh[i].granules = static_cast<uint16_t>(numbers + i);
    fresh[i].next = unused;
    unused = &fresh[i];
  }
  numbers = static_cast<uint16_t>(numbers + more);
  return true;
}

// Doubles the table of pairs when it is full; both or nothing.
Block* Slab::take_records(uint32_t more) {
  const uint32_t bytes = more * uint32_t{sizeof(Block)};
  auto* fresh = static_cast<Block*>(parts->take(bytes));
  if (fresh == nullptr) return nullptr;
  const bool full = numbers >= 16 && std::has_single_bit(numbers);
  if ((few() || full) && !extend_pairs()) {
    parts->give_back(fresh, bytes);
    return nullptr;
  }
  for (uint32_t i = 0; i < more; i += 2) pairs[(numbers + i) / 2] = fresh + i;
  return fresh;
}

bool Slab::extend_pairs() {
  const uint32_t bytes = few() ? SlabParts::kLeastBytes : 2 * pairs_bytes();
  auto* table = static_cast<Block**>(parts->take(bytes));
  if (table == nullptr) return false;
  if (few()) {
    for (uint32_t n = 0; n < kFew; n += 2) table[n / 2] = &records[n];
  } else {
    memcpy(table, pairs, pairs_bytes());
    parts->give_back(pairs, pairs_bytes());
  }
  pairs = table;
  return true;
}

// For two entries more; behind them one stays kNone.
bool Slab::make_room_in_order() {
  if (count == kMostInOrder) return spread();
  const uint32_t room = half * 2u;
  if (count + 2u < room) return true;
  auto* table = static_cast<uint32_t*>(parts->take(2 * order_bytes()));
  if (table == nullptr) return false;
  memset(table, 0xff, 2 * order_bytes());
  memcpy(table, order, order_bytes());
  if (order != own_order) parts->give_back(order, order_bytes());
  order = table;
  half = static_cast<uint16_t>(room);
  return true;
}

bool Slab::spread() {
  SlabMap* all = parts->maps.take();
  if (all == nullptr) return false;
  all->clear();
  for (uint32_t i = 0; i < count; ++i) {
    const Block* block = at(i);
    all->add_clean(block->start, static_cast<uint16_t>(order[i]));
    if (block->is() != BlockState::clean) all->set_taken(block->start);
  }
  parts->give_back(order, order_bytes());
  map = all;
  half = 0;
  return true;
}

// How many blocks start below `granule`. Without branches, which would go either way.
inline uint32_t Slab::position(uint32_t granule) {
  if (starts(last, granule)) return last;
  const uint32_t limit = granule << 16;
  uint32_t below = 0;
  for (uint32_t step = half; step != 0; step /= 2) {
    below += order[below + step - 1] < limit ? step : 0;
  }
  last = static_cast<uint16_t>(below);
  return below;
}

[[gnu::noinline]] void Slab::insert(uint32_t position, const Block* block, uint32_t number) {
  uint32_t* entry = order + position;
  if (const uint32_t behind = count++ - position; behind != 0) {
    memmove(entry + 1, entry, behind * sizeof *entry);
  }
  *entry = uint32_t{block->start} << 16 | number;
}

[[gnu::noinline]] void Slab::remove_from_order(const Block* first, Block* second) {
  const uint32_t i = starts(last, second->start) ? last : position(first->start) + 1;
  second->granules = static_cast<uint16_t>(order[i]);
  last = static_cast<uint16_t>(i - 1);
  if (const uint32_t behind = --count - i; behind != 0) {
    memmove(order + i, order + i + 1, behind * sizeof *order);
  }
  order[count] = kNone;
}

void Slab::set_clean(Block* block) {
  block->become(BlockState::clean);
  if (mapped()) return map->set_clean(block->start);
  if (few()) clean |= bit(block, records);
}

Block* Slab::split(Block* block, uint32_t granules) {
  if (mapped()) {
    map->set_taken(block->start);
  } else {
    block->become(BlockState::live);  // for spread()
    if (few()) clean &= static_cast<uint16_t>(~bit(block, records));
  }
  if (block->granules == granules) return nullptr;
  Block* rest = new_record();
  if (rest == nullptr) return nullptr;
  const uint16_t number = rest->granules;
  rest->start = static_cast<uint16_t>(block->start + granules);
  rest->granules = static_cast<uint16_t>(block->granules - granules);
  block->granules = static_cast<uint16_t>(granules);
  rest->become(BlockState::clean);
  if (mapped()) {
    map->add_clean(rest->start, number);
  } else {
    insert(position(block->start) + 1, rest, number);
    if (few()) clean |= bit(rest, records);
  }
  return rest;
}

Block* Slab::starting_at(uint32_t granule) {
  return mapped() ? numbered(map->number_at(granule)) : at(position(granule));
}

[[gnu::noinline]] Block* Slab::clean_beside(const Block* block, int32_t side) {
  const uint32_t i = position(block->start) + static_cast<uint32_t>(side);
  if (few() && (clean >> (order[i] & 15) & 1) == 0) return nullptr;
  Block* neighbour = at(i);
  return neighbour->is() == BlockState::clean ? neighbour : nullptr;
}

Block* Slab::clean_before(const Block* block) {
  if (block->start == 0) return nullptr;
  if (!mapped()) return clean_beside(block, -1);
  const uint32_t before = map->last_start_before(block->start);
  return map->clean_at(before) ? numbered(map->number_at(before)) : nullptr;
}

Block* Slab::clean_after(const Block* block) {
  const uint32_t after = block->start + block->granules;
  if (after == kGranules) return nullptr;
  if (!mapped()) return clean_beside(block, 1);
  return map->clean_at(after) ? numbered(map->number_at(after)) : nullptr;
}

void Slab::join(Block* first, Block* second) {
  first->granules = static_cast<uint16_t>(first->granules + second->granules);
  if (mapped()) {
    second->granules = map->number_at(second->start);
    map->remove(second->start);
  } else {
    remove_from_order(first, second);
  }
  second->next = unused;
  unused = second;
}

Block* Slab::live_at(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  if (offset % kGranuleBytes != 0) return nullptr;
  Block* block;
  if (mapped()) {
    if (!map->starts_at(granule)) return nullptr;
    block = numbered(map->number_at(granule));
  } else {
    const uint32_t i = position(granule);
    if (!starts(i, granule)) return nullptr;
    block = at(i);
  }
  return block->is() == BlockState::live ? block : nullptr;
}

Block* Slab::live_around(uint64_t address) {
  const uint64_t offset = address - base;
  const auto granule = static_cast<uint32_t>(offset / kGranuleBytes);
  Block* block;
  if (mapped()) {
    const bool exact = map->starts_at(granule);
    block = starting_at(exact ? granule : map->last_start_before(granule));
  } else {
    const uint32_t i = position(granule);
    block = at(starts(i, granule) ? i : i - 1);
  }
  const bool inside = offset - uint64_t{block->start} * kGranuleBytes < block->requested;
  return block->is() == BlockState::live && inside ? block : nullptr;
}

}  // namespace cistern::alloc
