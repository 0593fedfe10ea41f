// SPDX-License-Identifier: Apache-2.0
// Host memory going back to the system: chunks of one extent, and the pages of idle extents.
#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/host/host_pool.h"
#include "allocator/host/pages.h"

namespace cistern::alloc::host {
namespace {

// True also of none.
bool discard(const HostChunk* chunk, uint64_t first, uint64_t end, bool locked) {
  return first == end || pages::discard(chunk->address_of(first), (end - first) * kPage, locked);
}

}  // namespace

// --- chunks ---

// With the lock: an own chunk in which nothing is in use leaves the table; it is unmapped without.
HostPool::Retired HostPool::retire_if_unused(HostChunk* chunk) {
  if (!chunk->own || chunk->live != 0 || chunk->on_the_way != 0) return {0, 0, 0, nullptr};
  HostExtent* all = chunk->at[0];  // nothing is missing, so it is one
  take_out(all);
  give_record(all);
  return retire(chunk);
}

// With the lock, where memory is short: all in which nothing is in use, whoever they were for.
bool HostPool::retire_free_chunks() {
  bool any = false;
  HostChunk* chunks = chunks_.load(std::memory_order_relaxed);
  for (int i = 0, n = used_.load(std::memory_order_relaxed); i < n; ++i) {
    HostChunk* chunk = &chunks[i];
    if (chunk->base.load() == 0 || chunk == current_ || chunk->live != 0 || chunk->on_the_way != 0)
      continue;
    HostExtent* all = chunk->at[0];
    take_out(all);
    give_record(all);
    unmap(retire(chunk));
    any = true;
  }
  return any;
}

HostPool::Retired HostPool::retire(HostChunk* chunk) {
  const Retired retired{chunk->address_of(0), chunk->bytes.load(), chunk->mapped.load(), chunk->at};
  const uint64_t committed = chunk->committed * kPage, locked = chunk->locked.exchange(0) * kPage;
  --sums_.chunks;
  sums_.reserved -= retired.bytes;
  sums_.committed -= committed;
  sums_.locked -= locked;
  if (policy_.locks) sums_.refused -= std::min(sums_.refused, committed - locked);
  name_units(retired.base, retired.bytes, 0);
  chunk->base.store(0, std::memory_order_release);
  return retired;
}

void HostPool::unmap(const Retired& retired) {
  if (retired.base == 0) return;
  os::unmap(retired.at, retired.bytes / kPage * sizeof(HostExtent*));
  if (retired.mapped != 0) os::unmap(reinterpret_cast<void*>(retired.base), retired.mapped);
}

// --- idle memory ---

// With the lock: how many may be taken out now. Each needs two records.
uint64_t HostPool::most_to_take_out() {
  constexpr uint64_t kMost = 64;
  have_records(2 * kMost);  // or as many as there can be
  const uint64_t spare = records_ - std::min(records_, records_wanted());
  return std::min(kMost, spare / 2);
}

// With the lock: takes it out; the new beginning of the list of those, linked by `next`.
HostExtent* HostPool::begin_release(HostExtent* extent, HostExtent* list) {
  take_out(extent);
  ++taken_out_;
  extent->chunk->on_the_way += extent->count;
  extent->next = list;
  return extent;
}

// With the lock: some that were freed before.
HostExtent* HostPool::take_old(uint64_t before_ns) {
  uint64_t most = most_to_take_out();
  HostExtent* list = nullptr;
  for (HostExtent* e = newest_idle_; e != nullptr && most != 0;) {
    HostExtent* older = e->older;
    if (e->freed_at_ns <= before_ns) {
      list = begin_release(e, list);
      --most;
    }
    e = older;
  }
  return list;
}

// With the lock: the oldest, until no more than that is idle.
HostExtent* HostPool::take_beyond(uint64_t idle_bytes) {
  uint64_t most = releasable_ > idle_bytes ? most_to_take_out() : 0;
  HostExtent* list = nullptr;
  for (; oldest_idle_ != nullptr && releasable_ > idle_bytes && most != 0; --most) {
    list = begin_release(oldest_idle_, list);
  }
  return list;
}

// Without the lock: the system takes pages back at a hundred microseconds a MiB.
void HostPool::release(HostExtent* list, uint64_t now_ns) {
  while (list != nullptr) {
    HostExtent* extent = list;
    HostChunk* chunk = extent->chunk;
    list = extent->next;
    const Touched touched = extent->touched;
    const uint64_t unlocked =
        std::clamp<uint64_t>(chunk->locked.load(), touched.first, touched.end);
    const bool locked_gone = discard(chunk, touched.first, unlocked, true);
    const bool rest_gone = discard(chunk, unlocked, touched.end, false);
    const bool gone = locked_gone && rest_gone;
    Retired retired;
    {
      const LockGuard guard(mutex_);
      const uint64_t first = extent->first, count = extent->count;
      give_record(extent);
      --taken_out_;
      chunk->on_the_way -= count;
      if (gone) sums_.released += touched.pages * kPage;
      put(chunk, first, count, gone ? Touched{} : touched, gone ? now_ns : kNeverOld);
      retired = retire_if_unused(chunk);
    }
    unmap(retired);
  }
}

bool HostPool::release_idle(uint64_t age_ns) {
  const uint64_t now = os::now_ns(), before = now - std::min(now, age_ns);
  while (true) {
    HostExtent* list;
    {
      const LockGuard guard(mutex_);
      list = take_old(before);
      if (list == nullptr) return newest_idle_ != nullptr;
    }
    release(list, now);
  }
}

void HostPool::release_beyond(uint64_t idle_bytes) {
  while (true) {
    HostExtent* list;
    {
      const LockGuard guard(mutex_);
      list = take_beyond(idle_bytes);
    }
    if (list == nullptr) return;
    release(list, os::now_ns());
  }
}

}  // namespace cistern::alloc::host
