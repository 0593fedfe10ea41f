// SPDX-License-Identifier: Apache-2.0
// The way of an allocation and of a free. What happens to whole chunks: device_pool_chunks.cc.
#include "allocator/device_pool.h"

#include <algorithm>

#include "allocator/os.h"

namespace cistern::alloc {
namespace {

// A host that runs ahead of the device must not grow without bound (a plain cudaFree throttles it):
// with more than this waiting, an allocation waits for earlier work, but never longer than the
// limit, so that a kernel that never ends cannot hang it.
constexpr uint64_t kWaitingBudget = uint64_t{256} << 20;
constexpr uint64_t kWaitingShare = 10;  // or a tenth of what is live
constexpr uint64_t kWaitLimitNs = 10'000'000;

// Once memory is out: how long a small request waits for blocks in slabs that are partly live
// (everything else was given to the driver, whose free waits by itself).
constexpr uint64_t kShortageWaitNs = 2'000'000'000;

}  // namespace

void DevicePool::init(Shared* shared, MemorySource* source, Ledger* ledger, Cap* cap,
                      uint32_t owner) {
  shared_ = shared;
  source_ = source;
  ledger_ = ledger;
  cap_ = cap;
  owner_ = owner;
  whole_allocations_.set(0);
  whole_frees_.set(0);
  cache_.init(owner);
  for (int i = 0; i < kShards; ++i) slabs_[i].init(ledger, owner, static_cast<uint8_t>(i));
}

int DevicePool::allocate(uint64_t bytes, unsigned shard, uint64_t* address) {
  Request request{bytes, shard, 0};
  int code = kSuccess;
  if (!take_clean(request)) [[unlikely]] {
    code = miss(request);
    if (code != kSuccess) return code;
  }
  if (!request.small()) count_whole(bytes);
  *address = request.address;
  return kSuccess;
}

bool DevicePool::take_clean(Request& request) {
  if (!request.small()) {
    Chunk* chunk = cache_.take(request.bytes, shared_->reclaim);
    if (chunk == nullptr) return false;
    request.address = chunk->base();
    return true;
  }
  SlabPool& pool = slabs_[request.shard];
  const auto bytes = static_cast<uint32_t>(request.bytes);
  ChunkList emptied;
  request.address = pool.allocate(bytes, shared_->reclaim, &emptied);
  if (emptied.head != nullptr) [[unlikely]]
    keep_empty(&emptied);
  if (request.address != 0) [[likely]]
    return true;
  Chunk* chunk = cache_.take(kSlabBytes, shared_->reclaim);
  if (chunk == nullptr || !add_slab(chunk, request.shard)) return false;
  request.address = pool.allocate(bytes, shared_->reclaim, &emptied);
  keep_empty(&emptied);
  return request.address != 0;
}

int DevicePool::miss(Request& request) {
  if (ask_for_clean() && take_clean(request)) return kSuccess;
  const uint64_t budget = std::max(kWaitingBudget, ledger_->live.get() / kWaitingShare);
  if (waiting_bytes() > budget && wait_for_clean(kWaitLimitNs) && take_clean(request)) {
    return kSuccess;
  }
  if (wait_as_long_as_obtain(request)) return kSuccess;
  const int code = take_fresh(request);
  return code == kOutOfMemory ? shortage(request) : code;
}

// With enough memory waiting it is worth as much time as the driver call that it may save, so at
// worst the request takes twice as long as without us; fresh memory taken in a hurry would later
// have to be returned as well.
bool DevicePool::wait_as_long_as_obtain(Request& request) {
  const uint64_t limit = std::min(obtain_ns_.get(), kWaitLimitNs);
  if (waiting_bytes() < request.bytes) return false;
  const uint64_t start = os::now_ns();
  bool taken = false;
  while (!taken && os::now_ns() - start < limit) {
    taken = shared_->reclaim.poll() && take_clean(request);
  }
  ledger_->waits.add();
  ledger_->wait_ns.add(os::now_ns() - start);
  return taken;
}

// True when something that waited became clean. What is still waiting gets one mark for all frees
// since the last one, so that it will be.
bool DevicePool::ask_for_clean() {
  Reclaim& reclaim = shared_->reclaim;
  const Ticket before = reclaim.clean();
  Ticket oldest, newest;
  if (!waiting_range(&oldest, &newest) || newest <= before) return false;
  reclaim.poll();
  if (reclaim.clean() < newest && reclaim.mark(newest)) reclaim.poll();
  return reclaim.clean() != before;
}

bool DevicePool::wait_for_clean(uint64_t limit_ns) {
  Reclaim& reclaim = shared_->reclaim;
  const Ticket before = reclaim.clean();
  Ticket oldest, newest;
  if (!waiting_range(&oldest, &newest) || newest <= before) return false;
  const uint64_t start = os::now_ns();
  reclaim.mark(newest);
  const bool clean = reclaim.wait(std::max(oldest, before + 1), limit_ns);
  ledger_->waits.add();
  ledger_->wait_ns.add(os::now_ns() - start);
  return clean;
}

int DevicePool::take_fresh(Request& request) {
  int code = kSuccess;
  if (!request.small()) {
    Chunk* chunk = obtain(request.bytes, Role::whole, &code);
    if (chunk != nullptr) request.address = chunk->base();
    return code;
  }
  // Other threads of the shard may empty a new slab before this one gets its block.
  while (Chunk* chunk = obtain(kSlabBytes, Role::whole, &code)) {
    if (!add_slab(chunk, request.shard)) return kOutOfMemory;
    ChunkList emptied;
    request.address = slabs_[request.shard].allocate(static_cast<uint32_t>(request.bytes),
                                                     shared_->reclaim, &emptied);
    keep_empty(&emptied);
    if (request.address != 0) return kSuccess;
  }
  return code;
}

// Memory is out (or the cap reached): everything that is not live goes to the driver, and for small
// requests every corner is looked into. Other threads fill and empty their caches meanwhile, so as
// long as anything was returned, by whomever, there is another attempt.
int DevicePool::shortage(Request& request) {
  constexpr int kAttempts = 16;
  ledger_->shortages.add();
  bool progress = true;
  for (int i = 0; i < kAttempts && progress; ++i) {
    const uint64_t before = ledger_->released.get();
    progress = return_everything();
    progress |= source_->relieve();
    // What another thread took out to return is neither in a pool nor the driver's yet.
    while (shared_->returning.load() != 0) os::sleep_ns(1000);
    const int code = take_fresh(request);
    if (code != kOutOfMemory) return code;
    progress |= ledger_->released.get() != before;
  }
  if (request.small() && squeeze_in(request)) return kSuccess;
  ledger_->out_of_memory.add();
  return kOutOfMemory;
}

// A small request when no slab can be had any more. What is parked is lost to it only here: with
// the driver alone it would have been handed out again long ago.
bool DevicePool::squeeze_in(Request& request) {
  if (search_everywhere(request)) return true;
  for (SlabPool& pool : slabs_) pool.unpark_everything(shared_->reclaim);
  int code;
  if (Chunk* chunk = obtain(request.bytes, Role::direct, &code)) {
    request.address = chunk->base();
    count_whole(request.bytes);
    return true;
  }
  return wait_for_clean(kShortageWaitNs) && search_everywhere(request);
}

bool DevicePool::search_everywhere(Request& request) {
  ChunkList emptied;
  for (SlabPool& pool : slabs_) {
    request.address = pool.allocate(static_cast<uint32_t>(request.bytes), shared_->reclaim,
                                    &emptied, /*thorough=*/true);
    if (request.address != 0) break;
  }
  keep_empty(&emptied);
  return request.address != 0;
}

int DevicePool::allocate_direct(uint64_t bytes, unsigned shard, uint64_t* address) {
  int code;
  if (Chunk* chunk = obtain(bytes, Role::direct, &code)) {
    *address = chunk->base();
    count_whole(bytes);
    return kSuccess;
  }
  Request request{bytes, shard, 0};
  if (code != kOutOfMemory || !take_clean(request)) return code;
  if (!request.small()) count_whole(bytes);
  *address = request.address;
  return kSuccess;
}

Freed DevicePool::free(Chunk* chunk, uint64_t address, int* code) {
  *code = kSuccess;
  Freed freed;
  if (chunk->is() == Role::slab) {
    SlabPool& pool = slabs_[chunk->shard.load(std::memory_order_relaxed)];
    freed = pool.free(chunk, address, shared_->reclaim) ? Freed::done : Freed::invalid;
  } else {
    freed = free_whole(chunk, address, code);
  }
  if (over_budget()) [[unlikely]]
    trim();
  return freed;
}

Freed DevicePool::free_whole(Chunk* chunk, uint64_t address, int* code) {
  uint64_t requested;
  const ChunkCache::Freed freed = cache_.free(chunk, address, shared_->reclaim, &requested);
  if (freed == ChunkCache::Freed::not_held) return Freed::invalid;
  if (freed == ChunkCache::Freed::give_up) *code = release_for_program(chunk, requested);
  if (*code == kSuccess) {
    whole_live_.sub(requested);
    whole_frees_.add();
    ledger_->live.sub(requested);
  }
  cache_.refresh(shared_->reclaim);
  return Freed::done;
}

bool DevicePool::find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  if (chunk->is() != Role::slab) return cache_.find(chunk, address, start, bytes);
  SlabPool& pool = slabs_[chunk->shard.load(std::memory_order_relaxed)];
  return pool.find(chunk, address, start, bytes);
}

bool DevicePool::mark_exported(Chunk* chunk, uint64_t address) {
  return cache_.mark_exported(chunk, address);
}

void DevicePool::count_whole(uint64_t bytes) {
  whole_live_.add(bytes);
  whole_allocations_.add();
  ledger_->live.add(bytes);
  ledger_->note_live(unpublished_live());
}

}  // namespace cistern::alloc
