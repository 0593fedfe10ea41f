// SPDX-License-Identifier: Apache-2.0
// The problem that a plan solves, and what a search for a plan may use: arrays, and a budget of
// steps and time.
//
// Blocks with lifetimes get offsets, such that blocks that live at the same time share no byte, in
// as few bytes as possible (static dynamic storage allocation). Only which lifetimes overlap
// matters, so times become *sections*: the longest stretches of time in which blocks begin and then
// blocks end. Two blocks overlap exactly if they share a section, and the bytes live in the fullest
// section are the lower bound of every plan. Sizes are rounded up to the alignment, so that sums of
// sizes are aligned offsets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "allocator/base/os.h"

namespace cistern::alloc::plan {

// An array of a fixed length, mapped from the system, because the preloaded object must not call
// malloc. The length is known before the work begins, so only make() can fail. T is trivially
// copyable, and its zeroed bytes are a value. One thread at a time.
template <typename T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(Array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Array() {
    if (data_ != nullptr) os::unmap(data_, bytes());
  }

  // `size` zeroed elements in place of what was there. False if the system refuses.
  bool make(size_t size) {
    *this = Array();
    if (size > kMostBytes / sizeof(T)) return false;
    size_ = size;
    if (size == 0) return true;
    data_ = static_cast<T*>(os::map(bytes()));
    if (data_ == nullptr) size_ = 0;
    return data_ != nullptr;
  }

  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  static constexpr size_t kMostBytes = size_t{1} << 46;

  T* data_ = nullptr;
  size_t size_ = 0;
};

// Limits a search by steps, so results do not depend on the machine, and by a deadline, for people
// who wait. A step is about one look at one block. One thread at a time.
class Budget {
 public:
  // `deadline_ns` in the time of os::now_ns(); UINT64_MAX: none.
  Budget(uint64_t steps, uint64_t deadline_ns)
      : steps_(steps), left_(steps), deadline_ns_(deadline_ns) {
    if (deadline_ns != UINT64_MAX) began_ns_ = seen_ns_ = os::now_ns();
  }

  // Takes `steps`. False once nothing is left.
  bool spend(uint64_t steps) {
    spent_ += steps;
    left_ -= std::min(left_, steps);
    until_look_ -= std::min(until_look_, steps);
    if (until_look_ == 0) look_at_clock();
    return left_ != 0;
  }
  bool over() const { return left_ == 0; }
  uint64_t left() const { return left_; }
  uint64_t spent() const { return spent_; }

  // Nanoseconds until the deadline; UINT64_MAX if there is none.
  uint64_t left_ns() const {
    if (deadline_ns_ == UINT64_MAX) return UINT64_MAX;
    const uint64_t now = os::now_ns();
    return deadline_ns_ > now ? deadline_ns_ - now : 0;
  }

  // The fraction that is left of the steps or of the time, whichever is less. The time is as of the
  // last look at the clock.
  double left_part() const {
    if (left_ == 0 || seen_ns_ >= deadline_ns_) return 0;
    const double steps = static_cast<double>(left_) / static_cast<double>(steps_);
    if (deadline_ns_ == UINT64_MAX) return steps;
    const auto time = static_cast<double>(deadline_ns_ - seen_ns_);
    return std::min(steps, time / static_cast<double>(deadline_ns_ - began_ns_));
  }

  // A budget of `count` eighths of what is left, in steps and in time. The caller must also spend
  // here what it spends there.
  Budget eighths(uint64_t count) const {
    const uint64_t time = left_ns();
    const uint64_t deadline =
        deadline_ns_ == UINT64_MAX ? UINT64_MAX : os::now_ns() + time / 8 * count;
    return {left_ / 8 * count, deadline};
  }
  // A budget with the steps that are left, and a deadline that is `ns` earlier.
  Budget less_time(uint64_t ns) const {
    return {left_,
            deadline_ns_ == UINT64_MAX ? UINT64_MAX : deadline_ns_ - std::min(deadline_ns_, ns)};
  }
  // A budget with the same deadline and at most `steps` steps.
  Budget at_most(uint64_t steps) const { return {std::min(left_, steps), deadline_ns_}; }

 private:
  static constexpr uint64_t kStepsBetweenLooks = 1 << 18;

  void look_at_clock() {
    until_look_ = kStepsBetweenLooks;
    if (deadline_ns_ == UINT64_MAX) return;
    seen_ns_ = os::now_ns();
    if (seen_ns_ >= deadline_ns_) left_ = 0;
  }

  uint64_t steps_, left_, deadline_ns_;
  uint64_t began_ns_ = 0, seen_ns_ = 0;
  uint64_t spent_ = 0, until_look_ = 1;
};

struct Lifetime {
  uint64_t from = 0, to = 0;  // in any unit; lives before `to`, not at it
  uint64_t bytes = 0;
};

struct Block {
  uint64_t bytes = 0;
  uint32_t first = 0, last = 0;  // sections, both included

  bool overlaps(const Block& other) const { return first <= other.last && other.first <= last; }
};

enum class Built : uint8_t { yes, no_memory, too_many, bad_lifetime, too_many_bytes };
inline constexpr uint64_t kMostBlocks = uint64_t{1} << 30;
// Of all blocks together, so that no sum of the planner overflows.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 62;

// Owns its arrays; unchanged once it is built, so any thread may read it.
class Problem {
 public:
  // `alignment` is a power of two. A lifetime of no time or no bytes is a bad_lifetime.
  Built build(std::span<const Lifetime> lifetimes, uint64_t alignment);

  std::span<const Block> blocks() const { return blocks_.span(); }
  // Bytes live in each section.
  std::span<const uint64_t> live() const { return live_.span(); }
  uint64_t lower_bound() const { return lower_bound_; }
  // The same without the rounding to the alignment.
  uint64_t lower_bound_unaligned() const { return lower_bound_unaligned_; }
  // The number of pairs of blocks that overlap: what a packing has to look at.
  uint64_t overlaps() const { return overlaps_; }

 private:
  bool find_sections(std::span<const Lifetime> lifetimes);
  bool find_live(std::span<const Lifetime> lifetimes);

  Array<Block> blocks_;
  Array<uint64_t> live_;
  uint64_t lower_bound_ = 0, lower_bound_unaligned_ = 0, overlaps_ = 0;
  uint32_t sections_ = 0;
};

}  // namespace cistern::alloc::plan
