// SPDX-License-Identifier: Apache-2.0
// Both kinds come here by the linker's --wrap, from calls that jemalloc's parts make of each other:
// where one asks for the pages of a large block, and where one gives them back. The lock is a leaf:
// nothing is called with it held.
#include "shim/host/large_blocks.h"

#include <jemalloc/jemalloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "allocator/base/mutex.h"
#include "shim/host/host_memory.h"
#include "shim/host/jemalloc_inside.h"
#include "shim/process/settings.h"

extern "C" {

void* real_large_malloc(void* thread, void* arena, size_t bytes,
                        bool zero) asm("__real_je_large_malloc");
void* wrapped_large_malloc(void* thread, void* arena, size_t bytes,
                           bool zero) asm("__wrap_je_large_malloc");
void real_large_dalloc(void* thread, JemallocExtent* extent) asm("__real_je_large_dalloc");
void wrapped_large_dalloc(void* thread, JemallocExtent* extent) asm("__wrap_je_large_dalloc");
void* real_malloc_hard(void* thread, void* arena, size_t bytes, unsigned size_class,
                       bool zero) asm("__real_je_arena_malloc_hard");
void* wrapped_malloc_hard(void* thread, void* arena, size_t bytes, unsigned size_class,
                          bool zero) asm("__wrap_je_arena_malloc_hard");
void real_ecache_dalloc(void* thread, void* pages, void* hooks, void* cache,
                        JemallocExtent* extent) asm("__real_je_ecache_dalloc");
void wrapped_ecache_dalloc(void* thread, void* pages, void* hooks, void* cache,
                           JemallocExtent* extent) asm("__wrap_je_ecache_dalloc");
void* real_arena_init(void* thread, unsigned index,
                      const JemallocArenaConfig* config) asm("__real_je_arena_init");
void* wrapped_arena_init(void* thread, unsigned index,
                         const JemallocArenaConfig* config) asm("__wrap_je_arena_init");

}  // extern "C"

namespace cistern::shim {

constinit thread_local uintptr_t left_for_hook = 0;

namespace {

constexpr size_t kMostKept = size_t{32} << 20;   // bytes, with the excess of blocks in use
constexpr size_t kMostExcess = size_t{8} << 20;  // of those
constexpr size_t kLeastBytes = size_t{64} << 10;
constexpr int kPlaces = 256;
constexpr int kDoubling = 4;             // classes of each
constexpr int kClasses = kDoubling * 7;  // between these two
constexpr uint64_t kPageMask = alloc::host::kPage - 1;

constinit bool serves = false;

size_t bytes_of(const JemallocExtent* extent) { return extent->bytes_and_count & ~kPageMask; }

// jemalloc's size classes: 2^n, and three between it and the next.
int class_of(size_t bytes) {
  const int doubling = static_cast<int>(std::bit_width(bytes - 1)) - 1;
  constexpr int kFirst = static_cast<int>(std::bit_width(kLeastBytes)) - 1;
  return kDoubling * (doubling - kFirst) + static_cast<int>((bytes - 1) >> (doubling - 2) & 3);
}

bool may_be_kept(size_t bytes) { return bytes > kLeastBytes && bytes < kOwnMappingBytes; }

// Freed blocks: by class the last freed first, and all of them by age.
class Kept {
 public:
  // One of that class, else one of a larger class that is less than twice as large. What it has
  // beyond its request is noted with it: it stays with the program, and counts as kept.
  JemallocExtent* take(size_t bytes) {
    const alloc::LockGuard guard(mutex_);
    const int wanted = class_of(bytes), end = std::min(wanted + kDoubling, kClasses);
    int found = wanted;
    while (found < end && newest_of_[found] == 0) ++found;
    if (found == end) return nullptr;
    const uint16_t place = newest_of_[found];
    const size_t excess = found == wanted ? 0 : places_[place].bytes - bytes;
    if (excess_ + excess > kMostExcess) return nullptr;
    JemallocExtent* extent = remove(place);
    extent->excess = excess;
    excess_ += excess;
    was_used_ = true;
    say_held();
    return extent;
  }

  // Its block is free, or no longer a block from here.
  void forget_excess(JemallocExtent* extent) {
    const alloc::LockGuard guard(mutex_);
    excess_ -= std::exchange(extent->excess, 0);
    say_held();
  }

  // What has to go for it: the oldest where there is no place, itself where nothing is kept.
  JemallocExtent* put(JemallocExtent* extent) {
    const alloc::LockGuard guard(mutex_);
    excess_ -= std::exchange(extent->excess, 0);
    if (over_) {
      say_held();
      return extent;
    }
    JemallocExtent* out = first_free_ == 0 && used_ == kPlaces ? remove(oldest_) : nullptr;
    const uint16_t number = first_free_ != 0 ? first_free_ : static_cast<uint16_t>(++used_);
    Place& place = places_[number];
    if (number == first_free_) first_free_ = place.older;
    const size_t bytes = bytes_of(extent);
    uint16_t& newest_of_class = newest_of_[class_of(bytes)];
    place = {extent, bytes, newest_, 0, newest_of_class, 0};
    (newest_ != 0 ? places_[newest_].newer : oldest_) = number;
    newest_ = number;
    if (newest_of_class != 0) places_[newest_of_class].newer_of_class = number;
    newest_of_class = number;
    bytes_ += bytes;
    say_held();
    return out;
  }

  // The oldest of what is more than may be kept.
  JemallocExtent* take_beyond(size_t most) {
    const alloc::LockGuard guard(mutex_);
    if (bytes_ == 0 || bytes_ + excess_ <= most) return nullptr;
    JemallocExtent* out = remove(oldest_);
    say_held();
    return out;
  }

  // What is kept, and the excess of blocks in use.
  size_t held() const { return held_.load(std::memory_order_relaxed); }
  // Whether a request was served since the last call.
  bool was_used() {
    const alloc::LockGuard guard(mutex_);
    return std::exchange(was_used_, false);
  }
  void end() {
    const alloc::LockGuard guard(mutex_);
    over_ = true;
  }

  alloc::Mutex& mutex() { return mutex_; }

 private:
  struct Place {
    JemallocExtent* extent;
    size_t bytes;
    uint16_t older, newer;  // numbers of places; 0: none
    uint16_t older_of_class, newer_of_class;
  };

  // With the lock. The pool keeps as much less.
  void say_held() {
    held_.store(bytes_ + excess_, std::memory_order_relaxed);
    host_pool().count_as_idle(bytes_ + excess_);
  }

  JemallocExtent* remove(uint16_t number) {
    Place& place = places_[number];
    (place.older != 0 ? places_[place.older].newer : oldest_) = place.newer;
    (place.newer != 0 ? places_[place.newer].older : newest_) = place.older;
    if (place.older_of_class != 0)
      places_[place.older_of_class].newer_of_class = place.newer_of_class;
    (place.newer_of_class != 0 ? places_[place.newer_of_class].older_of_class
                               : newest_of_[class_of(place.bytes)]) = place.older_of_class;
    bytes_ -= place.bytes;
    place.older = first_free_;
    first_free_ = number;
    return place.extent;
  }

  alloc::Mutex mutex_;
  bool over_ = false;
  int used_ = 0;
  uint16_t first_free_ = 0, newest_ = 0, oldest_ = 0;
  uint16_t newest_of_[kClasses] = {};
  bool was_used_ = false;
  size_t bytes_ = 0, excess_ = 0;
  std::atomic<size_t> held_{0};
  Place places_[kPlaces + 1] = {};
};

constinit Kept kept{};

void* take_kept(size_t bytes, bool zero) {
  JemallocExtent* extent = may_be_kept(bytes) ? kept.take(bytes) : nullptr;
  if (extent == nullptr) return nullptr;
  if (zero) memset(extent->address, 0, bytes_of(extent));  // usable, and so zero, to its end
  return extent->address;
}

void give_back_beyond(void* thread, size_t most) {
  while (JemallocExtent* out = kept.take_beyond(most)) real_large_dalloc(thread, out);
}

// Other memory passed the bound that it shares with what is kept, which may be of no use by now.
void make_room_for_pool(void* thread) {
  if (!kept.was_used()) give_back_beyond(thread, kept.held() / 2);
}

}  // namespace

void serve_large_blocks() { serves = true; }

size_t usable_of(const void* block, size_t bytes) {
  if (bytes < kOwnMappingBytes || !serves) [[likely]]
    return bytes;
  const uint64_t there = host_pool().backed_from(block);
  return there < bytes ? there : bytes;
}

bool backed_in_part(const void* block) {
  return serves && host_pool().backed_from(block) != UINT64_MAX;
}

void* grow_large_block(void* block, size_t bytes, bool* done) {
  if (!serves) return nullptr;
  const size_t usable = malloc_usable_size(block);
  if (usable < kOwnMappingBytes || bytes <= usable) return nullptr;
  *done = backed_in_part(block);                  // jemalloc takes it to be larger than it is
  const bool filled = policy().fill_byte() >= 0;  // which pages that move do not bring along
  if (filled && !*done) return nullptr;
  void* grown;
  do {
    grown = malloc(bytes);
    if (grown == nullptr) return nullptr;
    if (filled) memcpy(grown, block, usable);
  } while (!filled && !host_pool().move(block, grown, usable));
  free(block);
  return grown;
}

// jemalloc takes no thread to be one that has no memory of its own yet.
void give_back_kept_blocks(bool for_good) {
  if (for_good) kept.end();
  give_back_beyond(/*thread=*/nullptr, 0);
}

void lock_kept_blocks() { kept.mutex().lock(); }
void unlock_kept_blocks() { kept.mutex().unlock(); }
void reset_kept_blocks_lock() { kept.mutex().reset(); }

}  // namespace cistern::shim

extern "C" {

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): its other face

// An aligned request comes here without an arena, any other one with that of its thread.
void* wrapped_large_malloc(void* thread, void* arena, size_t bytes, bool zero) {
  if (serves && arena == nullptr) {
    if (void* block = take_kept(bytes, zero)) return block;
  }
  void* block = real_large_malloc(thread, arena, bytes, zero);
  if (block != nullptr || !serves) [[likely]]
    return block;
  give_back_kept_blocks(/*for_good=*/false);
  return real_large_malloc(thread, arena, bytes, zero);
}

void wrapped_large_dalloc(void* thread, JemallocExtent* extent) {
  if (!serves || !may_be_kept(bytes_of(extent))) return real_large_dalloc(thread, extent);
  if (JemallocExtent* out = kept.put(extent)) real_large_dalloc(thread, out);
  if (kept.held() > kMostKept) give_back_beyond(thread, kMostKept);
  host_pool().release_too_much();
}

// An arena is named where the program asked for one.
void* wrapped_malloc_hard(void* thread, void* arena, size_t bytes, unsigned size_class, bool zero) {
  if (serves && arena == nullptr) {
    if (void* block = take_kept(bytes, zero)) return block;
  }
  if (!serves || bytes < kOwnMappingBytes) {
    return real_malloc_hard(thread, arena, bytes, size_class, zero);
  }
  left_for_hook = ((bytes + kPageMask) & ~kPageMask) | 1;
  void* block = real_malloc_hard(thread, arena, bytes, size_class, zero);
  left_for_hook = 0;
  return block;
}

// An extent can lack pages: they moved, or only a part was ever there. It must not wait in a cache
// of jemalloc's, where another thread of the same arena would be given what is missing.
void wrapped_ecache_dalloc(void* thread, void* pages, void* hooks, void* cache,
                           JemallocExtent* extent) {
  if (extent->excess != 0) kept.forget_excess(extent);
  if (backed_in_part(extent->address)) [[unlikely]]
    return give_extent_to_hook(thread, pages, hooks, extent);
  real_ecache_dalloc(thread, pages, hooks, cache, extent);
  if (serves && host_pool().was_full()) [[unlikely]]
    make_room_for_pool(thread);
}

// What the program makes an arena of its own for, it may want of that arena alone.
void* wrapped_arena_init(void* thread, unsigned index, const JemallocArenaConfig* config) {
  if (serves && index >= arenas_of_threads) give_back_kept_blocks(/*for_good=*/true);
  return real_arena_init(thread, index, config);
}

}  // extern "C"
