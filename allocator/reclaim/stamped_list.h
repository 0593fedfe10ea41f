// SPDX-License-Identifier: Apache-2.0
// Freed things in the order of their stamps, oldest first. Intrusive: T names its links through
// Links. Not thread-safe: the owner's lock protects it.
#pragma once

#include "allocator/base/ticket.h"

namespace cistern::alloc {

// Links: static T*& next(T*), uint64_t stamp(const T*), void set_stamp(T*, uint64_t).
template <typename T, typename Links>
class StampedList {
 public:
  T* oldest() const { return oldest_; }
  T* newest() const { return newest_; }

  // `stamp` is not below the newest one's.
  void append(T* item, Ticket stamp) {
    Links::set_stamp(item, stamp);
    Links::next(item) = nullptr;
    (newest_ == nullptr ? oldest_ : Links::next(newest_)) = item;
    newest_ = item;
  }

  // Takes the oldest item out; there must be one.
  T* pop() {
    T* item = oldest_;
    oldest_ = Links::next(item);
    if (oldest_ == nullptr) newest_ = nullptr;
    return item;
  }

  // Takes over all of `other`, each item at its place.
  void merge(StampedList& other) {
    StampedList merged;
    while (oldest_ != nullptr && other.oldest_ != nullptr) {
      if (Links::stamp(newest_) <= Links::stamp(other.oldest_)) break;
      const bool mine = Links::stamp(oldest_) <= Links::stamp(other.oldest_);
      T* item = mine ? pop() : other.pop();
      merged.append(item, Links::stamp(item));
    }
    merged.take_behind(*this);
    merged.take_behind(other);
    *this = merged;
  }

  // Takes out every item for which `leaves(item)` says so.
  template <typename Leaves>
  void remove_if(Leaves leaves) {
    T* item = oldest_;
    oldest_ = newest_ = nullptr;
    while (item != nullptr) {
      T* next = Links::next(item);
      if (!leaves(item)) append(item, Links::stamp(item));
      item = next;
    }
  }

 private:
  // What is in `other` comes behind what is here.
  void take_behind(StampedList& other) {
    if (other.oldest_ == nullptr) return;
    (newest_ == nullptr ? oldest_ : Links::next(newest_)) = other.oldest_;
    newest_ = other.newest_;
    other = {};
  }

  T* oldest_ = nullptr;
  T* newest_ = nullptr;
};

}  // namespace cistern::alloc
