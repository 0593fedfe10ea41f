// SPDX-License-Identifier: Apache-2.0
// Host memory going back to the system: chunks of one extent, and the pages of idle extents.
#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/host/host_pool.h"
#include "allocator/host/system.h"

namespace cistern::alloc::host {
namespace {

// Also true for an empty Touched.
bool discard(const HostChunk* chunk, uint64_t first, uint64_t end, bool locked) {
  return first == end || pages::discard(chunk->address_of(first), (end - first) * kPage, locked);
}

}  // namespace

// --- chunks ---

// With the lock: a chunk made for one extent leaves the table once nothing in it is in use. It is
// unmapped without the lock.
HostPool::Retired HostPool::retire_if_unused(HostChunk* chunk) {
  if (!chunk->own || chunk->live != 0 || chunk->on_the_way != 0) return {0, 0, 0, nullptr};
  HostExtent* all = chunk->at[0];  // nothing is missing, so it is one
  take_out(all);
  give_record(all);
  return retire(chunk);
}

// With the lock, when memory is short: all chunks in which nothing is in use, also the shared ones.
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

// With the lock: how many extents may be taken out now. Each needs two records.
uint64_t HostPool::most_to_take_out() {
  constexpr uint64_t kMost = 64;
  have_records(2 * kMost);  // or as many as there can be
  const uint64_t spare = records_ - std::min(records_, records_wanted());
  return std::min(kMost, spare / 2);
}

// With the lock: takes the extent out and puts it in front of `list`, linked by `next`. Returns the
// new list.
HostExtent* HostPool::begin_release(HostExtent* extent, HostExtent* list) {
  take_out(extent);
  ++taken_out_;
  extent->chunk->on_the_way += extent->count;
  extent->next = list;
  return extent;
}

// With the lock: takes out some extents that were freed before `before_ns`.
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

// With the lock: takes out the oldest extents, until no more than `idle_bytes` are idle.
HostExtent* HostPool::take_beyond(uint64_t idle_bytes) {
  uint64_t most = releasable_ > idle_bytes ? most_to_take_out() : 0;
  HostExtent* list = nullptr;
  for (; oldest_idle_ != nullptr && releasable_ > idle_bytes && most != 0; --most) {
    list = begin_release(oldest_idle_, list);
  }
  return list;
}

// Without the lock, because the system needs a hundred microseconds per MiB to take pages back.
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

// Chunks of one extent: they move as a whole, and some are usable only in part.

// --- addresses ---

bool HostPool::any_unit_named(uintptr_t base, uint64_t bytes) const {
  for (uint64_t unit = base >> kUnitBits; unit <= (base + bytes - 1) >> kUnitBits; ++unit) {
    const Leaf* leaf = roots_[unit >> kLeafBits].load(std::memory_order_relaxed);
    if (leaf == nullptr) continue;
    if ((*leaf)[unit % (1 << kLeafBits)].load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

// With the lock. Some addresses in the table are not mapped (HostChunk::mapped), so the system may
// offer them again, but malloc still knows them as part of another block. If it offers such
// addresses, they stay reserved until it offers others.
void* HostPool::reserve_unnamed(uint64_t bytes, uint64_t mapped, uint64_t alignment) const {
  constexpr int kTries = 8;
  void* aside[kTries];
  int tries = 0;
  void* found = nullptr;
  // Far from where the system places other mappings, so that none is placed behind it.
  uintptr_t near = mapped < bytes ? uintptr_t{1} << 44 : 0;
  while (tries < kTries) {
    void* memory = pages::reserve(mapped, alignment, near);
    if (memory == nullptr) break;
    if (!any_unit_named(reinterpret_cast<uintptr_t>(memory), bytes)) {
      found = memory;
      break;
    }
    aside[tries++] = memory;
    if (near != 0) near += 2 * bytes;
  }
  while (tries > 0) os::unmap(aside[--tries], mapped);
  return found;
}

// --- there in part ---

void* HostPool::take_backed(uint64_t bytes, uint64_t backed) {
  const uint64_t pages = bytes / kPage;
  const LockGuard guard(mutex_);
  if (pages > UINT32_MAX || !have_records(2)) return nullptr;
  HostChunk* chunk = add_chunk(bytes, backed, kChunkAlignment, /*own=*/true);
  if (chunk == nullptr) return nullptr;
  if (!commit(chunk, backed / kPage)) {
    unmap(retire(chunk));
    return nullptr;
  }
  chunk->fresh = chunk->live = pages;
  handed_out_.fetch_add(1, std::memory_order_relaxed);
  sums_.live += bytes;
  return reinterpret_cast<void*>(chunk->address_of(0));
}

uint64_t HostPool::backed_from(const void* memory) const {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const HostChunk* chunk = chunk_of(address);
  if (chunk == nullptr) return UINT64_MAX;
  const uint64_t mapped = chunk->mapped.load(std::memory_order_relaxed);
  return mapped == chunk->bytes.load() ? UINT64_MAX : mapped - (address - chunk->address_of(0));
}

// --- moving ---

bool HostPool::move(void* from, void* to, uint64_t bytes) {
  const auto source = reinterpret_cast<uintptr_t>(from), target = reinterpret_cast<uintptr_t>(to);
  auto moved = pages::Moved::kNo;
  {
    const LockGuard guard(mutex_);
    HostChunk* old_chunk = chunk_of(source);
    HostChunk* new_chunk = chunk_of(target);
    const auto is_all = [](const HostChunk* chunk, uintptr_t address) {
      return chunk != nullptr && chunk->own && chunk->address_of(0) == address &&
             chunk->live == chunk->pages() && chunk->locked.load() == 0;
    };
    if (is_all(old_chunk, source) && is_all(new_chunk, target)) {
      const uint64_t from_bytes = old_chunk->mapped.load(), to_bytes = new_chunk->mapped.load();
      moved = pages::move(source, from_bytes, target, to_bytes);
      // The caller frees that block next; until then it must be whole.
      if (moved == pages::Moved::kYes && !pages::map_again(source, from_bytes)) {
        old_chunk->mapped.store(0);
      }
      if (moved == pages::Moved::kLost) new_chunk->mapped.store(0);
    }
  }
  if (moved == pages::Moved::kNo) pages::copy_and_discard(source, target, bytes);
  return moved != pages::Moved::kLost;
}

}  // namespace cistern::alloc::host
