// SPDX-License-Identifier: Apache-2.0
// Arrays of a fixed length for the planner, mapped from the system, because the preloaded object
// must not call malloc. The length is known before the work begins, so only make() can fail. T is
// trivially copyable, and its zeroed bytes are a value. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "allocator/base/os.h"

namespace cistern::alloc::plan {

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

}  // namespace cistern::alloc::plan
