// SPDX-License-Identifier: Apache-2.0
#include "allocator/context_memory.h"

#include <algorithm>

#include "allocator/base/os.h"

namespace cistern::alloc {

void ContextMemory::init(Shared* shared_state, MemorySource* memory_source,
                         const DeviceParts& device, uint32_t number, const ChunkSizes& sizes) {
  shared = shared_state;
  source = memory_source;
  ledger = device.ledger;
  garbage = device.garbage;
  owner = number;
  whole_live.set(0);
  whole_allocations.set(0);
  whole_frees.set(0);
  supply.init(shared, source, device, owner);
  strategy.init(shared, &supply, device, owner, sizes);
}

// --- a request ---

int ContextMemory::take_fresh(Request& request) {
  if (!request.pooled) [[unlikely]]
    return obtain_direct(request);
  return strategy.visit([&](auto& s) { return s.take_fresh(request); });
}

int ContextMemory::obtain_direct(Request& request) {
  int code;
  Chunk* chunk = supply.obtain(request.bytes, Role::direct, &code);
  if (chunk == nullptr) return code;
  request.address = chunk->base();
  request.whole = true;
  return code;
}

bool ContextMemory::take_from_anywhere(Request& request, Step* step) {
  return strategy.visit([&](auto& s) { return s.take_from_anywhere(request, step); });
}

void ContextMemory::count_whole(uint64_t bytes) {
  whole_live.add(bytes);
  whole_allocations.add();
  ledger->live.add(bytes);
  // Only near the peak it matters what the pools have not published yet.
  const uint64_t most = strategy.visit([](const auto& s) { return s.kMostUnpublished; });
  if (ledger->live.get() + most >= ledger->live_peak.get()) ledger->note_live(unpublished_live());
}

void ContextMemory::refresh(bool spare_too) {
  const bool fills = supply.filler.gathers() && !source->refuses_release();
  const ChunkSupply::Moving moving(supply);
  supply.cache.refresh(shared->reclaim);
  strategy.visit([=](auto& s) {
    if (fills) s.fill_freed();
    s.refresh(spare_too);
  });
}

// --- to the source ---

void ContextMemory::release_excess() {
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply);
  strategy.visit([&](auto& s) { s.collect_excess(&chunks); });
  supply.release(&chunks);
}

void ContextMemory::release_excess_if_over_budget() {
  if (strategy.visit([](const auto& s) { return s.over_budget(); })) release_excess();
}

void ContextMemory::release_clean_excess() {
  if (!source->can_release_clean()) return;
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply);
  strategy.visit([&](auto& s) { s.collect_excess_idle(&chunks); });
  supply.release_clean(&chunks);
}

bool ContextMemory::release_clean() {
  // What is taken out and put back is missing meanwhile, to other threads that are short.
  if (!source->can_release_clean()) return false;
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply);
  strategy.visit([&](auto& s) { s.collect_clean(&chunks); });
  supply.cache.collect_clean(shared->reclaim, &chunks);
  return supply.release_clean(&chunks);
}

bool ContextMemory::release_everything() {
  flush_garbage();
  ChunkList chunks;
  const ChunkSupply::Moving moving(supply);
  strategy.visit([&](auto& s) { s.collect_all(&chunks); });
  supply.cache.collect_all(&chunks);
  return supply.release(&chunks);
}

// --- garbage ---

void ContextMemory::flush_garbage() {
  if (garbage != nullptr && garbage->flush_all()) expect_background_work();
}

void ContextMemory::flush_synchronised(Ticket ticket) {
  if (garbage != nullptr && garbage->flush_synchronised(owner, ticket)) expect_background_work();
}

// What was flushed becomes idle without any free.
void ContextMemory::expect_background_work() {
  if (shared->idle.on) source->request_background_work(/*soon=*/false);
}

// --- the end ---

// The program may destroy a context that other threads still use. What they took out before the
// pools were closed must have found a place before everything is forgotten.
void ContextMemory::forget_all() {
  strategy.for_each_pool([](auto& pool) { pool.close(); });
  supply.close();
  while (anything_in_hand()) os::sleep_ns(1000);
  strategy.for_each_pool([](auto& pool) { pool.forget_all(); });
  supply.forget_all(
      [this](Chunk* chunk) { strategy.visit([chunk](auto& s) { s.forget(chunk); }); });
  ledger->live.sub(whole_live.get());
  whole_live.set(0);
}

bool ContextMemory::anything_in_hand() const {
  bool any = supply.in_hand();
  strategy.for_each_pool([&](const auto& pool) { any |= pool.in_hand() != 0; });
  return any;
}

// --- sums ---

bool ContextMemory::waiting_range(Ticket* oldest, Ticket* newest) {
  bool any = supply.cache.waiting_bytes() != 0 && supply.cache.waiting_range(oldest, newest);
  strategy.for_each_pool([&](auto& pool) {
    Ticket first, last;
    if (pool.waiting_bytes() == 0 || !pool.waiting_range(&first, &last)) return;
    *oldest = any ? std::min(*oldest, first) : first;
    *newest = any ? std::max(*newest, last) : last;
    any = true;
  });
  return any;
}

uint64_t ContextMemory::waiting_bytes() const {
  uint64_t bytes = supply.cache.waiting_bytes();
  strategy.for_each_pool([&](const auto& pool) { bytes += pool.waiting_bytes(); });
  return bytes;
}

int64_t ContextMemory::unpublished_live() const {
  int64_t bytes = 0;
  strategy.for_each_pool(
      [&](const auto& pool) { bytes += static_cast<int64_t>(pool.unpublished()); });
  return bytes;
}

Usage ContextMemory::usage() const {
  const ChunkCache& cache = supply.cache;
  Usage usage{whole_live.get(),     cache.idle_bytes(),    cache.waiting_bytes(),
              cache.parked_bytes(), cache.garbage_bytes(), 0};
  strategy.for_each_pool([&](const auto& pool) {
    usage.live += pool.live();
    usage.idle += pool.clean_bytes();
    usage.waiting += pool.waiting_bytes();
    usage.parked += pool.parked_bytes();
    usage.garbage += pool.garbage_bytes();
    usage.quarantined += pool.quarantined_bytes();
  });
  return usage;
}

uint64_t ContextMemory::returnable_bytes() {
  uint64_t bytes = supply.cache.returnable_bytes();
  strategy.for_each_pool([&](auto& pool) { bytes += pool.available_bytes(); });
  return bytes;
}

uint64_t ContextMemory::largest_free() {
  uint64_t bytes = supply.cache.largest_idle();
  strategy.for_each_pool([&](auto& pool) { bytes = std::max(bytes, pool.largest_clean()); });
  return bytes;
}

uint64_t ContextMemory::allocations() const {
  uint64_t n = whole_allocations.get();
  strategy.for_each_pool([&](const auto& pool) { n += pool.allocations.get(); });
  return n;
}

uint64_t ContextMemory::frees() const {
  uint64_t n = whole_frees.get();
  strategy.for_each_pool([&](const auto& pool) { n += pool.frees.get(); });
  return n;
}

void ContextMemory::reset_after_fork() {
  supply.cache.reset_after_fork();
  strategy.visit([](auto& s) { s.reset_after_fork(); });
  strategy.for_each_pool([](auto& pool) { pool.reset_after_fork(); });
}

}  // namespace cistern::alloc
