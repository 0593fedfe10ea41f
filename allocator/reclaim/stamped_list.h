// SPDX-License-Identifier: Apache-2.0
// A list of freed items in the order of their stamps, oldest first. Items are appended at its end.
// Not thread-safe: the owner's lock protects it.
#pragma once

#include "allocator/base/records.h"
#include "allocator/base/ticket.h"

namespace cistern::alloc {

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
