// SPDX-License-Identifier: Apache-2.0
// What the program freed and nobody may use yet, in the order of the frees: waiting for earlier
// work (reclaim.h), or parked, because an executable graph that still lives may hold its address.
// Intrusive: T names its links through Links. Not thread-safe: the owner's lock protects it.
#pragma once

#include <algorithm>

#include "allocator/chunk.h"
#include "allocator/reclaim.h"

namespace cistern::alloc {

// Links: static T*& next(T*), uint64_t stamp(const T*), void set_stamp(T*, uint64_t).
template <typename T, typename Links>
class FreedQueue {
 public:
  // `born`: Reclaim::epoch() when the item was handed out. `latest`: the ticket that covers all
  // work that may touch it, where the caller knows one (Reclaim::kNow: none). True when it is
  // parked.
  bool push(T* item, Epoch born, const Reclaim& reclaim, Ticket latest = Reclaim::kNow) {
    const bool parks = reclaim.parks(born);
    if (parks) [[unlikely]] {
      Links::set_stamp(item, born);
      Links::next(item) = parked_;
      parked_ = item;
    } else {
      Ticket stamp = reclaim.stamp();
      if (latest < stamp) [[unlikely]]
        stamp = in_order(latest);
      append(item, stamp);
    }
    return parks;
  }

  bool has_clean(Ticket clean) const {
    return oldest_ != nullptr && Links::stamp(oldest_) <= clean;
  }

  // Takes the oldest item out; there must be one (has_clean()).
  T* pop() {
    T* item = oldest_;
    oldest_ = Links::next(item);
    if (oldest_ == nullptr) newest_ = nullptr;
    return item;
  }

  // Whether what is parked should be looked at again: a graph has gone since.
  bool parked_may_leave(const Reclaim& reclaim) const {
    return parked_ != nullptr && seen_ != reclaim.releases();
  }

  // What nothing holds any more waits for the work of the last graph that went; `each` is told of
  // every such item. With `all`: everything, held or not, waits for all work.
  template <typename Each>
  void unpark(const Reclaim& reclaim, bool all, Each each) {
    seen_ = reclaim.releases();
    const Epoch held = all ? 0 : reclaim.held();
    Ticket stamp = all ? reclaim.stamp() : reclaim.released();
    stamp = in_order(stamp);
    T* item = parked_;
    parked_ = nullptr;
    while (item != nullptr) {
      T* next = Links::next(item);
      if (Links::stamp(item) >= held) {
        append(item, stamp);
        each(item);
      } else {
        Links::next(item) = parked_;
        parked_ = item;
      }
      item = next;
    }
  }

  // Takes out every item, waiting or parked, for which `leaves(item, parked)` says so.
  template <typename Leaves>
  void remove_if(Leaves leaves) {
    T* item = oldest_;
    oldest_ = newest_ = nullptr;
    while (item != nullptr) {
      T* next = Links::next(item);
      if (!leaves(item, false)) append(item, Links::stamp(item));
      item = next;
    }
    item = parked_;
    parked_ = nullptr;
    while (item != nullptr) {
      T* next = Links::next(item);
      if (!leaves(item, true)) {
        Links::next(item) = parked_;
        parked_ = item;
      }
      item = next;
    }
  }

  // The tickets of the oldest and the newest waiting free; false if none waits.
  bool range(Ticket* oldest, Ticket* newest) const {
    if (oldest_ == nullptr) return false;
    *oldest = Links::stamp(oldest_);
    *newest = Links::stamp(newest_);
    return true;
  }

  void clear() { oldest_ = newest_ = parked_ = nullptr; }

 private:
  // The queue is in the order of its stamps; a later one than needed is never wrong.
  Ticket in_order(Ticket stamp) const {
    return newest_ == nullptr ? stamp : std::max(stamp, Links::stamp(newest_));
  }

  void append(T* item, Ticket stamp) {
    Links::set_stamp(item, stamp);
    Links::next(item) = nullptr;
    (newest_ == nullptr ? oldest_ : Links::next(newest_)) = item;
    newest_ = item;
  }

  T* oldest_ = nullptr;
  T* newest_ = nullptr;
  T* parked_ = nullptr;
  uint64_t seen_ = 0;  // Reclaim::releases() when parked_ was last looked through
};

}  // namespace cistern::alloc
