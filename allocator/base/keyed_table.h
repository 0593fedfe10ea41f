// SPDX-License-Identifier: Apache-2.0
// Records found by a 64-bit key (an address or a handle): chains in a fixed number of buckets, so
// nothing is ever moved or allocated. Zeroed memory is an empty table. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::alloc {

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
