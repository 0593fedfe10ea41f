// SPDX-License-Identifier: Apache-2.0
// The chunk layer of one context, under every strategy: obtains chunks from the source and releases
// them, within the cap, known to the index and counted in the ledger. Chunks that are live or idle
// as a whole are in its cache.
//
// Any thread. No lock is held while the source is called. A chunk that goes back stays in the
// index as Role::released until the driver has it: a second free of its address must not get there
// first. Whoever finds it looks again (the address may be handed out anew, to anyone).
#pragma once

#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "allocator/base/source.h"
#include "allocator/chunk/chunk_cache.h"
#include "allocator/chunk/fill.h"
#include "allocator/chunk/shared_chunks.h"

namespace cistern::alloc {

// What the pools of one device have in common, whatever contexts they belong to.
struct DeviceParts {
  Ledger* ledger;
  Cap* cap;
  Garbage* garbage = nullptr;     // nullptr: nothing is kept back
  FillMode fill = FillMode::off;  // whether and how what is handed out is filled
};

class ChunkSupply {
 public:
  // `owner` is what the chunks of this context say of themselves.
  void init(SharedChunks* shared, MemorySource* source, const DeviceParts& device, uint32_t owner);

  // A chunk of `bytes`: live (Role::whole, Role::direct), or nobody's until a strategy gives it a
  // role (Role::released). nullptr with the source's result in `code`.
  Chunk* obtain(uint64_t bytes, Role role, int* code);

  // The program frees a chunk that is not to be reused. It is told what the driver says, and where
  // the driver refuses (inside a capture, say) the memory is still the program's. For a chunk that
  // the cache gave up; it is put down here.
  int release_for_program(Chunk* chunk, uint64_t requested);

  // What the source does not take now waits in the cache as if freed just now. False when none
  // went.
  bool release(ChunkList* chunks);

  // The same of clean chunks, without a wait for the device, as far as the source can do that; the
  // rest is idle again. True if any went.
  bool release_clean(ChunkList* chunks);

  // For as long as it lives this thread may have chunks in hand: forget_all() waits for it.
  class InHand {
   public:
    explicit InHand(ChunkSupply& supply) : cache_(supply.cache) { cache_.pick_up(); }
    ~InHand() { cache_.put_down(); }
    InHand(const InHand&) = delete;
    InHand& operator=(const InHand&) = delete;

   private:
    ChunkCache& cache_;
  };

  // For as long as it lives free memory may be out of the pools, to be released, filled or moved:
  // others that run out, or ask what is free, wait for it.
  class Moving {
   public:
    explicit Moving(ChunkSupply& supply)
        : in_hand_(supply), counted_(supply.shared_->threads_moving) {
      supply.shared_->moves_begun.fetch_add(1);
    }

   private:
    const InHand in_hand_;
    const CountedIn counted_;
  };

  // The context is gone: nothing is handed out any more.
  void close() {
    closed_.store(true);
    cache.close();
  }
  bool in_hand() const { return cache.in_hand() != 0; }

  // After close(), with nothing in hand: forgets every chunk, after telling `each` of it.
  template <typename Visitor>
  void forget_all(Visitor each) {
    cache.forget_all();
    ChunkList chunks{shared_->index.remove_all_of(owner_)};
    while (Chunk* chunk = chunks.pop()) {
      each(chunk);
      chunk->become(Role::released);
      cap_->refund(chunk->size());
      shared_->chunks.give_back(chunk);
    }
    ledger_->chunks.sub(chunks_.get());
    chunks_.set(0);
    ledger_->reserved.sub(reserved_.get());
    reserved_.set(0);
  }

  // What a driver allocation takes lately.
  uint64_t obtain_ns() const { return obtain_ns_.get(); }

  ChunkCache cache;
  Filler filler;

 private:
  void forget(Chunk* chunk);

  SharedChunks* shared_;
  MemorySource* source_;
  Ledger* ledger_;
  Cap* cap_;
  uint32_t owner_;
  std::atomic<bool> closed_{false};
  Counter obtain_ns_, reserved_, chunks_;  // of this context
};

}  // namespace cistern::alloc
