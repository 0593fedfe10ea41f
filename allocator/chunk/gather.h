// SPDX-License-Identifier: Apache-2.0
// Gathered fills (FillMode::gathered) of a pool that cuts blocks from chunks. Clean memory in such
// a pool is already filled: a chunk is filled as a whole when it comes in. A freed block stays in
// the queue, even when no work can touch it any more, until a request finds no filled memory. Then
// all freed blocks are filled together, neighbours in one fill, with one wait.
//
// If a fill fails, the pool no longer counts any memory as filled. From then on each block is
// filled by itself when it is handed out. Any thread; the caller holds no lock.
#pragma once

#include "allocator/chunk/chunk.h"
#include "allocator/chunk/fill.h"
#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {

template <typename T>
T* merge_by_address(T* first, T* second) {
  T* merged = nullptr;
  T** end = &merged;
  while (first != nullptr && second != nullptr) {
    T*& lower = address_of(first) < address_of(second) ? first : second;
    *end = lower;
    end = &lower->next;
    lower = lower->next;
  }
  *end = first != nullptr ? first : second;
  return merged;
}

// Sorts a list in place, in n log n steps.
template <typename T>
T* sorted_by_address(T* list) {
  T* sorted[48] = {};  // sorted[i]: nothing, or 2^i items
  while (list != nullptr) {
    T* some = list;
    list = list->next;
    some->next = nullptr;
    int i = 0;
    for (; sorted[i] != nullptr; ++i) {
      some = merge_by_address(sorted[i], some);
      sorted[i] = nullptr;
    }
    sorted[i] = some;
  }
  T* all = nullptr;
  for (T* some : sorted) all = merge_by_address(some, all);
  return all;
}

// Fills the blocks of a sorted list, each run of neighbours in one chunk as one range.
template <typename T>
bool fill_runs(const T* list, Filler& filler) {
  constexpr int kAtOnce = 128;
  FillRange runs[kAtOnce];
  int count = 0;
  bool filled = true;
  const T* last = nullptr;
  for (const T* block = list; block != nullptr && filled; last = block, block = block->next) {
    const FillRange range{address_of(block), bytes_of(block)};
    const bool goes_on = last != nullptr && bookkeeping_of(last) == bookkeeping_of(block) &&
                         address_of(last) + bytes_of(last) == range.address;
    if (goes_on) {
      runs[count - 1].bytes += range.bytes;
      continue;
    }
    if (count == kAtOnce) {
      filled = filler.fill_ahead(runs, count);
      count = 0;
    }
    runs[count++] = range;
  }
  return filled && filler.fill_ahead(runs, count);
}

// Fills all freed blocks of the pool that no work can touch any more. False if there was nothing to
// fill. `emptied`, `ended`: see PoolBase::put_back().
template <typename Pool>
bool gather(Pool& pool, Reclaim& reclaim, Filler& filler, ChunkList* emptied, ChunkList* ended) {
  auto* blocks = pool.take_unfilled(reclaim);
  if (blocks == nullptr) return false;
  blocks = sorted_by_address(blocks);
  if (!fill_runs(blocks, filler)) pool.note_unfilled();
  pool.put_back(blocks, emptied, ended);
  return true;
}

}  // namespace cistern::alloc
