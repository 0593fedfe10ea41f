// SPDX-License-Identifier: Apache-2.0
// Memory for the pools' own bookkeeping: records of one type, cut from mapped segments. Records are
// recycled, but segments are never unmapped, so a stale pointer to a record always points to some
// record of that type. The ownership index is read without a lock and relies on this. take() gives
// nullptr when the system has no memory left.
//
// Records: not thread-safe; the caller holds a lock. Arena: any thread; one lock.
#pragma once

#include <cstddef>

#include "allocator/base/mutex.h"
#include "allocator/base/os.h"

namespace cistern::alloc {

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

}  // namespace cistern::alloc
