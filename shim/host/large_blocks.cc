// SPDX-License-Identifier: Apache-2.0
// Both kinds of blocks are served in jemalloc's internal calls, which the linker's --wrap redirects
// here: those that allocate and free the pages of a large block. The lock is a leaf: no other lock
// is taken while it is held, and jemalloc is not called.
#include "shim/host/jemalloc.h"

#include <jemalloc/jemalloc.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "allocator/base/threads.h"
#include "shim/host/host_memory.h"
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

constexpr size_t kMostKept = size_t{32} << 20;   // bytes, including the excess of blocks in use
constexpr size_t kMostExcess = size_t{8} << 20;  // the part of it that may be excess
constexpr size_t kLeastBytes = size_t{64} << 10;
constexpr int kPlaces = 256;
constexpr int kDoubling = 4;             // size classes per doubling
constexpr int kClasses = kDoubling * 7;  // from kLeastBytes to kOwnMappingBytes
constexpr uint64_t kPageMask = alloc::host::kPage - 1;

constinit bool serves = false;

size_t bytes_of(const JemallocExtent* extent) { return extent->bytes_and_count & ~kPageMask; }

// jemalloc's size classes: 2^n, and three between 2^n and 2^(n+1).
int class_of(size_t bytes) {
  const int doubling = static_cast<int>(std::bit_width(bytes - 1)) - 1;
  constexpr int kFirst = static_cast<int>(std::bit_width(kLeastBytes)) - 1;
  return kDoubling * (doubling - kFirst) + static_cast<int>((bytes - 1) >> (doubling - 2) & 3);
}

bool may_be_kept(size_t bytes) { return bytes > kLeastBytes && bytes < kOwnMappingBytes; }

// Freed blocks, in one list for each class (the last freed first) and in one list by age.
class Kept {
 public:
  // Returns a block of that class, else of a larger class less than twice as large. Its bytes
  // beyond the request are its excess: the program has them, and they count as kept.
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

  // The block was freed, or is no longer one that take() returned.
  void forget_excess(JemallocExtent* extent) {
    const alloc::LockGuard guard(mutex_);
    excess_ -= std::exchange(extent->excess, 0);
    say_held();
  }

  // Keeps the block. Returns the block that must be freed instead: the oldest if all places are
  // used, `extent` itself if nothing is kept any more, else nullptr.
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

  // Takes out the oldest block if more than `most` bytes are kept.
  JemallocExtent* take_beyond(size_t most) {
    const alloc::LockGuard guard(mutex_);
    if (bytes_ == 0 || bytes_ + excess_ <= most) return nullptr;
    JemallocExtent* out = remove(oldest_);
    say_held();
    return out;
  }

  // Bytes that are kept, and the excess of blocks in use.
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

  // Caller holds the lock. The pool keeps that many bytes less.
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
  if (zero) memset(extent->address, 0, bytes_of(extent));  // jemalloc expects zeros up to the end
  return extent->address;
}

void give_back_beyond(void* thread, size_t most) {
  while (JemallocExtent* out = kept.take_beyond(most)) real_large_dalloc(thread, out);
}

// Other memory passed the bound that it shares with kept blocks, and the kept blocks may be unused
// by now.
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
  *done = backed_in_part(block);                  // jemalloc believes it to be larger
  const bool filled = policy().fill_byte() >= 0;  // moved pages do not bring the fill along
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

// For jemalloc, a null thread is one that has no caches of its own yet.
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

// An aligned request arrives without an arena, all others with the arena of their thread.
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

// Only requests for which the program chose an arena arrive with one.
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

// An extent can lack pages: they were moved, or only a part was ever mapped. It must not wait in
// one of jemalloc's caches, because another thread of the same arena would get the missing pages.
void wrapped_ecache_dalloc(void* thread, void* pages, void* hooks, void* cache,
                           JemallocExtent* extent) {
  if (extent->excess != 0) kept.forget_excess(extent);
  if (backed_in_part(extent->address)) [[unlikely]]
    return give_extent_to_hook(thread, pages, hooks, extent);
  real_ecache_dalloc(thread, pages, hooks, cache, extent);
  if (serves && host_pool().was_full()) [[unlikely]]
    make_room_for_pool(thread);
}

// A program that makes an arena of its own may expect its blocks to come from that arena alone.
void* wrapped_arena_init(void* thread, unsigned index, const JemallocArenaConfig* config) {
  if (serves && index >= arenas_of_threads) give_back_kept_blocks(/*for_good=*/true);
  return real_arena_init(thread, index, config);
}

}  // extern "C"
