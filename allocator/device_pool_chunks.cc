// SPDX-License-Identifier: Apache-2.0
// Chunks coming from and going back to the source, and what is known about all of them.
//
// A chunk leaves the index before the driver gets it back: from that moment its address may be
// handed out again, to anyone.
#include <algorithm>

#include "allocator/device_pool.h"
#include "allocator/os.h"

namespace cistern::alloc {
namespace {

// What may stay idle: this, or a share of the most that was ever live.
constexpr uint64_t kIdleBudget = uint64_t{64} << 20;
constexpr uint64_t kIdleShare = 8;

}  // namespace

Chunk* DevicePool::obtain(uint64_t bytes, Role role, int* code) {
  *code = kOutOfMemory;
  if (!cap_->charge(bytes)) {
    ledger_->refused.add();
    return nullptr;
  }
  Chunk* chunk = shared_->chunks.take();
  if (chunk == nullptr) {
    cap_->refund(bytes);
    return nullptr;
  }
  uint64_t address;
  const uint64_t start = os::now_ns();
  *code = source_->obtain(bytes, &address);
  obtain_ns_.set((3 * obtain_ns_.get() + os::now_ns() - start) / 4);
  if (*code == kSuccess) {
    chunk->set_range(address, bytes);
    chunk->owner.store(owner_, std::memory_order_relaxed);
    chunk->exported.store(false, std::memory_order_relaxed);
    chunk->become(role);
    chunk->set_requested(bytes);
    chunk->born = shared_->reclaim.epoch();
    if (shared_->index.insert(chunk)) {
      ledger_->obtained.add();
      reserved_.add(bytes);
      ledger_->reserved.add(bytes);
      ledger_->reserved_peak.raise_to(ledger_->reserved.get());
      return chunk;
    }
    source_->release(address);
    *code = kOutOfMemory;
  }
  ledger_->refused.add();
  cap_->refund(bytes);
  shared_->chunks.give_back(chunk);
  return nullptr;
}

bool DevicePool::add_slab(Chunk* chunk, unsigned shard) {
  Slab* slab = shared_->slabs.take();
  if (slab == nullptr) {
    ChunkList unused;
    unused.push(chunk);
    cache_.add_idle(&unused);
    return false;
  }
  slabs_[shard].add(chunk, slab);
  return true;
}

// Slabs in which nothing is live or waiting become idle chunks.
void DevicePool::keep_empty(ChunkList* emptied) {
  if (emptied->head == nullptr) return;
  for (Chunk* chunk = emptied->head; chunk != nullptr; chunk = chunk->next) {
    shared_->slabs.give_back(chunk->slab());
  }
  cache_.add_idle(emptied);
}

// The program frees a chunk that is not to be reused. It is told what the driver says, and where
// the driver refuses (inside a capture, say) the memory is still the program's.
int DevicePool::release_for_program(Chunk* chunk, uint64_t requested) {
  shared_->index.remove(chunk);
  const int code = source_->release(chunk->base());
  if (code != kSuccess) {
    chunk->set_requested(requested);
    chunk->become(Role::direct);
    shared_->index.insert(chunk);  // cannot fail: the map has had this address before
    return code;
  }
  ledger_->released.add();
  forget(chunk);
  return kSuccess;
}

// Chunks that nobody holds go back. What the source does not take now waits as if freed just now.
void DevicePool::give_back_all(ChunkList* chunks) {
  while (Chunk* chunk = chunks->pop()) {
    shared_->index.remove(chunk);
    const int code = source_->give_back(chunk->base());
    if (code == kNotNow) {
      shared_->index.insert(chunk);
      cache_.keep_waiting(chunk, shared_->reclaim);
      continue;
    }
    (code == kSuccess ? ledger_->released : ledger_->lost).add();
    forget(chunk);
  }
}

void DevicePool::forget(Chunk* chunk) {
  const uint64_t bytes = chunk->size();
  reserved_.sub(bytes);
  ledger_->reserved.sub(bytes);
  cap_->refund(bytes);
  shared_->chunks.give_back(chunk);
}

bool DevicePool::return_everything() {
  ChunkList chunks;
  shared_->returning.fetch_add(1);
  for (SlabPool& pool : slabs_) pool.collect_empty(shared_->reclaim, true, &chunks);
  for (Chunk* chunk = chunks.head; chunk != nullptr; chunk = chunk->next) {
    shared_->slabs.give_back(chunk->slab());
  }
  cache_.collect_all(&chunks);
  const bool any = chunks.head != nullptr;
  give_back_all(&chunks);
  shared_->returning.fetch_sub(1);
  return any;
}

// Where the host runs ahead of the device, as much as is waiting will be wanted again: what became
// clean is kept for it, instead of going back and being obtained anew a moment later.
uint64_t DevicePool::idle_budget() const {
  return std::max(kIdleBudget, ledger_->live_peak.get() / kIdleShare) + cache_.waiting_bytes();
}

bool DevicePool::over_budget() const {
  const uint64_t idle = cache_.idle_bytes() + cache_.parked_bytes();
  return idle > kIdleBudget && idle > idle_budget();
}

void DevicePool::trim() {
  ChunkList chunks;
  shared_->returning.fetch_add(1);
  cache_.refresh(shared_->reclaim);
  cache_.collect_idle(idle_budget(), shared_->reclaim, &chunks);
  give_back_all(&chunks);
  shared_->returning.fetch_sub(1);
}

void DevicePool::drop() {
  for (SlabPool& pool : slabs_) pool.drop();
  cache_.drop();
  ChunkList chunks{shared_->index.remove_all_of(owner_)};
  while (Chunk* chunk = chunks.pop()) {
    if (chunk->is() == Role::slab) shared_->slabs.give_back(chunk->slab());
    chunk->become(Role::released);
    shared_->chunks.give_back(chunk);
  }
  ledger_->live.sub(whole_live_.get());
  whole_live_.set(0);
  ledger_->reserved.sub(reserved_.get());
  cap_->refund(reserved_.get());
  reserved_.set(0);
}

bool DevicePool::waiting_range(Ticket* oldest, Ticket* newest) {
  bool any = cache_.waiting_range(oldest, newest);
  for (SlabPool& pool : slabs_) {
    Ticket first, last;
    if (pool.waiting_bytes() == 0 || !pool.waiting_range(&first, &last)) continue;
    *oldest = any ? std::min(*oldest, first) : first;
    *newest = any ? std::max(*newest, last) : last;
    any = true;
  }
  return any;
}

uint64_t DevicePool::waiting_bytes() const {
  uint64_t bytes = cache_.waiting_bytes();
  for (const SlabPool& pool : slabs_) bytes += pool.waiting_bytes();
  return bytes;
}

int64_t DevicePool::unpublished_live() const {
  int64_t bytes = 0;
  for (const SlabPool& pool : slabs_) bytes += static_cast<int64_t>(pool.unpublished());
  return bytes;
}

Usage DevicePool::usage() const {
  Usage usage{whole_live_.get(), cache_.idle_bytes(), waiting_bytes(), cache_.parked_bytes()};
  for (const SlabPool& pool : slabs_) {
    usage.live += pool.live();
    usage.idle += pool.clean_bytes();
    usage.parked += pool.parked_bytes();
  }
  return usage;
}

uint64_t DevicePool::returnable_bytes() const {
  uint64_t bytes = cache_.returnable_bytes();
  for (const SlabPool& pool : slabs_) bytes += pool.empty_bytes();
  return bytes;
}

uint64_t DevicePool::largest_free() {
  uint64_t bytes = cache_.largest_idle();
  for (SlabPool& pool : slabs_) bytes = std::max(bytes, pool.largest_clean());
  return bytes;
}

uint64_t DevicePool::allocations() const {
  uint64_t n = whole_allocations_.get();
  for (const SlabPool& pool : slabs_) n += pool.allocations.get();
  return n;
}

uint64_t DevicePool::frees() const {
  uint64_t n = whole_frees_.get();
  for (const SlabPool& pool : slabs_) n += pool.frees.get();
  return n;
}

void DevicePool::reset_after_fork() {
  cache_.reset_after_fork();
  for (SlabPool& pool : slabs_) pool.reset_after_fork();
}

}  // namespace cistern::alloc
