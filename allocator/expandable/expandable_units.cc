// SPDX-License-Identifier: Apache-2.0
// How units come behind addresses, and move.
#include <algorithm>

#include "allocator/expandable/expandable.h"

namespace cistern::alloc {

// Of threads that miss at once one takes units, and the others look for room in what it took before
// the next one does. No longer than a moment: a large request may take long.
class Expandable::Turn {
 public:
  explicit Turn(Expandable& memory) : memory_(memory) {
    constexpr uint64_t kMostNs = 5'000'000;
    alone_ = os::wait_until(
        [&] { return !memory_.growing_.exchange(true, std::memory_order_acquire); }, kMostNs);
  }
  ~Turn() {
    if (alone_) memory_.growing_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Expandable& memory_;
  bool alone_;
};

int Expandable::take_fresh(Request& request) { return take_with(request, /*new_ones=*/true); }

bool Expandable::take_scattered(Request& request) {
  return take_with(request, /*new_ones=*/false) == kSuccess;
}

int Expandable::take_with(Request& request, bool new_ones) {
  BlockPool* pool = pool_for(request);
  if (pool == nullptr) return new_ones ? supply_->obtain_direct(request) : kOutOfMemory;
  const ChunkSupply::InHand in_hand(*supply_);
  if (supply_->closed()) return kContextGone;
  const Turn turn(*this);
  if (take_clean(request)) return kSuccess;  // of what another thread moved meanwhile
  fill_freed();                              // or what the other pool has would not be clean
  const uint64_t room = room_of(request);
  request.address =
      pool->allocate_with_room(request.bytes, room, shared_->reclaim, BlockPool::Search::thorough);
  if (request.address != 0) return kSuccess;
  const ChunkSupply::Moving moving(*supply_);
  release_known(/*all=*/!new_ones);
  const MoveGate::Moving through(gate_);
  if (new_ones && units_.units() == 0 && sizes_.first != 0) {
    take_ahead(sizes_.first);
    if (take_clean(request)) return kSuccess;
  }
  const uint64_t start = os::now_ns();
  const int code = take_moved(*pool, request, new_ones);
  if (code == kSuccess) {
    ledger_->obtained.add();
    supply_->note_obtain(os::now_ns() - start);
    note_low_water();
  }
  // A source that fails otherwise than for want of memory may still have it whole.
  const bool whole = code != kSuccess && code != kOutOfMemory && new_ones;
  return whole ? supply_->obtain_direct(request) : code;
}

int Expandable::take_moved(BlockPool& pool, Request& request, bool new_ones) {
  const uint32_t granules = granules_for(request.bytes + room_of(request));
  BlockPool::Gap gap;
  if (!open_gap(pool, granules, &gap)) return kNoAddresses;
  const uint32_t clean = clean_units();
  const uint32_t fresh = gap.units > clean ? gap.units - clean : 0;
  // Where there are too few of many, not even one is made for nothing.
  const auto enough = [&] { return fresh == 1 || units_.source().most_units() >= fresh; };
  int code = kOutOfMemory;
  const bool goes = fresh == 0 || (new_ones && enough());
  const uint32_t filled = goes ? fill_gap(pool, gap, fresh, new_ones, &code) : 0;
  request.address = pool.close_gap(gap, filled, granules, request.bytes, shared_->reclaim.epoch());
  if (request.address == 0) {
    give_back_units(std::min(filled, fresh));  // what it took of the source for nothing
    return filled == gap.units ? kOutOfMemory : code;
  }
  if (fresh != 0 && sizes_.later > fresh * units_.unit_bytes()) {
    take_ahead(sizes_.later - fresh * units_.unit_bytes());
  }
  return kSuccess;
}

// New units that no request needs yet, as far as there are any.
void Expandable::take_ahead(uint64_t bytes) {
  BlockPool* pool = pools_[kLarge].load(std::memory_order_acquire);
  BlockPool::Gap gap;
  const uint32_t granules = granules_for(round_up(bytes, units_.unit_bytes()));
  if (pool == nullptr || !open_gap(*pool, granules, &gap)) return;
  int code;
  const uint32_t filled = fill_gap(*pool, gap, gap.units, /*new_ones=*/true, &code);
  pool->close_gap(gap, filled, granules, /*bytes=*/0, 0);
}

bool Expandable::open_gap(BlockPool& pool, uint32_t granules, BlockPool::Gap* gap) {
  if (pool.open_gap(granules, gap)) return true;
  const int number = &pool == pools_[kLarge].load(std::memory_order_acquire) ? kLarge : kSmall;
  return add_range(pool, number, uint64_t{granules} * kBlockGranule) &&
         pool.open_gap(granules, gap);
}

// Addresses as there are bytes of memory, or half as many again and again where the process may not
// have them.
bool Expandable::add_range(BlockPool& pool, int number, uint64_t bytes) {
  constexpr uint64_t kUnknown = uint64_t{1} << 40;
  const uint64_t unit = units_.unit_bytes();
  const uint64_t align = std::max(unit, sizes_.align);
  const uint64_t least = round_up(bytes, unit) + align - unit;
  const uint64_t most = ChunkMap::kMaxBytes / unit * unit;
  if (least > most) return false;
  uint64_t size = round_up(memory_bytes_ == 0 ? kUnknown : memory_bytes_, unit);
  uint64_t address;
  for (size = std::clamp(size, least, most);; size = std::max(least, size / 2 / unit * unit)) {
    if (units_.source().reserve_addresses(size, &address) == kSuccess) break;
    if (size == least) return false;
  }
  if (enter_range(pool, number, address, size)) return true;
  units_.source().free_addresses(address, size);
  return false;
}

// The index knows it before any thread can get a block of it.
bool Expandable::enter_range(BlockPool& pool, int number, uint64_t address, uint64_t size) {
  const uint64_t bytes = size / units_.unit_bytes() * sizeof(Unit);
  Chunk* range = shared_->chunks.take();
  ChunkMap* map = arenas_->maps.take();
  auto* behind = static_cast<Unit*>(os::map(bytes, 4096));
  if (range != nullptr && map != nullptr && behind != nullptr) {
    range->set_range(address, size);
    range->exported.store(false, std::memory_order_relaxed);
    range->cut = false;
    range->move_to({owner_, Role::released, static_cast<uint8_t>(number)});
    if (supply_->index->insert(range)) {
      if (pool.add_range(range, map, behind)) return true;
      supply_->index->remove(range);
    }
  }
  if (behind != nullptr) os::unmap(behind, bytes);
  if (map != nullptr) arenas_->maps.give_back(map);
  if (range != nullptr) shared_->chunks.give_back(range);
  return false;
}

// Puts memory behind the gap, `fresh` new units of it and the rest from elsewhere: how many units
// of it have memory then. New ones come first, so that nothing moves where they are too few.
uint32_t Expandable::fill_gap(BlockPool& pool, const BlockPool::Gap& gap, uint32_t fresh,
                              bool new_ones, int* code) {
  const uint64_t unit = units_.unit_bytes();
  const uint64_t address = gap.hole->address();
  Unit* behind = units_behind(gap.hole);
  uint32_t filled = 0, moved = 0;
  while (filled < gap.units) {
    Unit units[kAtOnce];
    const uint32_t want = std::min(gap.units - filled, kAtOnce);
    uint32_t count = fresh == 0 ? gather_units(units, want) : 0;
    const bool is_new = count == 0 && new_ones;
    if (is_new) {
      count = units_.create(units, fresh == 0 ? want : std::min(want, fresh), code);
      fresh -= std::min(fresh, count);
    }
    if (count == 0) {
      if (!new_ones) *code = kOutOfMemory;
      break;
    }
    *code = units_.source().map(address + filled * unit, units, count);
    if (*code != kSuccess) {
      units_.release(units, count);
      break;
    }
    std::copy_n(units, count, behind + filled);
    if (is_new && !supply_->filler.prepare(address + filled * unit, count * unit)) {
      pool.note_unfilled();
    }
    filled += count;
    moved += is_new ? 0 : count;
  }
  if (moved != 0) {
    ledger_->remaps.add();
    ledger_->units_remapped.add(moved);
    note_moved_unfilled(pool);
  }
  return filled;
}

// What moved may come from where fills failed.
void Expandable::note_moved_unfilled(BlockPool& to) {
  if (!supply_->filler.gathers()) return;
  for_each_pool([&](const BlockPool& from) {
    if (!from.fills()) to.note_unfilled();
  });
}

// Clean units from wherever they are, mapped nowhere any more: how many.
uint32_t Expandable::gather_units(Unit* units, uint32_t count) {
  uint32_t taken = 0;
  for_each_pool([&](BlockPool& pool) {
    while (taken < count) {
      const uint32_t more = take_away(pool, units + taken, count - taken);
      if (more == 0) break;
      taken += more;
    }
  });
  return taken;
}

// Makes a hole of what was taken out, once `use` had its units: how many; 0 when the source
// refuses.
template <typename Use>
uint32_t Expandable::empty(BlockPool& pool, ChunkBlock* block, Use use) {
  const auto count = static_cast<uint32_t>(block->bytes() / units_.unit_bytes());
  Unit* behind = units_behind(block);
  if (units_.source().unmap(block->address(), count) != kSuccess) {
    pool.put_back_units(block);
    return 0;
  }
  use(behind, count);
  std::fill_n(behind, count, Unit{0});
  pool.make_hole(block);
  return count;
}

// The units of one clean block, `most` at most; 0 when there is none, or the source refuses.
uint32_t Expandable::take_away(BlockPool& pool, Unit* units, uint32_t most) {
  ChunkBlock* block = pool.take_units(most, shared_->reclaim);
  return block == nullptr ? 0 : empty(pool, block, [=](const Unit* behind, uint32_t count) {
    std::copy_n(behind, count, units);
  });
}

Unit* Expandable::units_behind(const ChunkBlock* block) const {
  const ChunkMap* map = block->map();
  return &map->units[(block->address() - map->base) / units_.unit_bytes()];
}

uint32_t Expandable::clean_units() {
  uint32_t units = 0;
  for_each_pool([&](BlockPool& pool) { units += pool.whole_units(shared_->reclaim); });
  return units;
}

bool Expandable::release_units() {
  fill_freed();
  const bool known = release_known(/*all=*/true);
  const MoveGate::Moving through(gate_);
  return give_back_units(UINT32_MAX) != 0 || known;
}

// These two: for a thread that is through the gate already, where no second time is possible.
uint32_t Expandable::give_back_units(uint32_t most) {
  uint32_t given = 0;
  for_each_pool([&](BlockPool& pool) { given += give_back_units(pool, most - given); });
  return given;
}

uint32_t Expandable::give_back_units(BlockPool& pool, uint32_t most) {
  const ChunkSupply::Moving moving(*supply_);
  uint32_t given = 0;
  while (given < most) {
    ChunkBlock* block = pool.take_units(most - given, shared_->reclaim);
    const uint32_t count = block == nullptr ? 0 : release_block(pool, block);
    if (count == 0) break;
    given += count;
  }
  return given;
}

// What others know is no other block's memory before they are done with it, which the source knows.
// Not `all`: only where it pays to look.
bool Expandable::release_known(bool all) {
  bool any = false;
  for_each_pool([&](BlockPool& pool) {
    if (pool.quarantined_bytes() == 0 || (!all && !pool.look_for_known())) return;
    const ChunkSupply::Moving moving(*supply_);
    const MoveGate::Moving through(gate_);
    ChunkBlock* block = pool.take_known_units(shared_->reclaim);
    while (block != nullptr && release_block(pool, block) != 0) {
      any = true;
      block = pool.take_known_units(shared_->reclaim);
    }
  });
  return any;
}

uint32_t Expandable::release_block(BlockPool& pool, ChunkBlock* block) {
  return empty(pool, block,
               [this](const Unit* behind, uint32_t count) { units_.release(behind, count); });
}

}  // namespace cistern::alloc
