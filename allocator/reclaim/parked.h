// SPDX-License-Identifier: Apache-2.0
// The parked blocks of one pool: freed, but a living graph may hold them (graph_lives.h). They are
// in the order of the frees. The pool looks through them when graphs have changed. For each parked
// block and each request this takes constant time:
//
//   fresh    parked since the last look; looked at as soon as a graph has changed
//   settled  an earlier look found them held by a graph; looked at again only once such a graph has
//            changed, and after enough requests to pay for it
//
// If too many bytes are parked in the context, the oldest blocks of this pool leave. Not
// thread-safe: the lock of the pool protects it.
#pragma once

#include "allocator/base/records.h"
#include "allocator/reclaim/graph_lives.h"
#include "allocator/reclaim/stamped_list.h"

namespace cistern::alloc {

// The stamp of a parked item: the epochs in which it was born and freed.
class ParkedSpan {
 public:
  static uint64_t stamp(Epoch born, Epoch freed) { return born << 32 | freed; }
  static Epoch born(uint64_t stamp) { return stamp >> 32; }
  static Epoch freed(uint64_t stamp) { return stamp & UINT32_MAX; }
};

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
