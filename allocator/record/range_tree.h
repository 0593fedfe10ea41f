// SPDX-License-Identifier: Apache-2.0
// Ways through nested ranges, from the outermost name to the innermost, as one number each: the
// same names nested in the same order have the same number for the life of the process. Looking up
// one that is known takes no lock. Any thread; not to be called from a signal handler. Memory comes
// from the operating system and is bounded.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/mutex.h"

namespace cistern::alloc {

class RangeTree {
 public:
  static constexpr uint32_t kMostRanges = 1 << 16;

  struct Found {
    uint32_t range;  // from 1 on, in the order of their first use; 0: no room
    bool added;      // by this call
  };

  // The range `name` inside `parent`, which is 0 or a number handed out before.
  Found range(uint32_t parent, uint32_t name);

  // The ranges known so far are 1 to count(); each has a higher number than its parent.
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  uint32_t parent_of(uint32_t range) const { return node(range).parent; }
  uint32_t name_of(uint32_t range) const { return node(range).name; }

  void reset_after_fork() { mutex_.reset(); }

 private:
  struct Node {
    uint32_t parent, name;
    uint32_t next;  // in its bucket
  };
  static constexpr uint32_t kBuckets = 1 << 14;

  struct Tables {
    std::atomic<uint32_t> buckets[kBuckets];
    Node nodes[kMostRanges + 1];  // [0] is not used
  };

  static uint32_t bucket_of(uint32_t parent, uint32_t name) {
    return (parent * 0x9E3779B1u ^ name * 0x85EBCA77u) >> 18;
  }
  const Node& node(uint32_t range) const {
    return tables_.load(std::memory_order_acquire)->nodes[range];
  }
  uint32_t known(uint32_t parent, uint32_t name) const;

  Mutex mutex_;
  std::atomic<uint32_t> count_{0};
  std::atomic<Tables*> tables_{nullptr};
};

}  // namespace cistern::alloc
