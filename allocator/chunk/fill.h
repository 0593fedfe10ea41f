// SPDX-License-Identifier: Apache-2.0
// Fills new blocks with one byte, which reveals programs that read memory they never wrote
// (FLAGS_init_allocated_mem; when: CISTERN_ATOMIC_CLEAN_POLICY). Any thread; the caller holds no
// lock, since the source waits until the bytes are there. If a fill fails, the block is handed out
// unfilled, and counted.
#pragma once

#include "allocator/base/ledger.h"
#include "allocator/base/source.h"
#include "config/policy.h"

namespace cistern::alloc {

enum class FillMode : uint8_t {
  off,
  separate,  // each block by itself when it is handed out
  gathered,  // if blocks are cut from chunks: each chunk as a whole, then freed blocks together
             // (gather.h)
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

}  // namespace cistern::alloc
