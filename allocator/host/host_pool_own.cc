// SPDX-License-Identifier: Apache-2.0
// Chunks of one extent: they are moved as a whole, and some are there only in part.
#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/host/host_pool.h"
#include "allocator/host/pages.h"

namespace cistern::alloc::host {

// --- addresses ---

bool HostPool::any_unit_named(uintptr_t base, uint64_t bytes) const {
  for (uint64_t unit = base >> kUnitBits; unit <= (base + bytes - 1) >> kUnitBits; ++unit) {
    const Leaf* leaf = roots_[unit >> kLeafBits].load(std::memory_order_relaxed);
    if (leaf == nullptr) continue;
    if ((*leaf)[unit % (1 << kLeafBits)].load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}

// With the lock. The table has addresses that are not the process's (HostChunk::mapped), which the
// system may offer again: malloc still knows them as of another block. What it offers of those is
// kept until there is something else.
void* HostPool::reserve_unnamed(uint64_t bytes, uint64_t mapped, uint64_t alignment) const {
  constexpr int kTries = 8;
  void* aside[kTries];
  int tries = 0;
  void* found = nullptr;
  // Far from where the system places what may lie anywhere, nothing comes behind it.
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
      // The block there is freed next, and has to be whole until then.
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
