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
  if (!chunk->own || chunk->live != 0 || chunk->on_the_way != 0) return {0, 0, nullptr};
  HostExtent* all = chunk->at[0];  // nothing is missing, so it is one
  take_out(all);
  give_record(all);
  return retire(chunk);
}

HostPool::Retired HostPool::retire(HostChunk* chunk) {
  const Retired retired{chunk->address_of(0), chunk->bytes.load(), chunk->at};
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
  os::unmap(reinterpret_cast<void*>(retired.base), retired.bytes);
}

// --- idle memory ---

// With the lock: some that were freed before, taken out; linked by `next`.
HostExtent* HostPool::take_old(uint64_t before_ns) {
  constexpr uint64_t kMost = 64;
  have_records(2 * kMost);  // or as many as there can be
  const uint64_t spare = records_ - std::min(records_, records_wanted());
  const uint64_t most = std::min(kMost, spare / 2);
  HostExtent* list = nullptr;
  uint64_t taken = 0;
  for (HostExtent* e = newest_idle_; e != nullptr && taken < most;) {
    HostExtent* older = e->older;
    if (e->freed_at_ns <= before_ns) {
      take_out(e);
      ++taken_out_;
      e->chunk->on_the_way += e->count;
      e->next = list;
      list = e;
      ++taken;
    }
    e = older;
  }
  return list;
}

bool HostPool::any_will_be_old() const {
  for (const HostExtent* e = newest_idle_; e != nullptr; e = e->older) {
    if (e->freed_at_ns != kNeverOld) return true;
  }
  return false;
}

// The system takes pages back at a hundred microseconds a MiB: not under the lock.
bool HostPool::release_idle(uint64_t age_ns) {
  const uint64_t now = os::now_ns(), before = now - std::min(now, age_ns);
  while (true) {
    HostExtent* list;
    {
      const LockGuard guard(mutex_);
      list = take_old(before);
      if (list == nullptr) return any_will_be_old();
    }
    while (list != nullptr) {
      HostExtent* extent = list;
      HostChunk* chunk = extent->chunk;
      list = extent->next;
      const uint64_t first = extent->first, count = extent->count;
      const uint64_t unlocked = std::clamp(chunk->locked.load(), first, first + count);
      const bool locked_gone = discard(chunk, first, unlocked, true);
      const bool rest_gone = discard(chunk, unlocked, first + count, false);
      const bool gone = locked_gone && rest_gone;
      Retired retired;
      {
        const LockGuard guard(mutex_);
        give_record(extent);
        --taken_out_;
        chunk->on_the_way -= count;
        put(chunk, first, count, /*zero=*/gone, gone ? now : kNeverOld);
        retired = retire_if_unused(chunk);
      }
      unmap(retired);
    }
  }
}

}  // namespace cistern::alloc::host
