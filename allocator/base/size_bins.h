// SPDX-License-Identifier: Apache-2.0
// Two-level segregated bins: free items by size. Finding one that fits takes constant time, however
// many there are. First level: power of two; second: 32 equal steps inside it. Sizes below 32 units
// have a bin each. Intrusive: T names its links through Traits. Not thread-safe.
#pragma once

#include <bit>
#include <climits>
#include <cstdint>

namespace cistern::alloc {

// Traits: static uint64_t size(const T*), T*& next(T*), T* prev(T*), void set_prev(T*, T*).
template <typename T, typename Traits, int kLevels>
class SizeBins {
 public:
  void insert(T* item) {
    const Bin bin = bin_of(Traits::size(item));
    T*& head = heads_[bin.level][bin.step];
    Traits::next(item) = head;
    Traits::set_prev(item, nullptr);
    if (head != nullptr) Traits::set_prev(head, item);
    head = item;
    steps_[bin.level] |= 1u << bin.step;
    levels_ |= uint64_t{1} << bin.level;
  }

  void remove(T* item) {
    T* next = Traits::next(item);
    T* prev = Traits::prev(item);
    if (next != nullptr) Traits::set_prev(next, prev);
    if (prev != nullptr) {
      Traits::next(prev) = next;
      return;
    }
    const Bin bin = bin_of(Traits::size(item));
    heads_[bin.level][bin.step] = next;
    if (next != nullptr) return;
    steps_[bin.level] &= ~(1u << bin.step);
    if (steps_[bin.level] == 0) levels_ &= ~(uint64_t{1} << bin.level);
  }

  // The smallest item of at least `want` among the first `probes` of want's own bin, otherwise the
  // first item of the next bin that has any, which is at most 1/32 larger than the smallest in that
  // bin. nullptr if there is none, or if its size is above `limit`.
  T* find(uint64_t want, uint64_t limit, int probes) const {
    const Bin bin = bin_of(want);
    T* best = nullptr;
    for (T* i = heads_[bin.level][bin.step]; i != nullptr && probes > 0;
         i = Traits::next(i), --probes) {
      const uint64_t size = Traits::size(i);
      if (size < want || size > limit) continue;
      if (size == want) return i;
      if (best == nullptr || size < Traits::size(best)) best = i;
    }
    return best != nullptr ? best : first_above(bin, limit);
  }

  // The smallest item of at least `want`, exactly; nullptr if none. Walks one or two bins.
  T* find_least(uint64_t want) const {
    T* best = find(want, UINT64_MAX, INT_MAX);
    if (best == nullptr || Traits::size(best) == want) return best;
    const Bin bin = bin_of(Traits::size(best));
    for (T* i = heads_[bin.level][bin.step]; i != nullptr; i = Traits::next(i)) {
      const uint64_t size = Traits::size(i);
      if (size >= want && size < Traits::size(best)) best = i;
    }
    return best;
  }

  // An item of just this size for which `fits` holds, the last inserted first; nullptr if none.
  // Walks one bin.
  template <typename Fits>
  T* find_equal(uint64_t size, Fits fits) const {
    const Bin bin = bin_of(size);
    T* item = heads_[bin.level][bin.step];
    while (item != nullptr && (Traits::size(item) != size || !fits(item))) {
      item = Traits::next(item);
    }
    return item;
  }

  // The size of the largest item, or 0.
  uint64_t largest() const {
    if (levels_ == 0) return 0;
    const int level = static_cast<int>(std::bit_width(levels_)) - 1;
    const int step = static_cast<int>(std::bit_width(steps_[level])) - 1;
    uint64_t size = 0;
    for (T* i = heads_[level][step]; i != nullptr; i = Traits::next(i)) {
      if (Traits::size(i) > size) size = Traits::size(i);
    }
    return size;
  }

  // Visits every item of at least `want`.
  template <typename Visitor>
  void for_each_from(uint64_t want, Visitor visit) const {
    const Bin bin = bin_of(want);
    for (int level = bin.level; level < kLevels; ++level) {
      for (uint32_t step = level == bin.level ? bin.step : 0; step < kSteps; ++step) {
        for (T* i = heads_[level][step]; i != nullptr; i = Traits::next(i)) {
          if (Traits::size(i) >= want) visit(i);
        }
      }
    }
  }

 private:
  static constexpr int kStepBits = 5;
  static constexpr uint32_t kSteps = 1u << kStepBits;

  struct Bin {
    int level;
    uint32_t step;
  };

  static Bin bin_of(uint64_t size) {
    if (size < kSteps) return {0, static_cast<uint32_t>(size)};
    const int shift = static_cast<int>(std::bit_width(size)) - 1 - kStepBits;
    const int level = shift + 1;
    if (level >= kLevels) return {kLevels - 1, kSteps - 1};
    return {level, static_cast<uint32_t>(size >> shift) & (kSteps - 1)};
  }

  T* first_above(Bin bin, uint64_t limit) const {
    uint32_t steps = bin.step == kSteps - 1 ? 0 : steps_[bin.level] & (~0u << (bin.step + 1));
    int level = bin.level;
    if (steps == 0) {
      const uint64_t levels = levels_ & (~uint64_t{0} << 1 << level);
      if (levels == 0) return nullptr;
      level = std::countr_zero(levels);
      steps = steps_[level];
    }
    T* item = heads_[level][std::countr_zero(steps)];
    return Traits::size(item) <= limit ? item : nullptr;
  }

  static_assert(kLevels <= 64);
  uint64_t levels_ = 0;
  uint32_t steps_[kLevels] = {};
  T* heads_[kLevels][kSteps] = {};
};

}  // namespace cistern::alloc
