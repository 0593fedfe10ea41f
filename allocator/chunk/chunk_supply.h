// SPDX-License-Identifier: Apache-2.0
// The chunk layer of one context, under every strategy: obtains chunks from the source and releases
// them, within the cap, known to the index and counted in the ledger. Chunks that are live or idle
// as a whole are in its cache.
//
// Any thread. No lock is held while the source is called. A chunk that goes back stays in the
// index as Role::released until the driver has it: a second free of its address must not get there
// first. Whoever finds it looks again (the address may be handed out anew, to anyone).
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "allocator/base/cap.h"
#include "allocator/base/ledger.h"
#include "allocator/base/source.h"
#include "allocator/chunk/chunk_cache.h"
#include "allocator/chunk/fill.h"
#include "allocator/chunk/index.h"
#include "allocator/chunk/request.h"

namespace cistern::alloc {

// The least time of the last 32 to 64 calls of some function: its time when nothing delays it. Any
// thread; threads that record at the same time may lose a measurement. No locks, no errors.
class FastestOfLate {
 public:
  void note(uint64_t ns) {
    if (noted_.get() % kSpan == 0) {
      before_.set(noted_.get() == 0 ? ns : now_.get());
      now_.set(ns);
    }
    noted_.add();
    now_.set(std::min(now_.get(), ns));
  }

  // Nanoseconds; 0 before the first.
  uint64_t ns() const { return std::min(before_.get(), now_.get()); }

  void reset() {
    for (Counter* counter : {&now_, &before_, &noted_}) counter->set(0);
  }

 private:
  static constexpr uint64_t kSpan = 32;

  Counter now_, before_, noted_;  // in this span of calls, in the one before; how many
};

namespace plan {
class Plan;
}

// What the pools of one device have in common, whatever contexts they belong to.
struct DeviceParts {
  Ledger* ledger;
  Cap* cap;
  Garbage* garbage = nullptr;     // nullptr: nothing is kept back
  FillMode fill = FillMode::off;  // whether and how what is handed out is filled
  Index* index = nullptr;         // where the chunks are found by address; nullptr: the shared one
  int shared_party = -1;          // several pools' number in reclamation, begun; -1: the owner's
  ReuseRule reuse = ReuseRule::about;
  std::span<const plan::Plan> plan = {};  // of this context's requests, or of each of its threads
  bool plans = false;                     // makes plans of them by itself

  uint32_t party(uint32_t owner) const {
    return shared_party < 0 ? owner : static_cast<uint32_t>(shared_party);
  }
};

class ChunkSupply {
 public:
  // `owner` is what the chunks of this context say of themselves.
  void init(SharedChunks* shared, MemorySource* source, const DeviceParts& device, uint32_t owner);

  // A chunk of `bytes`: live (Role::whole, Role::direct), or nobody's until a strategy gives it a
  // role (Role::released). nullptr with the source's result in `code`.
  Chunk* obtain(uint64_t bytes, Role role, int* code);

  // The same for the program, as a driver allocation of its own.
  int obtain_direct(Request& request);

  // The program frees a chunk that is not to be reused. It is told what the driver says, and where
  // the driver refuses (inside a capture, say) the memory is still the program's. For a chunk that
  // the cache gave up; it is put down here. `ordered`: MemorySource::release_for_program().
  int release_for_program(Chunk* chunk, uint64_t requested, const OrderedFree* ordered);

  // What the source does not take now waits in the cache as if freed just now. False when none
  // went.
  bool release(ChunkList* chunks);

  // The same of clean chunks, without a wait for the device, as far as the source can do that; the
  // rest is idle again. True if any went. `order`: whether one may be owed for them
  // (MemorySource::pays_what_it_owes()), and may be waited for.
  enum class Order : uint8_t { waits, waits_not, none_owed };
  bool release_clean(ChunkList* chunks, Order order = Order::waits);

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

  // For as long as it lives a chunk may be on its way into a pool: others that run out look again.
  class Growing {
   public:
    explicit Growing(ChunkSupply& supply)
        : in_hand_(supply), obtaining_(supply.shared_->threads_obtaining) {}

   private:
    const InHand in_hand_;
    const CountedIn obtaining_;
  };

  // For as long as it lives free memory may be out of the pools, to be released, filled or moved:
  // others that run out, or ask what is free, wait for it.
  class Moving {
   public:
    explicit Moving(ChunkSupply& supply) : in_hand_(supply), moving_(supply.shared_->movers) {}

   private:
    const InHand in_hand_;
    const Movers::Moving moving_;
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
    ledger_->live.sub(cache.live());
    cache.forget_all();
    ChunkList chunks{index->remove_all_of(owner_)};
    while (Chunk* chunk = chunks.pop()) {
      const bool has_memory = chunk->is() != Role::range;  // or addresses alone
      each(chunk);
      chunk->become(Role::released);
      if (has_memory) {
        cap_->refund(chunk->size());
        ledger_->chunks.sub(1);
      }
      shared_->chunks.give_back(chunk);
    }
    ledger_->reserved.sub(cache.reserved.get());
    cache.reserved.set(0);
  }

  bool closed() const { return closed_.load(); }

  // A call of the source that gave memory took so long.
  void note_obtain(uint64_t ns) { obtained_in_.note(ns); }

  // What a driver allocation takes of late at the least: a longer one was held up, by other threads
  // for example, and what waits for as long as that would hold up others in turn.
  uint64_t obtain_ns() const { return obtained_in_.ns(); }

  ChunkCache cache;
  Filler filler;
  Index* index;

 private:
  void forget(Chunk* chunk);

  SharedChunks* shared_;
  MemorySource* source_;
  Ledger* ledger_;
  Cap* cap_;
  uint32_t owner_;
  std::atomic<bool> closed_{false};
  FastestOfLate obtained_in_;
};

}  // namespace cistern::alloc
