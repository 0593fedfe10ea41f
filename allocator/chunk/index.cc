// SPDX-License-Identifier: Apache-2.0
#include "allocator/chunk/index.h"

namespace cistern::alloc {

Chunk* Index::find_locked(uint64_t address) {
  LockGuard guard(mutex_);
  return walk(address);
}

bool Index::ensure_leaves(uint64_t first, uint64_t last) {
  constexpr int kShift = kPageBits + kLeafBits;
  for (uint64_t root = first >> kShift; root <= last >> kShift; ++root) {
    if (root >= (1u << kRootBits)) return false;
    if (roots_[root].load(std::memory_order_relaxed) != nullptr) continue;
    auto* leaf = static_cast<Leaf*>(os::map(sizeof(Leaf)));
    if (leaf == nullptr) return false;
    roots_[root].store(leaf, std::memory_order_release);
  }
  return true;
}

bool Index::insert(Chunk* chunk) {
  const uint64_t first = chunk->base();
  const uint64_t last = first + chunk->size() - 1;
  LockGuard guard(mutex_);
  if (!ensure_leaves(first, last)) return false;
  Page* head = page(first);
  chunk->next_start.store(head->starts.load(std::memory_order_relaxed), std::memory_order_relaxed);
  head->starts.store(chunk, std::memory_order_release);
  for (uint64_t p = (first | (kPageBytes - 1)) + 1; p <= last; p += kPageBytes) {
    page(p)->cover.store(chunk, std::memory_order_release);
  }
  return true;
}

void Index::remove(Chunk* chunk) {
  const uint64_t first = chunk->base();
  const uint64_t last = first + chunk->size() - 1;
  LockGuard guard(mutex_);
  std::atomic<Chunk*>* link = &page(first)->starts;
  while (link->load(std::memory_order_relaxed) != chunk) {
    link = &link->load(std::memory_order_relaxed)->next_start;
  }
  link->store(chunk->next_start.load(std::memory_order_relaxed), std::memory_order_release);
  for (uint64_t p = (first | (kPageBytes - 1)) + 1; p <= last; p += kPageBytes) {
    std::atomic<Chunk*>& cover = page(p)->cover;
    if (cover.load(std::memory_order_relaxed) == chunk) {
      cover.store(nullptr, std::memory_order_release);
    }
  }
}

Chunk* Index::remove_all_of(uint32_t owner) {
  LockGuard guard(mutex_);
  Chunk* removed = nullptr;
  auto owned = [owner](const Chunk* c) { return c->at().owner() == owner; };
  for (std::atomic<Leaf*>& root : roots_) {
    Leaf* leaf = root.load(std::memory_order_relaxed);
    if (leaf == nullptr) continue;
    for (Page& p : leaf->pages) {
      Chunk* cover = p.cover.load(std::memory_order_relaxed);
      if (cover != nullptr && owned(cover)) p.cover.store(nullptr, std::memory_order_release);
      std::atomic<Chunk*>* link = &p.starts;
      while (Chunk* chunk = link->load(std::memory_order_relaxed)) {
        if (!owned(chunk)) {
          link = &chunk->next_start;
          continue;
        }
        link->store(chunk->next_start.load(std::memory_order_relaxed), std::memory_order_release);
        chunk->next = removed;
        removed = chunk;
      }
    }
  }
  return removed;
}

}  // namespace cistern::alloc
