// SPDX-License-Identifier: Apache-2.0
// The chunk layer of one context, under every strategy, and the requests that reach it. It obtains
// chunks from the source and releases them. It charges them to the cap, enters them into the index
// and counts them in the ledger. Its cache holds the chunks that are freed or idle as a whole.
//
// Any thread. No lock is held while the source is called. A chunk that goes back stays in the index
// as Role::released until the driver has taken it: otherwise a second free of its address could
// reach the driver first. A thread that finds such a chunk looks it up again, because the driver
// may hand the address out anew.
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

namespace cistern::alloc {

// Which arena serves a request of a graph (graph_arena/graph_runs.h).
struct ArenaPart {
  uint8_t pool = 0;                           // 0: none
  uint64_t first_chunk = 0, later_chunk = 0;  // least bytes of its first and of each later chunk
  uint32_t noted = 0;                         // the request's place in Running::noted
  bool grew = false;                          // for this request, but not to its known size
};

// One request on its way through ContextPool, a strategy and, if memory is short, Shortage. It
// belongs to the calling thread.
struct Request {
  uint64_t bytes;              // requested by the program, > 0
  unsigned shard;              // the caller's thread
  bool pooled = true;          // false: a driver allocation of its own, if the driver has memory
  uint64_t address = 0;        // the answer
  bool whole = false;          // the answer is a whole chunk
  bool ask_first = false;      // much was freed lately: first ask what has become clean
  uint64_t room = 0;           // bytes to reserve behind it, for other members of its group
  ArenaPart* arena = nullptr;  // for a request of a graph

  bool in_arena() const { return arena != nullptr && arena->pool != 0; }
};

// The least time among the last 32 to 64 calls of a function, i.e. its time when nothing delays it.
// Any thread, no lock; of two measurements noted at the same time one may be lost.
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

  // In nanoseconds; 0 before the first call.
  uint64_t ns() const { return std::min(before_.get(), now_.get()); }

  void reset() {
    for (Counter* counter : {&now_, &before_, &noted_}) counter->set(0);
  }

 private:
  static constexpr uint64_t kSpan = 32;

  Counter now_, before_, noted_;  // least of this span of calls, of the one before; calls
};

namespace plan {
class Plan;
}

// What all pools of one device share, whatever their context.
struct DeviceParts {
  Ledger* ledger;
  Cap* cap;
  Garbage* garbage = nullptr;     // nullptr: no setting keeps garbage
  FillMode fill = FillMode::off;  // how new blocks are filled
  Index* index = nullptr;         // finds the chunks by address; nullptr: the shared index
  int shared_party = -1;          // a number in Reclaim that pools share; -1: use the owner's
  ReuseRule reuse = ReuseRule::about;
  std::span<const plan::Plan> plan = {};  // one for the context, or one for each of its threads
  bool plans = false;                     // make plans while the program runs

  uint32_t party(uint32_t owner) const {
    return shared_party < 0 ? owner : static_cast<uint32_t>(shared_party);
  }
};

class ChunkSupply {
 public:
  // `owner`: the context's number, in Place::owner() of its chunks.
  void init(SharedChunks* shared, MemorySource* source, const DeviceParts& device, uint32_t owner);

  // Obtains a chunk of `bytes`. With Role::whole or Role::direct it is live at once. With
  // Role::released it belongs to no pool until a strategy gives it a role. On failure nullptr, with
  // the reason in `code`: the source's result, kOutOfMemory at the cap, or kContextGone.
  Chunk* obtain(uint64_t bytes, Role role, int* code);

  // Serves the request with a driver allocation of its own (Role::direct). Returns the code.
  int obtain_direct(Request& request);

  // The program frees a chunk that must not be reused (ChunkCache::Freed::give_up). Returns the
  // driver's code. If the driver refuses, for example inside a capture, the program still holds the
  // memory. Puts the chunk down. `ordered`: see MemorySource::release_for_program().
  int release_for_program(Chunk* chunk, uint64_t requested, const OrderedFree* ordered);

  // Releases the chunks. Those that the source refuses now wait in the cache as if they had just
  // been freed. False if none went.
  bool release(ChunkList* chunks);

  // Releases clean chunks without a wait for the device, if the source can do that. Those that do
  // not go are idle again. True if any went. `order`: none_owed if the source owes no order for
  // them (MemorySource::pays_what_it_owes()); otherwise whether to wait until it owes none.
  enum class Order : uint8_t { waits, waits_not, none_owed };
  bool release_clean(ChunkList* chunks, Order order = Order::waits);

  // While it lives, this thread may have chunks in hand. The end of the context waits for it.
  class InHand {
   public:
    explicit InHand(ChunkSupply& supply) : cache_(supply.cache) { cache_.pick_up(); }
    ~InHand() { cache_.put_down(); }
    InHand(const InHand&) = delete;
    InHand& operator=(const InHand&) = delete;

   private:
    ChunkCache& cache_;
  };

  // While it lives, a chunk may be on its way into a pool: other threads that find no memory try
  // again.
  class Growing {
   public:
    explicit Growing(ChunkSupply& supply)
        : in_hand_(supply), obtaining_(supply.shared_->threads_obtaining) {}

   private:
    const InHand in_hand_;
    const CountedIn obtaining_;
  };

  // While it lives, free memory may be out of the pools, to be released, filled or moved. Other
  // threads that find no memory, or count the free memory, wait for it.
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

  // After close(), once nothing is in hand: calls each(chunk) for every chunk, then forgets it.
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

  // An obtain call of the source took `ns`.
  void note_obtain(uint64_t ns) { obtained_in_.note(ns); }

  // The least time that a driver allocation took lately, in ns. A longer call was delayed, for
  // example by other threads. A wait that was as long would delay other threads in turn.
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
