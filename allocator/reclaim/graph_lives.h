// SPDX-License-Identifier: Apache-2.0
// Which blocks a living graph may hold. A graph keeps the addresses that were put into it and uses
// them again at each launch. No correct program launches it on memory that it freed; with the
// driver alone an incorrect one would touch freed memory, and with a pool it must not touch
// somebody else's. So what a living graph may hold is parked at its free (parked.h).
//
// Time is counted in epochs. A graph was filled from the epoch in which its capture or creation
// began until the one in which it was last made (instantiated, or updated); it may hold every block
// that was alive at some moment between the two: born before the end, and not freed before the
// beginning. What was handed out after the end is never parked, so a free needs only to know the
// newest end. A program that captures each step anew and updates one executable graph with it holds
// the blocks of one step; the earlier ones were freed before its beginning.
//
// Any thread. The lock is taken under those of pools, and no other is taken under it. Epochs fit
// into 32 bits; after 2^32 - 1 of them time stands still, and what is handed out then is not
// parked.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/mutex.h"
#include "allocator/base/ticket.h"

namespace cistern::alloc {

// What one graph holds; its owner keeps it where it is while it holds anything. All zero bytes:
// nothing.
struct GraphLife {
  Epoch begin, end;
  GraphLife* older;  // in the order of their ends
  GraphLife* newer;
  bool watched;  // something stays parked because of it
};

// The parked bytes of one context's pools together.
class ParkedTotal {
 public:
  void init(const Ledger* ledger) { ledger_ = ledger; }

  void add(uint64_t bytes) { bytes_.add(bytes); }
  void sub(uint64_t bytes) { bytes_.sub(bytes); }
  bool any() const { return bytes_.get() != 0; }
  bool too_much() const;

 private:
  Counter bytes_;
  const Ledger* ledger_ = nullptr;  // of what is live
};

class GraphLives {
 public:
  static constexpr int kContexts = 256;
  // In place of an epoch: later than every one.
  static constexpr Epoch kEverything = ~Epoch{0};

  // For a block handed out or freed now.
  Epoch now() const { return now_.load(std::memory_order_relaxed); }
  // Whether a living graph may hold a block born then that is freed now.
  bool parks(Epoch born) const { return born < newest_end_.load(std::memory_order_acquire); }
  // True if a block born then, freed now, may not simply wait: it is parked, or possibly garbage
  // (garbage.h). One load tests both.
  bool diverts(Epoch born) const { return born < diverted_before_.load(std::memory_order_acquire); }
  // There may be garbage in this process: from now on diverts() is true of every block. Before the
  // first free.
  void divert_everything();

  // A graph is begun: the epoch from which it may hold blocks.
  Epoch begin();
  // The graph is made now: until release() it holds what was alive since `begin`, and nothing else.
  // `now`: Reclaim::open(), asked after the last launch of any graph.
  void hold(GraphLife* life, Epoch begin, Ticket now);
  void release(GraphLife* life, Ticket now);
  // Captures are in progress, the oldest since `begin`: what is freed from then on is parked.
  // kEverything: none is.
  void capturing(Epoch begin, Ticket now);

  // Grow when what is parked may have become free to leave: any of it; and what a look() found
  // held before.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  uint64_t watched_changes() const { return watched_changes_.load(std::memory_order_acquire); }
  // Covers the work of every graph up to the last change that may have let something go.
  Ticket covers_gone() const { return gone_.load(std::memory_order_relaxed); }
  // Nothing is held any more.
  bool none() const { return newest_end_.load(std::memory_order_acquire) == 0; }

  // Looks through parked blocks, those freed last first: the whole of it takes a step for each
  // block and each graph. No change is made meanwhile.
  class Look {
   public:
    explicit Look(GraphLives& lives) : lives_(lives), guard_(lives.mutex_), life_(lives.newest_) {}
    // Whether a living graph may hold the block. That graph is watched from now on.
    bool held(Epoch born, Epoch freed);

   private:
    GraphLives& lives_;
    LockGuard guard_;
    GraphLife* life_;  // of the graphs begun before the last block's free, the newest
  };

  // What is parked in the pools of this context.
  ParkedTotal& parked(uint32_t context) { return parked_[context]; }

  void reset_after_fork() { mutex_.reset(); }

 private:
  Epoch tick();
  void link(GraphLife* life);
  void unlink(GraphLife* life);
  void change(Ticket now, bool less, bool watched);

  // All zero bytes at the start, to lie in memory that costs nothing until it is used. Read by
  // every call, and so apart from the rest:
  alignas(128) std::atomic<Epoch> now_{0};
  std::atomic<Epoch> newest_end_{0};       // kEverything: a capture is in progress
  std::atomic<Epoch> diverted_before_{0};  // newest_end_, or kEverything
  std::atomic<bool> everything_diverted_{false};
  std::atomic<uint64_t> changes_{0};
  std::atomic<uint64_t> watched_changes_{0};

  alignas(128) Mutex mutex_;  // of all lives
  std::atomic<Ticket> gone_{0};
  GraphLife* newest_ = nullptr;
  bool capturing_ = false;
  bool capturing_watched_ = false;
  Epoch capturing_since_ = 0;

  ParkedTotal parked_[kContexts] = {};
};

}  // namespace cistern::alloc
