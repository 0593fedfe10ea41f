// SPDX-License-Identifier: Apache-2.0
// Fills new blocks with one byte, which reveals programs that read memory they never wrote
// (FLAGS_init_allocated_mem; when: CISTERN_ATOMIC_CLEAN_POLICY). Any thread; the caller holds no
// lock, since the source waits until the bytes are there. If a fill fails, the block is handed out
// unfilled, and counted.
#pragma once

#include "allocator/base/ledger.h"
#include "allocator/base/source.h"
#include "allocator/chunk/chunk.h"
#include "allocator/reclaim/reclaim.h"
#include "config/policy.h"

namespace cistern::alloc {

enum class FillMode : uint8_t {
  off,
  separate,  // each block by itself when it is handed out
  gathered,  // if blocks are cut from chunks: each chunk as a whole, then freed blocks together
};

// The mode that the settings ask for.
FillMode fill_mode(const config::Policy& policy);

class Filler {
 public:
  void init(MemorySource* source, Ledger* ledger, FillMode mode) {
    source_ = source;
    ledger_ = ledger;
    mode_ = mode;
  }

  bool on() const { return mode_ != FillMode::off; }
  bool gathers() const { return mode_ == FillMode::gathered; }

  // Fills a block that is about to be handed out. If that fails, only counts it.
  void fill(uint64_t address, uint64_t bytes);

  // Call it before blocks are cut from a chunk: with gathered fills it fills the chunk. False if
  // that fails.
  bool prepare(uint64_t address, uint64_t bytes) {
    const FillRange all{address, bytes};
    return !gathers() || fill_ahead(&all, 1);
  }

  // Fills memory that may be handed out later, with one wait for all the ranges. False: they may
  // hold anything.
  bool fill_ahead(const FillRange* ranges, int count);

 private:
  int fill_ranges(const FillRange* ranges, int count);

  MemorySource* source_;
  Ledger* ledger_;
  FillMode mode_;
};

// Gathered fills (FillMode::gathered) of a pool that cuts blocks from chunks. Clean memory in such
// a pool is already filled: a chunk is filled as a whole when it comes in. A freed block stays in
// the queue, even when no work can touch it any more, until a request finds no filled memory. Then
// all freed blocks are filled together, neighbours in one fill, with one wait.
//
// If a fill fails, the pool no longer counts any memory as filled. From then on each block is
// filled by itself when it is handed out.

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
