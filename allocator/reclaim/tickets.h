// SPDX-License-Identifier: Apache-2.0
// The numbers by which the pools order what happens: frees by tickets, allocations by epochs, and
// idle time by ticks; and lists of freed items in the order of such numbers. The numbers are plain
// integers, so that records of blocks and chunks can carry them. Each type names the file that
// gives its numbers out. Any thread.
#pragma once

#include <cstdint>

#include "allocator/base/records.h"

namespace cistern::alloc {

// Numbers frees and synchronisations in the order they happened (reclaim/reclaim.h gives them out).
using Ticket = uint64_t;

// Numbers the moments at which executable graphs were made. A block carries the epoch in which it
// was handed out (reclaim/reclaim.h).
using Epoch = uint64_t;

// When a chunk was first seen idle (reclaim/idle_release.h): a tick of the clock, or the number of
// a look (ContextMemory). kNotSeen: not seen idle since it was last used.
using Tick = uint16_t;
inline constexpr Tick kNotSeen = 0;

// An age is the number of ticks from one moment to a later one. After kTicksInAll it starts at 0
// again. At worst that keeps a chunk for one more delay.
inline constexpr uint32_t kTicksInAll = 0xffff;
inline Tick next_tick(Tick tick) { return static_cast<Tick>(1 + tick % kTicksInAll); }
inline uint32_t age(Tick now, Tick since) {
  return (uint32_t{now} + kTicksInAll - since) % kTicksInAll;
}

// A list of freed items in the order of their stamps, oldest first. Items are appended at its end.
// Not thread-safe: the owner's lock protects it.
//
// Links: static T*& next(T*), uint64_t stamp(const T*), void set_stamp(T*, uint64_t).
template <typename T, typename Links>
class StampedList {
 public:
  T* oldest() const { return items_.first(); }
  T* newest() const { return newest_; }

  // `stamp` is not below the newest one's.
  void append(T* item, Ticket stamp) {
    Links::set_stamp(item, stamp);
    Links::next(item) = nullptr;
    append_linked(item, item);
  }

  // Takes the oldest item out; there must be one.
  T* pop() {
    T* item = items_.pop();
    if (items_.empty()) newest_ = nullptr;
    return item;
  }

  // Takes over all of `other`, each item at its place.
  void merge(StampedList& other) {
    StampedList merged;
    while (oldest() != nullptr && other.oldest() != nullptr) {
      if (Links::stamp(newest_) <= Links::stamp(other.oldest())) break;
      const bool mine = Links::stamp(oldest()) <= Links::stamp(other.oldest());
      T* item = mine ? pop() : other.pop();
      merged.append(item, Links::stamp(item));
    }
    merged.take_behind(*this);
    merged.take_behind(other);
    *this = merged;
  }

  // Appends all items of `other`, and empties it.
  void take_behind(StampedList& other) {
    if (other.oldest() != nullptr) append_linked(other.oldest(), other.newest_);
    other = {};
  }

  // Takes out every item for which `leaves(item)` says so.
  template <typename Leaves>
  void remove_if(Leaves leaves) {
    LinkedList<T, Links> all = items_;
    *this = {};
    while (T* item = all.pop()) {
      if (!leaves(item)) append(item, Links::stamp(item));
    }
  }

 private:
  void append_linked(T* first, T* last) {
    if (newest_ == nullptr) {
      items_ = LinkedList<T, Links>(first);
    } else {
      Links::next(newest_) = first;
    }
    newest_ = last;
  }

  LinkedList<T, Links> items_;
  T* newest_ = nullptr;
};

}  // namespace cistern::alloc
