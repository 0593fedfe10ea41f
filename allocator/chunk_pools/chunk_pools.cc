// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk_pools/chunk_pools.h"

#include <new>

#include "allocator/base/threads.h"
#include "allocator/chunk/fill.h"

namespace cistern::alloc {

void ChunkPools::init(SharedChunks* shared, BlockArenas* arenas, ChunkSupply* supply,
                      const DeviceParts& device, uint32_t owner, const ChunkSizes& sizes,
                      Role role) {
  shared_ = shared;
  arenas_ = arenas;
  supply_ = supply;
  ledger_ = device.ledger;
  garbage_ = device.garbage;
  owner_ = owner;
  party_ = device.party(owner);
  role_ = role;
  rule_ = device.reuse;
  sizes_ = sizes;
  for (unsigned i = 0; i < kMostThreads; ++i) {
    if (BlockPool* pool = pools_[i].load(std::memory_order_relaxed)) init_pool(pool, i);
  }
}

void ChunkPools::init_pool(BlockPool* pool, unsigned number) {
  using Clean = BlockPool::Clean;
  const Clean becomes = role_ == Role::planned                        ? Clean::in_place
                        : sizes_.kind == StrategyKind::naive_best_fit ? Clean::as_it_was
                                                                      : Clean::merged;
  pool->init(&arenas_->pages, ledger_, garbage_, {owner_, role_, static_cast<uint8_t>(number)},
             party_, becomes, sizes_.align, gathers(), rule_);
  if (number == kBesideOnDemand && role_ == Role::split) {
    supply_->cache.count_idle_of(pool->idle_chunk_counter());
  }
}

// nullptr if there is no memory for another pool, or if the strategy has none. Inlined, like its
// caller below, because every request passes both.
[[gnu::always_inline]] inline BlockPool* ChunkPools::pool_for(const Request& request) {
  const bool by_thread = sizes_.kind == StrategyKind::thread_local_;
  const unsigned number = by_thread                  ? request.shard
                          : request.arena == nullptr ? 0
                                                     : request.arena->pool;
  BlockPool* pool = pools_[number].load(std::memory_order_acquire);
  if (pool != nullptr) [[likely]]
    return pool;
  return sizes_.kind == StrategyKind::none ? nullptr : create_pool(number);
}

BlockPool* ChunkPools::create_pool(unsigned number) {
  LockGuard guard(mutex_);
  BlockPool* pool = pools_[number].load(std::memory_order_relaxed);
  if (pool != nullptr) return pool;
  pool = arenas_->pools.take();
  if (pool == nullptr) return nullptr;
  new (pool) BlockPool{};
  init_pool(pool, number);
  pools_used_.fetch_add(1, std::memory_order_release);  // first: nobody finds more than are counted
  pools_[number].store(pool, std::memory_order_release);
  return pool;
}

template <typename Allocate>
[[gnu::always_inline]] inline bool ChunkPools::take_clean_by(Request& request, Allocate allocate) {
  BlockPool* pool = pool_for(request);
  if (pool == nullptr) return false;
  const auto search = request.ask_first ? BlockPool::Search::normal : BlockPool::Search::first;
  request.address = allocate(pool, search);
  if (request.address != 0) [[likely]]
    return true;
  if (request.ask_first && search == BlockPool::Search::first) return false;
  if (!fill_freed(*pool)) return false;
  request.address = allocate(pool, BlockPool::Search::normal);
  return request.address != 0;
}

bool ChunkPools::take_clean(Request& request) {
  return take_clean_by(request, [&](BlockPool* pool, BlockPool::Search search) {
    return pool->allocate(request.bytes, shared_->reclaim, search, &request.ask_first);
  });
}

bool ChunkPools::take_clean_with_room(Request& request) {
  return take_clean_by(request, [&](BlockPool* pool, BlockPool::Search search) {
    return pool->allocate_with_room(request.bytes, request.room, shared_->reclaim, search,
                                    &request.ask_first);
  });
}

bool ChunkPools::take_same(Request& request) {
  BlockPool* pool = rule_ == ReuseRule::same_size ? pool_for(request) : nullptr;
  if (pool != nullptr) request.address = pool->allocate_same(request.bytes, shared_->reclaim);
  return request.address != 0;
}

bool ChunkPools::gather_freed(BlockPool& pool) {
  const ChunkSupply::Moving moving(*supply_);
  ChunkList unused, ended;
  const bool any = gather(pool, shared_->reclaim, supply_->filler, &unused, &ended);
  if (!ended.empty()) release_exported(&ended);
  return any;
}

int ChunkPools::take_fresh(Request& request) {
  BlockPool* pool = pool_for(request);
  if (pool == nullptr) return supply_->obtain_direct(request);
  const bool alone = grows_alone(pool, request);
  if (request.address != 0) return kSuccess;
  const uint64_t need = need_of(request);
  int code = grow(pool, request, chunk_for(request, need, pool));
  if (code == kSuccess && request.address == 0) {
    // The chunk's base was not aligned enough. The chunk serves other requests.
    code = grow(pool, request, chunk_for(request, need + slack(request), pool));
  }
  if (alone) pool->growing.store(false, std::memory_order_release);
  return code;
}

// If several threads miss at once, one takes a chunk. The others look for room in it before one of
// them takes the next, because more chunks than needed would waste memory or be refused. Their own
// driver calls would have to wait as well. The wait has a limit in case the driver makes one thread
// wait for the other.
bool ChunkPools::grows_alone(BlockPool* pool, Request& request) {
  bool alone = false;
  const auto served_or_alone = [&] {
    if (pool->growing.exchange(true, std::memory_order_acq_rel)) return false;
    request.address = pool->allocate_with_room(request.bytes, request.room, shared_->reclaim,
                                               BlockPool::Search::normal);
    alone = request.address == 0;
    if (!alone) pool->growing.store(false, std::memory_order_release);
    return true;
  };
  os::wait_until(served_or_alone, Deadlines::kOthersCalls);
  return alone;
}

int ChunkPools::take_fresh_of_any_size(Request& request, Step* step) {
  *step = Step::returned;
  int code = take_fresh(request);
  BlockPool* pool = pool_for(request);
  if (code != kOutOfMemory || pool == nullptr) return code;
  const uint64_t need = need_of(request) + slack(request);
  *step = Step::smaller;
  uint64_t size = chunk_for(request, need, pool) / 2;
  for (; size > need && size >= kDriverSharesBelow; size /= 2) {
    code = grow(pool, request, round_up(size, kBlockGranule));
    if (code != kOutOfMemory) return code;
  }
  *step = Step::exact;
  const bool shares_a_page = need < kDriverSharesBelow && slack(request) == 0;
  return shares_a_page ? supply_->obtain_direct(request) : grow(pool, request, need);
}

// Adds a chunk of `bytes` to the pool and serves the request from it. Success without an address
// means that no aligned block fits into the chunk.
int ChunkPools::grow(BlockPool* pool, Request& request, uint64_t bytes) {
  if (bytes > ChunkMap::kMaxBytes) return kOutOfMemory;
  const ChunkSupply::Growing growing(*supply_);
  ChunkMap* map = arenas_->maps.take();
  if (map == nullptr) return kOutOfMemory;
  int code;
  // First a chunk from the cache: one that the source refused, or a new one without a pool. Under
  // same_size only when memory is short.
  Chunk* chunk = nullptr;
  if (rule_ != ReuseRule::same_size) {
    chunk = supply_->cache.take(bytes, Role::released, shared_->reclaim);
  }
  if (chunk == nullptr) chunk = supply_->obtain(bytes, Role::released, &code);
  if (chunk == nullptr) chunk = supply_->cache.take_any(bytes, shared_->reclaim);
  if (chunk == nullptr) {
    arenas_->maps.give_back(map);
    return code;
  }
  if (!supply_->filler.prepare(chunk->base(), chunk->size())) pool->note_unfilled();
  const Epoch born = shared_->reclaim.epoch();
  map->own = sizes_.exceeds(need_of(request), pool->no_chunk_yet());
  if (pool->add(chunk, map, request.bytes, request.room, born, &request.address)) return kSuccess;
  arenas_->maps.give_back(map);
  ChunkList unused;
  unused.push(chunk);
  supply_->release(&unused);
  return kOutOfMemory;
}

// While one thread takes the chunk, requests of others are served elsewhere.
bool ChunkPools::add_chunk(uint64_t bytes) {
  Request none{.bytes = 0, .shard = 0};
  BlockPool* pool = pool_for(none);
  if (pool == nullptr || pool->growing.exchange(true, std::memory_order_acq_rel)) return false;
  bytes = round_up(bytes, kBlockGranule);
  const bool added = pool->newest_chunk_bytes() >= bytes || grow(pool, none, bytes) == kSuccess;
  pool->growing.store(false, std::memory_order_release);
  return added;
}

bool ChunkPools::take_from_anywhere(Request& request, Step* step) {
  for_each_pool([&](BlockPool& pool) {
    if (request.address != 0) return;
    fill_freed(pool);
    request.address = pool.allocate(request.bytes, shared_->reclaim, BlockPool::Search::thorough);
  });
  return request.address != 0;
}

// Chunks with exported blocks must not be reused.
void ChunkPools::release_exported(ChunkList* ended) {
  const ChunkSupply::Moving moving(*supply_);
  ended->for_each([this](Chunk* chunk) { put_down(chunk); });
  supply_->release(ended);
}

bool ChunkPools::find(const Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  BlockPool* pool = pool_of(chunk);
  return pool != nullptr && pool->find(chunk, address, start, bytes);
}

bool ChunkPools::mark_exported(const Chunk* chunk, uint64_t address) {
  BlockPool* pool = pool_of(chunk);
  return pool != nullptr && pool->mark_exported(chunk, address);
}

void ChunkPools::collect_idle(bool freed_too, ChunkList* out) {
  for_each_pool([&](BlockPool& pool) {
    if (!freed_too && !pool.all_freed_is_over(shared_->reclaim)) fill_freed(pool);
    pool.collect_idle(shared_->reclaim, freed_too, out);
  });
  out->for_each([this](Chunk* chunk) { put_down(chunk); });
}

IdleChunks ChunkPools::see_idle(Tick now) {
  IdleChunks all = supply_->cache.see_idle(now);
  const IdleChunks here = see_idle_here(now);
  all.add(here.bytes, here.oldest);
  return all;
}

IdleChunks ChunkPools::see_idle_here(Tick now) {
  IdleChunks all;
  for_each_pool([&](BlockPool& pool) {
    const IdleChunks seen = pool.see_idle(now);
    all.add(seen.bytes, seen.oldest);
  });
  return all;
}

void ChunkPools::collect_aged(Tick now, uint32_t least, ChunkList* out, uint64_t most) {
  supply_->cache.collect_aged(now, least, out, most);
  if (out->empty()) collect_aged_here(now, least, out, most);
}

void ChunkPools::collect_aged_here(Tick now, uint32_t least, ChunkList* out, uint64_t most) {
  for_each_pool([&](BlockPool& pool) {
    if (!out->empty()) return;
    pool.collect_aged(now, least, out, most);
    if (!out->empty()) put_down(out->first());
  });
}

void ChunkPools::collect_clean_of(unsigned number, ChunkList* out) {
  BlockPool* pool = pool_at(number);
  if (pool == nullptr) return;
  if (!pool->all_freed_is_over(shared_->reclaim)) fill_freed(*pool);
  pool->collect_idle(shared_->reclaim, /*freed_too=*/false, out);
  out->for_each([this](Chunk* chunk) { put_down(chunk); });
}

void ChunkPools::fill_freed_of(unsigned number) {
  if (BlockPool* pool = pool_at(number)) fill_freed(*pool);
}

void ChunkPools::collect_idle_before_newest(ChunkList* out) {
  if (BlockPool* pool = pool_at(0)) pool->collect_one_idle(out, /*newest_too=*/false);
  if (!out->empty()) put_down(out->first());
}

void ChunkPools::collect_one_idle(unsigned number, ChunkList* out) {
  if (BlockPool* pool = pool_at(number)) pool->collect_one_idle(out);
  if (!out->empty()) put_down(out->first());
}

// The chunk leaves its pool. The caller has it in hand.
void ChunkPools::put_down(Chunk* chunk) {
  close_map(chunk);
  pool_of(chunk)->put_down();
}

void ChunkPools::forget(Chunk* chunk) {
  if (chunk->is() == role_) close_map(chunk);
}

void ChunkPools::close_map(Chunk* chunk) {
  ChunkMap* map = chunk->map();
  map->close();
  arenas_->maps.give_back(map);
}

}  // namespace cistern::alloc
