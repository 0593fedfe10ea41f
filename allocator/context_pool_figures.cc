// SPDX-License-Identifier: Apache-2.0
// What the pool can say about itself: sums over the chunk layer's cache and the strategy's pools.
#include <algorithm>

#include "allocator/context_pool.h"

namespace cistern::alloc {

bool ContextPool::waiting_range(Ticket* oldest, Ticket* newest) {
  bool any = supply_.cache.waiting_range(oldest, newest);
  strategy_.for_each_pool([&](auto& pool) {
    Ticket first, last;
    if (pool.waiting_bytes() == 0 || !pool.waiting_range(&first, &last)) return;
    *oldest = any ? std::min(*oldest, first) : first;
    *newest = any ? std::max(*newest, last) : last;
    any = true;
  });
  return any;
}

uint64_t ContextPool::waiting_bytes() const {
  uint64_t bytes = supply_.cache.waiting_bytes();
  strategy_.for_each_pool([&](const auto& pool) { bytes += pool.waiting_bytes(); });
  return bytes;
}

int64_t ContextPool::unpublished_live() const {
  int64_t bytes = 0;
  strategy_.for_each_pool(
      [&](const auto& pool) { bytes += static_cast<int64_t>(pool.unpublished()); });
  return bytes;
}

Usage ContextPool::usage() const {
  const ChunkCache& cache = supply_.cache;
  Usage usage{whole_live_.get(),    cache.idle_bytes(),    cache.waiting_bytes(),
              cache.parked_bytes(), cache.garbage_bytes(), 0};
  strategy_.for_each_pool([&](const auto& pool) {
    usage.live += pool.live();
    usage.idle += pool.clean_bytes();
    usage.waiting += pool.waiting_bytes();
    usage.parked += pool.parked_bytes();
    usage.garbage += pool.garbage_bytes();
    usage.quarantined += pool.quarantined_bytes();
  });
  return usage;
}

uint64_t ContextPool::returnable_bytes() {
  uint64_t bytes = supply_.cache.returnable_bytes();
  strategy_.for_each_pool([&](auto& pool) { bytes += pool.available_bytes(); });
  return bytes;
}

uint64_t ContextPool::largest_free() {
  uint64_t bytes = supply_.cache.largest_idle();
  strategy_.for_each_pool([&](auto& pool) { bytes = std::max(bytes, pool.largest_clean()); });
  return bytes;
}

uint64_t ContextPool::allocations() const {
  uint64_t n = whole_allocations_.get();
  strategy_.for_each_pool([&](const auto& pool) { n += pool.allocations.get(); });
  return n;
}

uint64_t ContextPool::frees() const {
  uint64_t n = whole_frees_.get();
  strategy_.for_each_pool([&](const auto& pool) { n += pool.frees.get(); });
  return n;
}

void ContextPool::reset_after_fork() {
  supply_.cache.reset_after_fork();
  strategy_.visit([](auto& strategy) { strategy.reset_after_fork(); });
  strategy_.for_each_pool([](auto& pool) { pool.reset_after_fork(); });
}

}  // namespace cistern::alloc
