// SPDX-License-Identifier: Apache-2.0
// What events refer to by number: texts, and call stacks. A text or stack gets a number once and
// keeps it for the life of the process. So numbers, and what has one, are looked up without a lock.
// Memory comes from the operating system and is bounded.
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

}  // namespace cistern::alloc
