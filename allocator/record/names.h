// SPDX-License-Identifier: Apache-2.0
// What events refer to by number: texts, call stacks and ranges; and which ranges a thread is in. A
// text, a stack or a range gets a number once and keeps it for the life of the process. So numbers,
// and what has one, are looked up without a lock. Memory comes from the operating system and is
// bounded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/base/threads.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

// Names of ranges, functions and files. Any thread; not to be called from a signal handler.
// number() returns 0 beyond kMostNames names or kMostBytes of text, or if the system has no memory.
class Names {
 public:
  static constexpr uint32_t kMostNames = 1 << 18;
  static constexpr size_t kMostBytes = size_t{32} << 20;
  static constexpr size_t kLongest = 4096;  // bytes; longer texts are cut off

  // The number of the text, from 1 on, in the order of first use. 0 if there is no room.
  uint32_t number(std::string_view text);

  // The text of a number that number() returned; "" for 0.
  const char* text(uint32_t name) const;

  // The numbers so far are 1 to count(), and all of them have their text.
  uint32_t count() const { return count_.load(std::memory_order_acquire); }

  void reset_after_fork() { mutex_.reset(); }

 private:
  struct Name {
    uint32_t hash;
    uint32_t next;  // in its bucket
    const char* text;
  };
  static constexpr uint32_t kBuckets = 1 << 16;

  uint32_t known(uint32_t hash, std::string_view text) const;
  bool make_room();
  const char* keep(std::string_view text);

  Mutex mutex_;
  std::atomic<uint32_t> count_{0};
  std::atomic<Name*> names_{nullptr};  // [0] is not used
  std::atomic<std::atomic<uint32_t>*> buckets_{nullptr};
  char* text_ = nullptr;  // the unused rest of the last mapping
  size_t left_ = 0;
  size_t mapped_ = 0;
};

// Names of objects whose handles come from elsewhere. Looking one up takes no lock. Any thread; not
// to be called from a signal handler. Bounded: if there is no room, an object has no name.
class HandleNames {
 public:
  static constexpr uint32_t kMostHandles = 1 << 14;

  // Gives the handle this name, in place of any earlier one.
  void set(const void* handle, uint32_t name);

  // The name of the handle; 0: it has none.
  uint32_t of(const void* handle) const;

  void reset_after_fork() { mutex_.reset(); }

 private:
  // A handle takes the first free place from its own one on, and never leaves it, because handles
  // are used again.
  struct Place {
    std::atomic<const void*> handle;
    std::atomic<uint32_t> name;
  };
  static constexpr uint32_t kPlaces = 2 * kMostHandles;

  static uint32_t first_place(const void* handle) {
    return static_cast<uint32_t>((reinterpret_cast<uintptr_t>(handle) * 0x9E3779B97F4A7C15u) >> 49);
  }

  Mutex mutex_;
  uint32_t taken_ = 0;
  std::atomic<Place*> places_{nullptr};
};

// Call stacks. A stack that was seen before is found by its hash. A new stack is kept with its
// frames. Stacks with equal frames have the same number, so unloading and loading a library again
// brings no new numbers. Any thread. add() returns 0 beyond kMostSites sites or kMostFramesKept
// frames.
class CallSites {
 public:
  static constexpr uint32_t kMostSites = 1 << 16;
  static constexpr uint32_t kMostFramesKept = 1 << 20;

  // The site of a stack whose hash was given to add(), or 0. The hash of a stack that was not seen
  // for long may be forgotten; add() then finds the site by its frames. `hash` is made of the
  // addresses and has 64 well-mixed bits: two stacks with the same hash count as one.
  uint32_t known(uint64_t hash) const;

  // The site with these frames, from 1 on; 0 if there is no room. known() finds `hash` from now on.
  uint32_t add(uint64_t hash, const Frame* frames, int count);

  // The sites so far are 1 to count(), and all of them have their frames.
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  // No more sites can be added.
  bool full() const { return count() == kMostSites; }

  // `site` is from 1 to count(); `out` has room for kMostFrames.
  int frames(uint32_t site, Frame* out) const;

  void reset_after_fork() { mutex_.reset(); }

 private:
  struct Site {
    uint32_t hash;
    uint32_t next;  // in its bucket
    uint32_t first_frame;
    uint32_t frames;
  };
  static constexpr uint32_t kBuckets = kMostSites;
  static constexpr int kSiteBits = 17;
  static constexpr int kSlotBits = 18;
  static constexpr size_t kSlots = size_t{1} << kSlotBits;
  static constexpr size_t kWays = 8;  // the slots in which a hash may be
  static_assert(kMostSites < 1u << kSiteBits);

  bool make_room();
  uint32_t site_with(const Frame* frames, int count);
  void remember(uint64_t hash, uint32_t site);

  Mutex mutex_;
  std::atomic<uint32_t> count_{0};
  // What a slot holds: the upper bits of a hash, and a site. The lower bits of the hash are the
  // slot's place, so nearly the whole hash is compared.
  std::atomic<std::atomic<uint64_t>*> slots_{nullptr};
  Site* sites_ = nullptr;  // [0] is not used; those up to count_ do not change
  Frame* frames_ = nullptr;
  uint32_t* buckets_ = nullptr;
  uint32_t frames_kept_ = 0;
};

// The open ranges of one thread, innermost last: those that were pushed and not popped, and those
// that were started and not ended. Pushed ranges nest separately in each domain. Started ranges end
// in any order. Pushed ranges for which there is no room are counted, so each pop still matches its
// push. Plain data, zeroed at first. The caller holds a lock.
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
