// SPDX-License-Identifier: Apache-2.0
// Which blocks a living graph may hold, and the freed blocks that are parked for it. A graph keeps
// the addresses that were put into it and uses them again at each launch. A correct program never
// launches a graph on memory that it freed. With the driver alone an incorrect one would touch only
// freed memory. With a pool it could touch another block, so a block that a live graph may hold is
// parked when it is freed.
//
// Time is counted in epochs. A graph begins with its capture or creation, and ends when it was last
// made (instantiated or updated). It may hold every block that was alive between these two epochs:
// born before the end, and not freed before the beginning. A block that was handed out after the
// newest end is never parked, so a free needs to know only that end. If a program captures each
// step anew and updates one executable graph with it, only the blocks of one step are held: earlier
// blocks were freed before the graph's beginning.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/ledger.h"
#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "allocator/reclaim/tickets.h"

namespace cistern::alloc {

// The epochs of one graph. It must not move while it is held. Zeroed memory holds nothing.
struct GraphLife {
  Epoch begin, end;
  GraphLife* older;  // the list is in the order of the ends
  GraphLife* newer;
  bool watched;  // a block stays parked because of this graph
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
  const Ledger* ledger_ = nullptr;  // has the live bytes
};

// All graphs of the process. Any thread. The lock is taken under those of pools, and no other is
// taken under it. Epochs fit into 32 bits. After 2^32 - 1 of them time stands still, and blocks
// handed out from then on are not parked.
class GraphLives {
 public:
  static constexpr int kContexts = 256;
  // Used as an epoch: later than every other one.
  static constexpr Epoch kEverything = ~Epoch{0};

  // The epoch of a block that is handed out or freed now.
  Epoch now() const { return now_.load(std::memory_order_relaxed); }
  // Whether a live graph may hold a block with this `born` that is freed now.
  bool parks(Epoch born) const { return born < newest_end_.load(std::memory_order_acquire); }
  // True if a block with this `born` that is freed now may not simply wait: it is parked, or
  // possibly garbage (garbage.h). One load tests both.
  bool diverts(Epoch born) const { return born < diverted_before_.load(std::memory_order_acquire); }
  // A setting may keep garbage: from now on diverts() is true for every block. Call it before the
  // first free.
  void divert_everything();

  // A graph is begun. Returns the epoch from which it may hold blocks.
  Epoch begin();
  // The graph is made now: until release() it holds the blocks that were alive since `begin`.
  // `now`: Reclaim::open(), read after the last launch of any graph.
  void hold(GraphLife* life, Epoch begin, Ticket now);
  void release(GraphLife* life, Ticket now);
  // Captures are in progress, the oldest since `begin`: blocks that are freed from then on are
  // parked. kEverything: no capture is in progress.
  void capturing(Epoch begin, Ticket now);

  // changes() grows when any parked block may have become free to leave. watched_changes() grows
  // only when one that a look found held may have.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  uint64_t watched_changes() const { return watched_changes_.load(std::memory_order_acquire); }
  // A ticket that covers the work of every graph up to the last change that may have freed a parked
  // block.
  Ticket covers_gone() const { return gone_.load(std::memory_order_relaxed); }
  // Whether no graph is held and no capture is in progress.
  bool none() const { return newest_end_.load(std::memory_order_acquire) == 0; }

  // Looks through parked blocks. Ask for the blocks in falling order of their frees: then all of it
  // takes one step for each block and each graph. It holds the lock, so no graph changes meanwhile.
  class Look {
   public:
    explicit Look(GraphLives& lives) : lives_(lives), guard_(lives.mutex_), life_(lives.newest_) {}
    // Whether a live graph may hold the block. If so, that graph is watched from now on.
    bool held(Epoch born, Epoch freed);

   private:
    GraphLives& lives_;
    LockGuard guard_;
    GraphLife* life_;  // the newest graph that was begun before the last block's free
  };

  // The parked bytes in the pools of this context.
  ParkedTotal& parked(uint32_t context) { return parked_[context]; }

  void reset_after_fork() { mutex_.reset(); }

 private:
  Epoch tick();
  void link(GraphLife* life);
  void unlink(GraphLife* life);
  void change(Ticket now, bool less, bool watched);

  // All zero bytes at the start, so its memory costs nothing until it is used. Every call reads the
  // following, so they are apart from the rest:
  alignas(128) std::atomic<Epoch> now_{0};
  std::atomic<Epoch> newest_end_{0};       // kEverything: a capture is in progress
  std::atomic<Epoch> diverted_before_{0};  // newest_end_, or kEverything
  std::atomic<bool> everything_diverted_{false};
  std::atomic<uint64_t> changes_{0};
  std::atomic<uint64_t> watched_changes_{0};

  alignas(128) Mutex mutex_;  // protects the list
  std::atomic<Ticket> gone_{0};
  GraphLife* newest_ = nullptr;
  bool capturing_ = false;
  bool capturing_watched_ = false;
  Epoch capturing_since_ = 0;

  ParkedTotal parked_[kContexts] = {};
};

// The stamp of a parked item: the epochs in which it was born and freed.
class ParkedSpan {
 public:
  static uint64_t stamp(Epoch born, Epoch freed) { return born << 32 | freed; }
  static Epoch born(uint64_t stamp) { return stamp >> 32; }
  static Epoch freed(uint64_t stamp) { return stamp & UINT32_MAX; }
};

// The parked blocks of one pool, in the order of the frees. The pool looks through them when graphs
// have changed. For each parked block and each request this takes constant time:
//
//   fresh    parked since the last look; looked at as soon as a graph has changed
//   settled  an earlier look found them held by a graph; looked at again only once such a graph has
//            changed, and after enough requests to pay for it
//
// If too many bytes are parked in the context, the oldest blocks of this pool leave. Not
// thread-safe: the lock of the pool protects it.
//
// Links: those of FreedQueue. leave(item) is called for each item that is no longer parked.
template <typename T, typename Links>
class Parked {
 public:
  // `item` was born in that epoch and is freed now, in this context.
  template <typename Leave>
  void park(T* item, Epoch born, GraphLives& lives, uint32_t context, Leave leave) {
    const uint64_t bytes = Links::bytes(item);
    fresh_.append(item, ParkedSpan::stamp(born, lives.now()));
    bytes_.own_add(bytes);
    total_ = &lives.parked(context);
    total_->add(bytes);
    leave_while([this] { return total_->too_much(); }, leave);
  }

  // Whether a block may be free to leave, so that look() is worth a call.
  bool may_leave(const GraphLives& lives) const {
    return !empty() && changes_seen_ != lives.changes();
  }

  template <typename Leave>
  [[gnu::noinline]] void look(GraphLives& lives, Leave leave) {
    // Read first: the next look sees what changes meanwhile.
    const uint64_t changes = lives.changes(), watched = lives.watched_changes();
    paid_looks_ += kLooksPerCall;
    const bool settled_due = settled_.oldest() != nullptr && watched_seen_ != watched;
    const bool settled_too = settled_due && (lives.none() || settled_count_ <= paid_looks_);
    if (fresh_.oldest() != nullptr || settled_too) {
      GraphLives::Look look(lives);
      if (settled_too) settled_count_ = 0;
      StampedList<T, Links> fresh = look_through(look, fresh_, leave);
      if (settled_too) settled_ = look_through(look, settled_, leave);
      settled_.take_behind(fresh);
    }
    if (settled_due && !settled_too) return;  // the next call pays more of it
    changes_seen_ = changes;
    watched_seen_ = watched;
    paid_looks_ = 0;
  }

  // The oldest leaves while `too_much()`.
  template <typename TooMuch, typename Leave>
  void leave_while(TooMuch too_much, Leave leave) {
    while (!empty() && too_much()) leave(take_oldest());
  }

  // Takes out every item for which `leaves(item)` says so.
  template <typename Leaves>
  void remove_if(Leaves leaves) {
    const auto remove = [&](T* item) {
      const uint64_t bytes = Links::bytes(item);
      const bool goes = leaves(item);
      if (goes) count_out(bytes);
      return goes;
    };
    fresh_.remove_if(remove);
    settled_.remove_if(remove);
  }

  void clear() {
    fresh_ = settled_ = {};
    if (!empty()) count_out(bytes_.get());
    settled_count_ = 0;
  }

  bool empty() const { return bytes_.get() == 0; }
  // May be read without the pool's lock.
  uint64_t bytes() const { return bytes_.get(); }

 private:
  static constexpr uint64_t kLooksPerCall = 8;

  void count_out(uint64_t bytes) {
    bytes_.own_sub(bytes);
    total_->sub(bytes);
  }

  T* take_oldest() {
    const bool settled = settled_.oldest() != nullptr;
    T* item = settled ? settled_.pop() : fresh_.pop();
    if (settled) --settled_count_;
    count_out(Links::bytes(item));
    return item;
  }

  // Returns those of `items` that stay parked. All of them are settled.
  template <typename Leave>
  StampedList<T, Links> look_through(GraphLives::Look& look, StampedList<T, Links>& items,
                                     Leave leave) {
    LinkedList<T, Links> newest_first, stay;
    while (items.oldest() != nullptr) newest_first.push(items.pop());
    while (T* item = newest_first.pop()) {
      const uint64_t span = Links::stamp(item);
      if (look.held(ParkedSpan::born(span), ParkedSpan::freed(span))) {
        stay.push(item);
        ++settled_count_;
      } else {
        count_out(Links::bytes(item));
        leave(item);
      }
    }
    StampedList<T, Links> all;
    while (T* item = stay.pop()) all.append(item, Links::stamp(item));
    return all;
  }

  StampedList<T, Links> fresh_, settled_;
  uint64_t settled_count_ = 0;  // at least as many as there are
  uint64_t paid_looks_ = 0;     // looks at settled items that calls of look() have paid for
  uint64_t changes_seen_ = 0;   // GraphLives::changes() when all was looked at
  uint64_t watched_seen_ = 0;
  Counter bytes_;
  ParkedTotal* total_ = nullptr;
};

}  // namespace cistern::alloc
