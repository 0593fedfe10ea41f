// SPDX-License-Identifier: Apache-2.0
// The way of a request that finds clean memory, of a free, and the strategy's beginning and end.
// How units move: expandable_units.cc.
#include "allocator/expandable/expandable.h"

#include <algorithm>
#include <new>

#include "allocator/chunk/fill.h"

namespace cistern::alloc {

void Expandable::init(SharedChunks* shared, BlockArenas* arenas, ChunkSupply* supply,
                      MemorySource* source, const DeviceParts& device, uint32_t owner,
                      const ChunkSizes& sizes) {
  shared_ = shared;
  arenas_ = arenas;
  supply_ = supply;
  ledger_ = device.ledger;
  garbage_ = device.garbage;
  owner_ = owner;
  party_ = device.party(owner);
  memory_bytes_ = source->memory_bytes();
  sizes_ = sizes;
  most_pools_ = sizes.kind == StrategyKind::unit_arena ? kPools : kFirstArena;
  units_.init(source->units(), device.ledger, device.cap);
  for (LowWater& water : low_water_) water.init();
  for (int i = 0; i < kPools; ++i) {
    const bool used_before = pools_[i].load(std::memory_order_relaxed) != nullptr;
    if (i < kFirstArena || used_before) begin_pool(i);
  }
}

bool Expandable::begin_pool(int number) {
  BlockPool* pool = pools_[number].load(std::memory_order_relaxed);
  const bool is_new = pool == nullptr;
  if (is_new) pool = arenas_->pools.take();
  if (pool == nullptr) return false;
  if (is_new) new (pool) BlockPool{};
  const uint64_t unit = units_.unit_bytes();
  const uint64_t align = number == kLarge ? std::max(unit, sizes_.align) : sizes_.align;
  pool->init(&arenas_->pages, ledger_, garbage_,
             {owner_, Role::range, static_cast<uint8_t>(number)}, party_, BlockPool::Clean::merged,
             align, supply_->filler.gathers(), ReuseRule::about);
  pool->use_units(static_cast<uint32_t>(unit / kBlockGranule), /*whole=*/number == kLarge);
  pools_[number].store(pool, std::memory_order_release);
  return true;
}

bool Expandable::begin_arena(unsigned number) {
  return arena(number) != nullptr || begin_pool(kLarge + static_cast<int>(number));
}

int Expandable::number_of(const BlockPool& pool) const {
  int number = 0;
  while (pools_[number].load(std::memory_order_acquire) != &pool) ++number;
  return number;
}

bool Expandable::take_clean(Request& request) {
  BlockPool* pool = pool_for(request);
  if (pool == nullptr) return false;
  const auto search = request.ask_first ? BlockPool::Search::normal : BlockPool::Search::first;
  const uint64_t room = room_of(request);
  const auto allocate = [&](BlockPool::Search how) {
    return pool->allocate_with_room(request.bytes, room, shared_->reclaim, how, &request.ask_first);
  };
  request.address = allocate(search);
  const bool asks = request.ask_first && search == BlockPool::Search::first;
  if (request.address == 0 && !asks && fill_freed(*pool)) {
    request.address = allocate(BlockPool::Search::normal);
  }
  if (shared_->idle.on) [[unlikely]]
    note_low_water(number_for(request));
  return request.address != 0;
}

bool Expandable::fill_freed(BlockPool& pool) {
  if (!supply_->filler.gathers()) return false;
  const ChunkSupply::Moving moving(*supply_);
  ChunkList none;  // ranges stay
  return gather(pool, shared_->reclaim, supply_->filler, &none, &none);
}

bool Expandable::find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  BlockPool* pool = pool_of(chunk);
  return pool != nullptr && pool->find(chunk, address, start, bytes);
}

bool Expandable::mark_exported(const Chunk* chunk, uint64_t address) {
  BlockPool* pool = pool_of(chunk);
  return pool != nullptr && pool->mark_exported(chunk, address);
}

// --- idle release ---

// Does not note the small pool: its clean memory may share units with live blocks, and only sweeps
// and moves count its whole units. In an arena the clean bytes are an upper limit.
void Expandable::note_low_water(int number) {
  for (const int each : {kLarge, number == kSmall ? kLarge : number}) {
    const BlockPool* pool = pools_[each].load(std::memory_order_acquire);
    if (pool != nullptr) low_water_[each].note(pool->clean_bytes());
  }
}

IdleChunks Expandable::see_idle_units(int number, Tick now) {
  BlockPool* pool = pools_[number].load(std::memory_order_acquire);
  if (pool == nullptr) return {};
  const uint64_t clean = pool->whole_units(shared_->reclaim) * units_.unit_bytes();
  return low_water_[number].see(now, clean, shared_->idle.due);
}

IdleChunks Expandable::see_idle(Tick now) {
  IdleChunks all = supply_->cache.see_idle(now);
  for (int i = 0; i < kPools; ++i) {
    const IdleChunks units = see_idle_units(i, now);
    all.add(units.bytes, units.oldest);
  }
  return all;
}

uint64_t Expandable::release_aged_units(Tick now, uint32_t least) {
  const uint64_t kept = ledger_->idle_chunks.get(), keep = shared_->idle.keep;
  const MoveGate::Moving through(gate_);
  uint64_t released = 0;
  for (int i = 0; i < kPools; ++i) {
    const IdleChunks idle = see_idle_units(i, now);
    if (idle.bytes == 0 || idle.oldest < least || kept <= keep + released) continue;
    const uint64_t most = std::min(idle.bytes, kept - keep - released);
    const uint64_t unit = units_.unit_bytes();
    if (most < unit) continue;
    const uint64_t bytes = give_back_units(*pools_[i].load(std::memory_order_acquire),
                                           static_cast<uint32_t>(most / unit)) *
                           unit;
    low_water_[i].released(bytes);
    released += bytes;
  }
  return released;
}

// --- the end ---

void Expandable::forget(Chunk* chunk) {
  if (chunk->is() != Role::range) return;
  ChunkMap* map = chunk->map();
  const auto slots = static_cast<uint32_t>(chunk->size() / units_.unit_bytes());
  bool all = true;
  for (uint32_t i = 0; i < slots; ++i) {
    uint32_t end = i;
    while (end < slots && map->units[end] != 0) ++end;
    all = give_up(chunk->base() + i * units_.unit_bytes(), &map->units[i], end - i) && all;
    i = end;
  }
  if (all) units_.source().free_addresses(chunk->base(), chunk->size());
  const bool left = !all && shared_->left_units.add(units_.left(chunk->base(), map->units, slots));
  if (!left) os::unmap(map->units, slots * sizeof *map->units);
  map->close();
  arenas_->maps.give_back(map);
}

// If the source refuses a run, a single unit may be the reason, so each is tried. False if any unit
// is left.
bool Expandable::give_up(uint64_t address, Unit* units, uint32_t count) {
  if (count == 0) return true;
  if (units_.source().unmap(address, count) == kSuccess) {
    units_.release(units, count);
    std::fill_n(units, count, Unit{0});
    return true;
  }
  if (count == 1) {
    ledger_->lost.add();
    return false;
  }
  bool all = true;
  for (uint32_t i = 0; i < count; ++i) {
    all = give_up(address + i * units_.unit_bytes(), &units[i], 1) && all;
  }
  return all;
}

}  // namespace cistern::alloc
