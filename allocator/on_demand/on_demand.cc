// SPDX-License-Identifier: Apache-2.0
#include "allocator/on_demand/on_demand.h"

#include <algorithm>

#include "allocator/chunk/fill.h"

namespace cistern::alloc {

void OnDemand::init(SharedChunks* shared, SlabArena* slabs, ChunkSupply* supply,
                    const DeviceParts& device, uint32_t owner) {
  shared_ = shared;
  slab_arena_ = slabs;
  supply_ = supply;
  ledger_ = device.ledger;
  garbage_ = device.garbage;
  rule_ = device.reuse;
  const bool gathers = supply->filler.gathers();
  for (int i = 0; i < kShards; ++i) {
    slabs_[i].init(ledger_, garbage_, owner, static_cast<uint8_t>(i), gathers, rule_);
  }
}

bool OnDemand::take_whole(Request& request) {
  if (rule_ != ReuseRule::about) [[unlikely]]
    return take_whole_by_rule(request);
  if (!shared_->told_sizes.has(request.bytes)) [[likely]]
    return take_whole_of_about(request);
  return hand_out_whole(supply_->cache.take_equal(request.bytes, shared_->reclaim), request);
}

bool OnDemand::take_whole_of_about(Request& request) {
  Chunk* chunk = supply_->cache.take(request.bytes, Role::whole, shared_->reclaim);
  return hand_out_whole(chunk, request);
}

bool OnDemand::take_whole_by_rule(Request& request) {
  ChunkCache& cache = supply_->cache;
  const bool equal = same_size() || shared_->told_sizes.has(request.bytes);
  return hand_out_whole(equal ? cache.take_equal(request.bytes, shared_->reclaim)
                              : cache.take_least(request.bytes, shared_->reclaim),
                        request);
}

bool OnDemand::hand_out_whole(const Chunk* chunk, Request& request) {
  if (chunk == nullptr) return false;
  request.address = chunk->base();
  request.whole = true;
  return true;
}

bool OnDemand::take_small(Request& request) {
  SlabPool& pool = slabs_[request.shard];
  const auto bytes = static_cast<uint32_t>(request.bytes);
  ChunkList emptied;
  request.address = pool.allocate(bytes, shared_->reclaim, &emptied);
  if (!emptied.empty()) [[unlikely]]
    make_idle(&emptied);
  if (request.address != 0) [[likely]]
    return true;
  return take_small_after_fill(request) || (!same_size() && take_small_from_idle_chunk(request));
}

// For gathered fills. Not in take_small(), where every request would pay for it.
bool OnDemand::take_small_after_fill(Request& request) {
  SlabPool& pool = slabs_[request.shard];
  if (!fill_freed(pool)) return false;
  ChunkList emptied;
  request.address = pool.allocate(static_cast<uint32_t>(request.bytes), shared_->reclaim, &emptied);
  make_idle(&emptied);
  return request.address != 0;
}

bool OnDemand::take_small_from_idle_chunk(Request& request) {
  const ChunkSupply::Growing growing(*supply_);
  Chunk* chunk = supply_->cache.take(kSlabBytes, Role::released, shared_->reclaim);
  if (chunk == nullptr || !add_slab(chunk, request.shard)) return false;
  ChunkList emptied;
  request.address = slabs_[request.shard].allocate(static_cast<uint32_t>(request.bytes),
                                                   shared_->reclaim, &emptied);
  make_idle(&emptied);
  return request.address != 0;
}

int OnDemand::take_fresh(Request& request) {
  const ChunkSupply::Growing growing(*supply_);
  int code = kSuccess;
  if (request.bytes >= kWholeBytes) {
    Chunk* chunk = supply_->obtain(request.bytes, Role::whole, &code);
    if (chunk == nullptr) return code;
    request.address = chunk->base();
    request.whole = true;
    return code;
  }
  // Other threads of the shard may empty a new slab before this one gets its block.
  while (Chunk* chunk = supply_->obtain(kSlabBytes, Role::released, &code)) {
    if (!add_slab(chunk, request.shard)) return kOutOfMemory;
    ChunkList emptied;
    request.address = slabs_[request.shard].allocate(static_cast<uint32_t>(request.bytes),
                                                     shared_->reclaim, &emptied);
    make_idle(&emptied);
    if (request.address != 0) return kSuccess;
  }
  return code;
}

// A large request takes a chunk of about its size, even if other processes should be told the exact
// size (ToldSizes). A small request looks at every block of every shard, then asks the driver for
// just its own size.
bool OnDemand::take_from_anywhere(Request& request, Step* step) {
  if (take_of_other_sizes(request)) return true;
  if (request.bytes >= kWholeBytes) {
    return rule_ == ReuseRule::any_that_fits ? take_whole_by_rule(request)
                                             : take_whole_of_about(request);
  }
  if (take_small_from_any_slab(request)) return true;
  int code;
  Chunk* chunk = supply_->obtain(request.bytes, Role::direct, &code);
  if (chunk == nullptr) return false;
  *step = Step::exact;
  request.address = chunk->base();
  request.whole = true;
  return true;
}

bool OnDemand::take_of_other_sizes(Request& request) {
  if (!same_size()) return false;
  supply_->cache.admit_cut();
  if (request.bytes < kWholeBytes) {
    return take_small_from_any_slab(request) || take_small_from_idle_chunk(request);
  }
  if (!take_whole_of_about(request)) return false;
  ledger_->sizes_forgotten.add();
  return true;
}

bool OnDemand::take_small_from_any_slab(Request& request) {
  ChunkList emptied;
  for (SlabPool& pool : slabs_) {
    fill_freed(pool);
    request.address = pool.allocate(static_cast<uint32_t>(request.bytes), shared_->reclaim,
                                    &emptied, /*thorough=*/true);
    if (request.address != 0) break;
  }
  make_idle(&emptied);
  return request.address != 0;
}

uint64_t OnDemand::free(const Chunk* chunk, uint64_t address, Ticket latest, uint64_t* waiting) {
  ChunkList ended;
  SlabPool& pool = pool_of(chunk);
  const uint64_t freed = pool.free(chunk, address, shared_->reclaim, &ended, latest);
  *waiting = pool.waiting_bytes();
  if (!ended.empty()) [[unlikely]]
    release_slabs(&ended);
  return freed;
}

// Exported slabs must not be reused.
void OnDemand::release_slabs(ChunkList* ended) {
  const ChunkSupply::Moving moving(*supply_);
  become_chunks(ended);
  supply_->release(ended);
}

// Slabs that left their pools are plain chunks from here on. The caller has them in hand.
void OnDemand::become_chunks(const ChunkList* slabs) {
  slabs->for_each([this](Chunk* chunk) {
    slab_arena_->give_back(chunk->slab());
    pool_of(chunk).put_down();
  });
}

bool OnDemand::find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  return pool_of(chunk).find(chunk, address, start, bytes);
}

bool OnDemand::add_slab(Chunk* chunk, unsigned shard) {
  const Movers::Moving filling(shared_->movers);
  Slab* slab = slab_arena_->take();
  if (slab == nullptr) {
    ChunkList unused;
    unused.push(chunk);
    supply_->cache.add_idle(&unused);
    return false;
  }
  if (!supply_->filler.prepare(chunk->base(), kSlabBytes)) slabs_[shard].note_unfilled();
  slabs_[shard].add(chunk, slab);
  return true;
}

bool OnDemand::gather_freed(SlabPool& pool) {
  const ChunkSupply::Moving moving(*supply_);
  ChunkList emptied, ended;
  const bool any = gather(pool, shared_->reclaim, supply_->filler, &emptied, &ended);
  make_idle(&emptied);
  if (!ended.empty()) release_slabs(&ended);
  return any;
}

// Slabs in which nothing is live or waiting become idle chunks.
void OnDemand::make_idle(ChunkList* emptied) {
  while (Chunk* chunk = emptied->pop()) {
    SlabPool& pool = pool_of(chunk);
    ChunkList idle;
    idle.push(chunk);
    slab_arena_->give_back(chunk->slab());
    supply_->cache.add_idle(&idle);
    pool.put_down();
  }
}

void OnDemand::collect_empty(bool freed_too, ChunkList* out) {
  for (SlabPool& pool : slabs_) {
    if (!freed_too) fill_freed(pool);
    pool.collect_empty(shared_->reclaim, freed_too, out);
  }
  become_chunks(out);
}

void OnDemand::refresh(bool spare_too) {
  const ChunkSupply::Moving moving(*supply_);
  for (SlabPool& pool : slabs_) {
    ChunkList emptied;
    pool.refresh(shared_->reclaim, spare_too, &emptied);
    make_idle(&emptied);
  }
}

// Memory that was in use a moment ago will be wanted again. Waiting memory counts as in use: if the
// host runs ahead of the device, as much will wait again.
uint64_t OnDemand::idle_budget(uint64_t coming) const {
  const ChunkCache& cache = supply_->cache;
  const uint64_t in_use = cache.in_use() + coming;
  return idle_floor() + std::max(cache.recently_used.get(), in_use) - in_use;
}

void OnDemand::forget(Chunk* chunk) {
  if (chunk->is() == Role::slab) slab_arena_->give_back(chunk->slab());
}

}  // namespace cistern::alloc
