// SPDX-License-Identifier: Apache-2.0
// The records of the pools' own bookkeeping: memory for them, and lists and tables of them.
// Intrusive: a record holds its own links, so a list or table needs no memory and cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"

namespace cistern::alloc {

// Records of one type, cut from mapped segments. Records are recycled, but segments are never
// unmapped, so a stale pointer to a record always points to some record of that type. The ownership
// index is read without a lock and relies on this. take() gives nullptr when the system has no
// memory left. Not thread-safe: the caller holds a lock.
//
// T is trivially constructible from zeroed memory. A recycled record keeps its old contents apart
// from the first word, which links it while it is free.
template <typename T, size_t kSegmentBytes = size_t{1} << 20, size_t kAlignment = 4096>
class Records {
  static_assert(sizeof(T) >= sizeof(void*) && sizeof(T) <= kSegmentBytes);

 public:
  T* take() {
    if (free_ != nullptr) {
      Link* link = free_;
      free_ = link->next;
      return reinterpret_cast<T*>(link);
    }
    if (left_ == 0) {
      next_ = static_cast<T*>(kAlignment == os::kHugePage ? os::map_huge(kSegmentBytes)
                                                          : os::map(kSegmentBytes, kAlignment));
      if (next_ == nullptr) return nullptr;
      left_ = kSegmentBytes / sizeof(T);
    }
    --left_;
    return next_++;
  }

  void give_back(T* record) {
    auto* link = reinterpret_cast<Link*>(record);
    link->next = free_;
    free_ = link;
  }

 private:
  struct Link {
    Link* next;
  };

  Link* free_ = nullptr;
  T* next_ = nullptr;
  size_t left_ = 0;
};

// Records for any thread, with one lock.
template <typename T, size_t kSegmentBytes = size_t{1} << 20, size_t kAlignment = 4096>
class Arena {
 public:
  T* take() {
    LockGuard guard(mutex_);
    return records_.take();
  }

  void give_back(T* record) {
    LockGuard guard(mutex_);
    records_.give_back(record);
  }

  void reset_after_fork() { mutex_.reset(); }

 private:
  Mutex mutex_;
  Records<T, kSegmentBytes, kAlignment> records_;
};

template <typename T>
struct NextLink {
  static T*& next(T* item) { return item->next; }
};

// A list. The last item pushed comes first. An item is in one list at a time. Not thread-safe: the
// owner of the list protects it.
//
// Links: static T*& next(T*).
template <typename T, typename Links = NextLink<T>>
class LinkedList {
 public:
  constexpr LinkedList() = default;
  // Takes over items that are already linked.
  explicit LinkedList(T* first) : first_(first) {}

  bool empty() const { return first_ == nullptr; }
  T* first() const { return first_; }

  void push(T* item) {
    Links::next(item) = first_;
    first_ = item;
  }

  // Takes the first item out; nullptr if there is none.
  T* pop() {
    T* item = first_;
    if (item != nullptr) first_ = Links::next(item);
    return item;
  }

  // `item` is in the list.
  void remove(T* item) {
    T** link = &first_;
    while (*link != item) link = &Links::next(*link);
    *link = Links::next(item);
  }

  // `visit` must not change the list.
  template <typename Visitor>
  void for_each(Visitor visit) const {
    for (T* item = first_; item != nullptr; item = Links::next(item)) visit(item);
  }

 private:
  T* first_ = nullptr;
};

// Records found by a 64-bit key (an address or a handle): chains in a fixed number of buckets, so
// nothing is ever moved or allocated. Zeroed memory is an empty table. Not thread-safe.
//
// T has the members `T* next` and `uint64_t key`; 2^kBits buckets. If several records have the same
// key, find() returns the last one inserted.
template <typename T, int kBits>
class KeyedTable {
 public:
  void insert(T* record) {
    T*& head = heads_[bucket(record->key)];
    record->next = head;
    head = record;
  }

  // The first record with this key for which `wanted` holds, or nullptr.
  template <typename Wanted>
  T* find(uint64_t key, Wanted wanted) const {
    T* record = heads_[bucket(key)];
    while (record != nullptr && !(record->key == key && wanted(*record))) record = record->next;
    return record;
  }
  T* find(uint64_t key) const {
    return find(key, [](const T&) { return true; });
  }

  void remove(T* record) {
    T** link = &heads_[bucket(record->key)];
    while (*link != record) link = &(*link)->next;
    *link = record->next;
  }

  // The visitor may remove the record it is given, and no other.
  template <typename Visitor>
  void for_each(Visitor visit) {
    for (T* record : heads_) {
      while (record != nullptr) {
        T* next = record->next;
        visit(record);
        record = next;
      }
    }
  }

  // Removes every record for which `wanted` holds. Returns them as a list linked by `next`.
  template <typename Wanted>
  T* remove_all(Wanted wanted) {
    T* removed = nullptr;
    for (T*& head : heads_) {
      for (T** link = &head; *link != nullptr;) {
        T* record = *link;
        if (!wanted(*record)) {
          link = &record->next;
          continue;
        }
        *link = record->next;
        record->next = removed;
        removed = record;
      }
    }
    return removed;
  }

  // The first record found, in no particular order, for which `wanted` holds, or nullptr.
  template <typename Wanted>
  T* search(Wanted wanted) const {
    for (T* record : heads_) {
      for (; record != nullptr; record = record->next) {
        if (wanted(*record)) return record;
      }
    }
    return nullptr;
  }

 private:
  // Keys differ in their middle bits; the multiplication brings those to the top.
  static size_t bucket(uint64_t key) { return (key * 0x9E3779B97F4A7C15u) >> (64 - kBits); }

  T* heads_[size_t{1} << kBits] = {};
};

}  // namespace cistern::alloc
