// SPDX-License-Identifier: Apache-2.0
// How units come behind addresses, and move.
#include <algorithm>
#include <utility>

#include "allocator/base/threads.h"
#include "allocator/expandable/expandable.h"

namespace cistern::alloc {

// If several threads need memory at once, one takes it. Each other thread first looks at what was
// taken before it takes more itself. It waits for its turn no longer than `most_ns`.
class Expandable::Turn {
 public:
  Turn(std::atomic<bool>& taken, uint64_t most_ns)
      : taken_(taken),
        alone_(os::wait_until([&] { return !taken_.exchange(true, std::memory_order_acquire); },
                              most_ns)) {}
  ~Turn() {
    if (alone_) taken_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<bool>& taken_;
  const bool alone_;
};

// Only one thread at a time takes units for a pool ahead of need: a second one would take as many
// again.
class Expandable::Ahead {
 public:
  explicit Ahead(BlockPool& pool)
      : pool_(pool), alone_(!pool.growing.exchange(true, std::memory_order_acquire)) {}
  ~Ahead() {
    if (alone_) pool_.growing.store(false, std::memory_order_release);
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;
  bool alone() const { return alone_; }

 private:
  BlockPool& pool_;
  bool alone_;
};

int Expandable::take_fresh(Request& request) { return take_with(request, /*new_ones=*/true); }

bool Expandable::take_scattered(Request& request) {
  return take_with(request, /*new_ones=*/false) == kSuccess;
}

// Waits for its turn only a moment, because a large request of another thread may take long.
int Expandable::take_with(Request& request, bool new_ones) {
  constexpr uint64_t kMomentNs = 5'000'000;
  BlockPool* pool = pool_for(request);
  if (pool == nullptr) return new_ones ? supply_->obtain_direct(request) : kOutOfMemory;
  const ChunkSupply::InHand in_hand(*supply_);
  if (supply_->closed()) return kContextGone;
  const Turn turn(growing_, kMomentNs);
  if (take_clean(request)) return kSuccess;  // another thread moved units meanwhile
  fill_freed();  // otherwise units of the other pools would not be clean
  const uint64_t room = room_of(request);
  request.address =
      pool->allocate_with_room(request.bytes, room, shared_->reclaim, BlockPool::Search::thorough);
  if (request.address != 0) return kSuccess;
  const ChunkSupply::Moving moving(*supply_);
  release_known(/*all=*/!new_ones);
  const MoveGate::Moving through(gate_);
  if (new_ones && take_first(request)) {
    if (take_clean(request)) return kSuccess;
  }
  const uint64_t start = os::now_ns();
  const int code = take_moved(*pool, request, new_ones);
  if (code == kSuccess) {
    ledger_->obtained.add();
    supply_->note_obtain(os::now_ns() - start);
    note_low_water(number_for(request));
  }
  // If the source failed for another reason than lack of memory, a whole allocation may still
  // succeed.
  const bool whole = code != kSuccess && code != kOutOfMemory && new_ones;
  return whole ? supply_->obtain_direct(request) : code;
}

// Takes the memory that the settings want at first use, or that graphs are known to need in their
// arena. False if nothing is missing. Threads that miss meanwhile wait for it, as for a chunk
// (chunk_pools.cc).
bool Expandable::take_first(const Request& request) {
  BlockPool* pool = pool_ahead(request);
  if (pool == nullptr) return false;
  const Ahead ahead(*pool);
  if (!ahead.alone()) {
    os::wait_until([=] { return !pool->growing.load(std::memory_order_acquire); },
                   Deadlines::kOthersCalls);
    return true;
  }
  const uint64_t first = units_.units() == 0 ? sizes_.first : 0;
  if (!request.in_arena()) {
    if (first != 0) take_ahead(*pool, first, /*reuses=*/false);
    return first != 0;
  }
  const uint64_t bytes = std::max(first, request.arena->first_chunk);
  const uint64_t has = pool->chunk_bytes();
  if (has >= bytes) return false;
  // If nothing is in use, in one piece with the memory that is there.
  take_ahead(*pool, has == pool->clean_bytes() ? bytes : bytes - has, /*reuses=*/true);
  if (pool->chunk_bytes() >= bytes) ledger_->arenas_taken.add();
  return true;
}

int Expandable::take_moved(BlockPool& pool, Request& request, bool new_ones) {
  const uint32_t granules = granules_for(request.bytes + room_of(request));
  BlockPool::Gap gap;
  if (!open_gap(pool, granules, &gap)) return kNoAddresses;
  const uint32_t spare = clean_units(Givers::spare, &pool);
  const uint32_t all = arena_bytes_.load() == 0 ? spare : clean_units(Givers::all, &pool);
  const uint32_t kept = all - std::min(all, spare);  // other threads take some meanwhile
  Filling filling{pool, gap, gap.units - std::min(gap.units, spare), new_ones, Givers::all};
  const uint32_t fresh = filling.fresh;
  // If there are fewer new units than needed, none is created in vain.
  const auto enough = [&] { return fresh == 1 || units_.source().most_units() >= fresh - kept; };
  if (fresh <= kept || (new_ones && enough())) fill(filling);
  request.address =
      pool.close_gap(gap, filling.filled, granules, request.bytes, shared_->reclaim.epoch());
  if (request.address == 0) {
    give_back_units(filling.created);  // units that it created in vain
    return filling.filled == gap.units ? kOutOfMemory : filling.code;
  }
  if (fresh != 0) take_step(request, fresh * units_.unit_bytes());
  if (request.in_arena()) {
    request.arena->grew = true;
    ledger_->arena_increments.add();
  }
  return kSuccess;
}

// Takes the memory that the settings want at each growth, less what the request has taken.
void Expandable::take_step(const Request& request, uint64_t taken) {
  BlockPool* pool = pool_ahead(request);
  if (taken >= sizes_.later || pool == nullptr) return;
  const Ahead ahead(*pool);
  if (ahead.alone()) take_ahead(*pool, sizes_.later - taken, /*reuses=*/false);
}

// Takes units that no request needs yet, as many as there are. `reuses`: first spare units from
// elsewhere, then new ones.
void Expandable::take_ahead(BlockPool& pool, uint64_t bytes, bool reuses) {
  BlockPool::Gap gap;
  const uint32_t granules = granules_for(round_up(bytes, units_.unit_bytes()));
  if (!open_gap(pool, granules, &gap)) return;
  const uint32_t spare = reuses ? clean_units(Givers::spare, &pool) : 0;
  Filling filling{pool, gap, gap.units - std::min(gap.units, spare), true, Givers::spare};
  fill(filling);
  pool.close_gap(gap, filling.filled, granules, /*bytes=*/0, 0);
}

// A range is for many requests, and is never given up.
bool Expandable::open_gap(BlockPool& pool, uint32_t granules, BlockPool::Gap* gap) {
  if (pool.open_gap(granules, gap)) return true;
  const Turn turn(reserving_, Deadlines::kOthersCalls);
  if (pool.open_gap(granules, gap)) return true;
  return add_range(pool, uint64_t{granules} * kBlockGranule) && pool.open_gap(granules, gap);
}

// Reserves as many addresses as there are bytes of memory, or half as many again and again if the
// process may not have so many.
bool Expandable::add_range(BlockPool& pool, uint64_t bytes) {
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
  if (enter_range(pool, address, size)) return true;
  units_.source().free_addresses(address, size);
  return false;
}

// The range is in the index before any thread can get a block of it.
bool Expandable::enter_range(BlockPool& pool, uint64_t address, uint64_t size) {
  const uint64_t bytes = size / units_.unit_bytes() * sizeof(Unit);
  Chunk* range = shared_->chunks.take();
  ChunkMap* map = arenas_->maps.take();
  auto* behind = static_cast<Unit*>(os::map(bytes));
  if (range != nullptr && map != nullptr && behind != nullptr) {
    range->set_range(address, size);
    range->exported.store(false, std::memory_order_relaxed);
    range->cut = false;
    range->move_to({owner_, Role::released, static_cast<uint8_t>(number_of(pool))});
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

// Puts memory behind the gap, as much as there is. With gathered fills, contiguous new memory is
// filled in one go.
void Expandable::fill(Filling& filling) {
  const uint64_t unit = units_.unit_bytes();
  const BlockPool::Gap& gap = filling.gap;
  Unit* behind = units_behind(gap.hole);
  const auto address_of = [&](uint32_t n) { return gap.hole->address() + n * unit; };
  uint32_t moved = 0, unfilled = 0;
  const auto fill_new = [&] {
    const uint64_t start = address_of(filling.filled - unfilled);
    const uint64_t bytes = std::exchange(unfilled, 0) * unit;
    if (bytes != 0 && !supply_->filler.prepare(start, bytes)) filling.pool.note_unfilled();
  };
  while (filling.filled < gap.units) {
    Unit units[kAtOnce];
    bool is_new;
    const uint32_t count =
        next_units(filling, units, std::min(gap.units - filling.filled, kAtOnce), &is_new);
    if (count == 0) break;
    if (const int code = units_.source().map(address_of(filling.filled), units, count);
        code != kSuccess) {
      units_.release(units, count);
      filling.code = code;
      break;
    }
    std::copy_n(units, count, behind + filling.filled);
    if (!is_new) fill_new();
    filling.filled += count;
    (is_new ? unfilled : moved) += count;
    filling.created += is_new ? count : 0;
  }
  fill_new();
  if (moved != 0) {
    ledger_->remaps.add();
    ledger_->units_remapped.add(moved);
    note_moved_unfilled(filling.pool);
  }
  count_arena(filling.pool, filling.filled * unit, 0);
}

// Gets at most `most` units that are mapped nowhere. Returns how many. New units come first, so
// nothing moves if they are too few. Units of arenas come last.
uint32_t Expandable::next_units(Filling& filling, Unit* units, uint32_t most, bool* is_new) {
  uint32_t& fresh = filling.fresh;
  uint32_t count = fresh == 0 ? gather_units(units, most, Givers::spare, &filling.pool) : 0;
  *is_new = count == 0 && filling.new_ones;
  if (*is_new) {
    count = units_.create(units, fresh == 0 ? most : std::min(most, fresh), &filling.code);
    filling.new_ones = filling.code == kSuccess;
  }
  if (count == 0 && filling.from == Givers::all && filling.code == kOutOfMemory) {
    *is_new = false;
    count = gather_units(units, most, Givers::all, &filling.pool);
  }
  fresh -= std::min(fresh, count);
  return count;
}

// Moved units may come from a pool in which a fill failed.
void Expandable::note_moved_unfilled(BlockPool& to) {
  if (!supply_->filler.gathers()) return;
  for_each_pool([&](const BlockPool& from) {
    if (!from.fills()) to.note_unfilled();
  });
}

// Unmaps clean units from where they are. Returns how many.
uint32_t Expandable::gather_units(Unit* units, uint32_t count, Givers from,
                                  const BlockPool* taker) {
  uint32_t taken = 0;
  for_each_giver(from, taker, [&](BlockPool& pool) {
    while (taken < count) {
      const uint32_t more = take_away(pool, units + taken, count - taken);
      if (more == 0) break;
      taken += more;
    }
  });
  return taken;
}

// Unmaps the block, passes its units to `use`, and makes it a hole. Returns the number of units; 0
// if the source refuses.
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
  count_arena(pool, 0, count * units_.unit_bytes());
  return count;
}

// Takes the units of one clean block, `most` at most. Returns how many; 0 if there is none or the
// source refuses.
uint32_t Expandable::take_away(BlockPool& pool, Unit* units, uint32_t most) {
  ChunkBlock* block = pool.take_units(most, shared_->reclaim);
  return block == nullptr ? 0 : empty(pool, block, [=](const Unit* behind, uint32_t count) {
    std::copy_n(behind, count, units);
  });
}

bool Expandable::is_arena(const BlockPool& pool) const {
  return &pool != pools_[kSmall].load(std::memory_order_acquire) &&
         &pool != pools_[kLarge].load(std::memory_order_acquire);
}

void Expandable::count_arena(const BlockPool& pool, uint64_t more, uint64_t less) {
  if (!is_arena(pool)) return;
  arena_bytes_.fetch_add(more - less);
  ledger_->arena_bytes.add(more - less);
  ledger_->arena_peak.raise_to(ledger_->arena_bytes.get());
}

Unit* Expandable::units_behind(const ChunkBlock* block) const {
  const ChunkMap* map = block->map();
  return &map->units[(block->address() - map->base) / units_.unit_bytes()];
}

uint32_t Expandable::clean_units(Givers from, const BlockPool* taker) {
  uint32_t units = 0;
  for_each_giver(from, taker,
                 [&](BlockPool& pool) { units += pool.whole_units(shared_->reclaim); });
  return units;
}

bool Expandable::release_units() {
  fill_freed();
  const bool known = release_known(/*all=*/true);
  const MoveGate::Moving through(gate_);
  return give_back_units(UINT32_MAX) != 0 || known;
}

// These two are for a thread that is already through the gate, since it must not enter twice.
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

// Memory that others know must not serve another block before they are done with it. Only the
// source knows when that is.
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
