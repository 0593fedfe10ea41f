// SPDX-License-Identifier: Apache-2.0
// The way of an allocation and of a free. Once memory is out: context_pool_shortage.cc. What is not
// to be pooled: context_pool_direct.cc. Idle memory: context_pool_idle.cc. Figures about the pool:
// context_pool_figures.cc.
#include "allocator/context_pool.h"

#include <algorithm>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// A host that runs ahead of the device must not grow without bound (a plain cudaFree throttles it):
// with more than this waiting, an allocation waits for earlier work, but never longer than the
// limit, so that a kernel that never ends cannot hang it.
constexpr uint64_t kWaitingBudget = uint64_t{256} << 20;
constexpr uint64_t kWaitingShare = 10;  // or a tenth of what is live
constexpr uint64_t kWaitLimitNs = 10'000'000;

// With more than this freed and waiting, a free marks the work so far, so that it need not wait for
// work that comes later and may never end. Less is marked by the next allocation that misses.
constexpr uint64_t kUnmarkedBudget = uint64_t{8} << 20;
constexpr uint64_t kUnmarkedShare = 32;  // or this part of what is held

// By default nothing goes back before the least budget of the strategies is used up.
uint64_t tidy_from(const IdleRelease& idle) {
  if (idle.on || idle.defer) return 0;
  return idle.no_budget ? UINT64_MAX : OnDemand::kIdleBudget + 1;
}

}  // namespace

void ContextPool::init(Shared* shared, MemorySource* source, const DeviceParts& device,
                       uint32_t owner, const ChunkSizes& sizes) {
  shared_ = shared;
  source_ = source;
  ledger_ = device.ledger;
  garbage_ = device.garbage;
  owner_ = owner;
  whole_live_.set(0);
  whole_allocations_.set(0);
  whole_frees_.set(0);
  freed_unmarked_.set(0);
  tidy_from_ = tidy_from(shared->idle);
  defers_ = shared->idle.defer;
  deferred_.store(false, std::memory_order_relaxed);
  supply_.init(shared, source, device, owner);
  strategy_.init(shared, &supply_, device, owner, sizes);
  if (garbage_ == nullptr) return;
  shared->reclaim.divert_everything();
  shared->free_extra_work.fetch_add(1);
}

int ContextPool::allocate(uint64_t bytes, unsigned shard, uint64_t* address) {
  if (supply_.filler.on()) [[unlikely]]
    return allocate_filled(bytes, shard, address);
  return serve(bytes, shard, address);
}

[[gnu::always_inline]] inline int ContextPool::serve(uint64_t bytes, unsigned shard,
                                                     uint64_t* address) {
  Request request{.bytes = bytes, .shard = shard};
  if (!take_clean(request)) [[unlikely]] {
    const int code = miss(request);
    if (code != kSuccess) return code;
  }
  if (request.whole) count_whole(bytes);
  *address = request.address;
  return kSuccess;
}

// Until the fill is done the context must not make way for another one: the address could be that
// one's by then.
int ContextPool::allocate_filled(uint64_t bytes, unsigned shard, uint64_t* address) {
  const ChunkSupply::InHand in_hand(supply_);
  const int code = serve(bytes, shard, address);
  if (code == kSuccess && !filled_ahead(*address)) supply_.filler.fill(*address, bytes);
  return code;
}

bool ContextPool::filled_ahead(uint64_t address) {
  if (!supply_.filler.gathers()) return false;
  const Chunk* chunk = shared_->index.find(address);
  if (chunk == nullptr) return false;
  if (chunk->is() == Role::slab) return strategy_.on_demand().fills(chunk);
  return chunk->is() == Role::split && strategy_.chunk_pools().fills(chunk);
}

int ContextPool::miss(Request& request) {
  if (deferred_.load(std::memory_order_relaxed)) [[unlikely]] {
    do_deferred(WorkedBy::call);
    release_clean_excess();
    if (take_clean(request)) return kSuccess;
  }
  if ((ask_for_clean() || request.ask_first) && take_clean(request)) return kSuccess;
  const uint64_t budget = std::max(kWaitingBudget, ledger_->live.get() / kWaitingShare);
  if (waiting_bytes() > budget && wait_for_clean(kWaitLimitNs) && take_clean(request)) {
    return kSuccess;
  }
  if (wait_as_long_as_obtain(request)) return kSuccess;
  const int code = take_fresh(request);
  return code == kOutOfMemory ? shortage(request) : code;
}

int ContextPool::take_fresh(Request& request) {
  if (!request.pooled) [[unlikely]]
    return obtain_direct(request);
  return strategy_.visit([&](auto& strategy) { return strategy.take_fresh(request); });
}

// With enough memory waiting it is worth as much time as the driver call that it may save, so at
// worst the request takes twice as long as without us; fresh memory taken in a hurry would later
// have to be returned as well.
bool ContextPool::wait_as_long_as_obtain(Request& request) {
  const uint64_t limit = std::min(supply_.obtain_ns(), kWaitLimitNs);
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
bool ContextPool::ask_for_clean() {
  Reclaim& reclaim = shared_->reclaim;
  const Ticket before = reclaim.clean();
  Ticket oldest, newest;
  if (!waiting_range(&oldest, &newest) || newest <= before) return false;
  reclaim.poll();
  if (reclaim.clean() < newest && reclaim.mark(newest)) reclaim.poll();
  return reclaim.clean() != before;
}

bool ContextPool::wait_for_clean(uint64_t limit_ns) {
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

Freed ContextPool::free(Chunk* chunk, uint64_t address, int* code, Ticket latest) {
  *code = kSuccess;
  bool done;
  switch (chunk->is()) {
    case Role::slab:
      done = strategy_.on_demand().free(chunk, address, latest);
      break;
    case Role::split:
      done = strategy_.chunk_pools().free(chunk, address, latest);
      break;
    default:
      done = free_whole(chunk, address, code, latest);
  }
  if (shared_->free_extra_work.load(std::memory_order_relaxed) != 0) [[unlikely]]
    do_extra_work();
  const ChunkCache& cache = supply_.cache;
  if (cache.idle_bytes() + cache.parked_bytes() >= tidy_from_ || cache.any_refused()) [[unlikely]] {
    tidy();
  }
  return done ? Freed::done : Freed::invalid;
}

// What a free does for others.
void ContextPool::do_extra_work() {
  if (garbage_ != nullptr && garbage_->due()) {
    garbage_->flush();
    mark_if_much_waits();
  }
  // Another thread would see this block come and go in the caches and never get it.
  if (shared_->threads_short_of_memory.load(std::memory_order_relaxed) != 0) release_everything();
}

bool ContextPool::free_whole(Chunk* chunk, uint64_t address, int* code, Ticket latest) {
  uint64_t requested;
  const ChunkCache::Freed freed =
      supply_.cache.free(chunk, address, shared_->reclaim, &requested, latest, /*refreshes=*/false);
  if (freed == ChunkCache::Freed::not_live) return false;
  if (freed == ChunkCache::Freed::give_up) *code = supply_.release_for_program(chunk, requested);
  if (*code == kSuccess) {
    whole_live_.sub(requested);
    whole_frees_.add();
    ledger_->live.sub(requested);
  }
  freed_unmarked_.add(requested);
  if (defers_) [[unlikely]]
    return true;
  supply_.cache.refresh(shared_->reclaim);
  mark_if_much_waits();
  return true;
}

// A program that synchronises by itself has nothing waiting here, and needs no mark.
void ContextPool::mark_if_much_waits() {
  const uint64_t budget = std::max(kUnmarkedBudget, ledger_->reserved.get() / kUnmarkedShare);
  if (freed_unmarked_.get() < budget || supply_.cache.waiting_bytes() < budget) return;
  Reclaim& reclaim = shared_->reclaim;
  Ticket oldest, newest;
  if (!supply_.cache.waiting_range(&oldest, &newest)) return;
  reclaim.poll();
  if (reclaim.mark(newest)) freed_unmarked_.set(0);
}

bool ContextPool::find(Chunk* chunk, uint64_t address, uint64_t* start, uint64_t* bytes) {
  switch (chunk->is()) {
    case Role::slab:
      return strategy_.on_demand().find(chunk, address, start, bytes);
    case Role::split:
      return strategy_.chunk_pools().find(chunk, address, start, bytes);
    default:
      return supply_.cache.find(chunk, address, start, bytes);
  }
}

// A whole chunk that changes its meaning meanwhile is being freed or handed out by another thread:
// either answer is right then.
bool ContextPool::is_live(Chunk* chunk, uint64_t address) {
  const Role role = chunk->is();
  if (role == Role::whole || role == Role::direct) {
    return address - chunk->base() < chunk->requested();
  }
  uint64_t start, bytes;
  return (role == Role::slab || role == Role::split) && find(chunk, address, &start, &bytes);
}

bool ContextPool::mark_exported(Chunk* chunk, uint64_t address) {
  switch (chunk->is()) {
    case Role::slab:
      return strategy_.on_demand().mark_exported(chunk, address);
    case Role::split:
      return strategy_.chunk_pools().mark_exported(chunk, address);
    default:
      return supply_.cache.mark_exported(chunk, address);
  }
}

void ContextPool::flush_garbage() {
  if (garbage_ != nullptr && garbage_->flush_all()) garbage_released();
}

void ContextPool::synchronised(Ticket ticket) {
  if (garbage_ != nullptr && garbage_->flush_synchronised(owner_, ticket)) garbage_released();
}

void ContextPool::release_excess() {
  sweep_if_due();
  release_excess_now();
}

void ContextPool::release_excess_now() {
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply_);
  strategy_.visit([&](auto& strategy) { strategy.collect_excess(&chunks); });
  supply_.release(&chunks);
}

// The program may destroy a context that other threads still use. What they took out before the
// doors closed must have found a place before everything is swept away.
void ContextPool::forget_all() {
  strategy_.for_each_pool([](auto& pool) { pool.close(); });
  supply_.close();
  while (in_hand()) os::sleep_ns(1000);
  strategy_.for_each_pool([](auto& pool) { pool.forget_all(); });
  supply_.forget_all([this](Chunk* chunk) {
    strategy_.visit([chunk](auto& strategy) { strategy.forget(chunk); });
  });
  ledger_->live.sub(whole_live_.get());
  whole_live_.set(0);
  publish_idle(0);
}

bool ContextPool::in_hand() const {
  bool any = supply_.in_hand();
  strategy_.for_each_pool([&](const auto& pool) { any |= pool.in_hand() != 0; });
  return any;
}

void ContextPool::count_whole(uint64_t bytes) {
  whole_live_.add(bytes);
  whole_allocations_.add();
  ledger_->live.add(bytes);
  ledger_->note_live(unpublished_live());
}

}  // namespace cistern::alloc
