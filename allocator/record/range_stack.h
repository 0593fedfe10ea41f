// SPDX-License-Identifier: Apache-2.0
// The open ranges of one thread, innermost last: those that were pushed and not popped, and those
// that were started and not ended. Pushed ranges nest separately in each domain. Started ranges end
// in any order. Pushed ranges for which there is no room are counted, so each pop still matches its
// push. Plain data, zeroed at first. The caller holds a lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "allocator/base/threads.h"

namespace cistern::alloc {

struct RangeStack {
  static constexpr unsigned kMostDeep = 256;
  static constexpr unsigned kMostDomains = 64;  // with pushed ranges
  // Results of push and pop, as in NVTX.
  static constexpr int kNothingPushed = -1, kNotTracked = -2;

  struct Entry {
    uint32_t range;
    uint32_t domain;
    uint64_t start;  // identifies a range that was started; 0: it was pushed
    uint64_t phase;  // for the caller
  };

  // The innermost range; 0: the thread is in none.
  uint32_t range() const { return depth == 0 ? 0 : entries[depth - 1].range; }

  // Whether there is room for the next range of `domain`. If not, push() ignores its entry.
  bool has_room(uint32_t domain) const;

  // Pushes a range. Returns its level in its domain, from 0 on, or kNotTracked.
  int push(const Entry& entry);
  struct Popped {
    int level;  // or kNothingPushed
    bool was_kept;
    Entry entry;
  };
  Popped pop(uint32_t domain);

  // Start and end a range. start() is false if there is no room, end() if there is no such range.
  bool start(const Entry& entry);
  bool end(uint64_t start, Entry* out);

  // Removes one range of a domain that was destroyed. False if none is left.
  bool end_of_domain(uint32_t domain, Entry* out);

  struct Domain {
    uint32_t name;
    uint32_t pushed;  // and not popped yet
    uint32_t beyond;  // the innermost of them, for which there was no room
  };

  // Public, so that the type needs no constructor.
  Entry entries[kMostDeep];
  unsigned depth;
  Domain domains[kMostDomains];
  unsigned domains_used;

 private:
  Domain* find(uint32_t domain);
  void take_out(unsigned index, Entry* out);
};

// Gives each path of nested ranges, from the outermost name to the innermost, a number. The same
// names in the same order have the same number for the life of the process. Looking up a known path
// takes no lock. Any thread; not to be called from a signal handler. Memory comes from the
// operating system and is bounded.
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
