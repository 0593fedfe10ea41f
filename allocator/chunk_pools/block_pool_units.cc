// SPDX-License-Identifier: Apache-2.0
// The memory behind a range of addresses, and the holes where there is none.
#include <algorithm>
#include <climits>

#include "allocator/chunk_pools/block_pool.h"

namespace cistern::alloc {

bool BlockPool::add_range(Chunk* range, ChunkMap* map, Unit* behind) {
  LockGuard guard(mutex_);
  if (closed() || !records_.reserve(1)) return false;
  ChunkBlock* all = records_.take();
  if (!map->open(range, all)) {
    records_.give_back(all);
    return false;
  }
  map->own = false;
  map->units = behind;
  map->previous = nullptr;
  map->next = maps_;
  if (maps_ != nullptr) maps_->previous = map;
  maps_ = map;
  chunks_.own_add();
  range->idle_since = kNotSeen;
  range->set_map(map);
  range->move_to(here_);
  table_.insert(all);
  insert_hole(all);
  return true;
}

void BlockPool::insert_into(ChunkBlock** list, ChunkBlock* block) {
  block->prev = nullptr;
  block->next = *list;
  if (*list != nullptr) (*list)->prev = block;
  *list = block;
}

void BlockPool::remove_from(ChunkBlock** list, ChunkBlock* block) {
  (block->prev == nullptr ? *list : block->prev->next) = block->next;
  if (block->next != nullptr) block->next->prev = block->prev;
}

void BlockPool::insert_hole(ChunkBlock* block) {
  block->become(BlockState::hole);
  block->exported = 0;
  insert_into(&holes_, block);
}

// --- addresses for a request ---

namespace {

const ChunkBlock* if_clean(const ChunkBlock* block) {
  return block != nullptr && block->is() == BlockState::clean ? block : nullptr;
}

}  // namespace

// A possible place for a request: the part of a hole that needs memory, and which of its neighbours
// belong to the place.
struct BlockPool::Site {
  ChunkBlock* hole;
  uint32_t lead;  // granules of the hole that stay in front
  uint32_t units;
  bool before, after;
};

// Considers the sites of one hole: behind the clean memory before it, up to the clean memory after
// it, both, or neither.
void BlockPool::consider(ChunkBlock* hole, uint32_t granules, Site* best) const {
  const uint32_t align = granules >= align_ ? align_ : 1;
  const auto units_for = [this](uint32_t n) { return (n + unit_ - 1) / unit_; };
  const auto offer = [&](uint32_t lead, uint32_t units, bool before, bool after) {
    const bool better = best->hole == nullptr || units < best->units ||
                        (units == best->units && hole->address() < best->hole->address());
    if (better) *best = {hole, lead, units, before, after};
  };
  const uint32_t size = hole->granules;
  const ChunkBlock* before = if_clean(hole->before);
  const ChunkBlock* after = if_clean(hole->after);
  const uint32_t unaligned = before == nullptr ? 0 : before->to_aligned(align);
  if (before != nullptr && before->granules > unaligned) {
    const uint32_t have = std::min(before->granules - unaligned, granules - 1);
    const uint32_t units = units_for(granules - have);
    if (uint64_t{units} * unit_ <= size) {
      offer(0, units, true, false);
    } else if (after != nullptr && uint64_t{have} + size + after->granules >= granules) {
      offer(0, size / unit_, true, true);
    }
  }
  const uint32_t lead = hole->to_aligned(align), units = units_for(granules);
  if (uint64_t{lead} + uint64_t{units} * unit_ <= size) offer(lead, units, false, false);
  if (after != nullptr) {
    const uint32_t tail = units_for(granules - std::min(after->granules, granules - 1));
    if (uint64_t{tail} * unit_ > size) return;
    const uint32_t start = size - tail * unit_;
    const bool aligned = ((hole->address() / kBlockGranule + start) & (align - 1)) == 0;
    if (aligned) offer(start, tail, false, true);
  }
}

// Puts the part of the clean memory behind a hole back that the request does not need: its units
// may be moved into the hole.
void BlockPool::keep_surplus(const ChunkBlock* before, const ChunkBlock* hole, ChunkBlock* after,
                             uint32_t granules) {
  const uint32_t align = granules >= align_ ? align_ : 1;
  const uint32_t have = before == nullptr ? 0 : before->granules - before->to_aligned(align);
  const uint64_t without = uint64_t{have} + hole->granules;
  if (without >= granules || granules - without >= after->granules) return;
  insert(split(after, static_cast<uint32_t>(granules - without)));
}

// For blocks with memory behind them.
void BlockPool::start_moving(ChunkBlock* block) {
  block->become(BlockState::moving);
  moving_bytes_.own_add(block->bytes());
}

bool BlockPool::open_gap(uint32_t granules, Gap* gap) {
  LockGuard guard(mutex_);
  if (closed() || !records_.reserve(3)) return false;
  Site site{};
  for (ChunkBlock* hole = holes_; hole != nullptr; hole = hole->next) {
    consider(hole, granules, &site);
  }
  if (site.hole == nullptr) return false;
  ChunkBlock* hole = site.hole;
  ChunkBlock* before = site.before ? hole->before : nullptr;
  ChunkBlock* after = site.after ? hole->after : nullptr;
  remove_hole(hole);
  if (site.lead != 0) {
    ChunkBlock* rest = split(hole, site.lead);
    insert_hole(hole);
    hole = rest;
  }
  if (hole->granules != site.units * unit_) insert_hole(split(hole, site.units * unit_));
  for (ChunkBlock* part : {before, after}) {
    if (part != nullptr) remove(part);
  }
  if (after != nullptr) keep_surplus(before, hole, after, granules);
  for (ChunkBlock* part : {before, after}) {
    if (part != nullptr) start_moving(part);
  }
  hole->become(BlockState::moving);
  *gap = {before, hole, after, site.units, records_.take()};
  return true;
}

uint64_t BlockPool::close_gap(const Gap& gap, uint32_t filled, uint32_t granules, uint64_t bytes,
                              Epoch born) {
  LockGuard guard(mutex_);
  records_.give_back(gap.spare);
  chunk_bytes_.own_add(uint64_t{filled} * unit_ * kBlockGranule);
  for (const ChunkBlock* part : {gap.before, gap.after}) {
    if (part != nullptr) moving_bytes_.own_sub(part->bytes());
  }
  ChunkBlock* block = gap.hole;
  if (filled != gap.units) {
    if (filled != 0) make_hole_locked(split(block, filled * unit_));
    for (ChunkBlock* part : {gap.before, gap.after}) {
      if (part != nullptr) make_clean(part, nullptr);
    }
    filled != 0 ? make_clean(block, nullptr) : make_hole_locked(block);
    return 0;
  }
  if (gap.after != nullptr) join(block, gap.after);
  if (gap.before != nullptr) block = join(gap.before, block);
  const uint32_t align = granules >= align_ ? align_ : 1;
  if (bytes == 0 || closed() || !records_.reserve(2) || !block->fits(granules, align)) {
    make_clean(block, nullptr);  // one with the clean memory beside it
    return 0;
  }
  block = merge(block);  // the request may leave something beside clean memory
  insert(block);
  return hand_out(block, granules, align, bytes, born);
}

// --- memory to move elsewhere ---

// How many granules of whole units are in a block, and how many lie in front of them.
BlockPool::WholeUnits BlockPool::whole_units_in(const ChunkBlock* block) const {
  const uint32_t front = block->to_aligned(unit_);
  return {front, block->granules > front ? (block->granules - front) / unit_ * unit_ : 0};
}

// Takes from the end of the clean memory at the highest addresses. So blocks in use move to lower
// addresses, and runs there grow longer.
ChunkBlock* BlockPool::take_units(uint32_t most, Reclaim& reclaim) {
  LockGuard guard(mutex_);
  if (closed() || !records_.reserve(2)) return nullptr;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  ChunkBlock* block = nullptr;
  bins_.for_each_from(unit_, [&](ChunkBlock* b) {
    const bool higher = block == nullptr || b->address() > block->address();
    if (higher && whole_units_in(b).granules != 0) block = b;
  });
  if (block == nullptr) return nullptr;
  const auto [front, granules] = whole_units_in(block);
  const uint32_t taken =
      static_cast<uint32_t>(std::min<uint64_t>(granules, uint64_t{most} * unit_));
  const uint32_t kept = front + granules - taken;
  remove(block);
  if (block->granules != kept + taken) insert(split(block, kept + taken));
  if (kept != 0) {
    ChunkBlock* units = split(block, kept);
    insert(block);
    block = units;
  }
  start_moving(block);
  return block;
}

// --- what others know ---

void BlockPool::insert_known(ChunkBlock* block) {
  block->become(BlockState::known);
  quarantine(block->bytes());
  insert_into(&known_, block);
}

void BlockPool::remove_known(ChunkBlock* block) {
  remove_from(&known_, block);
  end_quarantine(block->bytes());
}

// The unit that begins at this granule, cut out and in no list, if all of it is free; otherwise
// nullptr.
ChunkBlock* BlockPool::cut_unit(ChunkMap* map, uint32_t begin) {
  const uint32_t end = begin + unit_;
  ChunkBlock* unit = map->around(begin);
  for (const ChunkBlock* b = unit; b->start < end; b = b->after) {
    if (b->is() != BlockState::clean && b->is() != BlockState::known) return nullptr;
    if (b->after == nullptr) break;
  }
  if (!records_.reserve(2)) return nullptr;
  const auto take_out = [this](ChunkBlock* b) {
    b->is() == BlockState::clean ? remove(b) : remove_known(b);
  };
  // The part of a block behind `from` granules goes back to where the block was.
  const auto cut = [this](ChunkBlock* b, uint32_t from) {
    if (b->granules <= from) return;
    ChunkBlock* rest = split(b, from);
    rest->exported != 0 ? insert_known(rest) : insert(rest);
  };
  take_out(unit);
  if (unit->start < begin) {
    ChunkBlock* front = unit;
    unit = split(front, begin - front->start);
    front->exported != 0 ? insert_known(front) : insert(front);
  }
  cut(unit, unit_);
  while (unit->granules < unit_) {
    ChunkBlock* next = unit->after;
    take_out(next);
    cut(next, unit_ - unit->granules);
    join(unit, next);
  }
  return unit;
}

// `held`: the address of the last unit that is still in use, so that further blocks in it, of which
// there may be many, do not look again.
ChunkBlock* BlockPool::cut_known(ChunkBlock* block, uint64_t* held) {
  if (block->to_aligned(unit_) == 0 && block->granules % unit_ == 0) {
    remove_known(block);
    return block;
  }
  const uint32_t end = block->start + block->granules;
  for (uint32_t begin = block->start / unit_ * unit_; begin < end; begin += unit_) {
    const uint64_t address = block->map()->base + uint64_t{begin} * kBlockGranule;
    if (address == *held) continue;
    if (ChunkBlock* unit = cut_unit(block->map(), begin)) return unit;
    *held = address;
  }
  return nullptr;
}

ChunkBlock* BlockPool::take_known_units(Reclaim& reclaim) {
  LockGuard guard(mutex_);
  if (closed()) return nullptr;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  uint64_t held = 0;
  for (ChunkBlock* block = known_; block != nullptr; block = block->next) {
    ChunkBlock* units = cut_known(block, &held);
    if (units == nullptr) continue;
    start_moving(units);
    units->exported = 1;
    look_from_.set(0);
    return units;
  }
  look_from_.set(2 * quarantined_bytes());
  return nullptr;
}

// --- back ---

void BlockPool::make_hole_locked(ChunkBlock* block) {
  if (ChunkBlock* after = block->after; after != nullptr && after->is() == BlockState::hole) {
    remove_hole(after);
    join(block, after);
  }
  if (ChunkBlock* before = block->before; before != nullptr && before->is() == BlockState::hole) {
    remove_hole(before);
    block = join(before, block);
  }
  insert_hole(block);
}

void BlockPool::make_hole(ChunkBlock* moving) {
  LockGuard guard(mutex_);
  chunk_bytes_.own_sub(moving->bytes());
  moving_bytes_.own_sub(moving->bytes());
  make_hole_locked(moving);
}

void BlockPool::put_back_units(ChunkBlock* moving) {
  LockGuard guard(mutex_);
  moving_bytes_.own_sub(moving->bytes());
  make_clean(moving, nullptr);
}

uint32_t BlockPool::whole_units(Reclaim& reclaim) {
  LockGuard guard(mutex_);
  if (closed()) return 0;
  refresh_oldest(reclaim, INT_MAX, nullptr);
  return static_cast<uint32_t>(whole_unit_bytes() / (uint64_t{unit_} * kBlockGranule));
}

bool BlockPool::next_mapped(uint64_t* address, uint64_t* bytes) {
  const auto mapped = [](const ChunkBlock* block) {
    return block->is() != BlockState::hole && block->is() != BlockState::moving;
  };
  LockGuard guard(mutex_);
  while (!closed()) {
    const ChunkMap* next = nullptr;
    for (const ChunkMap* map = maps_; map != nullptr; map = map->next) {
      const bool behind = map->base + uint64_t{map->granules} * kBlockGranule > *address;
      if (behind && (next == nullptr || map->base < next->base)) next = map;
    }
    if (next == nullptr) return false;
    const uint64_t from = std::max(*address, next->base);
    const ChunkBlock* block =
        next->around(static_cast<uint32_t>((from - next->base) / kBlockGranule));
    while (block != nullptr && !mapped(block)) block = block->after;
    if (block != nullptr) {
      *address = std::max(from, block->address());
      while (block->after != nullptr && mapped(block->after)) block = block->after;
      *bytes = block->address() + block->bytes() - *address;
      return true;
    }
    *address = next->base + uint64_t{next->granules} * kBlockGranule;
  }
  return false;
}

uint64_t BlockPool::whole_unit_bytes() const {
  if (whole_) return clean_bytes();
  uint64_t granules = 0;
  bins_.for_each_from(unit_,
                      [&](const ChunkBlock* block) { granules += whole_units_in(block).granules; });
  return granules * kBlockGranule;
}

// Bytes of units in which the program holds nothing: clean, waiting, parked, known or room. In a
// unit that is in use it does not look behind the first used block, because there may be many.
uint64_t BlockPool::unused_unit_bytes() const {
  const auto unused = [](const ChunkBlock* b) {
    return b->is() == BlockState::clean || b->is() == BlockState::waiting ||
           b->is() == BlockState::known || b->is() == BlockState::room;
  };
  uint64_t granules = 0;
  for (const ChunkMap* map = maps_; map != nullptr; map = map->next) {
    for (uint64_t begin = 0; begin < map->granules;) {
      const auto region = static_cast<uint32_t>(begin / ChunkMap::kRegionGranules);
      const ChunkBlock* block = map->at_region(region);
      while (block != nullptr && unused(block)) block = block->after;
      const uint64_t end = (block == nullptr ? map->granules : block->start) / unit_ * unit_;
      if (end > begin) granules += end - begin;
      if (block == nullptr) break;
      begin = round_up(uint64_t{block->start} + block->granules, unit_);
    }
  }
  return granules * kBlockGranule;
}

// Free memory that shares units with live blocks serves only small requests, so it is not reported
// as free.
uint64_t BlockPool::available_in_units(Reclaim& reclaim, bool all) {
  refresh_locked(freed_.clean(reclaim), INT_MAX, nullptr);
  const bool only_clean = waiting_bytes() + parked_bytes() + garbage_bytes() +
                              filling_bytes_.get() + quarantined_bytes() + room_bytes_.get() ==
                          0;
  if (all && !only_clean) return unused_unit_bytes();
  const uint64_t clean = whole_unit_bytes();
  if (all || !whole_) return clean;
  Ticket oldest, newest;
  const bool waits = freed_.range(&oldest, &newest) && newest > freed_.clean(reclaim);
  return clean + filling_bytes_.get() + (waits ? 0 : waiting_bytes()) +
         freed_.clean_parked_bytes(reclaim);
}

}  // namespace cistern::alloc
