// SPDX-License-Identifier: Apache-2.0
// Call stacks by number. A stack that was seen before is found by its hash, without a lock. A new
// stack is kept with its frames. Stacks with equal frames have the same number, so unloading and
// loading a library again brings no new numbers. Any thread. Memory comes from the operating system
// and is bounded: add() returns 0 beyond kMostSites sites or kMostFramesKept frames.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/base/mutex.h"
#include "allocator/record/event.h"

namespace cistern::alloc {

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
